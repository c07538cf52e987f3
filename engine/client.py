"""A client of the append shape for agents written on trio: ``protocol.client`` put on sockets.

    async with connect("http://127.0.0.1:8080/v1") as client:
        result = await client.run(model="scripted", input="…", tools={"read_file": read_file})
        print(result.text)

Plan. A client keeps its idle sockets; each rollout takes one, or opens one, has it for itself, and gives it back when
it has ended. Three tasks serve a rollout: its driver reads frames, lets the state machine digest them, and hands on
events through a bounded channel; a writer, of the driver's, is the only one that sends; and a task of each socket
holds it (``transport.dialing``).

Whatever happens to the socket ends only the driver's conversation on it. It then takes another one and says what the
state machine wants to be said after a reconnect. Nothing that was waiting for the old socket is kept: what matters is
what was not acknowledged, and the state machine knows that.

No exception but a bug travels through a nursery: a failure is noted, and raised where the user reads events. So users
meet ``RolloutError`` and ``ConnectionLost`` as they are, and never in a group.
"""

import math
import ssl
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Literal

import trio
from attrs import frozen
from trio_websocket import ConnectionRejected

from protocol.client import AskUser, ClientState, Frame, Notice, ProtocolGap, Refused, RunCall, output_for
from protocol.codec import encode, parse
from protocol.errors import ProtocolError

from .client_tools import Output, Toolbox, Tools
from .transport.dialing import CLOSE_SECONDS, Door, Socket

EVENTS_BUFFERED: Final = 1024
"""Events that wait for a user who is busy; after that the socket is not read on, and the server feels it."""
BACKOFF_SECONDS: Final = 0.1
BACKOFF_CAP_SECONDS: Final = 5.0
"""Before a reconnect: doubling from the one to the other, anew after each one that brought something."""
RETRIED_STATUS: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""A refused upgrade with one of these may be granted later."""


class ConnectionLost(Exception):
    """The server could not be reached, or not again. The Response may live on; ``Client.attach`` can join it later."""


class RolloutError(Exception):
    """The server answered with an ``error``. ``status`` is as in HTTP, ``param`` the path of the field, if any."""

    def __init__(self, code: str, message: str, status: int | None = None, param: str | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status
        self.param = param

    @classmethod
    def of(cls, frame: Mapping[str, Any], status: int | None = None) -> "RolloutError":
        """From an ``error`` frame or the body of an HTTP answer, nested or flat."""
        nested = frame.get("error")
        facts = {**frame, **nested} if isinstance(nested, dict) else frame
        message = str(facts.get("message") or "refused")
        return cls(str(facts.get("code") or "unknown"), message, facts.get("status", status), facts.get("param"))


@frozen
class Event:
    """A frame of the server as JSON values, and what the state machine made of it."""

    frame: Frame
    notices: tuple[Notice, ...] = ()

    @property
    def type(self) -> str:
        """The frame's type."""
        return str(self.frame["type"])


@frozen(kw_only=True)
class Result:
    """A rollout that has ended, however it did: see ``status``."""

    response: Frame
    """The Response as its terminal event has it."""
    items: list[Frame]
    """Its output items."""
    text: str
    """The answer: what was said after the last call."""
    parks: int
    """How often it waited for results, or for the user."""
    reconnects: int
    bytes_up: int
    bytes_down: int
    """Payload of the frames sent and received, in UTF-8."""

    @property
    def status(self) -> str:
        """``completed``, ``incomplete``, ``cancelled`` or ``failed``."""
        return str(self.response["status"])


class Rollout:
    """One Response from the client's side. Iterate over it for its events; ``state`` says all about it.

    Iterating raises ``RolloutError`` or ``ConnectionLost``, once, and ends after the terminal event.
    """

    def __init__(self, client: "Client", state: ClientState) -> None:
        self.state = state
        self.bytes_up = 0
        self.bytes_down = 0
        self.connections = 0
        self._client = client
        self._inlet, self._outlet = trio.open_memory_channel[Event](EVENTS_BUFFERED)
        self._letters: trio.MemorySendChannel[Frame] | None = None
        self._failure: Exception | None = None
        self._lives_on = False

    async def receive(self) -> Event:
        """The next event. Raises ``trio.EndOfChannel`` after the last one; cancelled, it has lost nothing."""
        try:
            return await self._outlet.receive()
        except trio.EndOfChannel:
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure from None
            raise

    def __aiter__(self) -> "Rollout":
        return self

    async def __anext__(self) -> Event:
        try:
            return await self.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None

    async def append(self, *items: Mapping[str, Any]) -> None:
        """Append results of calls, or user messages, in one frame. Raises ``TypeError`` for what JSON cannot say.

        Returns when it is sure to be sent, now or after a reconnect. Nothing is sent once the Response has ended.
        """
        encode(items)
        if not self.state.ended:
            self._post(self.state.append(items))
        await trio.lowlevel.checkpoint()

    async def answer(self, call: Mapping[str, Any], output: Output, *, failed: bool = False) -> None:
        """Append the result of ``call``, as ``append`` does."""
        await self.append(output_for(call, output, failed=failed))

    async def say(self, text: str) -> None:
        """Append a message of the user, as ``append`` does."""
        await self.append({"type": "message", "role": "user", "content": text})

    async def finish(self) -> None:
        """End a Response that waits for the user; one that samples ends when the model has answered."""
        self._post(self.state.finish())
        await trio.lowlevel.checkpoint()

    async def cancel(self) -> None:
        """End the Response where it is. Its terminal event is still to come."""
        self._post(self.state.cancel())
        await trio.lowlevel.checkpoint()

    def leave_running(self) -> None:
        """Don't cancel the Response when the context is left before its end: someone will ``Client.attach`` to it."""
        self._lives_on = True

    def result(self) -> Result:
        """What came of it; it must have ended."""
        response = self.state.response
        if response is None:
            raise RuntimeError("the Response has not ended")
        return Result(
            response=response,
            items=response["output"],
            text=_answer_in(response["output"]),
            parks=self.state.parks,
            reconnects=max(0, self.connections - 1),
            bytes_up=self.bytes_up,
            bytes_down=self.bytes_down,
        )

    def _post(self, frame: Frame) -> None:
        """To the writer; between two sockets to nobody, since the state machine says it again."""
        if self._letters is not None:
            self._letters.send_nowait(frame)

    async def _drive(self) -> None:
        """Until the Response has ended or failed; cancelled before, it is cancelled on the server too
        (``leave_running``)."""
        with self._inlet:
            try:
                await self._stay_connected()
            except (ConnectionLost, RolloutError) as failure:
                self._failure = failure

    async def _stay_connected(self) -> None:
        fruitless = 0
        while True:
            cursor = self.state.cursor
            reason = await self._connect_and_talk()
            if self.state.ended or self._failure is not None:
                return
            fruitless = 1 if self.state.cursor > cursor else fruitless + 1
            if fruitless > self._client.max_reconnects:
                raise ConnectionLost(f"{self._client.url}: gave up after {fruitless} attempts: {reason}")
            await trio.sleep(min(BACKOFF_SECONDS * 2 ** (fruitless - 1), BACKOFF_CAP_SECONDS))

    async def _connect_and_talk(self) -> str:
        """Why it is over; raises ``RolloutError`` when the upgrade was refused for good."""
        try:
            socket = await self._client._take()
        except ConnectionRejected as rejected:
            error = _refusal(rejected)
            if rejected.status_code not in RETRIED_STATUS:
                raise error from None
            return str(error)
        except (OSError, trio.BrokenResourceError, trio.TooSlowError) as error:
            return f"{type(error).__name__}: {error.__cause__ or error}"
        self.connections += 1
        await self._talk(socket)
        return socket.gone or "dropped"

    async def _talk(self, socket: Socket) -> None:
        """Read, and let a writer write, until the end of the Response or of the socket, which is given back or
        closed."""
        letters, mailbox = trio.open_memory_channel[Frame](math.inf)
        self._letters = letters
        for frame in self.state.reconnect():
            self._post(frame)
        leaving = True
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write, socket, mailbox)
                await self._read(socket)
                nursery.cancel_scope.cancel()
            leaving = self._failure is not None
        finally:
            self._letters = None
            if leaving and not (self.state.ended or self._lives_on):
                with trio.move_on_after(CLOSE_SECONDS, shield=True):
                    await socket.send(encode(self.state.cancel()).decode())
            self._client._give_back(socket, reusable=self.state.quiet)

    async def _write(self, socket: Socket, mailbox: trio.MemoryReceiveChannel[Frame]) -> None:
        async for frame in mailbox:
            text = encode(frame)
            if not await socket.send(text.decode()):
                return
            self.bytes_up += len(text)

    async def _read(self, socket: Socket) -> None:
        """Until the end, an error, or the end of the socket; garbage and gaps are the end of it too."""
        while not self.state.ended and self._failure is None:
            message = await socket.receive()
            if message is None:
                return
            self.bytes_down += len(message.encode() if isinstance(message, str) else message)
            cursor = self.state.cursor
            try:
                frame = parse(message)
                notices = tuple(self.state.receive(frame))
            except (ProtocolError, ProtocolGap):
                return
            for notice in notices:
                if isinstance(notice, Refused) and not notice.settled:
                    self._failure = RolloutError.of(notice.error)
            if notices or self.state.cursor > cursor or "sequence_number" not in frame:
                await self._inlet.send(Event(frame, notices))


async def _answer(rollout: Rollout, toolbox: Toolbox, call: Frame) -> None:
    await rollout.append(await toolbox.answer(call))


def _answer_in(items: Sequence[Frame]) -> str:
    last_call = max((n for n, item in enumerate(items) if item["type"].endswith("_call")), default=-1)
    parts = (part for item in items[last_call + 1 :] if item["type"] == "message" for part in item["content"])
    return "".join(part["text"] for part in parts if part["type"] == "output_text")


def _refusal(rejected: ConnectionRejected) -> RolloutError:
    try:
        body = parse(rejected.body or b"")
    except ProtocolError:
        body = None
    facts = body if isinstance(body, dict) else {"code": "upgrade_refused", "message": "the upgrade was refused"}
    return RolloutError.of(facts, rejected.status_code)


class Client:
    """A server, as ``connect`` gives it. Rollouts may run side by side: each has a socket of its own."""

    def __init__(self, door: Door, nursery: trio.Nursery, max_reconnects: int) -> None:
        self.max_reconnects = max_reconnects
        self._door = door
        self._nursery = nursery
        self._idle: list[Socket] = []

    @property
    def url(self) -> str:
        """As it was given to ``connect``."""
        return self._door.url

    def rollout(
        self,
        *,
        model: str,
        input: str | Sequence[Mapping[str, Any]] = (),  # noqa: A002 - the field's name
        **create_fields: Any,
    ) -> "_Opened":
        """Begin a Response: ``async with client.rollout(…) as rollout``. The fields are those of a create body.

        Left before its end, the Response is cancelled, unless ``Rollout.leave_running`` was called.
        """
        fields = {"model": model, "input": input, "continuation": "append", **create_fields}
        state = ClientState(uuid.uuid4().hex)
        state.create({name: value for name, value in fields.items() if value is not None})
        return self._open(state)

    def attach(self, response_id: str, starting_after: int = -1) -> "_Opened":
        """Join a Response that was begun before; its events after that number are replayed first."""
        state = ClientState(uuid.uuid4().hex)
        state.attach(response_id, starting_after)
        return self._open(state)

    async def run(
        self,
        *,
        model: str,
        input: str | Sequence[Mapping[str, Any]],  # noqa: A002
        tools: Tools = (),
        tool_definitions: Sequence[Mapping[str, Any]] = (),
        on_event: Callable[[Event], object] | None = None,
        on_ask_user: Callable[[], Awaitable[str | None]] | None = None,
        **create_fields: Any,
    ) -> Result:
        """Run a rollout to its end, and its tools: each call once, side by side, as soon as it is whole.

        ``tools`` are async functions by name, or ``tools.spec.Tool`` objects; a function without a definition in
        ``tool_definitions`` is described by its docstring and signature. A tool that raises answers ``error: …``.
        ``on_ask_user`` gives the user's next message in a held conversation, or None, as without it, to finish.

        Raises ``RolloutError`` and ``ConnectionLost``. Cancelled, the tools and the Response are cancelled.
        """
        toolbox = Toolbox(tools, tool_definitions)
        create_fields["tools"] = toolbox.definitions or None
        async with self.rollout(model=model, input=input, **create_fields) as rollout, background() as nursery:
            async for event in rollout:
                if on_event is not None:
                    on_event(event)
                for notice in event.notices:
                    if isinstance(notice, RunCall):
                        nursery.start_soon(_answer, rollout, toolbox, notice.item)
                    elif isinstance(notice, AskUser):
                        text = None if on_ask_user is None else await on_ask_user()
                        await (rollout.finish() if text is None else rollout.say(text))
        return rollout.result()

    @asynccontextmanager
    async def _open(self, state: ClientState) -> AsyncIterator[Rollout]:
        rollout = Rollout(self, state)
        async with background() as nursery:
            nursery.start_soon(rollout._drive)
            yield rollout

    async def _take(self) -> Socket:
        """An idle socket that is not known to be closed, or a new one; raises as ``Socket.hold`` does."""
        while self._idle:
            socket = self._idle.pop()
            if socket.gone is None:
                return socket
            socket.close()
        opened: Socket = await self._nursery.start(Socket.hold, self._door)
        return opened

    def _give_back(self, socket: Socket, *, reusable: bool) -> None:
        if reusable and socket.gone is None:
            self._idle.append(socket)
        else:
            socket.close()

    def _close(self) -> None:
        while self._idle:
            self._idle.pop().close()


_Opened = AbstractAsyncContextManager[Rollout]


@asynccontextmanager
async def background() -> AsyncIterator[trio.Nursery]:
    """A nursery whose tasks end with its body, and which the body's own exception leaves as it is, not in a group."""
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        try:
            yield nursery
        except Exception as error:
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


@asynccontextmanager
async def connect(
    url: str,
    api_key: str | None = None,
    continuation: Literal["append"] = "append",  # noqa: ARG001 - the shape that there is
    max_reconnects: int = 5,
    ssl_context: ssl.SSLContext | None = None,
) -> AsyncIterator[Client]:
    """A client of the server at ``url`` (http, https, ws or wss; ``/responses`` is added).

    Sockets are opened when they are needed, so it raises only ``ValueError``, for the URL. A rollout gives up when
    ``max_reconnects`` attempts in a row brought nothing. Leaving it closes the sockets within a deadline.
    """
    door = Door.at(url, api_key, ssl_context)
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        client = Client(door, nursery, max_reconnects)
        try:
            yield client
        except Exception as error:
            failure = error
        client._close()
    if failure is not None:
        raise failure
