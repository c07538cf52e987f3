"""What a model is to the loop: something that opens a sampler for a plan.

A sampler is a model's live state for one Response (its tokens, its KV cache). The loop takes chunks from it until a ``Stop``;
then, perhaps after a long park, it gives it what is new with ``extend`` and takes chunks again. Between the two the sampler
holds its state: that is the park.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, Protocol, runtime_checkable

from attrs import field, frozen

from protocol.fields import Json
from protocol.items import Item, OtherItem
from protocol.requests import Tool as ToolDefinition


@frozen
class Rendered:
    """Items, and the token ids that they were rendered to."""

    items: Sequence[Item]
    ids: Sequence[int]


class Format(Protocol):
    """How items become a model's token ids. ``engine.stages.rendering`` is the one of models that have none of their own.

    What is appended changes no earlier id (law L8): sampling stops where a turn of the model is over, and what was rendered
    up to a stop is the beginning of what is rendered later. Each function is called in a thread, too.
    """

    def render_prompt(
        self,
        instructions: str | None,
        tools: Sequence[ToolDefinition],
        items: Sequence[Item],
        stops: Collection[int] | None = None,
        /,
    ) -> Sequence[int]:
        """A whole prompt. ``stops`` are the positions in ``items`` at which sampling stopped; the end is always one."""
        ...

    def render_calls(self, items: Iterable[Item], /) -> Sequence[int]:
        """A turn of the model: all that it put out until it stopped. Of a hosted call, the call only."""
        ...

    def render_results(self, items: Iterable[Item], /) -> Sequence[int]:
        """What a model is given behind its turn: of a hosted call its result only, of any other item all."""
        ...

    def render_next(self, unread: Iterable[Item], new: Sequence[Item], /) -> Sequence[int]:
        """What another Response adds behind a turn: the turn's hosted results, then ``new``."""
        ...


@frozen(kw_only=True)
class Plan:
    """What a model is opened for. ``prompt`` holds the instructions, the tools and all of the context in its ids."""

    model: str
    instructions: str | None = None
    tools: tuple[ToolDefinition, ...] = ()
    tool_choice: str | Json = "auto"
    parallel_tool_calls: bool = True
    max_output_tokens: int | None = None
    """Over the whole Response, parks included: the sampler counts all that it samples and stops there."""
    asked_output_tokens: int | None = None
    """The same, if the request said it and not only the server: an upstream that is told more than it has room for refuses."""
    temperature: float = 1.0
    top_p: float = 1.0
    text: Json = field(factory=dict)
    reasoning: Json | None = None
    prompt: Rendered


CallKind = Literal["function_call", "custom_tool_call", "shell_call", "local_shell_call", "apply_patch_call"]
"""The type of a call's item. The last three are tools that the API knows by their type, and that the client runs."""


# Chunks. A piece is as long as a token where that is whole characters; else as the fewest tokens that are.


@frozen
class Text:
    """Pieces of the answer. Consecutive ones make one message."""

    pieces: Sequence[str]
    tokens: int


@frozen
class Reasoning:
    """Pieces of a reasoning summary. Consecutive ones make one reasoning item."""

    pieces: Sequence[str]
    tokens: int


@frozen
class CallBegin:
    """A call begins. ``kind`` is the type of its item; ``name`` is that of a tool known by its type: ``shell``, for one.

    ``call_id`` is given by models that name their calls (a replayed recording); others leave it to the engine.
    """

    name: str
    kind: CallKind = "function_call"
    call_id: str | None = None


@frozen
class CallPieces:
    """Pieces of the arguments of the call that has begun: of a custom tool its input, of a shell its ``action`` and of
    ``apply_patch`` its ``operation``, in JSON."""

    pieces: Sequence[str]
    tokens: int


@frozen
class CallEnd:
    """The call that has begun is whole."""


@frozen
class MessageEnd:
    """The message or reasoning that is being sampled is whole; text that follows begins another item."""

    phase: Literal["commentary", "final_answer"] | None = None
    """Of a message: what the model says that it is."""
    encrypted_content: str | None = None
    """Of reasoning: its opaque form, for the model to read later. Where none of it was told, this alone is an item."""


@frozen
class Carried:
    """A whole item that the model's own server has made, of a tool that runs there: it is carried as it is."""

    item: OtherItem


@frozen
class Counted:
    """Corrects how many tokens were sampled: by those that are in no piece, or by how far the pieces were wrong."""

    tokens: int
    reasoning: int = 0
    """Of them, tokens of reasoning."""


StopReason = Literal["tool_calls", "end", "max_output_tokens", "content_filter"]


@frozen
class Stop:
    """Sampling has stopped. A message that is open is whole, unless the reason is that it was cut.

    ``tool_calls``: it waits for the results of the calls it made. ``end``: it has answered.
    """

    reason: StopReason


Chunk = Text | Reasoning | CallBegin | CallPieces | CallEnd | MessageEnd | Carried | Counted | Stop


class Sampler(Protocol):
    """A model's live state for one Response."""

    async def receive(self) -> Sequence[Chunk]:
        """The next chunks, at least one; a ``Stop`` is the last of its batch. Always a checkpoint.

        Raises ``ModelError``. Cancellation loses at most the chunks that were not returned yet.
        """
        ...

    async def extend(self, new: Rendered) -> None:
        """Take in results and user messages after a ``Stop``; ``receive`` then samples on."""
        ...


class TokenSampler(Sampler, Protocol):
    """A sampler that knows which token ids it has sampled."""

    def turn_ids(self) -> Sequence[int]:
        """The ids of the turn that is sampled, or was last: from what opens it to what closes it, as ``Format`` has it.

        Nothing if it has not begun. Also asked when the sampler's context is left.
        """
        ...


class ReportingSampler(Sampler, Protocol):
    """A sampler with something to say at the end: what became of its state in parks, what an upstream has charged."""

    def report(self) -> Mapping[str, Any]:
        """Fields for ``response.engine``, as JSON values. Asked when the sampler's context is left."""
        ...


class Model(Protocol):
    """Something that can sample. A model with a format of its own has it as its attribute ``format``."""

    @property
    def name(self) -> str:
        """What requests call it."""
        ...

    def open(self, plan: Plan) -> AbstractAsyncContextManager[Sampler]:
        """A sampler for one Response; leaving the context frees its state. Raises ``ModelError``."""
        ...


class TokenModel(Model, Protocol):
    """A model that reads token ids in a format of its own."""

    @property
    def format(self) -> Format:
        """How its prompts are rendered."""
        ...


@runtime_checkable
class HoldingModel(Model, Protocol):
    """A model that holds the state of parked Responses, where it has places for few."""

    hold_seconds: float
    """How long a park keeps its place from those who can do with another one; then only until it is needed. May be changed."""


@runtime_checkable
class KeptModel(Model, Protocol):
    """A model that is somewhere else: behind a connection, or in a process of its own."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """Around all of its use, for as long as a server serves. Raises ``ModelError`` if it can't be."""
        ...

    async def check(self) -> str:
        """What answers there, in a few words; raises ``ModelError`` if nothing does. Asked while ``running``."""
        ...


class ModelError(Exception):
    """Sampling failed. ``fault`` says whose fault it is; ``code`` and ``message`` are told to the client."""

    def __init__(
        self,
        message: str,
        *,
        code: str = "server_error",
        fault: Literal["request", "busy", "broken"] = "broken",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.fault = fault
        self.retry_after = retry_after
        """Seconds, when ``fault`` is ``busy``."""
