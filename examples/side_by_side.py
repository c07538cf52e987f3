"""A tool of the server and a tool of the client in one batch, side by side: python examples/side_by_side.py

The model asks for two things at once: a search (``file_search`` is hosted: the server runs it, here over the folder
``docs``) and the tests (the client's own). ``run_tests`` ends only when the search has been seen to end, so the two do
run at the same time: one after the other, this would wait for ever.
"""

import json
from pathlib import Path

import trio

from engine.client import Event, connect
from engine.serving import Options, running

DOCS = Path(__file__).resolve().parent.parent / "docs"
PROGRAM = {
    "program": [
        {
            "calls": [
                {"name": "run_tests"},
                {"name": "file_search", "arguments": {"queries": ["park", "policy"], "max_num_results": 3}},
            ]
        },
        {"say": "The tests say: {{output_of:run_tests}}."},
    ]
}


async def main() -> None:
    search_done = trio.Event()

    async def run_tests() -> str:
        """Run the tests."""
        print("client: the tests begin")
        await search_done.wait()
        print("client: the tests end")
        return "3 passed"

    def on_event(event: Event) -> None:
        if event.type == "response.file_search_call.in_progress":
            print("server: the search was asked for")
        elif event.type == "response.output_item.done" and event.frame["item"]["type"] == "file_search_call":
            print("server: the search ends")
            for hit in event.frame["item"]["results"]:
                print(f"        {hit['filename']}, line {hit['attributes']['line']}")
            search_done.set()
        elif event.type == "response.done":
            waits_for = [stub["name"] for stub in event.frame["required_input"]]
            print(f"server: parked; the model waits for {', '.join(waits_for)}")

    options = Options(port=0, data=":memory:", files=str(DOCS))
    async with running(options) as server, connect(server.url) as client:
        result = await client.run(
            model="scripted",
            input=json.dumps(PROGRAM),
            tools={"run_tests": run_tests},
            tool_definitions=[{"type": "file_search"}],
            on_event=on_event,
        )
    print(f"model:  {result.text}")


trio.run(main)
