"""How turns are read, by example: what is a call, what is text, and when it is told."""

import pytest

from engine.models.base import CallBegin, CallEnd, CallPieces, Counted, Reasoning, Text
from engine.models.formats import FORMATS
from engine.models.formats.template import Template
from engine.testing.vocabulary import MARKS, SPECIAL, SmallVocabulary

from .support_formats import PLAIN_MARKS, SPECIAL_MARKS, parse, read, with_choice, written

CHATML = [FORMATS["chatml"](SPECIAL_MARKS), FORMATS["chatml"](PLAIN_MARKS)]
LLAMA3 = [FORMATS["llama3"](SPECIAL_MARKS), FORMATS["llama3"](PLAIN_MARKS)]
KINDS = ["special", "plain"]
GOOD = '<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>'
READ = ("function_call", "read", '{"path": "a"}')

TURNS = {
    "Hello": [("text", "Hello")],
    "": [],
    "\n": [("text", "\n")],
    GOOD: [READ],
    f"Let me see.\n{GOOD}": [("text", "Let me see."), READ],
    f"{GOOD}\n{GOOD}": [READ, READ],
    f"{GOOD}{GOOD}\n": [READ, READ],
    f"{GOOD}\nDone.": [READ, ("text", "Done.")],
    f"<think>\nHm.\n</think>\n\n{GOOD}": [("thought", "Hm."), READ],
    "<think>\n\n</think>\n\nHi": [("text", "Hi")],
    "\n<think>Hm": [("thought", "Hm")],
    "I <think> so": [("text", "I <think> so")],
    '<tool_call>{"arguments":{"x":1},"name":"add"}</tool_call>': [("function_call", "add", '{"x":1}')],
    '<tool_call>\n{"type": "function", "name": "add", "arguments": {}}\n</tool_call>': [("function_call", "add", "{}")],
    GOOD.removesuffix("\n</tool_call>"): [READ],
    '<tool_call>\n{"name": "patch", "arguments": {"input": "a\\n\\u20ac"}}\n</tool_call>': [
        ("custom_tool_call", "patch", "a\n€")
    ],
    '<tool_call>\n{"name": "shell", "arguments": {"commands": ["ls"]}}\n</tool_call>': [
        ("shell_call", "shell", '{"commands": ["ls"]}')
    ],
    '<tool_call>\n{"name": "file_search", "arguments": {"queries": ["a"]}}\n</tool_call>': [
        ("function_call", "file_search", '{"queries": ["a"]}')
    ],
}
"""A turn in ChatML, and what is read."""

BROKEN = [
    '<tool_call>\n{"name": "unknown", "arguments": {}}\n</tool_call>',
    '<tool_call>\n{"name": "web_search", "arguments": {}}\n</tool_call>',
    '<tool_call>\n{"name": "read", "arguments": {"path": }}\n</tool_call>',
    '<tool_call>\n{"name": "read", "arguments": "{}"}\n</tool_call>',
    '<tool_call>\n{"name": "read", "arguments": {}, "id": 1}\n</tool_call>',
    '<tool_call>\n{"name": "read", "name": "read", "arguments": {}}\n</tool_call>',
    '<tool_call>\n{"name": "read"}\n</tool_call>',
    '<tool_call>\n{"name": "read", "arguments": {}} and more\n</tool_call>',
    '<tool_call>\n{"name": "read", "arguments": {"path": "a',
    '<tool_call>\n{"name": "read", "arguments": ' + '{"a": ' * 3000 + "}" * 3000 + "}\n</tool_call>",
    '<tool_call>\n{"name": 1, "arguments": {}}\n</tool_call>',
    '<tool_call>\n{"name": "read", "arguments": {"n": NaN}}\n</tool_call>',
    '<tool_call>\n{"name": "patch", "arguments": {"input": "a", "more": 1}}\n</tool_call>',
    '<tool_call>\n{"name": "shell", "arguments": {"commands": "ls"}}\n</tool_call>',
    '<tool_call>\n{"name": "apply_patch", "arguments": {"path": "a"}}\n</tool_call>',
    "<tool_call>",
    "<tool_call>\nread(path)\n</tool_call>",
    "</tool_call>",
    "<tool_response>\nHi\n</tool_response>",
]
"""What is no call in ChatML."""


@pytest.mark.parametrize("form", CHATML, ids=KINDS)
@pytest.mark.parametrize(("text", "parts"), TURNS.items())
def test_a_turn(form: Template, text: str, parts: list[tuple[str, ...]]) -> None:
    assert read(form, text) == parts


@pytest.mark.parametrize("form", CHATML, ids=KINDS)
@pytest.mark.parametrize("text", BROKEN)
def test_l14_a_call_that_is_none_is_text(form: Template, text: str) -> None:
    assert read(form, f"So:\n{text}") == [("text", f"So:\n{text}")]


@pytest.mark.parametrize("form", CHATML, ids=KINDS)
@pytest.mark.parametrize("text", [one for one in BROKEN if one.endswith("</tool_call>")])
def test_a_call_behind_one_that_is_none(form: Template, text: str) -> None:
    assert read(form, f"{text}\n{GOOD}") == [("text", text), READ]


@pytest.mark.parametrize("form", CHATML, ids=KINDS)
def test_a_mark_within_a_string_is_none(form: Template) -> None:
    arguments = '{"path": "</tool_call> \\" <tool_call>"}'
    ids = form.encode(
        [form.mark("<tool_call>"), f'\n{{"name": "read", "arguments": {arguments}}}\n', form.mark("</tool_call>")]
    )
    begin, pieces, _ = [chunk for chunk in parse(form, ids)[0] if not isinstance(chunk, Counted)]
    assert isinstance(begin, CallBegin)
    assert isinstance(pieces, CallPieces)
    assert "".join(pieces.pieces) == arguments


def test_a_special_mark_within_a_string_of_arguments_is_its_text() -> None:
    """A model that writes about thoughts may use its token for them."""
    text = '<tool_call>\n{"name": "read", "arguments": {"path": "<think>"}}\n</tool_call>'
    assert read(CHATML[0], text) == [("function_call", "read", '{"path": "<think>"}')]


def test_where_marks_are_tokens_what_is_spelled_is_text_unless_a_grammar_made_the_model_spell() -> None:
    form = CHATML[0]
    ids = form.encode([GOOD])
    assert parse(form, ids)[1] is False
    assert parse(form, ids, plan=with_choice("required"))[1] is True
    assert read(form, GOOD, with_choice("required")) == [READ]


@pytest.mark.parametrize("form", CHATML, ids=KINDS)
def test_text_and_thoughts_are_told_as_they_are_sampled(form: Template) -> None:
    """Each token that can't begin a mark is given at once, in a piece of its own."""
    parser = form.parser(with_choice("auto"))
    for token in written(form, "<think>\n"):
        parser.feed([token])
    assert [parser.feed(form.vocabulary.encode(letter)) for letter in "ab"][1] == [Reasoning(["b"], 1)]
    parser.feed(written(form, "</think>\n\n"))
    assert [parser.feed(form.vocabulary.encode(letter)) for letter in "xy"][1] == [Text(["y"], 1)]
    assert parser.feed(form.vocabulary.encode("\n")) == []
    assert parser.feed(form.vocabulary.encode("z")) == [Text(["\n", "z"], 2)]


@pytest.mark.parametrize("form", CHATML, ids=KINDS)
def test_a_call_is_told_when_it_is_whole(form: Template) -> None:
    parser = form.parser(with_choice("auto"))
    ids = written(form, GOOD)
    assert [chunk for token in ids[:-1] for chunk in parser.feed([token])] == []
    assert not parser.called
    begin, pieces, end, _ = [chunk for chunk in parser.feed(ids[-1:]) if chunk != Counted(0)][1:]
    assert parser.called
    assert begin == CallBegin("read")
    assert isinstance(pieces, CallPieces)
    assert "".join(pieces.pieces) == '{"path": "a"}'
    assert end == CallEnd()


def test_characters_are_whole() -> None:
    form = CHATML[0]
    smile = list("😀".encode())
    chunks, _ = parse(form, [*form.vocabulary.encode("a"), *smile, smile[0], smile[1]], range(9))
    assert chunks == [Text(["a"], 1), Text(["😀"], 4), Counted(2)]
    broken, _ = parse(form, [smile[0], *form.vocabulary.encode("a")])
    assert broken == [Text(["�a"], 2)]


def test_ids_that_are_none_have_no_text() -> None:
    assert parse(CHATML[0], [10**6, -1, *CHATML[0].vocabulary.encode("a")])[0] == [Text(["a"], 3)]
    assert parse(CHATML[0], [10**6])[0] == [Counted(1)]


def test_a_format_says_which_token_it_lacks() -> None:
    for make in FORMATS.values():
        with pytest.raises(KeyError):
            make(SmallVocabulary(()))
        make(SmallVocabulary(SPECIAL))
        make(SmallVocabulary((*SPECIAL, *MARKS)))


CALL = '{"name": "read", "parameters": {"path": "a"}}'
LLAMA_TURNS = {
    CALL: [READ],
    f"\n{CALL}\n": [READ],
    f"{CALL}; {CALL}": [READ, READ],
    f"{CALL}\n{CALL}": [READ, READ],
    f"<|python_tag|>{CALL}": [READ],
    f"I read.<|python_tag|>{CALL};{CALL}": [("text", "I read."), READ, READ],
    f"<think>\nHm.\n</think>\n\n{CALL}": [("thought", "Hm."), READ],
    f"I read {CALL}": [("text", f"I read {CALL}")],
    f"{CALL}; no": [("text", f"{CALL}; no")],
    "<|python_tag|>print(1)": [("text", "<|python_tag|>print(1)")],
    '{"name": "Ada", "age": 36}': [("text", '{"name": "Ada", "age": 36}')],
    "{": [("text", "{")],
}


@pytest.mark.parametrize("form", LLAMA3, ids=KINDS)
@pytest.mark.parametrize(("text", "parts"), LLAMA_TURNS.items())
def test_a_turn_of_llama(form: Template, text: str, parts: list[tuple[str, ...]]) -> None:
    assert read(form, text) == parts


@pytest.mark.parametrize("form", LLAMA3, ids=KINDS)
def test_an_answer_in_json_is_told_as_soon_as_it_can_be_no_call(form: Template) -> None:
    parser = form.parser(with_choice("auto"))
    assert parser.feed(form.vocabulary.encode('{"na')) == []
    told = parser.feed(form.vocabulary.encode("tive"))
    assert "".join(piece for chunk in told if isinstance(chunk, Text) for piece in chunk.pieces) == '{"native'
