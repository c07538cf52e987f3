"""Which client does what, in which shape: the table of ``docs/clients.md``, made from the tests that show it.

A test that runs a client says in front what it shows:

    @shows("openai npm", "create", "`ResponsesWS`")
    def test_rollout_over_a_websocket() -> None: ...

Nothing else makes a row, so the table says what the tests do. A test that can't run everywhere is skipped with a reason, and
makes its row all the same. Arguments are literals: they are read from the source, so that the table does not depend on
what is installed. A test that shows several things has several of these lines.
"""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

SHAPES: Final = ("append", "create", "http")
HERE: Final = Path(__file__).parent
Test = TypeVar("Test", bound=Callable[..., Any])


class Row(NamedTuple):
    """``what`` is Markdown."""

    client: str
    shape: str
    what: str


def shows(client: str, shape: str, what: str) -> Callable[[Test], Test]:
    """Say that a test shows that ``client`` does ``what`` in ``shape``."""
    assert shape in SHAPES, shape
    return lambda test: test


def rows() -> list[Row]:
    """What all tests in this folder say, in the order of their files and lines."""
    return [row for path in sorted(HERE.glob("test_*.py")) for row in _rows_of(ast.parse(path.read_text(encoding="utf-8")))]


def table() -> str:
    """All rows, as a Markdown table: a line a client, a column a shape."""
    cells: dict[str, dict[str, list[str]]] = {}
    for row in rows():
        told = cells.setdefault(row.client, {shape: [] for shape in SHAPES})[row.shape]
        if row.what not in told:
            told.append(row.what)
    lines = [f"| client | {' | '.join(SHAPES)} |", "|---|---|---|---|"]
    for client, by_shape in sorted(cells.items()):
        lines.append(f"| {client} | {' | '.join('; '.join(by_shape[shape]) for shape in SHAPES)} |")
    return "\n".join([*lines, ""])


def _rows_of(module: ast.Module) -> list[Row]:
    tests = [one for one in module.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    lines = [line for test in tests if test.name.startswith("test_") for line in test.decorator_list]
    calls = [line for line in lines if isinstance(line, ast.Call) and ast.unparse(line.func) == "shows"]
    return [Row(*map(ast.literal_eval, call.args)) for call in calls]
