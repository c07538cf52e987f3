"""A model in our own care: llama.cpp's server, from the package ``xllamacpp``, in a child process on the loopback address.

Theory. The process is apart because it computes: nothing in it can hold up the event loop, and when it dies only what was
sampling dies with it. A task watches it and starts it again on the same port, so that its address stays. It ends with us,
however we end, since it watches the pipe to its standard input (``engine.models.llama_child``). A key that is made up here
keeps other users of the machine, and pages in a browser, away from it.

What it answers over HTTP is what ``llama-server`` answers (tried with xllamacpp 2026.10); what one must know:

- ``POST /completion`` takes token ids as ``prompt`` (nothing is put before them), ``id_slot``, ``cache_prompt``,
  ``return_tokens``, ``grammar``, ``stream``. A slot out of range is not refused: it takes any. A busy one is waited for.
  The token that ends a turn is among the ``tokens``. ``timings.cache_n`` is how many ids of the prompt were held; the
  last is always evaluated again. A client that hangs up stops the slot within a token. The stream has no ``[DONE]``.
- In a stream a character that takes several tokens comes as one chunk with the **last** id only, while
  ``tokens_predicted`` counts all; without ``stream`` all ids are there.
- ``POST /v1/completions`` takes ids, too, and gives none. ``POST /v1/chat/completions`` renders by the model's own chat
  template; where that knows no tools (SmolLM2's), tools are left out without a word.
- ``POST /tokenize``, ``/detokenize``, ``GET /props``, ``/slots``, ``/health``; ``POST /slots/N?action=erase`` forgets a slot.
- Defaults of sampling are ``top_k`` 40, ``min_p`` 0.05, ``top_p`` 0.95, ``temperature`` 0.8.
"""

import json
import os
import secrets
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

import trio
from attrs import define, field

from ..logs import note
from ..processes import end
from .base import ModelError
from .upstream import Upstream

START_SECONDS: Final = 600.0
"""A big model on a slow disk takes minutes to load."""
REAP_SECONDS: Final = 1.0
"""How long after a connection broke it is waited for news of the process's death, to tell the reason."""
BACKOFF_SECONDS: Final = 0.5
"""Before it is started again; doubled each time that it dies young."""
BACKOFF_MAX_SECONDS: Final = 30.0
YOUNG_SECONDS: Final = 60.0
"""Who lives longer was not started in vain."""
LAST_LINES: Final = 8
"""Of what it said on standard error, told when it dies."""
LINE_CHARS: Final = 500
SLOTS: Final = 4
"""Responses that sample side by side, or are held, if not said otherwise."""
CONTEXT_TOKENS: Final = 8192
"""Of each slot, if the model was made for as many: memory is taken for all of them at once."""

T = TypeVar("T")


# ---- the process


@define(eq=False)
class _Child:
    """A process that runs, or has ended; ``port`` is where it listens."""

    process: trio.Process
    port: int = 0
    last_lines: deque[str] = field(factory=lambda: deque(maxlen=LAST_LINES))
    unfinished: bytes = b""
    """Of standard error, behind the last whole line."""

    @classmethod
    async def start(cls, told: dict[str, Any]) -> "_Child":
        """Start one and wait until its model is loaded. Raises ``ModelError``; cancelled, nothing is left."""
        child = cls(
            await trio.lowlevel.open_process(
                [sys.executable, "-m", "engine.models.llama_child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # else Ctrl-C would end it before its parent does
                env={**os.environ, "OMP_WAIT_POLICY": "passive"},  # threads that wait must not burn the processor
            )
        )
        try:
            child.port = await child._listening(told)
        except BaseException:
            await child.aclose()
            raise
        return child

    async def _listening(self, told: dict[str, Any]) -> int:
        assert self.process.stdin is not None
        answer = b""
        with trio.move_on_after(START_SECONDS) as scope:
            with suppress(trio.BrokenResourceError):  # it has died; what follows says so
                await self.process.stdin.send_all(json.dumps(told).encode() + b"\n")
            answer = await self._line_beside_what_it_says()
        if scope.cancelled_caught:
            raise ModelError(f"the model in {told['file']} is not loaded after {START_SECONDS:.0f} s")
        if not answer:
            raise ModelError(f"the model in {told['file']} can't be loaded: its process {await self.died()}")
        said = json.loads(answer)
        if "error" in said:
            await self.died()  # it ends behind that, and has said why on standard error, perhaps not read yet
            raise ModelError(f"the model in {told['file']} can't be loaded: {self._in_full(said['error'])}")
        return int(said["url"].rpartition(":")[2])

    async def died(self) -> str:
        """Wait until it has, read what it said last, and say how. Cancellation leaves it as it is."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._drain)
            status = await self.process.wait()
            nursery.cancel_scope.deadline = trio.current_time() + REAP_SECONDS  # children of its own may hold its end open
        how = f"was killed by signal {-status}" if status < 0 else f"has ended with status {status}"
        return self._in_full(how)

    async def aclose(self) -> None:
        """End it, by force if it takes long; also when it is cancelled."""
        await end(self.process)

    def _in_full(self, what: str) -> str:
        return "; it said: ".join(filter(None, (what, " | ".join(self.last_lines))))

    async def _line(self) -> bytes:
        """Its answer; nothing if it has ended without one."""
        assert self.process.stdout is not None
        answer = b""
        while not answer.endswith(b"\n"):
            data = await self.process.stdout.receive_some()
            if not data:
                return b""
            answer += data
        return answer

    async def _line_beside_what_it_says(self) -> bytes:
        """``_line``, while what it says on standard error is read: it would stand still if nobody did."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._drain)
            answer = await self._line()
            nursery.cancel_scope.cancel()
        return answer

    async def _drain(self) -> None:
        assert self.process.stderr is not None
        async for data in self.process.stderr:
            *lines, unfinished = (self.unfinished + data).split(b"\n")
            self.unfinished = unfinished[-LINE_CHARS:]
            self.last_lines.extend(line.decode(errors="replace").strip()[:LINE_CHARS] for line in lines if line.strip())


# ---- the server


@define(eq=False, kw_only=True)
class LlamaServer:
    """llama.cpp's server with the model in ``file``, which must be a GGUF file. It is there while ``running``."""

    file: Path
    name: str = "local"
    """What ``/v1/models`` calls the model."""
    slots: int = SLOTS
    context: int = CONTEXT_TOKENS
    """Tokens of each slot."""
    threads: int = field(factory=lambda: max(1, _processors() - 1))
    """For sampling; a prompt is read with one more, so that one processor is left for who serves the tokens."""
    together: int = 512
    """Tokens that are evaluated together. With 1 a prompt is computed exactly as what is sampled, and read as slowly."""
    chat_template: str | None = None
    """In Jinja, for ``/v1/chat/completions``, instead of the model's own."""
    key: str = field(factory=lambda: secrets.token_urlsafe(24), repr=False)
    """What it asks for as a bearer key."""
    starts: int = field(default=0, init=False)
    """How often it was started. What an earlier one held is lost."""
    _port: int = field(default=0, init=False)
    _up: trio.Event = field(factory=trio.Event, init=False)
    _down: trio.Event = field(factory=trio.Event, init=False)
    _how: str = field(default="is not running", init=False)
    _process: trio.Process | None = field(default=None, init=False)

    @property
    def url(self) -> str:
        """Where it is, without a slash at the end; the same over all starts. Raises ``ModelError`` before the first."""
        if not self._port:
            raise ModelError(f"the model's process {self._how}")
        return f"http://127.0.0.1:{self._port}"

    @property
    def upstream(self) -> Upstream:
        """The same with its key. Raises ``ModelError`` before the first start."""
        return Upstream(url=self.url, model=self.name, key=self.key)

    @property
    def pid(self) -> int | None:
        """Of its process; None while there is none."""
        return self._process.pid if self._process else None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """It runs while the context lasts; when it dies it is started again. Raises ``ModelError`` if it can't be started.

        An exception or a cancellation inside ends it, too.
        """
        check_installed()
        failure: Exception | None = None  # goes around the nursery, which would put it in a group
        with TemporaryDirectory(prefix="sostenuto-") as folder:
            child = await self._start(folder)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep, child, folder)
                try:
                    yield
                except Exception as error:
                    failure = error
                nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def ready(self, seconds: float = START_SECONDS) -> None:
        """Wait until it answers: it is not there for some seconds after it died. Raises ``ModelError`` if that takes longer."""
        with trio.move_on_after(seconds):
            await self._up.wait()
            return
        raise ModelError(f"the model's process {self._how}; it is being started again", fault="busy", retry_after=seconds)

    async def trouble(self) -> ModelError | None:
        """Why a connection to it broke, if that is because it died. Waits a moment for the news of it."""
        with trio.move_on_after(REAP_SECONDS):
            await self._down.wait()
            return ModelError(f"the model's process {self._how} while it was sampling; it is being started again")
        return None

    async def _start(self, folder: str) -> _Child:
        child = await _Child.start(self._told(folder))
        self._port, self._process = child.port, child.process
        self.starts += 1
        self._down = trio.Event()
        self._up.set()
        return child

    def _told(self, folder: str) -> dict[str, Any]:
        return {
            "file": str(self.file),
            "name": self.name,
            "slots": self.slots,
            "context": self.context,
            "port": self._port,
            "key": self.key,
            "folder": folder,
            "threads": self.threads,
            "batch_threads": self.threads + 1,
            "together": self.together,
            "chat_template": self.chat_template,
        }

    async def _keep(self, child: _Child | None, folder: str) -> None:
        """Start another one whenever it dies, later each time that it dies young."""
        pause = BACKOFF_SECONDS
        try:
            while True:
                if child is not None:
                    pause = BACKOFF_SECONDS if await self._outlive(child) > YOUNG_SECONDS else pause
                await trio.sleep(pause)
                pause = min(2 * pause, BACKOFF_MAX_SECONDS)
                child = await self._restart(folder)
        finally:
            self._fell("is not running")

    async def _outlive(self, child: _Child) -> float:
        """Wait until it is dead; gives how long that was, in seconds. Cancelled, it is ended."""
        begun = trio.current_time()
        try:
            self._fell(await child.died())
        finally:
            await child.aclose()
        note("model.died", model=self.name, how=self._how)
        return trio.current_time() - begun

    async def _restart(self, folder: str) -> _Child | None:
        try:
            child = await self._start(folder)
        except ModelError as error:
            self._how = f"does not start again: {error.message}"
            note("model.not_started", model=self.name, error=error.message)
            return None
        note("model.started", model=self.name, starts=self.starts)
        return child

    def _fell(self, how: str) -> None:
        self._how, self._process, self._up = how, None, trio.Event()
        self._down.set()


def check_installed() -> None:
    """Raises ``ModelError`` if the package that has llama.cpp is missing."""
    if find_spec("xllamacpp") is None:
        raise ModelError("a model in our own care needs the package xllamacpp: pip install 'sostenuto[local]'")


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
