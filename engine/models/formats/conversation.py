"""Items as what chat templates know: turns of the model, results of tools, and messages.

All types of items are one of the three. A tool's result has no ``call_id`` in these formats: results stand in the order in
which they were given, which in the append shape is that of the calls. What a model can't see is told by its place, as in
``engine.stages.rendering``: an image by its URL, data by their digest. Items that only other servers know are told in JSON,
by a message of the system.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from attrs import frozen

from protocol.codec import encode
from protocol.items import (
    CALL_CLASSES,
    OUTPUT_CLASSES,
    ApplyPatchCallOutput,
    FileSearchCall,
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
)
from tools.hosted.file_search import results_text

from ...stages.rendering import place, without_data
from ..functions import function_of
from .calls import dumps


@frozen
class Said:
    """A text of the model."""

    text: str


@frozen
class Thought:
    """A text that the model says to itself."""

    text: str


@frozen
class Called:
    """A call of the model. ``arguments`` is JSON text."""

    name: str
    arguments: str


Segment = Said | Thought | Called


@frozen
class Turn:
    """What the model put out between two stops."""

    segments: tuple[Segment, ...]


@frozen
class Results:
    """What tools answered to the calls of a turn."""

    texts: tuple[str, ...]


@frozen
class Told:
    """A message of the user, the developer or the system."""

    role: str
    text: str


Group = Turn | Results | Told
Joins = Callable[[Segment, Segment], bool]


def groups(
    items: Iterable[Item], stops: Collection[int] | None = None, *, hosted: bool = True, joins: Joins
) -> Iterator[Group]:
    """``items`` in groups. The results of hosted calls come behind their turn, as a group of their own; or not at all.

    ``stops`` are positions in ``items`` at which a group surely ends. Without them a turn ends where something else begins.
    What does not ``joins`` what is before it begins another one.
    """
    turn: list[Item] = []
    answers: list[str] = []
    for position, item in enumerate(items):
        cut = stops is not None and position in stops
        if turn and (cut or not _is_models(item)):
            yield from _turns(turn, hosted, joins)
            turn = []
        if answers and (cut or not isinstance(item, OUTPUT_CLASSES)):
            yield Results(tuple(answers))
            answers = []
        if _is_models(item):
            turn.append(item)
        elif isinstance(item, OUTPUT_CLASSES):
            answers.append(text_of_output(item))
        else:
            yield _told(item)
    if answers:
        yield Results(tuple(answers))
    yield from _turns(turn, hosted, joins)


def hosted_results(items: Iterable[Item]) -> Iterator[Group]:
    """What the hosted calls among ``items`` have found, in one group."""
    texts = tuple(results_text(item) for item in items if isinstance(item, FileSearchCall))
    if texts:
        yield Results(texts)


def _is_models(item: Item) -> bool:
    own = isinstance(item, (*CALL_CLASSES, FileSearchCall, Reasoning))
    return own or (isinstance(item, Message) and item.role == "assistant")


def _turns(items: Sequence[Item], hosted: bool, joins: Joins) -> Iterator[Group]:
    """What is put out between two stops: one turn, if the model could have sampled it as one. What says nothing is none."""
    segments: list[Segment] = []
    for segment in map(_segment, items):
        if not isinstance(segment, Called) and not segment.text:
            continue
        if segments and not joins(segments[-1], segment):
            yield Turn(tuple(segments))
            segments = []
        segments.append(segment)
    if segments:
        yield Turn(tuple(segments))
    if hosted:
        yield from hosted_results(items)


def _segment(item: Item) -> Segment:
    if isinstance(item, Message):
        return Said(text_of_content(item.content))
    if isinstance(item, Reasoning):
        return Thought(text_of_content((*item.summary, *(item.content or ()))))
    assert isinstance(item, (*CALL_CLASSES, FileSearchCall))
    return Called(*function_of(item, dumps))


def _told(item: Item) -> Told:
    if isinstance(item, Message):
        return Told(item.role, text_of_content(item.content))
    assert isinstance(item, OtherItem)  # references have been replaced by their items
    hidden = ("status", "encrypted_content")
    body = {key: without_data(value) for key, value in item.extra.items() if key not in hidden}
    return Told("system", encode({"type": item.type, **body}).decode())


# ---- texts


def text_of_content(content: str | tuple[Part, ...]) -> str:
    """A message's text: its parts, each on lines of its own."""
    return content if isinstance(content, str) else "\n".join(map(_part, content))


def _part(part: Part) -> str:
    if isinstance(part, InputImage | InputFile):
        return f"[{part.type}: {place(part)}]"
    return part.refusal if isinstance(part, Refusal) else part.text


def text_of_output(item: OutputOfCall) -> str:
    """What a tool answered; of commands with how they ended, unless that is plain."""
    if isinstance(item, ShellCallOutput):
        return "\n".join(map(_chunk, item.output))
    if isinstance(item, ApplyPatchCallOutput):
        return "\n".join(text for text in (item.status, item.output) if text)
    return text_of_content(item.output)


def _chunk(chunk: ShellOutputChunk) -> str:
    outcome = chunk.outcome
    ended = f"[exit code {outcome.exit_code}]" if outcome.type == "exit" else "[timeout]"
    parts = [chunk.stdout.removesuffix("\n"), chunk.stderr.removesuffix("\n"), ended if ended != "[exit code 0]" else ""]
    return "\n".join(part for part in parts if part)
