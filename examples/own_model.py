"""A model of one's own, and a server for it: python examples/own_model.py

This one guesses a number with the client's tool ``guess``, by halving. A model is two small classes. A ``Sampler`` is its
live state for one Response, where a language model would keep its KV cache: it gives out chunks until it stops for the
results of its calls, is given those, and goes on. It is not asked to remember anything in between: it is simply still there.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio

from engine import Server, Services, listening
from engine.client import connect
from engine.models.base import CallBegin, CallEnd, CallPieces, Chunk, Plan, Rendered, Stop, Text
from protocol.items import FunctionCallOutput, Item

SECRET = 677


class Halver:
    """The model: what requests call it, and how a sampler is opened for one of them."""

    name = "halver"

    @asynccontextmanager
    async def open(self, plan: Plan) -> AsyncIterator["Halving"]:
        """What stands behind the ``yield`` would free the state; the Response has ended then, however it did."""
        yield Halving(plan.prompt.items)


class Halving:
    """The sampler. Its whole state are the bounds between which the number is."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.low, self.high = 1, 1000
        self.guessed = 500
        self.found = False
        for item in items:  # a conversation that goes on: what was heard before
            self.hear(item)

    async def receive(self) -> Sequence[Chunk]:
        """The next chunks; the last one says why it stops."""
        await trio.lowlevel.checkpoint()  # here a language model would wait for its accelerator
        if self.found:
            return [Text(["It", " is ", str(self.guessed), "."], tokens=4), Stop("end")]
        self.guessed = (self.low + self.high) // 2
        arguments = f'{{"number": {self.guessed}}}'
        return [CallBegin("guess"), CallPieces([arguments], tokens=1), CallEnd(), Stop("tool_calls")]

    async def extend(self, new: Rendered) -> None:
        """After a park: what is new, as items and as tokens."""
        for item in new.items:
            self.hear(item)
        await trio.lowlevel.checkpoint()

    def hear(self, item: Item) -> None:
        """Learn from an item of the context."""
        if isinstance(item, FunctionCallOutput):
            self.found = item.output == "right"
            if item.output == "too low":
                self.low = self.guessed + 1
            elif item.output == "too high":
                self.high = self.guessed - 1


async def guess(number: int) -> str:
    """Say whether ``number`` is right."""
    verdict = "right" if number == SECRET else "too low" if number < SECRET else "too high"
    print(f"{number} is {verdict}")
    await trio.lowlevel.checkpoint()
    return verdict


async def main() -> None:
    server = Server(Services(models={"halver": Halver()}))
    async with listening(server) as port, connect(f"http://127.0.0.1:{port}/v1") as client:
        result = await client.run(model="halver", input="Which number do I think of?", tools={"guess": guess})
    print(result.text)
    print(f"{result.parks} guesses, in 1 Response of {result.response['engine']['tokens_rendered']} rendered tokens")


trio.run(main)
