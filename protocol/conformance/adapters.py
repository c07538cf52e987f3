"""How a server is steered: an adapter says what must be in a request so that the model does what the kit wants of it.

What the kit wants is a program, in the steps that ``script`` knows: say this, call that. A server whose model *obeys* does it
to the letter, and what comes is foretold. Of any other the kit checks what needs no foretelling, and of its steps an adapter
takes what it can: which tools to call. An adapter for a server of yours is a class with these four members.
"""

from collections.abc import Sequence
from typing import Protocol

from .sayings import user
from .script import Script, Step, message_of
from .transport import Frame


class Adapter(Protocol):
    """Steers one kind of server."""

    @property
    def obeys(self) -> bool:
        """Whether the model does exactly what a program says."""
        ...

    @property
    def codes(self) -> bool:
        """Whether errors must have the codes of Sostenuto. Of a stranger, an error of the right shape will do."""
        ...

    def opening(self, steps: Sequence[Step], *, tokens_per_second: float | None = None) -> Frame:
        """The fields of a create that begins a rollout of ``steps``: ``model``, ``input`` (a list of items), tools and the
        like. The speed is a wish."""
        ...

    def following(self, script: Script) -> Frame:
        """The fields of a create that continues a rollout, beside ``input`` and ``previous_response_id``; ``script.turn()`` is
        what the model should do now."""
        ...

    def saying(self, steps: Sequence[Step]) -> Frame:
        """A user message that makes the model do ``steps`` next."""
        ...


class Scripted:
    """The model ``scripted`` of Sostenuto: a program in the user's message is done to the letter."""

    obeys = True
    codes = True

    def __init__(self, model: str = "scripted") -> None:
        self._model = model

    def opening(self, steps: Sequence[Step], *, tokens_per_second: float | None = None) -> Frame:
        """The program, as the one message."""
        return {"model": self._model, "input": [user(message_of(steps, tokens_per_second))]}

    def following(self, script: Script) -> Frame:  # noqa: ARG002
        """Nothing: the program goes on by itself."""
        return {"model": self._model}

    def saying(self, steps: Sequence[Step]) -> Frame:
        """A new program."""
        return user(message_of(steps))
