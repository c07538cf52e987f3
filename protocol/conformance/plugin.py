"""The pytest plugin: ``pytest --responses-url http://127.0.0.1:8080`` has a test for each law and each probe.

It is there wherever the kit is installed, and does nothing unless that option is given. The first of its tests that runs plays
all that the chosen ones need; the others read what was found. What a server does not offer is skipped.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .report import Finding, Report

MARK = "responses"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options."""
    group = parser.getgroup("responses", "conformance of a server of the Responses API")
    group.addoption("--responses-url", metavar="URL", help="hold the server at this URL against the laws of the protocol")
    shapes = ["append", "create", "http"]
    group.addoption("--responses-shape", action="append", choices=shapes, help="one shape only, as often as you like")
    group.addoption("--responses-examples", type=int, default=100, metavar="N", help="conversations in each shape")
    group.addoption("--responses-seed", type=int, default=0, metavar="SEED", help="which conversations")
    group.addoption("--responses-seconds", type=float, default=600.0, metavar="S", help="stop after so long")
    group.addoption("--responses-adapter", metavar="KIND", help="scripted, programs, model:NAME, aimock, or MODULE:CLASS")
    group.addoption("--responses-key", action="append", default=[], metavar="KEY", help="a bearer key")
    group.addoption("--responses-without", default="", metavar="NAMES", help="what is not offered, joined by commas")
    group.addoption("--responses-allow-remote", action="store_true", help="allow hosts that are not this machine")


def pytest_configure(config: pytest.Config) -> None:
    """The mark of its tests."""
    config.addinivalue_line("markers", f"{MARK}: a law or a probe of the Responses API, held against --responses-url")


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test for each law and each probe, behind all others."""
    if config.getoption("--responses-url"):
        items.extend(Server.from_parent(session, name=MARK, nodeid=MARK).collect())


class Server(pytest.Collector):
    """The server that is tested, and what was found of it."""

    def collect(self) -> Iterator["LawTest"]:
        """Its tests."""
        try:
            import_module("hypothesis")
        except ModuleNotFoundError:
            raise pytest.UsageError("--responses-url needs hypothesis: pip install 'sostenuto[conform]'") from None
        import_module(f"{__package__}.doors").adapter_of(self.config.getoption("--responses-adapter"))  # it may have probes
        laws = import_module(f"{__package__}.laws").LAWS
        probes = import_module(f"{__package__}.probes").PROBES
        for kind, names in (("laws", laws), ("probes", probes)):
            for name in names:  # without blanks, so that -k can choose it
                yield LawTest.from_parent(self, name=name.replace(" ", "_"), kind=kind, subject=name)

    @cached_property
    def report(self) -> "Report":
        """All that the chosen tests need. Ends the session with status 2 if nothing can be tried."""
        run = import_module(f"{__package__}.run")
        try:
            report: Report = self._check(run)
        except (run.CannotCheck, ValueError) as error:
            pytest.exit(str(error), returncode=2)
        if report.interrupted:
            raise KeyboardInterrupt
        return report

    def _check(self, run: ModuleType) -> Any:
        doors = import_module(f"{__package__}.doors")
        option, chosen = self.config.getoption, [item for item in self.session.items if isinstance(item, LawTest)]
        doors.need_permission(option("--responses-url"), remote_too=option("--responses-allow-remote"))
        plan = run.Plan(
            shapes=option("--responses-shape") or run.Plan().shapes,
            examples=option("--responses-examples") if any(item.kind == "laws" for item in chosen) else 0,
            probes=[item.subject for item in chosen if item.kind == "probes"],
            seed=option("--responses-seed"),
            seconds=option("--responses-seconds"),
            without=doors.names(option("--responses-without")),
            keys=option("--responses-key"),
        )
        return run.check(option("--responses-url"), adapter=doors.adapter_of(option("--responses-adapter")), plan=plan)


class LawTest(pytest.Item):
    """One law, or one probe."""

    def __init__(self, *, kind: str, subject: str, **options: Any) -> None:
        super().__init__(**options)
        self.kind = kind
        self.subject = subject
        self.add_marker(MARK)

    def runtest(self) -> None:
        """Raises what is wrong."""
        server = self.parent
        assert isinstance(server, Server)
        finding: Finding = getattr(server.report, self.kind)[self.subject]
        if finding.status == "not offered":
            pytest.skip(finding.message)
        if finding.status == "broken":
            raise Broken(self.subject, finding)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:  # noqa: ARG002
        """What is wrong, as a conversation."""
        error = excinfo.value
        return (
            str(error) if isinstance(error, Broken) or type(error).__name__ == "CannotCheck" else super().repr_failure(excinfo)
        )

    def reportinfo(self) -> tuple[str, int | None, str]:
        """As it is listed."""
        return str(self.config.getoption("--responses-url")), None, f"{self.kind}: {self.subject}"


class Broken(AssertionError):
    """A law is broken."""

    def __init__(self, name: str, finding: "Finding") -> None:
        show = import_module(f"{__package__}.show")
        failures: Sequence[Any] = finding.failures
        texts = [show.failure_text(name, failure) for failure in failures] or [f"{name}: {finding.message}"]
        super().__init__("\n\n".join([finding.says, *texts]))
