"""What ``docs/create.md`` and ``docs/http.md`` say of endpoints, reuse, limits and frames is what the code has."""

import json
import re

import attrs
import pytest

from engine import Config, Server, Services
from engine.config import REUSE
from engine.describe import openapi
from engine.models import load_model
from engine.stages.validate import UNSUPPORTED
from engine.steering import PENDING_MOST
from engine.transport.http import Limits
from protocol.codec import decode_client, item_from_wire
from protocol.items import ItemReference
from protocol.requests import AppendRequest, CreateRequest, SteerRequest

from .blocks import ROOT, read, rows

CREATE, HTTP = read("create.md"), read("http.md")


def test_the_examples_are_frames() -> None:
    frames = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", CREATE, re.DOTALL)]
    assert [type(decode_client(json.dumps(frame))) for frame in frames] == [CreateRequest, SteerRequest]
    [reference, body] = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", HTTP, re.DOTALL)]
    assert isinstance(decode_client(json.dumps({"type": "response.append", **body})), AppendRequest)
    assert isinstance(item_from_wire(reference), ItemReference)


def test_every_endpoint_is_told_and_none_else() -> None:
    told = set()
    for cells in rows(HTTP.partition("## Endpoints\n")[2].partition("\n## ")[0])[2:]:
        path = re.findall(r"/[\w/{}]*", cells[0])
        methods = re.findall(r"\b(GET|POST|DELETE)\b", cells[0])
        told |= {(method, one) for method in methods for one in path}
    server = Server(Services(models={"scripted": load_model("scripted")}, config=Config()))
    served = {(method, path) for method, path, _ in server._table()}
    assert told == served


def test_every_kind_of_reuse_is_told() -> None:
    table = rows(CREATE.partition("## Reuse")[2].partition("\n## ")[0])
    assert {cells[0].strip("`") for cells in table[2:]} == REUSE


@pytest.mark.parametrize("shape", ["create", "http"])
def test_what_a_shape_refuses_is_told(shape: str) -> None:
    text = CREATE if shape == "create" else HTTP + CREATE
    assert [name for name in UNSUPPORTED[shape] if f"`{name}" not in text] == []


def test_every_code_of_a_steer_is_told() -> None:
    table = rows(CREATE.partition("## Steering")[2].partition("\n## ")[0])
    source = (ROOT / "engine" / "steering.py").read_text(encoding="utf-8")
    raised = set(re.findall(r'(?:Refused|SteerError)\("(\w+)"', source))
    assert len(raised) > 4
    assert {cells[0].strip("`") for cells in table[2:]} == raised
    assert f"at most {PENDING_MOST} wait" in CREATE


def test_the_limits_of_http_are_those_of_the_code() -> None:
    limits = attrs.evolve(Limits(), head_seconds=Config().handshake_seconds)
    text = HTTP.partition("## Limits\n")[2]
    assert f"{limits.head_bytes // 1024} KiB, within {limits.head_seconds:.0f} seconds" in text
    assert f"{limits.body_bytes // 1024**2} MiB, within {limits.body_seconds:.0f} seconds" in text
    assert f"one more for each {limits.body_rate // 1024} KiB" in text
    assert f"| {limits.idle_seconds:.0f} seconds, then" in text
    assert f"has {limits.half_close_seconds:.0f} second |" in text
    assert f"nothing | {limits.send_seconds:.0f} seconds" in text


def test_the_descriptions_have_the_same_endpoints() -> None:
    described = {path for path in openapi("http://127.0.0.1:8080")["paths"] if path.startswith("/v1")}
    assert described
    assert [path for path in described if path not in HTTP] == []
