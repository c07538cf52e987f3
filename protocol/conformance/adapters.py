"""How a server is steered: an adapter says what must be in a request so that the model does what the kit wants of it.

What the kit wants is a program, in the steps that ``script`` knows: say this, call that. A server whose model *obeys* does it
to the letter, and what comes is foretold. Of any other the kit checks what needs no foretelling, and of its steps an adapter
takes what it can: which tools to call. An adapter for a server of yours is a class with these members.

``Scripted`` is for Sostenuto, ``Programs`` for servers that do the same programs, ``RealModel`` for a model behind any server,
``aimock.Aimock`` for a mock that answers by fixtures.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from attrs import field, frozen

from .sayings import user
from .script import HOSTED, TEMPLATE, Expected, Script, Step, beginning, calls_in, message_of
from .transport import Frame

Program = Sequence[Step]


class CannotSteer(Exception):
    """The server can't be made to do this; the text says why."""


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

    @property
    def programs(self) -> Sequence[Program] | None:
        """What conversations are made up of: every user message holds one of these programs. None: any will do, and
        messages without a program, too."""
        ...

    def opening(self, steps: Program, *, tokens_per_second: float | None = None) -> Frame:
        """The fields of a create that begins a rollout of ``steps``: ``model``, ``input`` (a list of items), tools and the
        like. The speed is a wish. Raises ``CannotSteer`` for steps that this server can't be made to do."""
        ...

    def following(self, script: Script) -> Frame:
        """The fields of a create that continues a rollout, beside ``input`` and ``previous_response_id``; ``script.turn()`` is
        what the model should do now."""
        ...

    def saying(self, steps: Program) -> Frame:
        """A user message that makes the model do ``steps`` next."""
        ...


class Scripted:
    """The model ``scripted`` of Sostenuto: a program in the user's message is done to the letter."""

    obeys = True
    codes = True
    programs: Sequence[Program] | None = None

    def __init__(self, model: str = "scripted") -> None:
        self._model = model

    def opening(self, steps: Program, *, tokens_per_second: float | None = None) -> Frame:
        """The program, as the one message."""
        return {"model": self._model, "input": [user(message_of(steps, tokens_per_second))]}

    def following(self, script: Script) -> Frame:  # noqa: ARG002
        """Nothing: the program goes on by itself."""
        return {"model": self._model}

    def saying(self, steps: Program) -> Frame:
        """A new program."""
        return user(message_of(steps))


class Programs(Scripted):
    """A server of another make, whose model does programs: an agent of yours, or a proxy in front of Sostenuto. What it is
    asked is the same, and its errors may have any code."""

    codes = False


@frozen
class RealModel:
    """A real model: asked in words to do what the step says, and made to call by ``tool_choice``. It may do something else.

    ``extra`` is put into every create: ``{"reasoning": {"effort": "low"}}``, say, or ``{"max_output_tokens": 500}``.
    """

    model: str
    extra: Mapping[str, Any] = field(factory=dict)
    obeys: bool = False
    codes: bool = False
    programs: Sequence[Program] | None = None

    def opening(self, steps: Program, *, tokens_per_second: float | None = None) -> Frame:  # noqa: ARG002
        """The first turn in words, and the tools of the whole program."""
        script = beginning(message_of(steps))
        return {"input": [self.saying(steps)], **self._settings(script)}

    def following(self, script: Script) -> Frame:
        """The tools, which aren't inherited, and whether to call them."""
        return self._settings(script)

    def saying(self, steps: Program) -> Frame:
        """The first turn of ``steps`` in words."""
        return user(_words(beginning(message_of(steps)).turn().items))

    def _settings(self, script: Script) -> Frame:
        tools = {call["name"]: _tool(call) for call in calls_in(script.rest) if call["name"] != HOSTED}
        calls = [item for item in script.turn().items if item.name in tools]
        choice: Any = "none"
        if len(calls) == 1:
            kind = "custom" if calls[0].type == "custom_tool_call" else "function"
            choice = {"type": kind, "name": calls[0].name}
        elif calls:
            choice = "required"
        return {"model": self.model, **self.extra, **({"tools": [*tools.values()], "tool_choice": choice} if tools else {})}


def _words(items: Sequence[Expected]) -> str:
    """What a model is asked for, so that ``items`` may come."""
    wishes: list[str] = []
    for item in items:
        given = TEMPLATE.sub("the last result", item.text or "")
        if item.type == "message":
            wishes.append(f"Say exactly this, and nothing else: {given}" if given else "Count from one to thirty in words.")
        elif item.name is not None:
            wishes.append(f"Call the tool `{item.name}` once{f' with this: {given}' if given else ''}.")
    if sum(item.name is not None for item in items) > 1:
        wishes.append("Make all of these calls at once.")
    return " ".join(wishes) or "Say: Done."


def _tool(call: Step) -> Frame:
    named = {"name": call["name"], "description": f"The tool {call['name']}."}
    if call.get("kind") == "custom_tool_call":
        return {"type": "custom", **named}
    parameters = {"type": "object", "properties": {}, "additionalProperties": True}
    return {"type": "function", **named, "parameters": parameters, "strict": False}
