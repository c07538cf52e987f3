"""Shows a conversation: for people on a terminal, plainly in a pipe, as JSON for scripts.

On a terminal all is on one screen. In a pipe the model's answers are on standard output, and all that is beside them
(reasoning, calls, results, notes) on standard error. What models and tools say can hold anything, so control characters, with
which a terminal can be led by the nose, are left out.
"""

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from rich.status import Status
from rich.text import Text

from protocol.client import Frame
from protocol.codec import encode, parse
from protocol.errors import ProtocolError
from protocol.events import TERMINAL
from protocol.items import OUTPUT_TYPE_OF

from ...client import ConnectionLost, RolloutError
from ..calls import arguments_shortly, patch_lines
from ..demo.lines import Lines, Screen, speaks_unicode
from .advice import advice_for
from .conversation import Counts
from .permission import name_of

RESULT_LINES: Final = 6
"""What is shown of a result."""
LONG_SECONDS: Final = 1.0
"""A tool that takes longer has been waited for."""
PATCH_LINES: Final = 40
"""What is shown of a patch: one should know what one allows."""
PIPE_CELLS: Final = 1_000_000
"""The width of a pipe: its lines are not wrapped."""

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean(text: str) -> str:
    """Without characters that do something to a terminal."""
    return _CONTROL.sub("", text)


class TerminalView:
    """``conversation.Audience`` on standard output; if it is no terminal, answers are there, and the rest on standard error."""

    def __init__(self, *, typed: bool) -> None:
        self._screen = Screen(highlight=False, width=None if typed else PIPE_CELLS)
        self._aside = self._screen if typed else Screen(highlight=False, stderr=True, width=PIPE_CELLS)
        self._answer, self._beside = Lines(self._screen), Lines(self._aside)
        if typed:
            self._beside = self._answer
        self._mark, self._dot = ("▸", "·") if speaks_unicode(self._aside) else (">", "-")
        if not speaks_unicode(self._screen):
            for stream in (sys.stdout, sys.stderr):
                stream.reconfigure(errors="replace")  # type: ignore[union-attr]
        self._waiting: Status | None = Status("", console=self._screen) if typed and self._screen.is_terminal else None
        self._open: Lines | None = None
        self._is_blank = True
        self._shown_call: str | None = None  # the call in the line above
        self._typed = typed

    # ---- what the conversation tells

    def said(self, words: str) -> None:  # noqa: ARG002 - they have just been typed
        """The model's words are awaited."""
        self._wait("")

    def event(self, frame: Frame) -> None:
        """Show an event, if it is one to be shown."""
        show = _SHOWN.get(frame["type"])
        if show is not None:
            show(self, frame)

    def result(self, call: Frame, output: Frame, seconds: float) -> None:
        """The first lines of it; whose it is if that can't be seen, and how long it took if one has noticed."""
        text = text_of(output)
        style = "red" if text.startswith("error: ") else "dim"
        lines = clean(text).rstrip().splitlines() or ["(nothing)"]
        if self._shown_call != call["call_id"]:
            self._line("  ", Text(f"{clean(name_of(call))}:", "dim italic"))
        for line in lines[:RESULT_LINES]:
            self._line("  ", Text(line, style))
        left = len(lines) - RESULT_LINES
        facts = [f"{left} more line{'s' * (left > 1)}"] * (left > 0) + [f"took {seconds:.1f} s"] * (seconds >= LONG_SECONDS)
        if facts:
            self._line("  ", Text(f"({', '.join(facts)})", "dim italic"))
        self._wait("")

    def note(self, text: str) -> None:
        """Something that changes nothing."""
        self._say(f"({text})", "dim")

    def failed(self, error: RolloutError | ConnectionLost) -> None:
        """What was said was refused, or nobody is there: what it was, and what to do."""
        self.problem(str(error), advice_for(error))

    def over(self, counts: Counts) -> None:  # noqa: ARG002 - they are told when asked for
        """It is the person's turn."""
        self._rest()
        if self._typed:
            self._aside.print()

    # ---- what the command tells

    def problem(self, text: str, advice: str = "") -> None:
        """Something is wrong, and what to do about it."""
        self._say(clean(text), "bold red")
        if advice:
            self._say(advice, "")

    def heading(self, model: str, facts: Iterable[tuple[str, str]]) -> None:
        """What this is."""
        self._aside.print(Text.assemble(("sostenuto chat", "bold"), f" {self._dot} ", (model, "bold cyan")))
        self._beside.facts(facts)
        self._aside.print()

    def facts(self, facts: Iterable[tuple[str, str]]) -> None:
        """Names, and what there is to say of each."""
        self._rest()
        self._beside.facts(facts)
        self._aside.print()

    def calm(self) -> None:
        """Show nothing that moves: someone is about to type."""
        self._rest()

    # ---- events

    def _item_added(self, frame: Mapping[str, Any]) -> None:
        kind = frame["item"]["type"]
        if kind == "reasoning":
            self._begin(self._beside, "italic dim")
        elif kind == "message":
            self._begin(self._answer, "")

    def _begin(self, lines: Lines, style: str) -> None:
        self._rest()
        self._open, self._is_blank = lines, True
        lines.begin(Text(), style)

    def _delta(self, frame: Mapping[str, Any]) -> None:
        piece = clean(frame["delta"])
        if self._is_blank:
            piece = piece.lstrip("\n")
        if self._open is not None and piece:
            self._still()
            self._is_blank = False
            self._open.feed(piece)

    def _item_done(self, frame: Mapping[str, Any]) -> None:
        item = frame["item"]
        if item["type"] in OUTPUT_TYPE_OF and item.get("status") != "incomplete":
            self._show_call(item)
        elif item["type"].endswith("_call"):
            self._line(
                "", Text.assemble((f"{self._mark} {item['type'].removesuffix('_call')}", "bold cyan"), (" (hosted)", "dim"))
            )
        elif self._open is not None:
            self._rest()
            self._wait("")

    def _show_call(self, call: Frame) -> None:
        arguments = arguments_of(call)
        patch = arguments.pop("patch", None)
        head = Text.assemble((f"{self._mark} {clean(name_of(call))}", "bold cyan"), " ", clean(arguments_shortly(arguments)))
        self._line("", Text(" ").join(head.split("\n")))
        for line in patch_lines(clean(str(patch)))[:PATCH_LINES] if patch else ():
            self._line("", line)
        self._shown_call = call["call_id"]
        self._wait(name_of(call))

    def _ended(self, frame: Mapping[str, Any]) -> None:
        response = frame["response"]
        self._rest()
        if frame["type"] == "response.failed":
            error = response.get("error") or {}
            self.problem(
                f"the model failed: {error.get('message') or 'no reason was given'}", "Say it again, or something else."
            )
        elif response["status"] == "cancelled":
            self.note("stopped")
        elif response["status"] == "incomplete":
            self.note(f"cut short: {(response.get('incomplete_details') or {}).get('reason')}")

    # ---- lines

    def _say(self, text: str, style: str) -> None:
        self._rest()
        self._shown_call = None
        self._beside.begin(Text(), style)
        self._beside.feed(text)
        self._beside.finish()

    def _line(self, prefix: str, text: Text) -> None:
        self._rest()
        self._shown_call = None
        self._beside.line(Text(prefix), text)

    def _rest(self) -> None:
        """What was open is whole, and nothing moves."""
        self._still()
        if self._open is not None:
            self._open.finish()
            self._open = None

    def _wait(self, what: str) -> None:
        if self._waiting is not None:
            self._waiting.update(Text(what or " ", "dim"))
            self._waiting.start()

    def _still(self) -> None:
        if self._waiting is not None:
            self._waiting.stop()


_SHOWN: Final[dict[str, Callable[[TerminalView, Mapping[str, Any]], None]]] = {
    "response.output_item.added": TerminalView._item_added,
    "response.output_text.delta": TerminalView._delta,
    "response.refusal.delta": TerminalView._delta,
    "response.reasoning_text.delta": TerminalView._delta,
    "response.reasoning_summary_text.delta": TerminalView._delta,
    "response.output_item.done": TerminalView._item_done,
    **dict.fromkeys(sorted(TERMINAL), TerminalView._ended),
}


def arguments_of(call: Frame) -> dict[str, Any]:
    """What a call is about; text that is no JSON, as small models write it, stands for itself."""
    if call["type"] != "function_call":
        given = {"input": call["input"]} if "input" in call else call.get("action") or call.get("operation") or {}
        return dict(given)
    try:
        arguments = parse(call["arguments"] or "{}")
    except ProtocolError:
        arguments = None
    return dict(arguments) if isinstance(arguments, dict) else {"arguments": call["arguments"]}


def text_of(output: Frame) -> str:
    """What a tool has said, whatever its kind."""
    said = output.get("output") or ""
    if isinstance(said, str):
        return said
    return "".join(str(part.get("text") or part.get("stdout", "") + part.get("stderr", "")) for part in said)


class JsonView:
    """``conversation.Audience`` that prints a JSON object for each turn, and problems on standard error."""

    def __init__(self) -> None:
        self._turn: dict[str, Any] = {}

    def said(self, words: str) -> None:
        """A turn begins."""
        self._turn = {"user": words, "text": "", "calls": [], "response_id": None, "status": None, "error": None}

    def event(self, frame: Frame) -> None:
        """Take down what matters of it."""
        if frame["type"] == "response.output_text.delta":
            self._turn["text"] += frame["delta"]
        if isinstance(response := frame.get("response"), dict):
            self._turn["response_id"], self._turn["status"] = response["id"], response["status"]
            self._turn["error"] = response.get("error")

    def result(self, call: Frame, output: Frame, seconds: float) -> None:
        """Take down a call."""
        entry = {"name": name_of(call), "arguments": arguments_of(call), "output": text_of(output), "seconds": seconds}
        self._turn["calls"].append(entry)

    def note(self, text: str) -> None:
        """On standard error."""
        sys.stderr.write(f"({text})\n")

    def failed(self, error: RolloutError | ConnectionLost) -> None:
        """What was said was refused, or nobody is there."""
        self._turn["error"] = {"code": getattr(error, "code", "connection_lost"), "message": str(error)}

    def over(self, counts: Counts) -> None:
        """Print the turn."""
        usage = {name: getattr(counts, name) for name in ("input_tokens", "output_tokens")}
        sys.stdout.write(encode({**self._turn, **usage}).decode() + "\n")
        sys.stdout.flush()
