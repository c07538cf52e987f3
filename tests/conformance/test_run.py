"""The runner: what is offered is found out, breaches are found and made short, and it ends when it must."""

from typing import Any, TypeVar

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.config import Config
from engine.testing.runner import InMemory
from protocol.conformance.adapters import Scripted
from protocol.conformance.capabilities import ALL
from protocol.conformance.laws import LAWS
from protocol.conformance.offers import ask, declared
from protocol.conformance.probes import PROBES
from protocol.conformance.report import Report
from protocol.conformance.run import CannotCheck, Plan, Progress, conform, find_adapter
from protocol.conformance.runner import AtUrl, Scene, plain
from protocol.conformance.show import failure_text, failures, html, lines_of
from protocol.conformance.transport import Frame

from .support_bad import Spoiled, deny_duplicates, renumber

T = TypeVar("T")
NO_PROBES: tuple[str, ...] = ()


def run(runner: Any, **plan: Any) -> Report:
    return conform(
        runner, adapter=Scripted(), plan=Plan(**{"probes": NO_PROBES, "examples": 30, "having": attrs.asdict(ALL), **plan})
    )


def told(report: Report) -> Any:
    """What a report says, but for times."""
    laws = {law: (one.status, one.examples, one.message) for law, one in report.laws.items()}
    return report.examples, laws, [list(lines_of(one.conversation[:-1])) for _, one in failures(report)]


# ---- what is found


def test_our_engine_keeps_the_laws_and_passes_the_probes() -> None:
    report = conform(InMemory(), adapter=Scripted(), plan=Plan(examples=15, hosted=True))
    assert report.broken == []
    assert report.capabilities == ALL
    assert set(report.laws) == set(LAWS)
    assert set(report.probes) == set(PROBES)
    assert report.examples["append"] == report.examples["create"] == 15
    assert report.laws["L2"].examples >= 30
    assert {name for name, one in report.probes.items() if one.status == "not offered"} <= {"a foreign id"}


def test_a_breach_is_found_and_made_short() -> None:
    report = run(Spoiled(renumber), shapes=["append"], examples=60)
    finding = report.laws["L3"]
    assert report.broken == ["L3"]
    assert finding.shapes == {"append": "broken"}
    [failure] = finding.failures
    assert failure.reproducible
    assert failure.seed == report.seed
    sent = [note["sent"]["type"] for note in failure.conversation if "sent" in note]
    assert len(sent) <= 3
    assert failure.conversation[-1]["got"]["sequence_number"] > 20
    assert finding.conversation == failure.conversation


def test_the_search_goes_on_for_the_other_laws() -> None:
    def both(frame: Frame) -> Frame:
        return renumber(deny_duplicates(frame))

    report = run(Spoiled(both), shapes=["append"], examples=250)
    assert {"L3", "L5"} <= set(report.broken)
    assert report.laws["L1"].status == "held"
    assert report.laws["L1"].examples < report.examples["append"] == 250


def test_the_same_seed_finds_the_same() -> None:
    one, same = (told(run(Spoiled(renumber), shapes=["create"], seed=7)) for _ in range(2))
    assert one == same


def test_what_does_not_come_about_again_is_told_as_such() -> None:
    frames: list[Frame] = []
    spoiled: list[Frame] = []

    def once(frame: Frame) -> Frame:
        frames.append(frame)
        if len(frames) > 200 and not spoiled and "sequence_number" in frame:
            spoiled.append(frame)
            return {**frame, "sequence_number": 9_999}
        return frame

    report = run(Spoiled(once), shapes=["create"], examples=40)
    [failure] = [failure for _, failure in failures(report)]
    assert failure.reproducible is False
    assert "it did not come about again" in failure_text("L3", failure)


def test_what_cannot_be_understood_is_the_servers_fault() -> None:
    def senseless(frame: Frame) -> Frame:
        return (
            {"type": "response.created", "response": 7, "sequence_number": 0} if frame["type"] == "response.created" else frame
        )

    report = run(Spoiled(senseless), shapes=["create"], examples=3)
    assert report.broken == ["L4"]
    assert report.laws["L4"].conversation


def test_a_bug_that_the_engine_reports_is_a_finding() -> None:
    class Bugs(InMemory):
        def run(self, scene: Scene[T]) -> T:
            super().run(scene)
            raise BaseExceptionGroup("bugs that the engine reported", [ZeroDivisionError("by zero")])

    report = run(Bugs(), shapes=["create"], examples=3)
    assert "ZeroDivisionError" in report.laws["L4"].message


# ---- when it ends


def test_it_ends_when_its_time_is_over() -> None:
    report = run(InMemory(), examples=100_000, probes=tuple(PROBES), seconds=1.0)
    assert any("time was over" in note for note in report.notes)
    assert not report.interrupted


@pytest.mark.parametrize("at", ["asking", "probes", "conversations", "making it short"])
def test_an_interrupt_leaves_what_was_found(at: str) -> None:
    told: list[str] = []

    def interrupt(progress: Progress) -> None:
        told.append(progress.what)
        if told.count(at) == 3:
            raise KeyboardInterrupt

    plan = Plan(shapes=["append"], examples=60, probes=list(PROBES)[:4])
    report = conform(Spoiled(renumber), adapter=Scripted(), plan=plan, on_progress=interrupt)
    assert report.interrupted
    assert told[-1] == at
    assert ("L3" in report.broken) == (at == "making it short")


def test_a_server_that_is_gone_is_not_asked_for_the_rest() -> None:
    class Dying(InMemory):
        scenes = 0

        def run(self, scene: Scene[T]) -> T:
            Dying.scenes += 1
            if Dying.scenes > 10:
                raise ConnectionRefusedError("nobody listens")
            return super().run(scene)

    report = run(Dying(), shapes=["append", "create"], examples=50)
    assert report.broken == ["L12"]
    assert report.examples == {"append": 11}
    assert any("could not be reached any more" in note for note in report.notes)


# ---- what is offered


def offered(runner: Any) -> tuple[set[str], dict[str, str]]:
    capabilities, reasons = ask(runner, Scripted(), known={})
    return {name for name, there in attrs.asdict(capabilities).items() if there}, reasons


def test_all_is_offered_by_our_engine() -> None:
    assert offered(InMemory()) == (set(attrs.asdict(ALL)), {})


def test_what_a_server_without_websockets_lacks_is_found_out() -> None:
    found, reasons = offered(InMemory(config=Config(websocket=False)))
    assert found == {"http", "stream", "chain", "store", "input_items", "background", "attach", "custom", "conversations"}
    assert reasons["create"] == "the WebSocket's handshake was answered with 426"
    assert reasons["lanes"] == "needs create or append"


@pytest.mark.parametrize(
    ("kind", "lacking"),
    [
        ("response.done", "append"),
        ("response.steer.accepted", "steer"),
        ("response.attach.accepted", "attach"),
    ],
)
def test_what_a_server_does_not_know_it_does_not_offer(kind: str, lacking: str) -> None:
    error = {"type": "error", "status": 400, "code": "unknown_event", "message": "What?", "error": {"code": "unknown_event"}}

    def refuse(frame: Frame) -> Frame:
        return error if frame["type"] == kind else frame

    found, reasons = offered(Spoiled(refuse))
    assert set(attrs.asdict(ALL)) - found == {lacking}
    assert reasons[lacking]


def test_what_is_declared_is_not_asked_for() -> None:
    report = run(InMemory(), shapes=["create"], having={**attrs.asdict(ALL)}, without=["lanes"], examples=5)
    assert not report.capabilities.lanes
    assert report.reasons == {"lanes": "declared"}


def test_no_such_capability() -> None:
    with pytest.raises(ValueError, match="no such capability: wings; there are append"):
        declared(["wings"], [])


def test_no_such_probe() -> None:
    with pytest.raises(CannotCheck, match="no such probe: wings"):
        run(InMemory(), probes=["wings"])


def test_a_server_of_none_of_the_shapes() -> None:
    with pytest.raises(CannotCheck, match=r"offers none of the shapes that were asked for\. append: the WebSocket's handshake"):
        conform(InMemory(config=Config(websocket=False)), adapter=Scripted(), plan=Plan(shapes=["append"]))


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(CannotCheck, match=r"is it running\?"):
        find_adapter(AtUrl(url="http://127.0.0.1:9"))


def test_a_server_that_wants_a_key() -> None:
    with pytest.raises(CannotCheck, match=r"wants a key .* give one with --key"):
        find_adapter(InMemory(config=Config(keys=("k",))))


# ---- how it is shown

NOTES: list[Frame] = [
    {"client": "c0", "sent": {"type": "response.create"}},
    {"client": "c0", "got": {"type": "response.created"}},
    {"client": "c0", "got": {"type": "response.output_text.delta"}},
    {"client": "c0", "got": {"type": "response.output_text.delta"}},
    {"client": "h0", "request": "POST /v1/responses", "sent": "{"},
    {"client": "h0", "status": 400},
    {"client": "h0", "got": {"error": {"code": "invalid_json"}}},
    {"client": "c0", "did": "drops the connection"},
    {"client": "c1", "got": {"type": "error", "code": "x"}},
    {"client": "c1", "got": {"type": "error", "code": "y"}},
]


def test_a_conversation_in_lines() -> None:
    assert list(lines_of(NOTES)) == [
        ' c0  → {"type":"response.create"}',
        " c0 ←  created, output_text.delta ×2",
        " h0  → POST /v1/responses  {",
        " h0 ←  HTTP 400",
        " h0 ←  ? invalid_json",
        " c0 drops the connection",
        " c1 ←  error x",
        ' c1 ←  {"type":"error","code":"y"}',
    ]
    assert len(list(lines_of(NOTES, whole=True))) == len(NOTES)


def test_a_huge_frame_is_cut_but_for_those_who_want_it_whole() -> None:
    notes: list[Frame] = [{"client": "c0", "sent": {"type": "response.append", "input": "x" * 100_000}}]
    [line] = lines_of(notes)
    assert len(line) < 5_000
    assert line.endswith("characters: see --json)")
    [line] = lines_of(notes, whole=True)
    assert len(line) > 100_000


def test_a_page_holds_all_and_needs_nothing() -> None:
    report = run(Spoiled(renumber), shapes=["append"], examples=60)
    page = html(report)
    assert all(f"<b>{law}" in page for law in LAWS)
    assert "sequence_number" in page
    assert not any(word in page for word in ("<script", "http://", "https://", "<link", "@import"))


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.recursive(st.builds(ValueError) | st.builds(KeyboardInterrupt), lambda inner: st.lists(inner, min_size=1, max_size=3))
)
def test_an_interrupt_is_found_in_any_group(tree: Any) -> None:
    def group(node: Any) -> BaseException:
        return BaseExceptionGroup("", [group(one) for one in node]) if isinstance(node, list) else node

    def leaves(node: Any) -> list[BaseException]:
        return [leaf for one in node for leaf in leaves(one)] if isinstance(node, list) else [node]

    interrupts = [leaf for leaf in leaves(tree) if isinstance(leaf, KeyboardInterrupt)]
    assert isinstance(plain(group(tree)), KeyboardInterrupt) == bool(interrupts)
