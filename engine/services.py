"""What every Response of a server shares: models, tools, policy, books, clocks. One object, made once, handed down."""

import os
import time
from collections.abc import Callable, Mapping
from typing import Final

from attrs import define, field

from protocol.ids import Entropy
from tools.spec import HostedTool

from .config import Config
from .ledger import Ledger, MemoryLedger
from .logs import report_bug
from .models.base import Model
from .policy import Policy
from .stages.counters import Counters
from .store import MemoryStore, Store

RANDOM_BYTES: Final = 4096
"""Asked for at once."""


class RandomBytes:
    """As ``os.urandom``, but that it asks the system for many at once: ids need sixteen at a time, some five times a turn."""

    __slots__ = ("_at", "_pool")

    def __init__(self) -> None:
        self._pool = b""
        self._at = 0

    def __call__(self, count: int) -> bytes:
        at = self._at
        taken = self._pool[at : at + count]
        if len(taken) < count:
            self._pool, at = os.urandom(max(count, RANDOM_BYTES)), 0
            taken = self._pool[:count]
        self._at = at + count
        return taken


@define(kw_only=True, eq=False)
class Services:
    """The parts of a server that its Responses use."""

    config: Config = field(factory=Config)
    models: Mapping[str, Model]
    """By the name that requests use."""
    hosted: Mapping[str, HostedTool] = field(factory=dict)
    """Hosted tools by name, ``file_search`` for example."""
    policy: Policy = field(factory=Policy.empty)
    ledger: Ledger = field(factory=MemoryLedger)
    store: Store = field(factory=MemoryStore)
    wall: Callable[[], float] = time.time
    """Seconds of Unix time."""
    entropy: Entropy = field(factory=RandomBytes)
    on_bug: Callable[[BaseException], None] = report_bug
    """Told of every exception that is a bug of ours. Tests raise it; a server logs it and lives on."""
    price: Callable[[Counters], float] | None = None
    """How long all that a Response's stages have counted is to take, in seconds: for simulations, in whose virtual time all
    work is done in none. None in a server, where it takes what it takes."""
