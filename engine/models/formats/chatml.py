"""ChatML with Hermes tool calls: SmolLM2, Qwen 2.5, Qwen 3 and their kin.

    <|im_start|>system
    You are …

    # Tools … <tools>
    {"type": "function", "function": {"name": "read_file", …}}
    </tools> …<|im_end|>
    <|im_start|>user
    What is in a.txt?<|im_end|>
    <|im_start|>assistant
    <tool_call>
    {"name": "read_file", "arguments": {"path": "a.txt"}}
    </tool_call><|im_end|>
    <|im_start|>user
    <tool_response>
    Hello
    </tool_response><|im_end|>

As the chat template of Qwen 2.5 has it, but for what would not be append-only or would be invented: thoughts stay where they
were sampled, and there is no default system message. In the vocabulary of SmolLM2 ``<tool_call>`` is plain text; in that of
Qwen 2.5 it is a special token, and Qwen 3 has some for ``<tool_response>`` and ``<think>`` as well.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from .base import Vocabulary
from .calls import Function, dumps
from .syntax import Syntax
from .template import Part, Template

TOOLS: Final = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>"""
HOW: Final = """
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>"""
"""From the chat template of Qwen 2.5, whose models have learned it word for word."""


class ChatML(Template):
    """ChatML, with calls as Hermes has them."""

    name = "chatml"
    syntax = Syntax(
        call="<tool_call>",
        call_end="</tool_call>",
        head='<tool_call>\n{"name": NAME, "arguments": ',
        tail="}\n</tool_call>",
        between="\n",
    )

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary)
        self._start, self._end = vocabulary.special("<|im_start|>"), vocabulary.special("<|im_end|>")
        self.opening = self.encode([self._start, "assistant\n"])
        self.closing = self.encode([self._end, "\n"])
        self.stops = self.known("<|im_end|>", "<|endoftext|>")
        self._response, self._response_end = self.mark("<tool_response>"), self.mark("</tool_response>")

    def system(self, instructions: str | None, tools: Sequence[Function]) -> Iterable[Part]:
        """One message with the instructions and the tools; none, if there are neither."""
        if instructions is None and not tools:
            return
        yield from (self._start, "system\n", instructions or "")
        if tools:
            listed = "".join("\n" + dumps({"type": "function", "function": tool.as_json()}) for tool in tools)
            yield from ("\n\n" if instructions else "", TOOLS, listed, *self.marked(HOW))
        yield from (self._end, "\n")

    def message(self, role: str, text: str) -> Iterable[Part]:
        """A message; what a developer says is the system's."""
        return (self._start, f"{'system' if role == 'developer' else role}\n{text}", self._end, "\n")

    def results(self, texts: Sequence[str]) -> Iterable[Part]:
        """All results of a turn in one message, which is the user's."""
        yield from (self._start, "user")
        for text in texts:
            yield from ("\n", self._response, f"\n{text}\n", self._response_end)
        yield from (self._end, "\n")
