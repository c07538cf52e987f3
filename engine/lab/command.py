"""What ``sostenuto compare`` does with its options: an experiment, progress on standard error, and results wherever they go."""

import shlex
import sys
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import trio
from attrs import evolve, fields, frozen
from rich.console import Console

from protocol.codec import encode, from_wire
from protocol.errors import ProtocolError

from .cells import Results
from .compare import cells
from .compare import compare as measure
from .experiment import Compare, Experiment, ExperimentError, WorkloadTable, check, read_experiment, spread, workloads
from .show import comparison, progress
from .signals import until_signal


@frozen(kw_only=True)
class Outlets:
    """Where results go, beside a table for people."""

    as_json: bool = False
    as_csv: bool = False
    html: Path | None = None
    svg: Path | None = None
    png: Path | None = None

    @classmethod
    def take(cls, options: dict[str, Any]) -> "Outlets":
        """Those that ``options`` name, which are taken out of them; raises ``ExperimentError`` if that can't be done."""
        outlets = cls(**{field.name: options.pop(field.name) for field in fields(cls)})
        if outlets.as_json and outlets.as_csv:
            raise ExperimentError("--json and --csv both print: take one")
        if (outlets.html or outlets.svg or outlets.png) and find_spec("matplotlib") is None:
            raise ExperimentError("charts need matplotlib: pip install 'sostenuto[lab]'")
        return outlets


def compare(files: Sequence[Path], **options: Any) -> bool:
    """Measure, and show; false if a signal came before the end.

    Raises ``ExperimentError`` and all that ``compare.compare`` does.
    """
    outlets = Outlets.take(options)
    experiment = asked(files, **options)
    count = len(cells(experiment.compare, workloads(experiment))) * experiment.compare.repetitions
    with progress(count) as on_sample:
        job = partial(measure, experiment, command=command(), on_sample=on_sample)
        results = trio.run(until_signal, job)
    if results is None:
        return False
    show(results, outlets)
    return True


def command() -> str:
    """How this program was called, without where it lies."""
    return shlex.join([Path(sys.argv[0]).name.replace("cli.py", "sostenuto"), *sys.argv[1:]])


# ---- what is asked


def asked(
    files: Sequence[Path],
    *,
    speeds: str | None = None,
    rtt: str | None = None,
    shapes: str | None = None,
    repetitions: int | None = None,
    ablation: bool = False,
    calls: int | None = None,
    tool_seconds: str | None = None,
    side_by_side: int | None = None,
    seed: int | None = None,
) -> Experiment:
    """The experiment of the command line: that of a TOML file, or of recorded rollouts, with what options change.

    Raises ``ExperimentError``.
    """
    experiment = _of(files)
    changes: dict[str, Any] = {
        "tokens_per_second": None if speeds is None else _numbers("--speeds", speeds),
        "rtt_ms": None if rtt is None else _numbers("--rtt", rtt),
        "shapes": None if shapes is None else _shapes(shapes),
        "repetitions": repetitions,
        "ablation": ablation or None,
        "side_by_side": side_by_side,
    }
    own = evolve(experiment.compare, **{name: value for name, value in changes.items() if value is not None})
    tables = experiment.workload
    if calls is not None:
        tables = tuple(_with_calls(table, calls) for table in tables)
    if tool_seconds is not None:
        tables = tuple(evolve(table, tool_seconds=spread(tool_seconds)) for table in tables)
    experiment = evolve(experiment, compare=own, workload=tables, seed=experiment.seed if seed is None else seed)
    check(experiment)
    return experiment


def _of(files: Sequence[Path]) -> Experiment:
    experiments = [path for path in files if path.suffix == ".toml"]
    if experiments and len(files) > 1:
        raise ExperimentError("an experiment's file stands alone: it says what is played")
    if experiments:
        return read_experiment(experiments[0])
    return Experiment(workload=tuple(WorkloadTable(file=str(path)) for path in files)) if files else Experiment()


def _with_calls(table: WorkloadTable, calls: int) -> WorkloadTable:
    if table.file is not None:
        raise ExperimentError("--calls is for made-up rollouts; a recorded one has those that it has")
    return evolve(table, extra={**table.extra, "calls": calls})


def _numbers(option: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(one) for one in text.split(","))
    except ValueError:
        raise ExperimentError(f"{option}: expected numbers, joined by commas, got {text!r}") from None


def _shapes(text: str) -> tuple[Any, ...]:
    try:
        return from_wire({"shapes": [one.strip() for one in text.split(",")]}, Compare).shapes
    except ProtocolError as error:
        raise ExperimentError(f"--{error.message}") from None


# ---- what is shown


def show(results: Results, outlets: Outlets) -> None:
    """Print the results, and write what was asked for. Raises ``OSError``."""
    if outlets.html is not None:
        from .report import page

        outlets.html.write_text(page(results), encoding="utf-8")
    for folder, form in ((outlets.svg, "svg"), (outlets.png, "png")):
        if folder is not None:
            _draw(results, folder, form)
    if outlets.as_json:
        sys.stdout.write(encode(results.as_json()).decode() + "\n")
    elif outlets.as_csv:
        from .report import as_csv

        sys.stdout.write(as_csv(results))
    else:
        Console().print(comparison(results))


def _draw(results: Results, folder: Path, form: str) -> None:
    from .figures import charts

    folder.mkdir(parents=True, exist_ok=True)
    for chart in charts(results):
        data = chart.png() if form == "png" else chart.svg().encode()
        (folder / f"{chart.name}.{form}").write_bytes(data)
