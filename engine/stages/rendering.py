"""Items to token ids: what a model reads.

Theory. Each item is one segment, a header and a body between special tokens:

    <|start|>user<|message|>Hello<|end|>
    <|start|>assistant<|channel|>function_call<|constrain|>call_1<|constrain|>shell<|message|>{"cmd":"ls"}<|call|>
    <|start|>tool<|channel|>function_call_output<|constrain|>call_1<|message|>README.md<|end|>

Each stretch of text is encoded alone, so text never merges across the borders: items can be rendered one by one, what
is appended changes no earlier id, and a Response's ids are those of one uninterrupted rendering (law L8). Text is
encoded as ordinary text, so no user can write a special token.

What counts is what is said: content, names, call ids, arguments, results. An item's ``id`` and ``status``, a message's
``phase``, annotations, and a reasoning item's ``encrypted_content`` do not: they differ between a Response and its
copy that a client sends back. (The status of an ``apply_patch_call_output`` is its result, and is rendered.) An image
or a file is rendered as its type and where it is: a URL, a file id, a name. Data that is sent in the item itself is
rendered as its media type, size and digest, since base64 would cost about a token for each two bytes.

Hosted calls. A ``file_search_call`` is a call and its result in one item, but a model samples all calls of a batch
before it sees a result. So the item has two segments: the call stands in its place, the result where the batch ends.
Where that is can't always be read from the items: two searches in a row may be one batch or two. The engine knows, and
says so with ``stops``: the positions at which sampling stopped. Without it a batch is taken to last until the first
item that is no call, which is what the model has seen unless it made hosted calls, was given their results, and then
made calls without a word of its own.
"""

import hashlib
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from protocol.codec import canonical
from protocol.items import (
    CALL_CLASSES,
    OUTPUT_CLASSES,
    ApplyPatchCall,
    ApplyPatchCallOutput,
    CallItem,
    CustomToolCall,
    FileSearchCall,
    FunctionCall,
    InputFile,
    InputImage,
    Item,
    Message,
    OtherItem,
    OutputOfCall,
    Part,
    Reasoning,
    Refusal,
    ShellCallOutput,
    ShellOutputChunk,
    answered_call_id,
)
from protocol.requests import Tool
from tools.hosted.file_search import results_text

from ..tokens import encode, special

START: Final = special("start")
CHANNEL: Final = special("channel")
CONSTRAIN: Final = special("constrain")
MESSAGE: Final = special("message")
CALL: Final = special("call")
END: Final = special("end")

CACHED_TOOLS: Final = 512
CACHED_TOOL_BYTES: Final = 16 * 1024
"""Agents send the same tools with each request. Larger definitions are rendered anew, so that the cache has a cap: some
20 MiB in the worst case."""

DIGEST_CHARS: Final = 16
"""64 bits of a digest tell any two images of a context apart."""

MEDIA_TYPE_CHARS: Final = 128
"""Longer than any media type with its parameters; what is longer in front of a data URL's comma is data."""


# ---- public


def render_prompt(
    instructions: str | None,
    tools: Sequence[Tool],
    items: Sequence[Item],
    stops: Collection[int] | None = None,
) -> list[int]:
    """The ids of a whole prompt: the instructions, the tools, then ``render_items(items, stops)``."""
    ids: list[int] = []
    if instructions is not None:
        ids += [*_header("system"), MESSAGE, *encode(instructions), END]
    for tool in tools:
        ids += _tool(tool)
    return ids + render_items(items, stops)


def render_items(items: Sequence[Item], stops: Collection[int] | None = None) -> list[int]:
    """The ids of ``items``, a context or an end of it that begins where a batch of calls does not go on.

    The results of hosted calls come where their batch ends. ``stops``, if given, are the positions at which sampling
    stopped: ``n`` stands between ``items[n - 1]`` and ``items[n]``, and the end is always one. Without it see the
    module's theory.

    ``render_items(calls + rest) == render_calls(calls) + render_results(finished + rest)``, where ``finished`` are the
    hosted calls among ``calls``, the outputs of the others come first in ``rest``, and hosted calls in ``rest`` are
    none.
    """
    ids: list[int] = []
    results: list[int] = []
    for position, item in enumerate(items):
        if results and (position in stops if stops is not None else not _is_call(item)):
            ids += results
            results = []
        ids += _segment(item)
        if isinstance(item, FileSearchCall):
            results += _result(item)
    return ids + results


def render_calls(items: Iterable[Item]) -> list[int]:
    """The ids of what was sampled: of a hosted call its call only, of any other item all."""
    ids: list[int] = []
    for item in items:
        ids += _segment(item)
    return ids


def render_results(items: Iterable[Item]) -> list[int]:
    """The ids of what a model is given when it goes on: of a hosted call its result only, of any other item all."""
    ids: list[int] = []
    for item in items:
        ids += _result(item) if isinstance(item, FileSearchCall) else _segment(item)
    return ids


def render_next(unread: Iterable[Item], new: Sequence[Item]) -> list[int]:
    """The ids of what a model is given behind a turn of another one: that turn's hosted results, then ``new`` items."""
    return [*render_results(unread), *render_items(new)]


# ---- segments


def _is_call(item: Item) -> bool:
    """Whether ``item`` can stand within a batch of calls."""
    return isinstance(item, (*CALL_CLASSES, FileSearchCall)) or (isinstance(item, OtherItem) and item.type.endswith("_call"))


def _segment(item: Item) -> list[int]:
    """The item's ids; those of its call, if it is a hosted call."""
    if isinstance(item, Message):
        return [*_header(item.role), *_content(item.content), END]
    if isinstance(item, CALL_CLASSES):
        return _call(item)
    if isinstance(item, OUTPUT_CLASSES):
        return _output(item)
    if isinstance(item, Reasoning):
        return [*_header("assistant", item.type), *_content((*item.summary, *(item.content or ()))), END]
    if isinstance(item, FileSearchCall):
        asked = {key: item.extra[key] for key in ("max_num_results",) if key in item.extra}
        return [*_header("assistant", item.type), *_json({"queries": item.queries, **asked}), CALL]
    assert isinstance(item, OtherItem)  # references have been replaced by their items
    body = {key: without_data(value) for key, value in item.extra.items() if key != "status"}
    return [*_header("assistant", item.type), *_json(body), END]


def _call(item: CallItem) -> list[int]:
    head = [*_header("assistant", item.type), CONSTRAIN, *encode(item.call_id)]
    if isinstance(item, FunctionCall | CustomToolCall):
        text = item.arguments if isinstance(item, FunctionCall) else item.input
        return [*head, CONSTRAIN, *encode(item.name), MESSAGE, *encode(text), CALL]
    return [*head, *_json(item.operation if isinstance(item, ApplyPatchCall) else item.action), CALL]


def _output(item: OutputOfCall) -> list[int]:
    head = [*_header("tool", item.type), CONSTRAIN, *encode(answered_call_id(item) or "")]
    if isinstance(item, ShellCallOutput):
        body = [number for chunk in item.output for number in _chunk(chunk)]
    elif isinstance(item, ApplyPatchCallOutput):
        body = [*_marked("status", item.status), *_content(item.output or "")]
    else:
        body = _content(item.output)
    return [*head, *body, END]


def _result(item: FileSearchCall) -> list[int]:
    return [*_header("tool", item.type), MESSAGE, *encode(results_text(item)), END]


def _tool(tool: Tool) -> Sequence[int]:
    definition = canonical(tool)
    if len(definition) > CACHED_TOOL_BYTES:
        return _render_tool(definition)
    return _cached_tool(definition)


def _render_tool(definition: bytes) -> "array[int]":
    return array("I", [*_header("system", "tool"), MESSAGE, *encode(definition.decode()), END])


_cached_tool: Final = lru_cache(CACHED_TOOLS)(_render_tool)


# ---- headers and bodies


@lru_cache(256)
def _header(role: str, kind: str | None = None) -> tuple[int, ...]:
    """Headers are few: the roles and the item types."""
    return (START, *encode(role), *(() if kind is None else (CHANNEL, *encode(kind))))


def _content(content: str | tuple[Part, ...]) -> list[int]:
    """A text is as good as a list of one text part."""
    if isinstance(content, str):
        return [MESSAGE, *encode(content)]
    return [number for part in content for number in _part(part)] or [MESSAGE]


def _part(part: Part) -> list[int]:
    if isinstance(part, InputImage | InputFile):
        return _marked(part.type, place(part))
    if isinstance(part, Refusal):
        return _marked(part.type, part.refusal)
    return [MESSAGE, *encode(part.text)]


def _chunk(chunk: ShellOutputChunk) -> list[int]:
    outcome = chunk.outcome
    ended = outcome.type if outcome.exit_code is None else f"{outcome.type} {outcome.exit_code}"
    errors = _marked("stderr", chunk.stderr) if chunk.stderr else []
    return [MESSAGE, *encode(chunk.stdout), *errors, *_marked("outcome", ended)]


def _marked(kind: str, text: str) -> list[int]:
    """A part that is not plainly the item's text."""
    return [CHANNEL, *encode(kind), MESSAGE, *encode(text)]


def _json(value: Any) -> list[int]:
    return [MESSAGE, *encode(canonical(value).decode())]


# ---- images and files


def place(part: InputImage | InputFile) -> str:
    """Where the image or file is; its data is told by size and digest."""
    if isinstance(part, InputImage):
        known = [part.file_id, _digest_of_url(part.image_url)]
    else:
        data = part.file_data
        # ``file_data`` comes as a data URL or as bare base64.
        shown = data if data is None or data.startswith("data:") else f"data:;base64,{data}"
        known = [part.filename, part.file_id, _digest_of_url(part.file_url), _digest_of_url(shown)]
    return " ".join(text for text in known if text is not None)


def _digest_of_url(url: str | None) -> str | None:
    """``url`` as it is; a data URL as its media type, the length of its data in characters, and their SHA-256."""
    if url is None or not url.startswith("data:"):
        return url
    media, _, data = url[len("data:") :].partition(",")
    if not data or len(media) > MEDIA_TYPE_CHARS:
        media, data = "", media + data
    digest = hashlib.sha256(data.encode()).hexdigest()[:DIGEST_CHARS]
    return f"data:{media},{len(data)} characters,sha256:{digest}"


def without_data(value: Any) -> Any:
    """A JSON value with data URLs replaced by their digests."""
    if isinstance(value, str):
        return _digest_of_url(value)
    if isinstance(value, Mapping):
        return {key: without_data(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [without_data(member) for member in value]
    return value
