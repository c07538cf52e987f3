"""Programs are found in messages, read strictly, and as their schema says."""

import contextlib
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.models import program
from engine.models.program import ProgramError, find_program, parse_program

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "scripted.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
HELLO = {"program": [{"say": "hello"}]}
READ = parse_program(HELLO)


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


EXAMPLES = [example for kind in SCHEMA["$defs"].values() for example in kind.get("examples", ())]


def test_every_step_has_an_example() -> None:
    kinds = {ref["$ref"].rpartition("/")[2] for ref in SCHEMA["$defs"]["step"]["oneOf"]}
    assert kinds == {*program._READERS, "wait"}
    assert all(SCHEMA["$defs"][kind]["examples"] for kind in kinds)


@pytest.mark.parametrize("step", EXAMPLES, ids=json.dumps)
def test_every_step_of_the_schema_is_understood(step: Any) -> None:
    VALIDATOR.validate({"program": [step]})
    assert len(parse_program({"program": [step]}).steps) == 1


# JSON that looks like a program, and often is none.
scalars = st.sampled_from([None, True, False, 0, 1, -1, 1.5, 10**6 + 1, "", "end", "busy", "f", "a b", [], {}, {"tokens": 2}])
KEYS = (
    "say reason call calls wait if then else repeat steps fail stop name arguments kind output_of contains equals failed "
    "tokens fault code message retry_after other"
)
keys = st.sampled_from(KEYS.split())
good_steps = st.sampled_from(EXAMPLES)
values = st.recursive(
    scalars | good_steps | st.dictionaries(keys, scalars, max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=5,
)
mutants = st.builds(lambda step, key, value: {**step, key: value}, good_steps, keys, values)
lists = st.lists(good_steps | mutants | values, max_size=3)
candidates = st.builds(
    lambda steps, more: {**more, "program": steps},
    lists | values,
    st.dictionaries(st.sampled_from(["tokens_per_second", "seed", "other"]), scalars, max_size=1),
)


@given(candidates)
@settings(max_examples=500, deadline=None)
def test_what_is_read_is_what_the_schema_allows(candidate: Any) -> None:
    try:
        parse_program(candidate)
        is_read = True
    except ProgramError:
        is_read = False
    assert is_read is VALIDATOR.is_valid(candidate)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (1, "program: expected a list of steps, got 1"),
        ([7], r"program[0]: expected a step (an object), got 7"),
        ([{}], "program[0]: a step has one of say, reason, call, calls, if, repeat, fail, stop, wait; this one has none"),
        ([{"speak": "x"}], "has none (keys: 'speak')"),
        ([{"say": "x", "stop": "end"}], "program[0]: a step has one of"),
        ([{"say": {"tokens": -1}}], "program[0].say.tokens: 0 to 1000000 is allowed, got -1"),
        ([{"say": {"tokens": True}}], "program[0].say.tokens: expected an integer, got True"),
        ([{"say": "x", "wait": False}], "program[0]: unknown key 'wait'; allowed: say"),
        ([{"wait": False}], "program[0].wait: expected true, got False"),
        ([{"call": {"arguments": 1}}], "program[0].call.name: missing"),
        ([{"call": {"name": ""}}], "program[0].call.name: 1 to 256 characters"),
        ([{"calls": []}], "program[0].calls: 1 to 10000 calls are allowed, got 0"),
        ([{"calls": [{"name": "f", "kind": "shell"}]}], "program[0].calls[0].kind: expected one of function_call, "),
        ([{"if": {"contains": "a"}}], "program[0].then: missing"),
        ([{"if": {}, "then": []}], "program[0].if: one of contains, equals, matches, failed is wanted, got none"),
        ([{"if": {"contains": "a", "failed": True}, "then": []}], "got contains and failed"),
        ([{"if": {"matches": "("}, "then": []}], "program[0].if.matches: not a pattern that can be used: at character 0"),
        ([{"if": {"failed": 1}, "then": []}], "program[0].if.failed: expected a boolean, got 1"),
        ([{"if": {"failed": True}, "then": [{"repeat": 1, "steps": [{"say": 1}]}]}], "program[0].then[0].steps[0].say: "),
        ([{"fail": {"fault": "mine"}}], "program[0].fail.fault: expected one of request, busy, broken, got 'mine'"),
        ([{"fail": {"code": "Bad Code"}}], "program[0].fail.code: lower-case"),
        ([{"fail": {"retry_after": -1}}], "program[0].fail.retry_after: seconds, 0 or more"),
        ([{"stop": "tool_calls"}], "program[0].stop: expected one of end, max_output_tokens, content_filter"),
        ([{"repeat": 400, "steps": [{"repeat": 400, "steps": [{"say": "x"}]}]}], "program: comes to "),
    ],
)
def test_a_mistake_is_told_with_its_path(steps: Any, message: str) -> None:
    with pytest.raises(ProgramError) as caught:
        parse_program({"program": steps})
    assert message in str(caught.value)


def test_nesting_is_bounded() -> None:
    def nested(depth: int) -> Any:
        steps: list[Any] = []
        for _ in range(depth):
            steps = [{"repeat": 1, "steps": steps}]
        return {"program": steps}

    assert parse_program(nested(program.NESTING))
    with pytest.raises(ProgramError, match="nested more than"):
        parse_program(nested(program.NESTING + 1))


def test_steps_are_counted_as_they_run_at_most() -> None:
    longer = [{"say": "x"}] * 4
    step = {"if": {"contains": ""}, "then": longer, "else": [{"say": "y"}]}
    assert parse_program({"program": [{"repeat": program.STEPS // 5 - 1, "steps": [step]}]})
    with pytest.raises(ProgramError, match="comes to 100001 steps"):
        parse_program({"program": [{"repeat": program.STEPS // 5, "steps": [step]}]})


# ---- finding


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(HELLO),
        f"  \n{json.dumps(HELLO, indent=2)}\n ",
        f"Please do this:\n```json\n{json.dumps(HELLO)}\n```\nThanks!",
        f"```json\n{json.dumps({'other': 1})}\n```\n```\n{json.dumps(HELLO, indent=1)}\n```",
        f"Some preamble.\n{json.dumps(HELLO)}",
        f'An example is:\n{{"program": []}}\nand here is mine:\n{json.dumps(HELLO)}\n',
        f"```json\n{json.dumps(HELLO)}",
        f"Preamble\n  {json.dumps(HELLO, indent=2)}",
    ],
)
def test_a_program_is_found(text: str) -> None:
    assert find_program([text]) == READ


def test_the_first_text_with_one_counts() -> None:
    assert find_program(["no", json.dumps(HELLO), json.dumps({"program": []})]) == READ


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        '{"other": 1}',
        '["program"]',
        'the word "program" in a sentence',
        '{"other": {"program": []}}',
        '{this is "program" no json',
        '```json\nnot json with "program"\n```',
    ],
)
def test_no_program_is_found(text: str) -> None:
    assert find_program([text]) is None


@pytest.mark.parametrize(
    "text",
    [
        '{"program": [',
        '{"program": [{"say": "x"}]} and more',
        'hello\n{"program": [NaN]}',
        'hello\n```json\n{"program": [}\n```',
        '{"program": ' + "[" * 10_000,
    ],
)
def test_a_program_that_is_no_json_is_a_mistake(text: str) -> None:
    with pytest.raises(ProgramError, match="not valid JSON"):
        find_program([text])


@given(st.text('{}[]"`\n program json:', max_size=60) | st.text(max_size=60))
@settings(deadline=None)
def test_any_text_is_looked_through(text: str) -> None:
    with contextlib.suppress(ProgramError):
        assert find_program([text, "x" + text]) is None or '"program"' in text


def test_arguments_are_compact_or_byte_for_byte() -> None:
    steps = [
        {"calls": [{"name": "f", "arguments": {"é": [1, 2.5, None]}}, {"name": "f", "arguments": '{ "x":1 }'}, {"name": "f"}]}
    ]
    (step,) = parse_program({"program": steps}).steps
    assert isinstance(step, program.Calls)
    assert [call.arguments for call in step.calls] == ['{"é":[1,2.5,null]}', '{ "x":1 }', "{}"]
