"""``docs/append.md`` says of each frame, field, event and limit what the code has, and its examples are true."""

import json
import re
from typing import Any

import attrs
import pytest

from engine import Config
from engine.serving import Options
from protocol import events, limits
from protocol.codec import decode_client
from protocol.requests import MESSAGES, AppendRequest, CreateRequest

from .blocks import DOCS, read, rows

TEXT = read("append.md").partition("## A complete transcript")[0]
EXAMPLES = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)]
EVENTS = [getattr(cls, "type", None) for cls in vars(events).values() if attrs.has(cls)]


def section(title: str) -> str:
    _, found, rest = TEXT.partition(f"\n{title}\n")
    assert found
    level = title.split(" ")[0]
    return re.split(rf"\n#{{2,{len(level)}}} ", rest)[0]


def test_each_kind_of_frame_has_an_example_that_is_read_as_such() -> None:
    seen = {type(decode_client(json.dumps(one))) for one in EXAMPLES if one["type"] in MESSAGES}
    assert seen == set(MESSAGES.values())


@pytest.mark.parametrize("name", MESSAGES)
def test_every_field_of_a_frame_is_described(name: str) -> None:
    described = section(f"### `{name}`") + section("## What the client sends").partition("###")[0]
    for field in attrs.fields(MESSAGES[name]):
        assert field.name == "extra" or f"`{field.name}`" in described, field.name


@pytest.mark.parametrize("kind", [kind for kind in EVENTS if isinstance(kind, str)])
def test_every_event_is_described(kind: str) -> None:
    assert kind in TEXT


def test_the_fields_of_the_standard_events_are_those_of_the_classes() -> None:
    by_type = {cls.type: cls for cls in vars(events).values() if attrs.has(cls) and isinstance(getattr(cls, "type", None), str)}
    checked = 0
    for cells in rows(section("### The standard events"))[2:]:
        for kind in re.findall(r"`(response\.[\w.]+)`", cells[0]):
            cls: Any = by_type.get(kind)
            if cls is not None:
                named = set(re.findall(r"`(\w+)`", cells[1].partition(":")[0]))
                assert named == {field.name for field in attrs.fields(cls)}, kind
                checked += 1
    assert checked == 15


def values(title: str) -> dict[str, int]:
    cells = [row for row in rows(section("## Limits and deadlines")) if row[0].startswith("`")]
    return {
        re.findall(r"`(\w+)`", row[0])[0]: int(row[1])
        for row in cells
        if row[0].partition("`")[2][0].isupper() == (title == "wire")
    }


def test_the_limits_are_those_of_the_protocol() -> None:
    silent = {"QUOTED_CHARS"}  # of messages of the server itself
    told = {name: value for name, value in vars(limits).items() if name.isupper() and name not in silent}
    assert values("wire") == told


def test_the_settings_are_those_of_a_server() -> None:
    silent = {"close_seconds", "seal_seconds", "thread_bytes", "finished_tokens"}  # of no account to a client
    silent |= {"continuation", "hold", "keys", "reuse", "websocket", "cors_origins"}  # no limits
    defaults = {name: value for name, value in attrs.asdict(Config()).items() if name not in silent}
    assert values("server") == defaults


def test_the_defaults_that_the_text_tells_are_those_of_a_server() -> None:
    assert Options().continuation == "create"
    assert Config().hold == "rollout"
    assert AppendRequest.type == "response.append"
    assert CreateRequest(model="m").hold is None


@pytest.mark.parametrize("page", sorted(path.name for path in DOCS.glob("*.md")))
def test_links_lead_somewhere(page: str) -> None:
    prose = re.sub(r"^```.*?^```$", "", read(page), flags=re.MULTILINE | re.DOTALL)
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([\w-]+))?\)", prose):
        if target.startswith("http"):
            continue
        path = (DOCS / target) if target else DOCS / page
        assert path.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}, anchor
