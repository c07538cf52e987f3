"""``sostenuto chat``: the server if there is none, the tools, the keyboard, and the commands of whoever types."""

import re
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import httpx2
import trio
from attrs import define, field, frozen

from protocol.client import Frame

from ...client import connect
from ...serving import Options as ServerOptions
from ...serving import running
from .conversation import Conversation, Counts
from .keyboard import Interrupted, Keyboard
from .permission import Choice, GuardedTools, Verdict, chosen
from .view import JsonView, TerminalView

MODEL: Final = "scripted"
"""Served if nothing is said: it needs nothing."""
DAY: Final = 86400.0
"""A server of one's own waits as long for its user; so may a server's database be in memory."""
ASKED_SECONDS: Final = 10.0
"""For a server to say which models it has."""

HELP: Final = (
    ("/tools", "the tools that the model has"),
    ("/usage", "what it has taken so far"),
    ("/new", "forget what was said, and begin anew"),
    ("/quit", "end; so does Ctrl-D"),
    ("Ctrl-C", "cuts the answer short; the conversation goes on"),
    ("\\", "at the end of a line: the next one belongs to it"),
)


class CannotTalk(Exception):
    """There is nobody to talk with: the message says why, and what to do."""


@frozen(kw_only=True)
class Options:
    """What ``sostenuto chat`` was asked; see its ``--help``."""

    model: str | None = None
    url: str | None = None
    key: str | None = None
    tools: Choice = "read"
    folder: Path = Path()
    system: str | None = None
    temperature: float | None = None
    yes: bool = False
    as_json: bool = False


def chat(options: Options) -> int | None:
    """All of it, with the process's standard input and output. Gives the exit status, or None if a signal ended it.

    Raises ``CannotTalk``, ``CannotServe`` and ``OSError``, before a word was said.
    """
    sys.stdin.reconfigure(errors="replace")  # type: ignore[union-attr]
    typed = sys.stdin.isatty() and sys.stdout.isatty() and not options.as_json
    keyboard = Keyboard[int](typed)
    return keyboard.run(lambda: _chat(options, keyboard))


async def _chat(options: Options, keyboard: Keyboard[int]) -> int:
    """Cancelled, it ends the Response, and the server if it is its own."""
    view = JsonView() if options.as_json else TerminalView(typed=keyboard.typed)
    desk = Desk(keyboard, view)
    hands = GuardedTools(chosen(options.tools, options.folder), desk.ask)
    if options.yes:
        hands.allowed |= hands.tools.keys()
    async with place(options) as (url, model), connect(url, options.key) as client:
        body = {"model": model, "instructions": options.system, "temperature": options.temperature}
        desk.begin(Conversation(client, body, hands, desk, view), hands)
        if keyboard.typed:
            desk.welcome(url, own=options.url is None, folder=options.folder)
        return await desk.talk()


# ---- where the model is


@asynccontextmanager
async def place(options: Options) -> AsyncIterator[tuple[str, str]]:
    """The base URL of the server and the model's name there: one that runs, or one of our own. Raises ``CannotTalk``."""
    if options.url is not None:
        yield options.url, _choose(options.model, await _models_at(options.url, options.key), options.url)
        return
    own = ServerOptions(
        port=0, models=(options.model or MODEL,), data=":memory:", park_seconds=DAY, detach_seconds=DAY, continuation="append"
    )
    async with running(own) as server:
        [name] = await _models_at(server.url, None)
        yield server.url, name


async def _models_at(url: str, key: str | None) -> list[str]:
    """The names of the models that the server at ``url`` says it has, or none if it doesn't. Raises ``CannotTalk``."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    address = re.sub("^ws", "http", url.rstrip("/")) + "/models"
    try:
        async with httpx2.AsyncClient(headers=headers, timeout=ASKED_SECONDS, trust_env=False) as http:
            answer = await http.get(address)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise CannotTalk(
            f"nobody answers at {url}: {str(error) or type(error).__name__}\n"
            "Start a server (sostenuto serve) and give its address as it prints it; or leave --url out, and --model MODEL runs "
            "one for you."
        ) from error
    if answer.status_code in (401, 403):
        raise CannotTalk(f"{url} wants {'another' if key else 'a'} key: give it as --key KEY, or in SOSTENUTO_KEY")
    try:
        return [str(entry["id"]) for entry in answer.json()["data"]]
    except (ValueError, KeyError, TypeError):
        return []


def _choose(wanted: str | None, there: list[str], url: str) -> str:
    if wanted is not None and (wanted in there or not there):
        return wanted
    listed = f"it has {', '.join(there)}" if there else "it doesn't say which it has"
    if wanted is not None:
        raise CannotTalk(f"{url} has no model {wanted!r}: {listed}")
    if len(there) != 1:
        raise CannotTalk(f"say which model of {url}, with --model NAME: {listed}")
    return there[0]


# ---- who types


@define(eq=False)
class Desk:
    """``conversation.Person`` at a keyboard, with commands of their own."""

    keyboard: Keyboard[int]
    view: TerminalView | JsonView
    _conversation: Conversation = field(init=False)
    _hands: GuardedTools = field(init=False)
    _denied: bool = field(default=False, init=False)

    def begin(self, conversation: Conversation, hands: GuardedTools) -> None:
        """This is the conversation."""
        self._conversation, self._hands = conversation, hands
        self.keyboard.on_interrupt = conversation.interrupt

    async def talk(self) -> int:
        """The whole conversation; the exit status. Ends quietly when nobody reads what it prints."""
        try:
            await self._conversation.run()
            if self.keyboard.typed:
                self._note(_told(self._conversation.counts))
        except BrokenPipeError:
            return 1
        return int(self._conversation.failed and not self.keyboard.typed)

    def welcome(self, url: str, *, own: bool, folder: Path) -> None:
        """What this is, and how to end it."""
        if isinstance(self.view, TerminalView):
            tools = f"{', '.join(self._hands.tools)} in {folder.resolve()}" if self._hands.tools else "none"
            where = f"{url}{', in this process' if own else ''}"
            hint = "/help shows what you can say beside words, Ctrl-C cuts an answer short, Ctrl-D ends"
            facts = [("server", where), ("tools", tools), ("", hint)]
            if self._conversation.body["model"] == MODEL and own:
                facts.insert(0, ("model", f"{MODEL} plays with its tools and is no real one; --model chooses another"))
            self.view.heading(str(self._conversation.body["model"]), facts)

    # ---- words and commands

    async def next_words(self) -> str | None:
        """What is typed next, and is for the model. In a pipe a line is a message, and a failure the end."""
        if self._conversation.failed and not self.keyboard.typed:
            return None
        while (words := await self._line()) is not None:
            command = re.fullmatch(r"/(\w*)\s*", words)
            if command is None:
                if words.strip():
                    return words
            elif command[1] in ("quit", "exit"):
                return None
            else:
                self._obey(command[1])
        return None

    async def _line(self) -> str | None:
        """A line, or several that are joined; None at the end."""
        prompt, taken = "› ", ""
        while True:
            try:
                line = await self.keyboard.line(prompt if sys.stdout.encoding.lower().startswith("utf") else "> ")
            except Interrupted:
                self._note("Ctrl-D ends the conversation")
                return ""
            if line is None:
                return None
            if not (self.keyboard.typed and line.endswith("\\")):
                return taken + line
            prompt, taken = "… ", taken + line[:-1] + "\n"

    def _obey(self, command: str) -> None:
        if command == "help":
            self._facts(HELP)
        elif command == "tools":
            self._facts(self._tools() or [("", "none: --tools read, or --tools all, gives some")])
        elif command == "usage":
            self._facts(_facts(self._conversation.counts))
        elif command == "new":
            self._conversation.begin_anew()
            self._note("what was said is forgotten")
        else:
            self._note(f"no such command: /{command}; /help shows those that there are")

    def _tools(self) -> list[tuple[str, str]]:
        told = {name: tool.spec.description.partition(". ")[0].rstrip(".") for name, tool in self._hands.tools.items()}
        return [(name, text + ("" if name in self._hands.allowed else "; asks first")) for name, text in told.items()]

    def _facts(self, facts: Iterable[tuple[str, str]]) -> None:
        if isinstance(self.view, TerminalView):
            self.view.facts(facts)

    def _note(self, text: str) -> None:
        self.view.note(text)

    # ---- permission

    async def ask(self, call: Frame) -> Verdict:  # noqa: ARG002 - the view has shown it
        """Whether a call that may change something may run. Nobody can say so in a pipe."""
        if not self.keyboard.typed:
            if not self._denied:
                self._note("tools that change something are not run: nobody can be asked here, and --yes was not given")
            self._denied = True
            return "no"
        self.view.calm()  # type: ignore[union-attr]
        try:
            answer = await self.keyboard.line("  allow it? [y]es, [a]lways, [N]o: ")
        except Interrupted:
            self._conversation.interrupt()
            await trio.lowlevel.checkpoint()
            return "no"
        said = (answer or "").strip().lower()
        return "yes" if said in ("y", "yes") else "always" if said in ("a", "always") else "no"


# ---- counts


def _told(counts: Counts) -> str:
    responses = "one Response" if counts.responses == 1 else f"{counts.responses} Responses"
    told = f"{responses}, parked {counts.parks} times; {counts.input_tokens:,} tokens in, {counts.output_tokens:,} out"
    if counts.kept or counts.lost:
        told += f"; the model's state was kept {counts.kept} times and lost {counts.lost} times"
    return told


def _facts(counts: Counts) -> list[tuple[str, str]]:
    return [
        ("Responses", f"{counts.responses}, parked {counts.parks} times, for tools and for you"),
        ("tokens in", f"{counts.input_tokens:,}, of which {counts.cached_tokens:,} cached"),
        ("tokens out", f"{counts.output_tokens:,}, of which {counts.reasoning_tokens:,} reasoning"),
        ("reconnects", str(counts.reconnects)),
    ]
