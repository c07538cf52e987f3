"""What tools answered, as a program sees it: a text, and whether the tool failed.

Most kinds of output have no field for failure, so it is also read from the text, by the customs of real tools; ``has_failed``
lists them.
"""

import re
from collections import deque
from typing import Any, Final

from attrs import Factory, define, frozen

from protocol import codec
from protocol.errors import ProtocolError
from protocol.items import ApplyPatchCallOutput, FileSearchCall, LocalShellCallOutput, OutputOfCall, ShellCallOutput, text_of

RECENT: Final = 4
"""How many outputs are remembered beside the last one of each tool: what the built-in programs quote."""

HEAD_CHARS: Final = 500
"""Where a text says that its tool failed: in its first lines."""

PARSED_CHARS: Final = 100_000
"""A longer text is not looked into for JSON: tools that answer in JSON are brief when they fail."""

_FAILURE: Final = re.compile(
    r"\A\s*(?:error\b|traceback\b|timed out\b)|\bexit(?:ed with)? (?:code|status):? *-?0*[1-9]", re.IGNORECASE
)


@frozen
class Output:
    """What a tool answered. ``failed`` is whether it said that it failed."""

    name: str
    text: str
    failed: bool


@define
class Outputs:
    """The outputs that a program sees."""

    last: Output | None = None
    by_name: dict[str, Output] = Factory(dict)
    recent: deque[Output] = Factory(lambda: deque(maxlen=RECENT))

    def add(self, output: Output) -> None:
        """See one more."""
        self.last = self.by_name[output.name] = output
        self.recent.append(output)

    def of(self, name: str | None) -> Output | None:
        """The last one of a tool, or of any."""
        return self.last if name is None else self.by_name.get(name)

    def copy(self) -> "Outputs":
        """The same, to be changed apart."""
        return Outputs(self.last, dict(self.by_name), self.recent.copy())


def text_of_output(item: OutputOfCall | FileSearchCall) -> str:
    """The text of an output: of a shell what it printed, of a search its passages with their files."""
    if isinstance(item, FileSearchCall):
        passages = [f"{result.get('filename', '')}: {result.get('text', '')}" for result in item.results or ()]
        return "\n".join(passages) or str(item.extra.get("error", ""))
    if isinstance(item, ShellCallOutput):
        return "".join(chunk.stdout + chunk.stderr for chunk in item.output)
    if isinstance(item, ApplyPatchCallOutput | LocalShellCallOutput):
        return item.output or ""
    return text_of(item.output)


def has_failed(item: OutputOfCall | FileSearchCall, text: str) -> bool:
    """Whether a tool says that it failed.

    Its item says so (``status``, an ``outcome`` other than exit code 0); or the text begins with ``error``, ``traceback`` or
    ``timed out``, or its first lines have an exit code or status other than 0; or it is a JSON object whose ``error`` or
    ``is_error`` is true, or whose ``exit_code`` (perhaps in ``metadata``) is not 0.
    """
    if isinstance(item, ShellCallOutput):
        return any(chunk.outcome.type == "timeout" or chunk.outcome.exit_code != 0 for chunk in item.output)
    if item.status == "failed":
        return True
    return not isinstance(item, FileSearchCall) and (_object_failed(text) or _FAILURE.search(text[:HEAD_CHARS]) is not None)


def json_object(text: str) -> dict[str, Any] | None:
    """The object that ``text`` is in JSON, if it is one."""
    if len(text) > PARSED_CHARS or not text.lstrip().startswith("{"):
        return None
    try:
        value = codec.parse(text)
    except ProtocolError:
        return None
    return value if isinstance(value, dict) else None


def _object_failed(text: str) -> bool:
    value = json_object(text)
    if value is None:
        return False
    inner = value.get("metadata")
    codes = [value.get("exit_code"), inner.get("exit_code") if isinstance(inner, dict) else None]
    return bool(value.get("error") or value.get("is_error")) or any(type(code) is int and code != 0 for code in codes)
