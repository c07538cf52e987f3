"""The patch format that coding models are trained on (V4A), as text in and text out: no files here.

An envelope holds sections, one a file::

    *** Begin Patch
    *** Add File: new.txt
    +its lines
    *** Update File: src/app.py
    *** Move to: src/main.py
    @@ def greet():
     a line that stays
    -a line that goes
    +a line that comes
    *** End of File
    *** Delete File: old.txt
    *** End Patch

An update is a list of hunks in the order of the file. A hunk's place is found by its text, never by numbers: an ``@@``
line goes to the line it quotes (several narrow it down); then the lines that stay or go must follow somewhere, and
the first place after the last hunk counts. ``*** End of File`` ties a hunk to the end. Models misquote white space and
typographic signs, so places are looked for exactly, then without trailing, then without any outer white space, then
with plain quotes, dashes and spaces. Lines that stay are never rewritten, however they were quoted.

Two things the format cannot say are kept from the file: whether its last line has an end, and whether lines end in
CRLF. New files end with a line end.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final, Literal

from attrs import field, frozen

from .workspace import Failure

BEGIN: Final = "*** Begin Patch"
END: Final = "*** End Patch"
ADD: Final = "*** Add File: "
DELETE: Final = "*** Delete File: "
UPDATE: Final = "*** Update File: "
MOVE: Final = "*** Move to: "
END_OF_FILE: Final = "*** End of File"

Sign = Literal[" ", "-", "+"]
SIGNS: Final[tuple[Sign, ...]] = (" ", "-", "+")

SHOWN_LINES: Final = 12
"""How many lines of a hunk an error message quotes."""


class PatchError(Failure):
    """The patch can't be read, or does not fit; the message says where, for the model to correct it."""


@frozen
class Change:
    """A line of a hunk: it stays (a space), goes (``-``) or comes (``+``)."""

    sign: Sign
    text: str


@frozen(kw_only=True)
class Hunk:
    """Changes in one place. ``number`` counts from 1, for messages."""

    number: int
    anchors: tuple[str, ...] = ()
    changes: tuple[Change, ...]
    at_end: bool = False


@frozen
class AddFile:
    path: str
    content: str


@frozen
class DeleteFile:
    path: str


@frozen
class UpdateFile:
    path: str
    hunks: tuple[Hunk, ...]
    move_to: str | None = field(default=None)


Section = AddFile | DeleteFile | UpdateFile


# ---- reading


def parse_patch(text: str) -> tuple[Section, ...]:
    """The sections of an envelope; raises ``PatchError``."""
    lines = _lines(text.strip())
    if lines[0].rstrip() != BEGIN or lines[-1].strip() != END:
        raise PatchError(f"a patch begins with the line '{BEGIN}' and ends with the line '{END}'")
    starts = [index for index, line in enumerate(lines) if line.startswith((ADD, DELETE, UPDATE))]
    if (starts[0] if starts else len(lines) - 1) != _skip_blank(lines, 1):
        raise PatchError(f"line 2: expected {_headers()}, got {lines[1]!r}")
    if not starts:
        raise PatchError(f"the patch is empty; expected {_headers()}")
    ends = [*starts[1:], len(lines) - 1]
    return tuple(_section(lines[start:end], start + 1) for start, end in zip(starts, ends, strict=True))


def parse_hunks(diff: str, path: str) -> tuple[Hunk, ...]:
    """The hunks of an update's diff without an envelope; raises ``PatchError``."""
    return _hunks(_lines(diff.removesuffix("\n")), path, 1)


def parse_new_file(diff: str, path: str) -> str:
    """The content of a new file, from lines that all begin with ``+``; raises ``PatchError``."""
    return _new_file(_lines(diff.removesuffix("\n")) if diff else [], path, 1)


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    whole = lines[:-1] if len(lines) > 1 else lines
    # Only a patch that is CRLF throughout is one; else a CR belongs to the text of its line.
    return [line.removesuffix("\r") for line in lines] if all(line.endswith("\r") for line in whole) else lines


def _headers() -> str:
    return f"'{ADD}path', '{UPDATE}path' or '{DELETE}path'"


def _skip_blank(lines: Sequence[str], start: int) -> int:
    return next((index for index in range(start, len(lines)) if lines[index].strip()), len(lines))


def _section(lines: list[str], number: int) -> Section:
    """``lines`` begin with the section's header, which is line ``number`` of the patch."""
    header, body = lines[0], lines[1:]
    path = header.split(": ", 1)[1].strip()
    if not path:
        raise PatchError(f"line {number}: the path is missing")
    if header.startswith(ADD):
        return AddFile(path, _new_file(body, path, number + 1))
    if header.startswith(DELETE):
        if (extra := _skip_blank(body, 0)) < len(body):
            raise PatchError(f"line {number + 1 + extra}: nothing may follow '{header}', got {body[extra]!r}")
        return DeleteFile(path)
    if body and body[0].startswith(MOVE):
        target = body[0].removeprefix(MOVE).strip()
        rest = body[1:]
        hunks = _hunks(rest, path, number + 2) if _skip_blank(rest, 0) < len(rest) else ()
        return UpdateFile(path, hunks, target)
    return UpdateFile(path, _hunks(body, path, number + 1))


def _new_file(lines: list[str], path: str, number: int) -> str:
    while lines and not lines[-1]:
        lines = lines[:-1]
    for index, line in enumerate(lines):
        if not line.startswith("+"):
            raise PatchError(f"line {number + index}: each line of the new file {path} begins with '+', got {line!r}")
    return "".join(f"{line[1:]}\n" for line in lines)


def _hunks(lines: list[str], path: str, number: int) -> tuple[Hunk, ...]:
    """The hunks in ``lines``, of which the first is line ``number`` of the patch."""
    hunks: list[Hunk] = []
    index = 0
    while (index := _after_empty(lines, index)) < len(lines):
        anchors: list[str] = []
        while index < len(lines) and (anchor := _anchor(lines[index])) is not None:
            anchors += [anchor] if anchor else []
            index += 1
        changes: list[Change] = []
        while index < len(lines) and not lines[index].startswith(("@@", "***")):
            changes.append(_change(lines[index], number + index))
            index += 1
        at_end = index < len(lines) and lines[index].rstrip() == END_OF_FILE
        index += at_end
        if index < len(lines) and lines[index].startswith("***"):
            raise PatchError(f"line {number + index}: unknown marker {lines[index]!r}; expected {_headers()}")
        if not changes:
            raise PatchError(f"line {number + index}: hunk {len(hunks) + 1} of {path} has no lines")
        hunks.append(Hunk(number=len(hunks) + 1, anchors=tuple(anchors), changes=tuple(changes), at_end=at_end))
    if not hunks:
        raise PatchError(f"the update of {path} has no hunks")
    return tuple(hunks)


def _after_empty(lines: Sequence[str], start: int) -> int:
    """Past the empty lines that separate hunks."""
    return next((index for index in range(start, len(lines)) if lines[index]), len(lines))


_NUMBERED: Final = re.compile(r"@@ -\d+(,\d+)? \+\d+(,\d+)? @@")


def _anchor(line: str) -> str | None:
    """What a ``@@`` line says: empty for a bare one, or for line numbers as in a unified diff, which we don't use."""
    if not line.startswith("@@"):
        return None
    return "" if _NUMBERED.match(line) else line[2:].removeprefix(" ").rstrip()


def _change(line: str, number: int) -> Change:
    if not line:
        return Change(" ", "")  # an empty line that stays, whose space was lost
    for sign in SIGNS:
        if line.startswith(sign):
            return Change(sign, line[1:])
    raise PatchError(f"line {number}: a line begins with ' ', '-', '+' or '@@', got {line!r}")


# ---- applying


def apply_hunks(text: str, hunks: Sequence[Hunk], path: str) -> str:
    """``text`` with the hunks applied; raises ``PatchError`` when one has no place."""
    file = _file_lines(text)
    lines = [line for line, _ in file]
    newline = "\r\n" if text.count("\r\n") * 2 > text.count("\n") else "\n"
    result: list[tuple[str, str]] = []
    done = 0
    for hunk in hunks:
        start, changes = _place(lines, hunk, done, path)
        result += file[done:start]
        done = start
        for change in changes:
            if change.sign == "+":
                result.append((change.text.removesuffix("\r") if newline == "\r\n" else change.text, newline))
                continue
            if change.sign == " ":
                result.append(file[done])
            done += 1
    result += file[done:]
    whole = "".join(line + (end or newline) for line, end in result)
    return whole if text.endswith("\n") or not text else whole.removesuffix(result[-1][1] or newline if result else "")


def _file_lines(text: str) -> list[tuple[str, str]]:
    """Each line and its end; the last line may have none."""
    pieces = text.split("\n")
    ended = [(line.removesuffix("\r"), "\r\n" if line.endswith("\r") else "\n") for line in pieces[:-1]]
    return [*ended, (pieces[-1], "")] if pieces[-1] else ended


def _place(lines: Sequence[str], hunk: Hunk, start: int, path: str) -> tuple[int, Sequence[Change]]:
    """Where the hunk belongs, at ``start`` or after, and its changes that count."""
    for anchor in hunk.anchors:
        start = _after_anchor(lines, anchor, start, hunk, path)
    changes = hunk.changes
    if all(change.sign == "+" for change in changes):
        return (start if hunk.anchors and not hunk.at_end else len(lines)), changes
    while True:
        old = [change.text for change in changes if change.sign != "+"]
        if (found := _find(lines, old, start, hunk.at_end)) is not None:
            return found, changes
        # Models often end a hunk with an empty line that isn't in the file: its last line's end, or a separator.
        if len(old) < 2 or changes[-1] != Change(" ", ""):
            raise PatchError(_no_place(lines, hunk, start, path))
        changes = changes[:-1]


def _after_anchor(lines: Sequence[str], anchor: str, start: int, hunk: Hunk, path: str) -> int:
    found = _find(lines, [anchor], start, False)
    if found is not None:
        return found + 1
    if _find(lines[:start], [anchor], 0, False) is not None:
        return start  # we are past it already: a second hunk in one function
    raise PatchError(f"{path}: hunk {hunk.number}: no line {'@@ ' + anchor!r} in the file")


def _no_place(lines: Sequence[str], hunk: Hunk, start: int, path: str) -> str:
    old = [change.text for change in hunk.changes if change.sign != "+"]
    quoted = "\n".join(old[:SHOWN_LINES]) + ("\n…" if len(old) > SHOWN_LINES else "")
    where = " at its end" if hunk.at_end else f" after line {start}" if start else ""
    elsewhere = _find(lines, old, 0, False)
    hint = "" if elsewhere is None else f"\nThey are at line {elsewhere + 1}: hunks come in the order of the file."
    return f"{path}: hunk {hunk.number}: the file does not have these lines{where}:\n{quoted}{hint}"


_PLAIN: Final = str.maketrans(
    {
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        **dict.fromkeys("\u2018\u2019\u201a\u201b", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f", '"'),
        **dict.fromkeys("\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "),
    }
)


def _plain(line: str) -> str:
    return line.translate(_PLAIN).strip()


_READINGS: Final[tuple[Callable[[str], str], ...]] = (
    str,
    lambda line: line.removesuffix("\r"),
    str.rstrip,
    str.strip,
    _plain,
)
"""How lines are compared, the strictest first."""


def _find(lines: Sequence[str], wanted: Sequence[str], start: int, at_end: bool) -> int | None:
    """The first index, from ``start`` on, at which the lines are as ``wanted``."""
    last = len(lines) - len(wanted)
    places = range(max(start, last) if at_end else start, last + 1)
    for reading in _READINGS:
        ours, theirs = [reading(line) for line in lines[start:]], [reading(line) for line in wanted]
        for index in places:
            if ours[index - start : index - start + len(theirs)] == theirs:
                return index
    return None
