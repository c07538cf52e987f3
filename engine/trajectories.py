"""Recorded rollouts: one JSON object a line, one rollout a file.

The first line is ``{"kind": "rollout", "source", "license", "instructions", "tools": [...]}``. Then follow, in order, records
of kind ``user`` (``text``), ``assistant`` (``text``, ``tool_calls: [{"call_id", "name", "arguments"}]``, and ``reasoning`` if
it has thought) and ``tool`` (``call_id``, ``output``, ``seconds`` or null). ``arguments`` is the JSON text as the model wrote
it.
"""

from collections.abc import Callable, Iterator
from os import PathLike
from typing import Any, Final

from attrs import field, frozen

from protocol import codec
from protocol.errors import ProtocolError
from protocol.fields import Json


@frozen
class UserRecord:
    """The user said ``text``."""

    text: str


@frozen
class RecordedCall:
    """``arguments`` byte for byte as it was sampled."""

    call_id: str
    name: str
    arguments: str


@frozen
class AssistantRecord:
    """The model thought ``reasoning``, said ``text`` (nothing, if they are empty), then made ``calls``."""

    text: str
    calls: tuple[RecordedCall, ...] = ()
    reasoning: str = ""


@frozen
class ToolRecord:
    """A tool answered. ``seconds`` is how long it really took, where that is known."""

    call_id: str
    output: str
    seconds: float | None = None


Record = UserRecord | AssistantRecord | ToolRecord


@frozen
class Rollout:
    """One recorded rollout. ``tools`` stand as they do in a ``response.create``."""

    source: str
    license: str
    instructions: str | None
    tools: tuple[Json, ...]
    records: tuple[Record, ...] = field(repr=False)


class RolloutError(ValueError):
    """A file that is no recorded rollout: the message says which line and field, and what is wanted."""


def read_rollout(path: str | PathLike[str]) -> Rollout:
    """Read a recorded rollout. Raises ``RolloutError``, and ``OSError`` if the file can't be read."""
    try:
        with open(path, encoding="utf-8", newline="\n") as file:
            lines = list(file)
    except UnicodeDecodeError as error:
        raise RolloutError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from None
    records = _records(str(path), lines)
    head = next(records, None)
    if not isinstance(head, Rollout):
        raise RolloutError(f"{path}:1: kind: the first line is of kind rollout")
    rest: list[Record] = []
    for number, record in enumerate(records, 2):
        if isinstance(record, Rollout):
            raise RolloutError(f"{path}: kind: record {number} is of kind rollout, which the first alone is")
        rest.append(record)
    return Rollout(head.source, head.license, head.instructions, head.tools, tuple(rest))


def write_rollout(rollout: Rollout, path: str | PathLike[str]) -> None:
    """Write a file that ``read_rollout`` reads as the same. Raises ``OSError``."""
    with open(path, "wb") as file:
        file.writelines(codec.encode(line) + b"\n" for line in _lines(rollout))


def _lines(rollout: Rollout) -> Iterator[Json]:
    head = {"kind": "rollout", "source": rollout.source, "license": rollout.license}
    yield {**head, "instructions": rollout.instructions, "tools": rollout.tools}
    for record in rollout.records:
        if isinstance(record, UserRecord):
            yield {"kind": "user", "text": record.text}
        elif isinstance(record, ToolRecord):
            yield {"kind": "tool", "call_id": record.call_id, "output": record.output, "seconds": record.seconds}
        else:
            thought = {"reasoning": record.reasoning} if record.reasoning else {}
            yield {"kind": "assistant", "text": record.text, "tool_calls": record.calls, **thought}


def _records(path: str, lines: list[str]) -> Iterator[Rollout | Record]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = codec.parse(line)
            fields = _Fields(value, "")
            kind = fields.text("kind")
            if kind not in _READERS:
                raise _Wrong("kind", f"expected one of {', '.join(_READERS)}, got {kind!r}")
            yield _READERS[kind](fields)
        except ProtocolError as error:
            raise RolloutError(f"{path}:{number}: {error.message}") from None
        except _Wrong as wrong:
            raise RolloutError(f"{path}:{number}: {wrong}") from None


class _Wrong(Exception):
    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)


class _Fields:
    """The fields of an object, checked one by one. Fields that nobody asks for are let be."""

    def __init__(self, value: Any, path: str) -> None:
        if not isinstance(value, dict):
            raise _Wrong(path, f"expected an object, got {_kind(value)}")
        self._value = value
        self._path = path

    def has(self, name: str) -> bool:
        return name in self._value

    def text(self, name: str) -> str:
        return str(self._get(name, "a string", lambda value: isinstance(value, str)))

    def text_or_null(self, name: str) -> str | None:
        value = self._get(name, "a string or null", lambda value: value is None or isinstance(value, str))
        return None if value is None else str(value)

    def seconds_or_null(self, name: str) -> float | None:
        value = self._get(
            name,
            "a number, 0 or more, or null",
            lambda value: value is None or (type(value) in (int, float) and value >= 0),
        )
        return None if value is None else float(value)

    def objects(self, name: str) -> "list[_Fields]":
        values = self._get(name, "a list", lambda value: isinstance(value, list))
        return [_Fields(value, f"{self._path}{name}[{index}]") for index, value in enumerate(values)]

    def raw(self) -> dict[str, Any]:
        return self._value

    def _get(self, name: str, what: str, fits: Callable[[Any], bool]) -> Any:
        path = f"{self._path}.{name}" if self._path else name
        if name not in self._value:
            raise _Wrong(path, f"missing; {what} is wanted")
        value = self._value[name]
        if not fits(value):
            raise _Wrong(path, f"expected {what}, got {_kind(value)}")
        return value


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), f"the number {value}")


def _read_head(fields: _Fields) -> Rollout:
    tools = []
    for tool in fields.objects("tools"):
        tool.text("name")
        tools.append({"type": "function", **tool.raw()})
    return Rollout(fields.text("source"), fields.text("license"), fields.text_or_null("instructions"), tuple(tools), records=())


def _read_assistant(fields: _Fields) -> AssistantRecord:
    calls = [
        RecordedCall(call.text("call_id"), call.text("name"), call.text("arguments")) for call in fields.objects("tool_calls")
    ]
    return AssistantRecord(fields.text("text"), tuple(calls), fields.text("reasoning") if fields.has("reasoning") else "")


def _read_tool(fields: _Fields) -> ToolRecord:
    return ToolRecord(fields.text("call_id"), fields.text("output"), fields.seconds_or_null("seconds"))


_READERS: Final[dict[str, Callable[[_Fields], Rollout | Record]]] = {
    "rollout": _read_head,
    "user": lambda fields: UserRecord(fields.text("text")),
    "assistant": _read_assistant,
    "tool": _read_tool,
}
