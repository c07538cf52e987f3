"""``python -m bench [NAME…] [--quick | --tiny] [--json]``."""

import argparse
import sys
from collections.abc import Callable, Iterator
from typing import Final

from .conform import conform
from .parked import parked
from .peers import install_all, peers
from .post import post
from .process import pin_client
from .report import FULL, QUICK, TINY, Row, Sizes, table
from .resume import resume
from .streaming import first_event, stream
from .turns import turn

BENCHMARKS: Final[dict[str, Callable[[Sizes], Iterator[Row]]]] = {
    "stream": stream,
    "first_event": first_event,
    "resume": resume,
    "turn": turn,
    "post": post,
    "parked": parked,
    "conform": conform,
    "peers": peers,
}


def main() -> None:
    """Run the benchmarks that were named, or all, and print what they found."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Benchmarks, each a ratio; see bench/README.md.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(BENCHMARKS)}; all by default")
    parser.add_argument("--quick", action="store_const", const=QUICK, dest="sizes", default=FULL, help="a fifth of the samples")
    parser.add_argument(
        "--tiny", action="store_const", const=TINY, dest="sizes", help="show that it runs; the figures mean nothing"
    )
    parser.add_argument("--json", action="store_true", help="one line of JSON for each result, as it comes")
    parser.add_argument("--install", action="store_true", help="install the servers of peers, also the heavy one, and end")
    arguments = parser.parse_args()
    if arguments.install:
        install_all()
        return
    unknown = set(arguments.names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(BENCHMARKS)}")
    pin_client()
    rows = []
    for name in arguments.names or BENCHMARKS:
        for row in BENCHMARKS[name](arguments.sizes):
            rows.append(row)
            if arguments.json:
                print(row.as_json(), flush=True)
            else:
                print(f"{row.name}: {row.what}: {row.value:.3g} {row.unit}", file=sys.stderr, flush=True)
    if not arguments.json:
        print(table(rows))


if __name__ == "__main__":
    main()
