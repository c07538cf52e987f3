"""The calls that were made and what came back, until the program sees it.

Outputs are kept back until the program has waited for them, and are then seen in the order of their calls, however they came.
A call that was sampled here has no id that we know: the engine gives it one, so the first output with an unknown id answers the
first such call of its kind.
"""

from collections import defaultdict, deque

from attrs import Factory, define

from .outputs import Output, Outputs


@define
class _Made:
    name: str
    output: Output | None = None
    is_awaited: bool = True


@define
class Memory:
    """``outputs`` is what the program sees."""

    outputs: Outputs = Factory(Outputs)
    _made: list[_Made] = Factory(list)
    _by_id: dict[str, _Made] = Factory(dict)
    _nameless: defaultdict[str, deque[_Made]] = Factory(lambda: defaultdict(deque))
    """Calls without an id, by the type of their output, and by the name of their tool."""
    _awaited: int = 0

    @property
    def is_awaiting(self) -> bool:
        """Whether outputs are missing that are still to come."""
        return self._awaited > 0

    @property
    def holds_back(self) -> bool:
        """Whether there are outputs that the program has not seen."""
        return any(made.output is not None for made in self._made)

    def made(self, name: str, call_id: str | None, output_type: str, is_whole: bool) -> None:
        """A call was made. One that was cut short gets no output."""
        made = _Made(name, None, is_whole)
        self._awaited += is_whole
        self._made.append(made)
        if call_id is None:
            self._nameless[output_type].append(made)
            self._nameless[f"tool {name}"].append(made)
        else:
            self._by_id[call_id] = made

    def answered(self, call_id: str | None, output_type: str, text: str, failed: bool) -> None:
        """An output came. One of a call that is not ours is ignored."""
        made = self._by_id.get(call_id) if call_id is not None else None
        self._fill(made or self._first(output_type), text, failed)

    def hosted(self, name: str, text: str, failed: bool) -> None:
        """A hosted call and its result, in one item: the answer to a call that was sampled, or one of the history."""
        made = self._first(f"tool {name}")
        if made is None:
            made = _Made(name, None, False)
            self._made.append(made)
        self._fill(made, text, failed)

    def is_sampled(self, name: str) -> bool:
        """Whether a call of ``name`` was sampled here and has no answer."""
        return self._first(f"tool {name}") is not None

    def give_up(self) -> None:
        """Expect no more than what is there: sampling goes on."""
        for made in self._made if self._awaited else ():
            made.is_awaited = False
        self._awaited = 0

    def preview(self) -> Outputs:
        """What the program would see after ``release``."""
        outputs = self.outputs.copy()
        for made in self._made:
            if made.output is not None:
                outputs.add(made.output)
        return outputs

    def release(self) -> None:
        """Let the program see what came, and forget the calls."""
        if not self._made:
            return
        for made in self._made:
            if made.output is not None:
                self.outputs.add(made.output)
        self._made.clear()
        self._by_id.clear()
        self._nameless.clear()
        self._awaited = 0

    def _first(self, key: str) -> _Made | None:
        queue = self._nameless.get(key)
        while queue and queue[0].output is not None:
            queue.popleft()
        return queue[0] if queue else None

    def _fill(self, made: _Made | None, text: str, failed: bool) -> None:
        if made is None:
            return
        self._awaited -= made.is_awaited
        made.is_awaited = False
        made.output = Output(made.name, text, failed)
