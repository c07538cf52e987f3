"""What the policy makes of the texts that its tools return: a test run, a traceback, a search, a Python file.

Nothing here knows what was planted. All of it is read from text, as a model would read it.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, Final

from attrs import frozen

CONTEXT_LINES: Final = 3
"""Around a change in a patch, as ``diff`` and the models have it."""

INDENT: Final = "    "

# ---- a test run


@frozen
class Frame:
    """A line of a traceback: the file, as it was printed, the function, and the source."""

    path: str
    function: str
    source: str


@frozen
class Failure:
    """A test that failed. ``message`` is the last line of its traceback, without the error's name."""

    test: str
    error: str
    message: str
    frames: tuple[Frame, ...]

    @property
    def symptom(self) -> str:
        """What is wrong with what was got, in a word; of a crash the error's name."""
        if self.error != "AssertionError":
            return self.error
        got, _, wanted = self.message.rpartition(": ")[2].partition(" != ")
        return _compare(_literal(got), _literal(wanted))


@frozen
class Report:
    """A test run. ``count`` is None when the tests did not run at all."""

    passed: bool
    count: int | None
    failures: tuple[Failure, ...]

    def has_failed(self, test: str) -> bool:
        """Whether ``test`` is among the failures."""
        return any(failure.test == test for failure in self.failures)


_BLOCK: Final = re.compile(
    r"^(?:FAIL|ERROR): (?P<test>[^\n]+)\n-{20,}\n(?P<trace>.*?)(?=^={20,}$|^-{20,}$|\Z)", re.MULTILINE | re.DOTALL
)
_FRAME: Final = re.compile(r'^  File "(?P<path>[^"\n]+)", line \d+, in (?P<function>\S+)\n    (?P<source>[^\n]*)', re.MULTILINE)
_ERROR: Final = re.compile(r"^(?P<error>[A-Za-z_][\w.]*)(?:: (?P<message>[^\n]*))?$", re.MULTILINE)
_COUNT: Final = re.compile(r"^Ran (\d+) tests?\b", re.MULTILINE)


def read_report(text: str) -> Report:
    """What ``unittest`` printed, behind the shell's line about the exit code."""
    count = _COUNT.search(text)
    failures = tuple(map(_failure, _BLOCK.finditer(text)))
    passed = text.startswith("exit code 0\n") and count is not None and not failures
    return Report(passed, int(count[1]) if count else None, failures)


def _failure(block: re.Match[str]) -> Failure:
    frames = tuple(Frame(one["path"], one["function"], one["source"]) for one in _FRAME.finditer(block["trace"]))
    error = _ERROR.search(block["trace"])
    name = block["test"].split(" ")[0]
    return Failure(name, error["error"] if error else "", (error and error["message"]) or "", frames)


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None


def _compare(got: Any, wanted: Any) -> str:
    if isinstance(got, list) and isinstance(wanted, list):
        return "shorter" if len(got) < len(wanted) else "longer" if len(got) > len(wanted) else "other items"
    if isinstance(got, str) and isinstance(wanted, str):
        return "other text"
    if isinstance(got, int) and isinstance(wanted, float):
        return "whole number"
    return "other number" if isinstance(got, int) and isinstance(wanted, int) else "other"


_PYTHONS_OWN: Final = frozenset(("dict", "float", "int", "len", "list", "set", "sorted", "str", "sum", "tuple"))
_CALLED: Final = re.compile(r"(?<![\w.])([A-Za-z_]\w*)\(")


def called_in(source: str) -> str | None:
    """The function of the project that a line of a test calls."""
    return next((name for name in _CALLED.findall(source) if name not in _PYTHONS_OWN), None)


# ---- a search


def found_in(results: str, needle: str) -> str | None:
    """The file, not a test, in whose passage ``needle`` stands; ``results`` has a line ``file:line`` above each passage."""
    path = None
    for line in results.splitlines():
        head = re.fullmatch(r"(\S+\.py):\d+", line)
        if head:
            path = head[1]
        elif needle in line and path is not None and not is_test(path):
            return path
    return None


def is_test(path: str) -> bool:
    """Whether a file holds tests, by the customs of Python."""
    return path.split("/")[-1].startswith("test_")


# ---- a Python file


@frozen
class Function:
    """A function's lines, from ``start`` on (0 is the file's first)."""

    name: str
    start: int
    lines: tuple[str, ...]
    calls: tuple[str, ...]
    """Names that it calls, in order."""


def function_in(text: str, name: str) -> Function | None:
    """The function ``name`` of a file, if the file can be read and has it."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            lines = text.splitlines()[node.lineno - 1 : node.end_lineno]
            calls = [one.func.id for one in ast.walk(node) if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)]
            return Function(name, node.lineno - 1, tuple(lines), tuple(dict.fromkeys(calls)))
    return None


def imported_from(text: str, path: str, name: str) -> str | None:
    """The file of the same package from which the file ``path`` imports ``name``."""
    for module, names in re.findall(r"^from \.(\w+) import ([^\n]+)$", text, re.MULTILINE):
        if name in re.split(r"\W+", names):
            return "/".join([*path.split("/")[:-1], f"{module}.py"])
    return None


# ---- what may be wrong with a function


@frozen
class Fix:
    """An idea: why, and the whole new text of the file. ``line`` is the one that is suspected."""

    path: str
    why: str
    line: str
    text: str

    @property
    def key(self) -> tuple[str, str, str]:
        """The same idea has the same key, in another version of the file, too."""
        return self.path, self.why, self.line


@frozen
class Pattern:
    """A habit of bugs: what a line looks like, what to write in its place, and the symptoms by which it shows.

    ``replacement`` may have several lines; ``{indent}`` is that of the function's body.
    """

    why: str
    looks_like: re.Pattern[str]
    replacement: str
    symptoms: tuple[str, ...]


PATTERNS: Final[Sequence[Pattern]] = (
    Pattern(
        "a range stops before its end, so the last one is missing",
        re.compile(r"\brange\((\w+), (\w+)(, \w+)?\)"),
        r"range(\1, \2 + 1\3)",
        ("shorter",),
    ),
    Pattern(
        "a remainder by one less than there are names skips the last of them",
        re.compile(r"% \(len\((\w+)\) - 1\)"),
        r"% len(\1)",
        ("other items",),
    ),
    Pattern(
        "a list as a default is made once and shared by all calls",
        re.compile(r"^def (\w+)\((.*)\b(\w+)=\[\]\):$"),
        "def \\1(\\2\\3=None):\n{indent}if \\3 is None:\n{indent}    \\3 = []",
        ("longer",),
    ),
    Pattern(
        "the first one of a kind has no count to add to",
        re.compile(r"(\w+)\[(\w+)\] \+= (\w+)"),
        r"\1[\2] = \1.get(\2, 0) + \3",
        ("KeyError",),
    ),
    Pattern("`//` drops the fraction", re.compile(r" // "), r" / ", ("whole number",)),
    Pattern(
        "minutes below ten are printed with one digit",
        re.compile(r"\{(\w+ % 60)\}"),
        r"{\1:02d}",
        ("other text",),
    ),
    Pattern("the border should belong to this case", re.compile(r" < "), r" <= ", ("other number",)),
    Pattern("the border should not belong to this case", re.compile(r" <= "), r" < ", ("other number",)),
)


def fixes(text: str, path: str, function: Function, symptom: str) -> list[Fix]:
    """Ideas for ``function``, those that explain the symptom first, else in the order of the lines."""
    found = []
    for number, line in enumerate(function.lines):
        for pattern in PATTERNS:
            if pattern.looks_like.search(line):
                unlikely = symptom not in pattern.symptoms
                found.append((unlikely, number, Fix(path, pattern.why, line.strip(), _fixed(text, function, number, pattern))))
    return [fix for *_, fix in sorted(found, key=lambda one: one[:2])]


def _fixed(text: str, function: Function, number: int, pattern: Pattern) -> str:
    first, *rest = pattern.looks_like.sub(pattern.replacement, function.lines[number], count=1).split("\n")
    body = list(function.lines)
    body[number] = first
    if rest:
        at = _body_begins(function)
        body[at:at] = [line.replace("{indent}", INDENT) for line in rest]
    lines = text.splitlines()
    lines[function.start : function.start + len(function.lines)] = body
    return "\n".join(lines) + "\n"


def _body_begins(function: Function) -> int:
    """The line behind the docstring."""
    quotes = [number for number, line in enumerate(function.lines) if '"""' in line]
    if not quotes or quotes[0] != 1:
        return 1
    return 2 if function.lines[1].count('"""') == 2 else quotes[1] + 1


# ---- patches


def patch(changes: Iterable[tuple[str, str, str]]) -> str:
    """The patch, in the form that ``apply_patch`` takes. Each change is a path, the text that is there, and the new one."""
    lines = ["*** Begin Patch"]
    for path, before, after in changes:
        lines.append(f"*** Update File: {path}")
        lines += [line for hunk in _hunks(before.splitlines(), after.splitlines()) for line in hunk]
    return "\n".join([*lines, "*** End Patch"])


def _hunks(before: list[str], after: list[str]) -> Iterator[list[str]]:
    for group in SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(CONTEXT_LINES):
        hunk = [_anchor(before, group[0][1])]
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                hunk += [f" {line}" for line in before[i1:i2]]
            else:
                hunk += [f"-{line}" for line in before[i1:i2]] + [f"+{line}" for line in after[j1:j2]]
        yield hunk


def _anchor(lines: list[str], start: int) -> str:
    """A line that leads to a hunk: the function in which it begins, if it begins in one."""
    heads = [line for line in lines[:start] if line.startswith("def ")]
    return f"@@ {heads[-1]}" if heads else "@@"
