"""What a probe is, the list of all, and how one is played."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from inspect import cleandoc
from typing import Final, Literal

from attrs import frozen

from ..adapters import Adapter, CannotSteer
from ..capabilities import ALL, Capabilities
from ..transport import Closed, Refused, Shape, Transport
from .talk import NotOffered, Talk

Play = Callable[[Talk], Awaitable[None]]
SHAPES: Final[tuple[Shape, ...]] = ("append", "create", "http")
SOCKETS: Final[tuple[Shape, ...]] = ("append", "create")
CHAINS: Final[tuple[Shape, ...]] = ("create", "http")

Basis = Literal["OpenAI", "Open Responses", "ours"]
"""Where it is written what is right: in OpenAI's public documentation of the Responses API, in the specification of Open
Responses, or in our own documents only."""


@frozen(kw_only=True)
class Probe:
    """A conversation. ``play`` raises ``ConformanceError`` if the server is wrong, ``NotOffered`` if it can't be asked."""

    name: str
    law: str
    shapes: Collection[Shape]
    needs: frozenset[str]
    """Names of ``Capabilities``."""
    basis: Basis
    right: str
    """What is right, and where that is written."""
    subject: str
    """The module that it is in."""
    play: Play

    def basis_in(self, shape: Shape) -> Basis:
        """As ``basis``: of the append shape nothing is written but by us."""
        return "ours" if shape == "append" else self.basis


PROBES: Final[dict[str, Probe]] = {}


def probe(law: str, *, basis: Basis, shapes: Collection[Shape] = SHAPES, needs: Collection[str] = ()) -> Callable[[Play], Play]:
    """Enter a function as a probe. Its name is the function's with blanks, its docstring says what is right."""

    def enter(play: Play) -> Play:
        name, right = play.__name__.replace("_", " "), cleandoc(play.__doc__ or "")
        assert name not in PROBES, name
        subject = play.__module__.rpartition(".")[2]
        PROBES[name] = Probe(
            name=name, law=law, shapes=shapes, needs=frozenset(needs), basis=basis, right=right, subject=subject, play=play
        )
        return play

    return enter


async def run_probe(
    one: Probe,
    transport: Transport,
    shape: Shape,
    adapter: Adapter,
    *,
    capabilities: Capabilities = ALL,
    keys: Sequence[str] = (),
    seconds: float | None = None,
) -> Talk:
    """Play ``one``, and close all of its connections, also when it is cancelled.

    ``seconds`` is how long an answer may take. Raises ``ConformanceError`` if the server is wrong, ``NotOffered`` if it
    can't be asked, ``OSError`` if it can't be reached.
    """
    lacking = [name for name in (shape, *sorted(one.needs)) if not getattr(capabilities, name)]
    if lacking:
        raise NotOffered(", ".join(lacking))
    talk = Talk(transport, shape, adapter, capabilities=capabilities, keys=keys, seconds=seconds)
    talk.law = one.law
    try:
        await _play(one, talk)
    except CannotSteer as error:
        raise NotOffered(str(error)) from None
    except Closed:
        raise talk.failure("the server closed the connection", "L12") from None
    except Refused as error:
        raise talk.failure(str(error), "L12") from None
    finally:
        await talk.aclose()
    return talk


async def _play(one: Probe, talk: Talk) -> None:
    """Of what goes wrong at the same time in several tasks, the first is told. Frames that have not what a probe looks
    for are the server's mistake."""
    try:
        await one.play(talk)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise talk.failure(f"what came is not as it is documented: {error!r}", "L4") from error
    except BaseExceptionGroup as group:
        first: BaseException = group
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None  # noqa: ASYNC123 - a probe has one verdict
