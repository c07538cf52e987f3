"""A minimal agent: tools are async functions, and a rollout is one call. Run it: python examples/minimal_agent.py"""

import json
from pathlib import Path

import trio

from engine.client import connect
from engine.serving import Options, running

HERE = trio.Path(Path(__file__).parent)

# What the model does. For a model that thinks for itself this would be a question.
PROGRAM = {
    "program": [
        {"call": {"name": "list_dir", "arguments": {"path": "."}}},
        {"call": {"name": "read_file", "arguments": {"path": "README.md"}}},
        {"say": "Beside me there are:\n{{output_of:list_dir}}\n\nThe README begins with:\n{{output_of:read_file}}"},
    ]
}


async def list_dir(path: str) -> str:
    """List a folder."""
    return "\n".join(sorted([entry.name for entry in await (HERE / path).iterdir()]))


async def read_file(path: str) -> str:
    """Read the head of a file."""
    return (await (HERE / path).read_text(encoding="utf-8"))[:200]


async def main() -> None:
    tools = {"list_dir": list_dir, "read_file": read_file}
    async with running(Options(port=0, data=":memory:")) as server, connect(server.url) as client:
        result = await client.run(model="scripted", input=json.dumps(PROGRAM), tools=tools)
    print(result.text)
    print(f"\n{result.status}: 1 Response, parked {result.parks} times")


trio.run(main)
