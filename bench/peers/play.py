"""Plays rollouts: one by itself, whose turns are timed, and many side by side, whose turns are counted."""

import selectors
import time
from collections.abc import Callable, Sequence
from typing import Final

from attrs import define, field, frozen

from .rollout import DELTA, ENDS, FAILED, Rollout, call_id_of, response_id_of
from .wire import Wire

CALL: Final = b'{"type":"response.output_item.done"'


@frozen
class Turn:
    """Seconds from before an output was handed to the socket to what came back."""

    first: float
    """The first event, whichever."""
    delta: float
    """The first that was sampled."""
    last: float
    """The last event: the terminal one, or that the Response has parked."""


@define(eq=False)
class Player:
    """A rollout on a connection."""

    wire: Wire
    rollout: Rollout
    turns: int
    """That are still to be played."""
    started: float = 0.0
    marks: list[float] = field(factory=list)
    _call_id: str = ""
    _response_id: str = ""
    ended: bool = False
    """Whether the turn's last event has come."""

    def begin(self) -> None:
        """Send the first request."""
        self._send(self.rollout.begin())

    def answer(self) -> None:
        """Send the output that is waited for."""
        self.turns -= 1
        self._send(self.rollout.turn(self._call_id, self._response_id))

    def read(self) -> bool:
        """Take what has come, at least something; whether the turn is over and the connection free."""
        data = self.wire.read()
        now = time.perf_counter() - self.started
        for event in self.wire.events(data):
            if not self.marks:
                self.marks.append(now)
            if len(self.marks) == 1 and event.startswith(DELTA):
                self.marks.append(now)
            if event.startswith(CALL):
                self._call_id = call_id_of(event) or self._call_id
            elif event.startswith(ENDS):
                if event.startswith(FAILED):
                    raise RuntimeError(f"a turn failed: {event!r}")
                self.marks.append(now)
                self._response_id = response_id_of(event)
                self.ended = True
            elif event.startswith(FAILED):
                raise RuntimeError(f"a turn failed: {event!r}")
        return self.ended and self.wire.free

    def wait(self) -> Turn:
        """Wait for the turn's end."""
        while not self.read():
            pass
        first, delta, last = self.marks
        return Turn(first, delta, last)

    def _send(self, payload: bytes) -> None:
        packed = self.wire.packed(payload)
        self.marks, self.ended = [], False
        self.started = time.perf_counter()
        self.wire.put(packed)


def alone(wire: Wire, rollout: Rollout, turns: int) -> list[Turn]:
    """Play a rollout of so many turns; what each took. What begins it, and what ends a held one, is not timed."""
    player = Player(wire, rollout, turns + rollout.held)
    player.begin()
    player.wait()
    played = []
    while player.turns:
        player.answer()
        played.append(player.wait())
    return played[:turns]


def crowd(connect: Callable[[], Wire], rollouts: Sequence[Rollout], turns: int) -> float:
    """Play the rollouts side by side, each of so many turns; turns a second, from the first request to the last event."""
    players = [Player(connect(), rollout, turns + rollout.held) for rollout in rollouts]
    by_file = {player.wire.fileno(): player for player in players}
    selector = selectors.DefaultSelector()
    for file in by_file:
        selector.register(file, selectors.EVENT_READ)
    started = time.perf_counter()
    for player in players:
        player.begin()
    while by_file:
        for key, _ in selector.select():
            player = by_file[key.fd]
            if not player.read():
                continue
            if player.turns:
                player.answer()
            else:
                selector.unregister(key.fd)
                del by_file[key.fd]
    seconds = time.perf_counter() - started
    selector.close()
    for player in players:
        player.wire.close()
    return len(players) * turns / seconds
