"""What a model's own format is: how items become its token ids, and how the ids that it samples are read.

A turn is one message of the model. Between two stops the items of the assistant are one turn:

    render_calls(items of a turn) == [*opening, *body, *closing]

``body`` is what is sampled, without the stop token; a sampler's ``turn_ids`` are ``[*opening, *sampled, *closing]``. Prompts
and results end where a turn of the model may be opened; ``opening`` is not in them.

What any format has to keep, and ``tests/models/test_formats_laws.py`` checks of each in ``FORMATS``:

- **Append-only** (law L8): what was rendered up to a stop is the beginning of what is rendered later.
- **Round trip**: the body of a turn, parsed, gives items that are rendered to the same ids.
- **Nothing lost, nothing invented** (law L14): each character sampled is in an item, but for markers and the blanks around
  them; a call that can't be read is text. The pieces are the same however the ids come in.
- **No way in**: no text of a user, a tool or an item gives a special id.
"""

from collections.abc import Sequence
from typing import Protocol

from ..base import Chunk, Format, Plan


class Vocabulary(Protocol):
    """A tokenizer."""

    def encode(self, text: str) -> Sequence[int]:
        """The ids of ordinary text; never that of a special token, whatever the text is."""
        ...

    def special(self, text: str) -> int:
        """The id of a special token, as ``<|im_end|>``; raises ``KeyError`` if there is none."""
        ...

    def token_bytes(self, token: int) -> bytes:
        """What a token stands for, perhaps a part of a character; of a special one its text. Raises ``KeyError``."""
        ...


class TurnParser(Protocol):
    """Reads one turn as it is sampled, token by token. Whatever the ids are, it does not fail."""

    def feed(self, ids: Sequence[int]) -> list[Chunk]:
        """More sampled ids, without the stop token. Gives what is sure by now: never a ``Stop``.

        The tokens of all chunks together are those that were fed, less those that are held back.
        """
        ...

    def finish(self) -> list[Chunk]:
        """Sampling has stopped: what was held back. A call that is not whole becomes text."""
        ...

    @property
    def called(self) -> bool:
        """Whether a whole call was seen: the reason of the stop is ``tool_calls`` then, else ``end``.

        Where ``parallel_tool_calls`` is false, a sampler stops as soon as it is true.
        """
        ...


class ModelFormat(Format, Protocol):
    """A format of a family of models, over the vocabulary of one of them. Its functions may be called in any thread."""

    @property
    def name(self) -> str:
        """Its name in ``FORMATS``."""
        ...

    @property
    def opening(self) -> Sequence[int]:
        """What opens a turn of the model: the prompt's end, behind which sampling begins."""
        ...

    @property
    def closing(self) -> Sequence[int]:
        """What closes a turn, the stop token first."""
        ...

    @property
    def stops(self) -> frozenset[int]:
        """The ids at which sampling ends."""
        ...

    def parser(self, plan: Plan) -> TurnParser:
        """A parser for one turn."""
        ...

    def grammar(self, plan: Plan) -> str | None:
        """A GBNF grammar of a turn, if ``tool_choice`` or ``text.format`` ask for one; None: the model is free.

        A ``tool_choice`` that forces a call forces it in the turn that this is asked for. A sampler asks with
        ``tool_choice="auto"`` for the turns behind the first one of a Response, which else could never end.
        """
        ...
