"""How to mend a repository: the policy of the demo's model, as a generator that waits for what its tools return.

It looks around, runs the tests, and for a failing one looks for the function behind it: a crash's traceback names it, else
the test's own line does, and a search finds its file. Whatever looks like a bug in it (``reading.PATTERNS``) is tried, the
likeliest first, and the tests judge; an idea that did not help is taken back with the next one. A function that looks right
leads to those it calls. A patch that is refused means that the file is not what it was, so it is read again.

It gives up, and says so, when it has no idea left.
"""

import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from attrs import frozen

from .model import Answer, Ask, Mind, Turn
from .reading import (
    Failure,
    Fix,
    Function,
    Report,
    called_in,
    fixes,
    found_in,
    function_in,
    imported_from,
    is_test,
    patch,
    read_report,
)

PATCHES: Final = 3
"""How often a patch is tried on a file that keeps changing."""

T = TypeVar("T")
Step = Generator[Turn, tuple[Answer, ...], T]
"""A part of the work; what it returns is what came of it."""


@frozen
class Place:
    """A function that may be to blame."""

    path: str
    function: str


class GaveUp(Exception):
    """There is no idea left. The message is said."""


def mend(task: str) -> Mind:
    """A mind that mends what ``task`` is about; the command for the tests stands in it, in backquotes."""
    command = re.search(r"`([^`]+)`", task)
    yield from _Mender(command[1] if command else "python3 -m unittest").work()


class _Mender:
    def __init__(self, command: str) -> None:
        self._command = command
        self._files: list[str] = []
        self._texts: dict[str, str] = {}
        """Files that were read, with what has helped; ideas are made from these."""
        self._disk: dict[str, str] = {}
        """The same files as they are now: perhaps with an idea that has not helped."""
        self._mended: list[Fix] = []

    def work(self) -> Mind:
        """All of it."""
        try:
            yield from self._look()
            report = yield from self._test("Now the tests: what fails says where to look.")
            while not report.passed:
                if not report.failures:
                    raise GaveUp("The tests did not run to their end, and I can't tell why.")
                report = yield from self._mend(report.failures[0], report)
            if ".git/" in self._files:
                yield from self._show()
        except GaveUp as reason:
            yield Turn(said=f"{reason} I give up.")
        else:
            yield Turn(said=self._summary(report))

    # ---- steps

    def _look(self) -> Step[None]:
        thought = "I don't know this repository yet, so I look at what is there."
        (listing,) = yield Turn(thought, calls=(Ask("list_dir", {"path": ".", "depth": 2}),))
        if listing.failed:
            raise GaveUp("I can't even list the folder.")
        self._files = listing.text.splitlines()

    def _test(self, thought: str) -> Step[Report]:
        (answer,) = yield Turn(thought, calls=(Ask("shell", {"command": self._command}),))
        return read_report(answer.text)

    def _mend(self, failure: Failure, before: Report) -> Step[Report]:
        """Try what may help, until ``failure`` is gone and nothing else has broken; the report of then."""
        place = yield from self._locate(failure)
        tried: list[Fix] = []
        refused = 0
        while refused < PATCHES:
            fix = yield from self._next_idea(place, failure, tried)
            if not (yield from self._apply({**self._texts, fix.path: fix.text}, _thought(fix, tried))):
                refused += 1
                continue
            tried.append(fix)
            report = yield from self._test("Did that help?")
            if report.count and not report.has_failed(failure.test) and len(report.failures) < len(before.failures):
                self._texts = dict(self._disk)
                self._mended.append(fix)
                return report
        raise GaveUp("My patches are refused.")

    def _show(self) -> Step[None]:
        yield Turn("All green. A last look at what I changed.", calls=(Ask("shell", {"command": "git diff --stat"}),))

    # ---- looking for the place

    def _locate(self, failure: Failure) -> Step[Place]:
        test = self._known(failure.frames[0].path) if failure.frames else None
        crash = failure.frames[-1] if failure.frames else None
        crashed_in = self._known(crash.path) if crash else None
        if crash is not None and crashed_in is not None and not is_test(crashed_in):
            yield from self._read_crashed(failure, crashed_in, crash.function)
            return Place(crashed_in, crash.function)
        name = called_in(crash.source) if crash else None
        if test is None or name is None:
            raise GaveUp(f"{failure.test} fails, and I can't tell what it calls.")
        path = yield from self._search(failure, test, name)
        yield from self._read(path, f"{name}() is in {path}.")
        return Place(path, name)

    def _read_crashed(self, failure: Failure, path: str, function: str) -> Step[None]:
        thought = f"{failure.test} crashes with {failure.error} in {function}() of {path}. I read it, and see who else uses it."
        asks = (Ask("file_search", {"queries": [function], "max_num_results": 5}), Ask("read_file", {"path": path}))
        _, text = yield Turn(thought, calls=asks)
        self._saw(path, text)

    def _search(self, failure: Failure, test: str, name: str) -> Step[str]:
        what = f"{failure.test} fails: {failure.message}."
        thought = f"{what} It calls {name}(), so I search for that, and read the test meanwhile."
        asks = (
            Ask("file_search", {"queries": [f"def {name}"], "max_num_results": 5}),
            Ask("read_file", {"path": test}),
        )
        found, text = yield Turn(thought, calls=asks)
        self._saw(test, text)
        path = found_in(found.text, f"def {name}(")
        if path is None:
            path = yield from self._grep(name)
        return path

    def _grep(self, name: str) -> Step[str]:
        command = f"grep -rn --include='*.py' 'def {name}(' ."
        (answer,) = yield Turn("The search does not find it. grep may.", calls=(Ask("shell", {"command": command}),))
        match = re.search(r"^\./(\S+?\.py):\d+:", answer.text, re.MULTILINE)
        if match is None:
            raise GaveUp(f"I can't find {name}().")
        return match[1]

    def _read(self, path: str, thought: str) -> Step[None]:
        if path not in self._texts:
            (text,) = yield Turn(thought, calls=(Ask("read_file", {"path": path}),))
            self._saw(path, text)

    def _saw(self, path: str, answer: Answer) -> None:
        if answer.failed:
            raise GaveUp(f"I can't read {path}.")
        self._texts[path] = self._disk[path] = answer.text

    def _known(self, path: str) -> str | None:
        """The listed file that a traceback means, which prints the whole path."""
        return next((name for name in self._files if name.endswith(".py") and path.endswith(f"/{name}")), None)

    # ---- ideas

    def _next_idea(self, place: Place, failure: Failure, tried: list[Fix]) -> Step[Fix]:
        """The next one that was not tried, from the function, or from one that it calls."""
        places = [place]
        for here in places:  # it grows
            function = function_in(self._texts[here.path], here.function)
            if function is None:
                continue
            keys = {fix.key for fix in tried}
            for fix in fixes(self._texts[here.path], here.path, function, failure.symptom):
                if fix.key not in keys:
                    return fix
            for other in self._called_by(here, function):
                if other not in places:
                    yield from self._read(other.path, f"{here.function}() looks right. It leans on {other.function}().")
                    places.append(other)
        if self._disk != self._texts:
            yield from self._apply(self._texts, "That did not help either. I leave the code as it was.")
        raise GaveUp(f"I have no idea left why {failure.test} fails.")

    def _called_by(self, here: Place, function: Function) -> Iterator[Place]:
        for name in function.calls:
            if function_in(self._texts[here.path], name) is not None:
                yield Place(here.path, name)
            elif (path := imported_from(self._texts[here.path], here.path, name)) in self._files:
                yield Place(path, name)

    # ---- edits

    def _apply(self, wanted: Mapping[str, str], thought: str) -> Step[bool]:
        """Whether the files are as ``wanted`` now. If not, others have changed them, and they were read again."""
        paths = [path for path, text in wanted.items() if self._disk[path] != text]
        patches = [(path, self._disk[path], wanted[path]) for path in paths]
        (answer,) = yield Turn(thought, calls=(Ask("apply_patch", {"patch": patch(patches)}),))
        if answer.failed and (yield from self._have_changed(paths)):
            return False
        if answer.failed:
            calls = tuple(Ask("write_file", {"path": path, "content": wanted[path]}) for path in paths)
            answers = yield Turn("They are as I knew them. Then I write them whole.", calls=calls)
            if any(one.failed for one in answers):
                raise GaveUp("I can't write here.")
        self._disk.update(wanted)
        return True

    def _have_changed(self, paths: Sequence[str]) -> Step[bool]:
        thought = f"The patch is refused. I read again what {' and '.join(paths)} says now."
        answers = yield Turn(thought, calls=tuple(Ask("read_file", {"path": path}) for path in paths))
        if all(answer.text == self._disk[path] for path, answer in zip(paths, answers, strict=True)):
            return False
        for path, answer in zip(paths, answers, strict=True):
            self._saw(path, answer)
        return True

    def _summary(self, report: Report) -> str:
        if not self._mended:
            return f"All {report.count} tests pass; there was nothing to mend."
        what = "; ".join(f"in {fix.path}, {fix.why}" for fix in self._mended)
        return f"All {report.count} tests pass. What was wrong: {what}."


def _thought(fix: Fix, tried: Sequence[Fix]) -> str:
    again = "No, it fails still. I take that back. " if tried else ""
    return f"{again}In {fix.path}, `{fix.line}`: perhaps {fix.why}."
