"""Llama 3.1 to 3.3: calls in JSON, in a turn of nothing else.

    <|begin_of_text|><|start_header_id|>system<|end_header_id|>

    You have access to the following functions. …<|eot_id|><|start_header_id|>user<|end_header_id|>

    What is in a.txt?<|eot_id|><|start_header_id|>assistant<|end_header_id|>

    {"name": "read_file", "parameters": {"path": "a.txt"}}<|eot_id|><|start_header_id|>ipython<|end_header_id|>

    Hello<|eot_id|>

As the chat template of Llama 3.1 has it with the tools in the system's message, but for dates. Its models make one call a
turn; several are divided by ``;``, as servers read them. A call that follows a text has ``<|python_tag|>`` before it, since
only at the beginning of a turn ``{`` can be told to begin a call. Thoughts are in ``<think>``, as models distilled from
others have them.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from .base import Vocabulary
from .calls import Function, dumps
from .syntax import Syntax
from .template import Part, Template

TOOLS: Final = (
    "You have access to the following functions. To call a function, please respond with JSON for a function call. "
    'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}. '
    "Do not use variables.\n\n"
)
"""From the chat template of Llama 3.1, with the blanks that it lacks."""


class Llama3(Template):
    """Llama 3, with calls in JSON."""

    name = "llama3"
    syntax = Syntax(
        call="<|python_tag|>",
        call_end=None,
        head='{"name": NAME, "parameters": ',
        tail="}",
        arguments="parameters",
        between="; ",
        bare=True,
        behind_text="",
        behind_call="",
    )

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary)
        self._start, self._end = vocabulary.special("<|start_header_id|>"), vocabulary.special("<|end_header_id|>")
        self._eot = vocabulary.special("<|eot_id|>")
        self.opening = self.encode([self._start, "assistant", self._end, "\n\n"])
        self.closing = [self._eot]
        self.stops = self.known("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>")

    def system(self, instructions: str | None, tools: Sequence[Function]) -> Iterable[Part]:
        """The beginning of all, then one message with the tools and the instructions; none, if there are neither."""
        yield from self.known("<|begin_of_text|>")
        if instructions is not None or tools:
            listed = "".join(dumps({"type": "function", "function": tool.as_json()}) + "\n\n" for tool in tools)
            yield from self.message("system", f"{TOOLS if tools else ''}{listed}{instructions or ''}")

    def message(self, role: str, text: str) -> Iterable[Part]:
        """A message; what a developer says is the system's."""
        return (self._start, "system" if role == "developer" else role, self._end, f"\n\n{text}", self._eot)

    def results(self, texts: Sequence[str]) -> Iterable[Part]:
        """A message for each result."""
        for text in texts:
            yield from self.message("ipython", text)
