"""How items are written, by example: as the chat templates of the models have it, and every type of item somehow."""

import pytest

from engine.models.formats import FORMATS
from engine.models.formats.chatml import HOW, TOOLS
from engine.models.formats.llama3 import TOOLS as LLAMA_TOOLS
from engine.testing.vocabulary import SmallVocabulary
from protocol.codec import item_from_wire
from protocol.items import Item, Message
from protocol.requests import Tool

from .support_formats import PLAIN_MARKS, SPECIAL_MARKS

CHATML, LLAMA3 = FORMATS["chatml"](PLAIN_MARKS), FORMATS["llama3"](PLAIN_MARKS)
ADD = Tool(type="function", name="add", description="Adds", parameters={"type": "object", "properties": {}}, strict=True)
FUNCTION = '{"name": "add", "description": "Adds", "parameters": {"type": "object", "properties": {}}}'
ADD_JSON = f'{{"type": "function", "function": {FUNCTION}}}'


def items(*wire: dict[str, object]) -> list[Item]:
    return [item_from_wire(one) for one in wire]


def call(name: str = "add", arguments: str = "{}") -> dict[str, object]:
    return {"type": "function_call", "call_id": name, "name": name, "arguments": arguments}


def output(text: object = "3", call_id: str = "add") -> dict[str, object]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def said(text: str, role: str = "assistant") -> dict[str, object]:
    return {"type": "message", "role": role, "content": text}


CONVERSATION = items(
    said("What is 1 + 2?", "user"),
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I add."}]},
    said("Let me see."),
    call(arguments='{"a": 1}'),
    call(arguments='{"b":2}'),
    output(),
    output("4"),
    said("3."),
    said("Thanks.", "user"),
)


def test_a_conversation_in_chatml() -> None:
    assert PLAIN_MARKS.text(CHATML.render_prompt("Be brief.", (ADD,), CONVERSATION)) == (
        f"<|im_start|>system\nBe brief.\n\n{TOOLS}\n{ADD_JSON}{HOW}<|im_end|>\n"
        "<|im_start|>user\nWhat is 1 + 2?<|im_end|>\n"
        "<|im_start|>assistant\n<think>\nI add.\n</think>\n\nLet me see.\n"
        '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>\n'
        '<tool_call>\n{"name": "add", "arguments": {"b":2}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\n3\n</tool_response>\n<tool_response>\n4\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n3.<|im_end|>\n"
        "<|im_start|>user\nThanks.<|im_end|>\n"
    )


def test_a_conversation_of_llama() -> None:
    def message(role: str, text: str) -> str:
        return f"<|start_header_id|>{role}<|end_header_id|>\n\n{text}<|eot_id|>"

    calls = '<|python_tag|>{"name": "add", "parameters": {"a": 1}}; {"name": "add", "parameters": {"b":2}}'
    assert PLAIN_MARKS.text(LLAMA3.render_prompt("Be brief.", (ADD,), CONVERSATION)) == "<|begin_of_text|>" + "".join(
        (
            message("system", f"{LLAMA_TOOLS}{ADD_JSON}\n\nBe brief."),
            message("user", "What is 1 + 2?"),
            message("assistant", f"<think>\nI add.\n</think>\n\nLet me see.{calls}"),
            message("ipython", "3"),
            message("ipython", "4"),
            message("assistant", "3."),
            message("user", "Thanks."),
        )
    )


def test_marks_are_tokens_where_the_vocabulary_has_them() -> None:
    special, plain = (FORMATS["chatml"](one).render_calls(items(call())) for one in (SPECIAL_MARKS, PLAIN_MARKS))
    assert SPECIAL_MARKS.text(special) == PLAIN_MARKS.text(plain)
    assert SPECIAL_MARKS.special("<tool_call>") in special


def test_nothing_is_invented() -> None:
    assert CHATML.render_prompt(None, (), []) == []
    assert CHATML.render_calls([]) == CHATML.render_results([]) == CHATML.render_next((), []) == []
    silent = items({"type": "reasoning", "summary": [], "encrypted_content": "x"}, said(""))
    assert CHATML.render_calls(silent) == []
    assert CHATML.render_calls([*silent, *items(call())]) == CHATML.render_calls(items(call()))
    web = (Tool(type="web_search"),)  # nobody here could answer its calls
    assert CHATML.render_prompt(None, web, []) == []


def test_sampling_begins_behind_what_opens_a_turn() -> None:
    """What is sampled first never merges with it: a turn that begins with a line break has the same opening."""
    merges = SmallVocabulary(merges=["\n\n"])
    form = FORMATS["chatml"](merges)
    ids = form.render_calls([Message(role="assistant", content="\nHi")])
    assert ids[: len(form.opening)] == [*form.opening]


def told(*wire: dict[str, object]) -> str:
    """What the model reads of items, in ChatML, without what opens and closes messages."""
    return PLAIN_MARKS.text(CHATML.render_prompt(None, (), items(*wire)))


SHELL = {"type": "shell_call", "call_id": "s", "action": {"commands": ["ls"], "timeout_ms": 5}}
LOCAL = {"type": "local_shell_call", "call_id": "l", "action": {"type": "exec", "command": ["ls"], "env": {}}}
PATCH = {"type": "apply_patch_call", "call_id": "p", "operation": {"type": "delete_file", "path": "a"}}
SEARCH = {
    "type": "file_search_call",
    "id": "fs_1",
    "queries": ["x"],
    "status": "completed",
    "results": [],
    "max_num_results": 3,
}
CUSTOM = {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": 'a\n"é'}
PRINTED = {"stdout": "a\n", "stderr": "oh\n", "outcome": {"type": "exit", "exit_code": 2}}
SLOW = {"stdout": "b", "stderr": "", "outcome": {"type": "timeout"}}
FINE = {"stdout": "c", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}

TELLS = {
    "a call of a shell": (SHELL, '{"name": "shell", "arguments": {"commands": ["ls"], "timeout_ms": 5}}'),
    "a call of a local shell": (LOCAL, '{"name": "local_shell", "arguments": {"command": ["ls"], "env": {}, "type": "exec"}}'),
    "a patch": (PATCH, '{"name": "apply_patch", "arguments": {"type": "delete_file", "path": "a"}}'),
    "a search": (SEARCH, '{"name": "file_search", "arguments": {"queries": ["x"], "max_num_results": 3}}'),
    "its results": (SEARCH, "<|im_start|>user\n<tool_response>\nNo results.\n</tool_response><|im_end|>"),
    "a custom call": (CUSTOM, '{"name": "patch", "arguments": {"input": "a\\n\\"é"}}'),
    "no arguments": (call(arguments=""), '"arguments": {}}'),
    "what commands printed": (
        {"type": "shell_call_output", "call_id": "s", "output": [PRINTED, SLOW, FINE]},
        "<tool_response>\na\noh\n[exit code 2]\nb\n[timeout]\nc\n</tool_response>",
    ),
    "how a patch went": (
        {"type": "apply_patch_call_output", "call_id": "p", "status": "failed", "output": "no such file"},
        "<tool_response>\nfailed\nno such file\n</tool_response>",
    ),
    "what a program printed": ({"type": "local_shell_call_output", "id": "l", "output": "hi"}, "\nhi\n"),
    "an image": (
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "See:"},
                {"type": "input_image", "image_url": "https://example.org/a.png"},
                {"type": "input_file", "filename": "a.txt", "file_data": "QUJD"},
            ],
        },
        "See:\n[input_image: https://example.org/a.png]\n[input_file: a.txt data:;base64,4 characters,sha256:",
    ),
    "a refusal": (
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        "<|im_start|>assistant\nNo.<|im_end|>",
    ),
    "a developer": (said("Be brief.", "developer"), "<|im_start|>system\nBe brief.<|im_end|>"),
    "what another server did": (
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "x"}},
        '<|im_start|>system\n{"type":"web_search_call","action":{"query":"x"}}<|im_end|>',
    ),
}
"""Types of items, and what the model reads of them."""


@pytest.mark.parametrize(("wire", "text"), TELLS.values(), ids=TELLS)
def test_every_type_of_item_is_told(wire: dict[str, object], text: str) -> None:
    assert text in told(wire)


def test_results_of_hosted_calls_come_where_their_turn_ends() -> None:
    asked = told(SEARCH, call(), output())
    places = [asked.index(text) for text in ('"file_search"', '"add"', "No results.", "\n3\n")]
    assert places == sorted(places)
    again = items(SEARCH, SEARCH)
    one, two = (CHATML.render_prompt(None, (), again, stops) for stops in (None, {1}))
    assert PLAIN_MARKS.text(one).count("<|im_start|>assistant") == 1
    assert PLAIN_MARKS.text(two).count("<|im_start|>assistant") == 2
