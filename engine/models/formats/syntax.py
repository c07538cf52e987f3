"""How a format writes a turn of the model: one description, from which turns are written, read, and bound by a grammar."""

from attrs import frozen


@frozen(kw_only=True)
class Syntax:
    """The marks of a turn, and the blanks between its parts."""

    call: str
    """The mark that a call begins with."""
    call_end: str | None
    """The mark that it ends with. None: behind the first call there is nothing but calls, up to the turn's end."""
    head: str
    """What stands before the arguments of a call, marks included; ``NAME`` is its name as a JSON string."""
    tail: str
    """What stands behind them."""
    arguments: str = "arguments"
    """How ``head`` names the arguments."""
    between: str
    """What stands between two calls."""
    bare: bool = False
    """``head`` has no mark: ``{`` at the beginning of a turn begins a call, and the mark stands only behind a text."""
    behind_text: str = "\n"
    """What stands between a text and a call."""
    behind_call: str = "\n"
    """What stands between a call and a text."""
    think: str = "<think>"
    think_end: str = "</think>"
    behind_thought: str = "\n\n"

    @property
    def marks(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(mark for mark in (self.call, self.call_end, self.think, self.think_end) if mark)
