"""The demo's repository, healthy: a small package for people who practise an instrument, and its tests."""

from typing import Final

FILES: Final[dict[str, str]] = {
    "README.md": """\
# practice

Keeps a diary of what you have practised, and helps with tempos and scales.

Run the tests with `python -m unittest`.
""",
    "practice/__init__.py": '"""For people who practise an instrument."""\n',
    "practice/clock.py": '''\
"""Times as people write them."""


def clock(minutes):
    """Minutes as hours and minutes: 65 is ``1:05``."""
    return f"{minutes // 60}:{minutes % 60:02d}"
''',
    "practice/diary.py": '''\
"""The diary: a list of sessions, each a piece and its minutes."""

from .clock import clock


def log(piece, minutes, diary=None):
    """Add a session to ``diary``, or to a new one, and return it."""
    if diary is None:
        diary = []
    diary.append((piece, minutes))
    return diary


def total(diary):
    """How long all sessions were, for reading."""
    return clock(sum(minutes for _, minutes in diary))


def average(diary):
    """How long a session was on average, in minutes."""
    return sum(minutes for _, minutes in diary) / len(diary)
''',
    "practice/goals.py": '''\
"""What a day's practice is worth."""


def stars(minutes, goal):
    """One star for half of the goal, two for all of it, three for twice as much."""
    if minutes < goal / 2:
        return 0
    if minutes < goal:
        return 1
    if minutes < 2 * goal:
        return 2
    return 3
''',
    "practice/pitch.py": '''\
"""The twelve pitches."""

NAMES = ["C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B"]


def name_of(pitch):
    """The name of a pitch: 0 is a C, and so is every twelfth one above it."""
    return NAMES[pitch % len(NAMES)]
''',
    "practice/repertoire.py": '''\
"""The pieces that somebody plays."""


def by_composer(pieces):
    """How many of ``pieces``, pairs of composer and title, there are of each composer."""
    counts = {}
    for composer, _ in pieces:
        counts[composer] = counts.get(composer, 0) + 1
    return counts


def most_played(pieces):
    """The composer with the most pieces."""
    counts = by_composer(pieces)
    return max(counts, key=counts.get)
''',
    "practice/scales.py": '''\
"""Scales, from their steps."""

from .pitch import NAMES, name_of

STEPS = {"major": [2, 2, 1, 2, 2, 2, 1], "minor": [2, 1, 2, 2, 1, 2, 2]}


def scale(tonic, kind="major"):
    """The names of a scale's notes, from its tonic up to the octave."""
    pitch = NAMES.index(tonic)
    notes = [name_of(pitch)]
    for step in STEPS[kind]:
        pitch += step
        notes.append(name_of(pitch))
    return notes
''',
    "practice/tempo.py": '''\
"""Metronome tempos, in beats per minute."""


def beat_seconds(tempo):
    """How long one beat lasts, in seconds."""
    return 60 / tempo


def ramp(first, last, step):
    """The tempos of an exercise that gets faster, from ``first`` to ``last``, both included."""
    return list(range(first, last + 1, step))
''',
    "tests/__init__.py": "",
    "tests/test_clock.py": """\
import unittest

from practice.clock import clock


class ClockTest(unittest.TestCase):
    def test_minutes_have_two_digits(self):
        self.assertEqual(clock(65), "1:05")

    def test_a_long_evening(self):
        self.assertEqual(clock(150), "2:30")
""",
    "tests/test_diary.py": """\
import unittest

from practice.diary import average, log, total

WEEK = [("Etude", 10), ("Sonata", 25), ("Etude", 10), ("Waltz", 25)]


class DiaryTest(unittest.TestCase):
    def test_a_session_is_added(self):
        self.assertEqual(log("Waltz", 25, [("Etude", 10)]), [("Etude", 10), ("Waltz", 25)])

    def test_each_new_diary_is_empty(self):
        log("Etude", 10)
        self.assertEqual(log("Waltz", 25), [("Waltz", 25)])

    def test_total(self):
        self.assertEqual(total(WEEK), "1:10")

    def test_average(self):
        self.assertEqual(average(WEEK), 17.5)
""",
    "tests/test_goals.py": """\
import unittest

from practice.goals import stars


class StarsTest(unittest.TestCase):
    def test_half_of_the_goal(self):
        self.assertEqual(stars(14, 30), 0)
        self.assertEqual(stars(15, 30), 1)

    def test_exactly_the_goal(self):
        self.assertEqual(stars(30, 30), 2)

    def test_twice_as_much(self):
        self.assertEqual(stars(59, 30), 2)
        self.assertEqual(stars(60, 30), 3)
""",
    "tests/test_repertoire.py": """\
import unittest

from practice.repertoire import by_composer, most_played

PIECES = [("Bach", "Prelude"), ("Chopin", "Waltz"), ("Bach", "Fugue")]


class RepertoireTest(unittest.TestCase):
    def test_by_composer(self):
        self.assertEqual(by_composer(PIECES), {"Bach": 2, "Chopin": 1})

    def test_most_played(self):
        self.assertEqual(most_played(PIECES), "Bach")
""",
    "tests/test_scales.py": """\
import unittest

from practice.scales import scale


class ScaleTest(unittest.TestCase):
    def test_major(self):
        self.assertEqual(scale("D"), ["D", "E", "F#", "G", "A", "B", "C#", "D"])

    def test_minor(self):
        self.assertEqual(scale("A", "minor"), ["A", "B", "C", "D", "E", "F", "G", "A"])
""",
    "tests/test_tempo.py": """\
import unittest

from practice.tempo import beat_seconds, ramp


class TempoTest(unittest.TestCase):
    def test_beat(self):
        self.assertEqual(beat_seconds(120), 0.5)

    def test_ramp_reaches_the_last_tempo(self):
        self.assertEqual(ramp(60, 80, 10), [60, 70, 80])
""",
}
"""Text by path."""
