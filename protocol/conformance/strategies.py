"""Hypothesis strategies: texts, programs, damaged frames, moves, conversations."""

from collections.abc import Sequence
from typing import Any, Final

from attrs import evolve
from hypothesis import strategies as st

from . import moves as mv
from .script import HOSTED, Step

NAMES: Final = ("read", "write", "t0", "shell")
CODES_OF_BAD_FRAMES: Final = frozenset(
    {
        "invalid_json",
        "invalid_frame",
        "unknown_event",
        "invalid_type",
        "invalid_value",
        "missing_required_parameter",
        "invalid_stream_id",
    }
)


def texts() -> st.SearchStrategy[str]:
    """What a model says: words, and characters that are several tokens, or surrogate pairs in JSON."""
    known = [
        "Hello.",
        "a b c",
        "I see.",
        'a "quoted" \\ word',
        "naïve café ☕",
        "👩‍👩‍👧‍👦 family",
        "行きましょう",
        "line\nline\n",
        "🎹" * 3,
    ]
    return st.sampled_from(known)


def calls(*, hosted: bool) -> st.SearchStrategy[Step]:
    """One call of a client's tool, or of a hosted one."""
    name = st.sampled_from(NAMES)
    arguments = st.sampled_from(["{}", '{"cmd": "ls"}', '{"path":"é/🎹.txt"}', "not json", '{"n": 1.0}'])
    function = st.fixed_dictionaries({"name": name, "arguments": arguments})
    custom = st.fixed_dictionaries({"name": name, "arguments": arguments, "kind": st.just("custom_tool_call")})
    search = st.just({"name": HOSTED, "arguments": '{"query": "notes"}'})
    return st.one_of(function, function, custom, *([search] if hosted else []))


def steps(*, hosted: bool = False, depth: int = 1) -> st.SearchStrategy[Step]:
    """One step of a program."""
    say = texts().map(lambda text: {"say": text})
    quote = st.sampled_from(["{{output}}", "{{output_of:t0}}", "so: {{output}}!"]).map(lambda text: {"say": text})
    one = st.builds(lambda call, wait: {"call": call, **wait}, calls(hosted=hosted), _wait())
    several = st.builds(
        lambda some, wait: {"calls": some, **wait}, st.lists(calls(hosted=hosted), min_size=2, max_size=4), _wait()
    )
    reason = texts().map(lambda text: {"reason": text})
    long = st.integers(20, 60).map(lambda count: {"say": {"tokens": count}})
    leaves = st.one_of(say, quote, one, several, several, reason, long, st.just({"wait": True}))
    if depth == 0:
        return leaves
    inner = st.lists(steps(hosted=hosted, depth=depth - 1), min_size=1, max_size=2)
    branch = st.builds(
        lambda word, then, other: {"if": {"contains": word}, "then": then, "else": other},
        st.sampled_from(["ok", "returned", "exit"]),
        inner,
        inner,
    )
    again = st.builds(lambda count, body: {"repeat": count, "steps": body}, st.integers(0, 2), inner)
    return st.one_of(leaves, leaves, leaves, branch, again)


def programs(*, hosted: bool = False) -> st.SearchStrategy[list[Step]]:
    """A program that ends in words, or now and then stops or fails."""
    last: st.SearchStrategy[Sequence[Step]] = st.sampled_from(
        [[{"say": "Done."}], [{"say": "Done: {{output}}."}], [{"say": "Done."}, {"stop": "end"}]]
    )
    rare: st.SearchStrategy[Sequence[Step]] = st.sampled_from(
        [
            [{"stop": "max_output_tokens"}],
            [{"stop": "content_filter"}],
            [{"fail": {"message": "as asked"}}],
            [{"fail": {"fault": "busy"}}],
        ]
    )
    end = st.integers(0, 9).flatmap(lambda number: rare if number == 9 else last)
    return st.builds(lambda body, ending: [*body, *ending], st.lists(steps(hosted=hosted), max_size=4), end)


def bad_frames() -> st.SearchStrategy[tuple[str | bytes, frozenset[str]]]:
    """Frames that cannot be read, and the codes that say so."""
    fixed: list[tuple[str | bytes, str]] = [
        ("", "invalid_json"),
        ("{", "invalid_json"),
        ("not json", "invalid_json"),
        ('{"type": "response.create"', "invalid_json"),
        ('{"type": NaN}', "invalid_json"),
        ('{"type": "response.cancel", "x": 1e400}', "invalid_json"),
        ('{"type": "\\ud800"}', "invalid_json"),
        ("[" * 10_000 + "]" * 10_000, "invalid_json"),
        ("[]", "invalid_frame"),
        ("null", "invalid_frame"),
        ("1", "invalid_frame"),
        ('"text"', "invalid_frame"),
        (b"\x00\x01", "invalid_frame"),
        (b'{"type": "response.cancel"}', "invalid_frame"),
        ("{}", "missing_required_parameter"),
        ('{"type": "response.unheard_of"}', "unknown_event"),
        ('{"type": 1}', "unknown_event"),
        ('{"type": "response.create"}', "missing_required_parameter"),
        ('{"type": "response.create", "model": 7}', "invalid_type"),
        ('{"type": "response.create", "model": "m", "input": [{"type": "unheard_of"}]}', "invalid_value"),
        ('{"type": "response.create", "model": "m", "input": "x", "hold": "for ever"}', "invalid_value"),
        ('{"type": "response.create", "model": "m", "input": "x", "stream_id": ""}', "invalid_stream_id"),
        ('{"type": "response.create", "model": "m", "input": "x", "stream_id": "a b"}', "invalid_stream_id"),
        ('{"type": "response.append"}', "missing_required_parameter"),
        ('{"type": "response.append", "input": "text"}', "invalid_type"),
        ('{"type": "response.append", "input": [{"type": "function_call_output"}]}', "missing_required_parameter"),
        ('{"type": "response.attach"}', "missing_required_parameter"),
        ('{"type": "response.attach", "response_id": "resp_x", "starting_after": "0"}', "invalid_type"),
        ('{"type": "response.cancel", "response_id": []}', "invalid_type"),
    ]
    known = st.sampled_from([(frame, frozenset({code})) for frame, code in fixed])
    cut = st.integers(1, 60).map(
        lambda at: (
            '{"type": "response.append", "input": [{"type": "message", "role": "user"}]}'[:at],
            frozenset({"invalid_json"}),
        )
    )
    return st.one_of(known, known, cut)


def moves(
    *, clients: int = 3, hosted: bool = False, long_sleeps: bool = True, quick: bool = False
) -> st.SearchStrategy[mv.Move]:
    """One move. The weights are such that most conversations get somewhere. ``quick``: where time is real."""
    by, rollout, call = st.integers(0, clients - 1), st.integers(0, 2), st.integers(0, 4)
    some = st.lists(call, max_size=4)
    flags = st.booleans()
    says = st.lists(st.sampled_from(["and?", "go on", '{"program": [{"say": "anew"}]}']), max_size=1)
    answers = st.builds(mv.Answer, by, rollout, some, flags, flags, says, flags, flags)
    plain = st.builds(mv.Answer, st.just(0), rollout, some, flags)
    seconds = [0.01, 0.2, *([] if quick else [1.0, 5.0]), *([40.0, 400.0, 4000.0] if long_sleeps else [])]
    return st.one_of(
        plain,
        plain,
        answers,
        answers,
        creates(clients=clients, hosted=hosted),
        st.builds(mv.Again, by, rollout, call),
        st.builds(mv.Wrong, st.sampled_from(_WRONG), by, rollout, call, flags),
        st.builds(mv.Race, by, by, rollout, call),
        st.builds(mv.Say, st.sampled_from(["and then?", "   ", "why?"]), _maybe_program(), by, rollout),
        st.builds(mv.Cancel, by, rollout),
        st.builds(mv.Finish, by, rollout),
        st.builds(mv.Attach, by, rollout, st.none() | st.integers(0, 30), st.sampled_from([False, False, False, True])),
        st.builds(mv.Drop, by, flags),
        st.builds(mv.Pause, by),
        st.builds(mv.Resume, by),
        bad_frames().flatmap(lambda bad: st.builds(mv.Bad, st.just(bad[0]), st.just(bad[1]), by)),
        st.builds(mv.Stranger, st.sampled_from(["append", "cancel", "finish", "attach"]), by),
        st.sampled_from(seconds).map(mv.Sleep),
        st.just(mv.Settle()),
        st.just(mv.Settle()),
        st.just(mv.Settle()),
    )


def creates(*, clients: int = 3, hosted: bool = False) -> st.SearchStrategy[mv.Create]:
    """The beginning of a Response."""
    by, lane = st.integers(0, clients - 1), st.sampled_from([0, 0, 1, 2])
    pace = st.sampled_from([None, None, 10.0, 200.0])
    return st.builds(mv.Create, programs(hosted=hosted), by, lane, st.booleans(), pace, st.just(hosted))


def scenes(*, clients: int = 3, **options: Any) -> st.SearchStrategy[list[mv.Move]]:
    """Some moves that belong together: single moves alone seldom come in the order in which they matter."""
    by, rollout, call = st.integers(0, clients - 1), st.integers(0, 2), st.integers(0, 4)
    back = st.none() | st.integers(0, 30)
    one = moves(clients=clients, **options)
    settle = mv.Settle()
    answer_all = st.builds(lambda number, split: [mv.Answer(0, number, split=split), settle], rollout, st.booleans())
    reconnect = st.builds(
        lambda who, number, last, then: [mv.Drop(who), mv.Attach(who, number, last), then, settle], by, rollout, back, one
    )
    takeover = st.builds(
        lambda who, number, last, then: [settle, mv.Attach(who, number, last), settle, then, settle], by, rollout, back, one
    )
    in_turn = st.builds(lambda move, other: [settle, move, settle, other, settle], one, one)
    stalled = st.builds(lambda who, some: [mv.Pause(who), *some, mv.Resume(who)], by, st.lists(one, max_size=4))
    twice = st.builds(
        lambda who, number, which: [mv.Answer(0, number), settle, mv.Again(who, number, which), settle], by, rollout, call
    )
    half = st.builds(
        lambda kind, who, number, which: [
            mv.Wrong(kind, who, number, which, True),
            settle,
            mv.Answer(0, number, split=True),
            settle,
        ],
        st.sampled_from(_WRONG),
        by,
        rollout,
        call,
    )
    single = one.map(lambda move: [move])
    return st.one_of(single, single, answer_all, reconnect, takeover, in_turn, stalled, twice, half)


def conversations(**options: Any) -> st.SearchStrategy[mv.Conversation]:
    """A conversation that begins with a Response."""
    first = creates(hosted=options.get("hosted", False)).map(lambda one: evolve(one, by=0, lane=0))
    rest = st.lists(scenes(**options), max_size=12).map(lambda some: [move for scene in some for move in scene])
    ending = st.sampled_from(["answer", "answer", "cancel"])
    return st.builds(lambda one, more, end: mv.Conversation([one, mv.Settle(), *more], end), first, rest, ending)


_WRONG: Final = ["conflict", "unknown", "mismatch", "false_echo", "assistant", "empty", "twice"]


def _wait() -> st.SearchStrategy[Step]:
    return st.sampled_from([{}, {}, {"wait": False}])


def _maybe_program() -> st.SearchStrategy[list[Step] | None]:
    return st.one_of(st.none(), st.none(), st.lists(steps(depth=0), max_size=2).map(lambda body: [*body, {"say": "anew"}]))
