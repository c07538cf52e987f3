"""Hypothesis strategies that all shapes share: texts, programs, damaged frames."""

from collections.abc import Sequence
from functools import cache
from operator import itemgetter
from typing import Any, Final

from hypothesis import strategies as st

from .script import HOSTED, Step

NAMES: Final = ("read", "write", "t0", "shell")
CODES_OF_BAD_FRAMES: Final = frozenset(
    {
        "invalid_json",
        "invalid_frame",
        "unknown_event",
        "invalid_type",
        "invalid_value",
        "missing_required_parameter",
        "invalid_stream_id",
    }
)


def weighted(*choices: tuple[int, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """One of several, each as often as its weight says.

    ``one_of`` alone takes a strategy that it is given twice for one, and one that is itself one of several, mapped or not, for
    as many: so each is wrapped.
    """
    return st.one_of(*(st.tuples(strategy).map(itemgetter(0)) for weight, strategy in choices for _ in range(weight)))


def texts() -> st.SearchStrategy[str]:
    """What a model says: words, and characters that are several tokens, or surrogate pairs in JSON."""
    known = [
        "Hello.",
        "a b c",
        "I see.",
        'a "quoted" \\ word',
        "naïve café ☕",
        "👩‍👩‍👧‍👦 family",
        "行きましょう",
        "line\nline\n",
        "🎹" * 3,
    ]
    return st.sampled_from(known)


def calls(*, hosted: bool, custom: bool = True) -> st.SearchStrategy[Step]:
    """One call of a client's function, or custom tool, or of a hosted one."""
    name = st.sampled_from(NAMES)
    arguments = st.sampled_from(["{}", '{"cmd": "ls"}', '{"path":"é/🎹.txt"}', "not json", '{"n": 1.0}'])
    function = st.fixed_dictionaries({"name": name, "arguments": arguments})
    text = st.fixed_dictionaries({"name": name, "arguments": arguments, "kind": st.just("custom_tool_call")})
    search = st.just({"name": HOSTED, "arguments": '{"query": "notes"}'})
    return st.one_of(function, function, *([text] if custom else []), *([search] if hosted else []))


def askings(*, hosted: bool, custom: bool) -> st.SearchStrategy[Step]:
    """A step that calls tools."""
    one = st.builds(lambda call, wait: {"call": call, **wait}, calls(hosted=hosted, custom=custom), _wait())
    some = st.lists(calls(hosted=hosted, custom=custom), min_size=2, max_size=4)
    several = st.builds(lambda some, wait: {"calls": some, **wait}, some, _wait())
    return weighted((1, one), (2, several))


def steps(*, hosted: bool = False, custom: bool = True, depth: int = 1) -> st.SearchStrategy[Step]:
    """One step of a program."""
    say = texts().map(lambda text: {"say": text})
    quote = st.sampled_from(["{{output}}", "{{output_of:t0}}", "so: {{output}}!"]).map(lambda text: {"say": text})
    reason = texts().map(lambda text: {"reason": text})
    long = st.integers(20, 60).map(lambda count: {"say": {"tokens": count}})
    asked = askings(hosted=hosted, custom=custom)
    leaves = weighted((1, say), (1, quote), (3, asked), (1, reason), (1, long), (1, st.just({"wait": True})))
    if depth == 0:
        return leaves
    inner = st.lists(steps(hosted=hosted, custom=custom, depth=depth - 1), min_size=1, max_size=2)
    branch = st.builds(
        lambda word, then, other: {"if": {"contains": word}, "then": then, "else": other},
        st.sampled_from(["ok", "returned", "exit"]),
        inner,
        inner,
    )
    again = st.builds(lambda count, body: {"repeat": count, "steps": body}, st.integers(0, 2), inner)
    return weighted((3, leaves), (1, branch), (1, again))


def programs(
    *, hosted: bool = False, custom: bool = True, among: Sequence[Sequence[Step]] | None = None
) -> st.SearchStrategy[list[Step]]:
    """A program that ends in words, or now and then stops or fails. Most of them call tools: there is more to go wrong.

    ``among``: one of these (see ``Adapter.programs``).
    """
    return _any_program(hosted=hosted, custom=custom) if among is None else st.sampled_from(among).map(list)


@st.composite
def _any_program(draw: st.DrawFn, /, *, hosted: bool, custom: bool) -> list[Step]:
    return draw(_programs(hosted=hosted, custom=custom))


@cache
def _programs(*, hosted: bool, custom: bool) -> st.SearchStrategy[list[Step]]:
    last: st.SearchStrategy[Sequence[Step]] = st.sampled_from(
        [[{"say": "Done."}], [{"say": "Done: {{output}}."}], [{"say": "Done."}, {"stop": "end"}]]
    )
    rare: st.SearchStrategy[Sequence[Step]] = st.sampled_from(
        [
            [{"stop": "max_output_tokens"}],
            [{"stop": "content_filter"}],
            [{"fail": {"message": "as asked"}}],
            [{"fail": {"fault": "busy"}}],
        ]
    )
    end = st.integers(0, 9).flatmap(lambda number: rare if number == 9 else last)
    body = st.lists(steps(hosted=hosted, custom=custom), max_size=3)
    asks = st.builds(lambda step, rest: [step, *rest], askings(hosted=hosted, custom=custom), body)
    return st.builds(lambda body, ending: [*body, *ending], weighted((1, body), (2, asks)), end)


def bad_frames() -> st.SearchStrategy[tuple[str | bytes, frozenset[str]]]:
    """Frames that cannot be read, and the codes that say so."""
    fixed: list[tuple[str | bytes, str]] = [
        ("", "invalid_json"),
        ("{", "invalid_json"),
        ("not json", "invalid_json"),
        ('{"type": "response.create"', "invalid_json"),
        ('{"type": NaN}', "invalid_json"),
        ('{"type": "response.cancel", "x": 1e400}', "invalid_json"),
        ('{"type": "\\ud800"}', "invalid_json"),
        ("[" * 10_000 + "]" * 10_000, "invalid_json"),
        ("[]", "invalid_frame"),
        ("null", "invalid_frame"),
        ("1", "invalid_frame"),
        ('"text"', "invalid_frame"),
        (b"\x00\x01", "invalid_frame"),
        (b'{"type": "response.cancel"}', "invalid_frame"),
        ("{}", "missing_required_parameter"),
        ('{"type": "response.unheard_of"}', "unknown_event"),
        ('{"type": 1}', "unknown_event"),
        ('{"type": "response.create"}', "missing_required_parameter"),
        ('{"type": "response.create", "model": 7}', "invalid_type"),
        ('{"type": "response.create", "model": "m", "input": [{"type": "unheard_of"}]}', "invalid_value"),
        ('{"type": "response.create", "model": "m", "input": "x", "hold": "for ever"}', "invalid_value"),
        ('{"type": "response.create", "model": "m", "input": "x", "stream_id": ""}', "invalid_stream_id"),
        ('{"type": "response.create", "model": "m", "input": "x", "stream_id": "a b"}', "invalid_stream_id"),
        ('{"type": "response.append"}', "missing_required_parameter"),
        ('{"type": "response.append", "input": "text"}', "invalid_type"),
        ('{"type": "response.append", "input": [{"type": "function_call_output"}]}', "missing_required_parameter"),
        ('{"type": "response.attach"}', "missing_required_parameter"),
        ('{"type": "response.attach", "response_id": "resp_x", "starting_after": "0"}', "invalid_type"),
        ('{"type": "response.cancel", "response_id": []}', "invalid_type"),
    ]
    known = st.sampled_from([(frame, frozenset({code})) for frame, code in fixed])
    cut = st.integers(1, 60).map(
        lambda at: (
            '{"type": "response.append", "input": [{"type": "message", "role": "user"}]}'[:at],
            frozenset({"invalid_json"}),
        )
    )
    return weighted((2, known), (1, cut))


def _wait() -> st.SearchStrategy[Step]:
    return st.sampled_from([{}, {}, {"wait": False}])
