"""The task: a fresh repository in which something is wrong, and what the user says about it.

Each seed plants one of a few cases. None is like another: in where the failing test points, in what must be read to see
the bug, in how many attempts it takes. The bugs are what people really write.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from attrs import frozen

from .sources import FILES

GIT: Final = "git"
GIT_SECONDS: Final = 20.0
"""For one git command, on a slow disk; after that we go on without git."""

PROMPT: Final = (
    "Some tests of this repository fail. Find out why, mend the code (not the tests), and run the tests again until all "
    'of them pass. Run them with `"$PYTHON" -m unittest`.'
)
"""``$PYTHON`` is the interpreter that runs the demo: a machine may have no ``python``, or another one."""


@frozen
class Bug:
    """In ``path``, ``wrong`` stands in the place of ``right``."""

    path: str
    right: str
    wrong: str

    def plant(self, text: str) -> str:
        """``text`` with the bug."""
        assert text.count(self.right) == 1, f"{self.path} does not have it once: {self.right!r}"
        return text.replace(self.right, self.wrong)


BORDER: Final = Bug("practice/goals.py", "if minutes < goal:", "if minutes <= goal:")
END_LEFT_OUT: Final = Bug("practice/tempo.py", "range(first, last + 1, step)", "range(first, last, step)")
WRONG_TURN: Final = Bug("practice/pitch.py", "% len(NAMES)", "% (len(NAMES) - 1)")
SHARED_DEFAULT: Final = Bug(
    "practice/diary.py",
    "diary=None):\n"
    '    """Add a session to ``diary``, or to a new one, and return it."""\n'
    "    if diary is None:\n"
    "        diary = []\n",
    'diary=[]):\n    """Add a session to ``diary``, or to a new one, and return it."""\n',
)
FIRST_OF_ITS_KIND: Final = Bug(
    "practice/repertoire.py", "counts[composer] = counts.get(composer, 0) + 1", "counts[composer] += 1"
)
WHOLE_MINUTES: Final = Bug("practice/diary.py", " / len(diary)", " // len(diary)")
ONE_DIGIT: Final = Bug("practice/clock.py", "{minutes % 60:02d}", "{minutes % 60}")

CASES: Final[Sequence[tuple[Bug, ...]]] = (
    (BORDER,),  # the first guess is wrong
    (END_LEFT_OUT,),
    (WRONG_TURN,),  # in a helper of what the test calls
    (SHARED_DEFAULT,),
    (FIRST_OF_ITS_KIND,),  # crashes, so that the traceback points at it
    (ONE_DIGIT, WHOLE_MINUTES),  # two
)
"""What each seed plants, in turn."""


def case(seed: int) -> tuple[Bug, ...]:
    """The bugs that ``seed`` plants."""
    return CASES[seed % len(CASES)]


@frozen
class Repository:
    """A repository that was made. ``has_git``: it has a history of one commit."""

    root: Path
    bugs: tuple[Bug, ...]
    has_git: bool

    @property
    def environment(self) -> dict[str, str]:
        """For the commands that run in it: what the user has, but nothing that changes how Python or git behave."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GIT_"))}
        for name in ("FORCE_COLOR", "CLICOLOR_FORCE"):
            kept.pop(name, None)
        # Without bytecode files: an edit within the same second, to a text of the same length, would go unnoticed.
        return {**kept, **_GIT, "PYTHON": sys.executable, "PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1"}


_GIT: Final = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_PAGER": "cat",
    "GIT_AUTHOR_NAME": "Demo",
    "GIT_AUTHOR_EMAIL": "demo@example.org",
    "GIT_COMMITTER_NAME": "Demo",
    "GIT_COMMITTER_EMAIL": "demo@example.org",
}
"""Git as it comes, without the user's hooks, signatures and aliases."""


def make(root: Path, seed: int) -> Repository:
    """Write the repository into ``root``, an empty folder or none yet, and commit it if there is a git.

    Blocks; raises ``OSError``.
    """
    bugs = case(seed)
    texts = dict(FILES)
    for bug in bugs:
        texts[bug.path] = bug.plant(texts[bug.path])
    for path, text in texts.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    bare = Repository(root, bugs, has_git=False)
    return Repository(root, bugs, has_git=_commit(root, bare.environment))


def _commit(root: Path, environment: Mapping[str, str]) -> bool:
    """Whether there is a history now."""
    try:
        for words in (["init"], ["add", "."], ["commit", "-m", "The practice package"]):
            subprocess.run(
                [GIT, "-c", "init.defaultBranch=main", *words],
                cwd=root,
                env=dict(environment),
                check=True,
                capture_output=True,
                timeout=GIT_SECONDS,
            )
    except (OSError, subprocess.SubprocessError):
        shutil.rmtree(root / ".git", ignore_errors=True)
        return False
    return True
