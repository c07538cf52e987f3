"""A server on a real socket for the tests of the documentation: the same bytes each time."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from engine import Config, Server, Services, listening
from engine.models import load_model
from tools.spec import HostedTool


def fail_loudly(error: BaseException) -> None:
    raise error


@asynccontextmanager
async def doc_server(hosted: Mapping[str, HostedTool] | None = None, **config: Any) -> AsyncIterator[int]:
    """Gives the port. Ids depend on nothing but the order in which they are made; the wall clock stands still."""
    services = Services(
        models={"scripted": load_model("scripted")},
        hosted=hosted or {},
        config=Config(**config),
        on_bug=fail_loudly,
        entropy=Random(1).randbytes,
        wall=lambda: 1_780_000_000.0,
    )
    async with listening(Server(services)) as port:
        yield port
