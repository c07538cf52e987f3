"""``python -m bench``: every benchmark of the project, and a table of what was found against its targets."""

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Final, TextIO

from .process import pin_client
from .report import FULL, QUICK, TINY, NotHere, Row, Sizes
from .tables import markdown, table, write_tables

Benchmark = Callable[[Sizes], Iterator[Row]]

BENCHMARKS: Final = {
    "stream": "streaming",
    "first_event": "streaming",
    "resume": "resume",
    "turn": "turns",
    "flat": "flat",
    "pacing": "pacing",
    "post": "post",
    "parked": "parked",
    "lab": "lab",
    "simulate": "simulated",
    "conform": "conform",
    "peers": "peers",
    "kv": "kv",
}
"""Each is the function of that name in a module of this package; ``docs/performance.md`` has a place for its table."""

DOCUMENT: Final = Path(__file__).parents[1] / "docs" / "performance.md"


def benchmark(name: str) -> Benchmark:
    """The benchmark of that name."""
    found: Benchmark = getattr(import_module(f".{BENCHMARKS[name]}", __package__), name)
    return found


def main() -> None:
    """Run what was asked for. Exits with 1 if a benchmark broke; a target that is missed is a result."""
    parser = _parser()
    asked = parser.parse_args()
    if asked.install:
        import_module(".peers", __package__).install_all()
        return
    if asked.list:
        for name in BENCHMARKS:
            print(f"{name:12} {_about(name)}")
        return
    names = asked.only.split(",") if asked.only else list(BENCHMARKS)
    if unknown := set(names) - set(BENCHMARKS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(BENCHMARKS)}")
    pin_client()
    with _lines(asked.json) as lines:
        rows, broken = _run(names, asked.sizes, lines, lambda rows: _keep(asked, rows))
    if asked.json != "-":
        print(table(rows))
    sys.exit(1 if broken else 0)


def _keep(asked: argparse.Namespace, rows: Sequence[Row]) -> None:
    """Write what there is so far: who stops a long run keeps it."""
    if asked.markdown:
        asked.markdown.write_text(markdown(rows) + "\n", encoding="utf-8")
    if asked.docs:
        write_tables(DOCUMENT, rows)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Benchmarks, most of them ratios; see bench/README.md."
    )
    parser.add_argument("--only", metavar="A,B", help=f"which: {', '.join(BENCHMARKS)}; all by default")
    parser.add_argument("--list", action="store_true", help="say what there is, and do nothing")
    parser.add_argument("--quick", action="store_const", const=QUICK, dest="sizes", default=FULL, help="a fifth of the samples")
    parser.add_argument(
        "--tiny", action="store_const", const=TINY, dest="sizes", help="show that it runs; the figures mean nothing"
    )
    parser.add_argument("--json", metavar="FILE", help="a line of JSON for each result, as it comes; - is standard output")
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="the table, as Markdown")
    parser.add_argument("--install", action="store_true", help="install the servers of peers, also the heavy one, and end")
    parser.add_argument("--docs", action="store_true", help="write the tables of docs/performance.md")
    return parser


@contextmanager
def _lines(path: str | None) -> Iterator[TextIO | None]:
    """Where JSON goes."""
    if path is None or path == "-":
        yield sys.stdout if path else None
    else:
        with Path(path).open("w", encoding="utf-8") as file:
            yield file


def _run(
    names: Sequence[str], sizes: Sizes, lines: TextIO | None, keep: Callable[[Sequence[Row]], None]
) -> tuple[list[Row], bool]:
    """All rows, and whether a benchmark broke: the others are run all the same. ``keep`` gets the rows so far after each."""
    rows: list[Row] = []
    broken = False
    for number, name in enumerate(names, 1):
        _say(f"{number} of {len(names)}: {name}, {_about(name)}")
        started = time.monotonic()
        try:
            for row in benchmark(name)(sizes):
                rows.append(row)
                _say(f"    {row.what}: {row.value:.3g} {row.unit} {row.verdict}")
                if lines is not None:
                    print(row.as_json(), file=lines, flush=True)
        except NotHere as reason:
            _say(f"    not here: {reason}")
        except Exception:
            broken = True
            traceback.print_exc()
        keep(rows)
        _say(f"    {time.monotonic() - started:.0f} s")
    return rows, broken


def _about(name: str) -> str:
    """The first sentence of its description."""
    return (benchmark(name).__doc__ or "").partition(".")[0]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
