"""``response.steer``: a word to a model that is speaking."""

from ...events import TERMINAL
from .base import probe
from .talk import Talk, say, speak


@probe("L10", basis="OpenAI", shapes=["create"], needs=["steer"])
async def a_steer(talk: Talk) -> None:
    """A steer of a Response that speaks is accepted, with an id; the Response ends, as ``incomplete`` with the reason
    ``steered`` or as ``completed``; and a successor begins by itself, which names it in ``previous_response_id``, and
    ends (OpenAI, steering)."""
    client = await talk.socket()
    await client.send(client.opening(speak(60), say("More."), say("And more."), tokens_per_second=30))
    created = (await client.until("response.created"))[-1]["response"]
    steer = {"type": "response.steer", "previous_response_id": created["id"]}
    await client.send({**steer, "input": [talk.adapter.saying([say("Steered.")])]})
    events = await client.ends(times=2)
    accepted = [event["steer"] for event in events if event["type"] == "response.steer.accepted"]
    right = [one["previous_response_id"] for one in accepted] == [created["id"]] and accepted[0].get("id")
    talk.need(right, f"the steer was accepted with {accepted}")
    first, second = (event["response"] for event in events if event["type"] in TERMINAL)
    reason = (first.get("incomplete_details") or {}).get("reason")
    talk.need((first["status"], reason) in (("incomplete", "steered"), ("completed", None)), f"{first['status']}, {reason}")
    named = second.get("previous_response_id")
    talk.need(named == created["id"], f"the successor continues {named}, not {created['id']}")
    talk.need(second["status"] == "completed", f"the successor ended as {second['status']}")


@probe("L10", basis="OpenAI", shapes=["create"], needs=["steer"])
async def a_steer_that_comes_too_late(talk: Talk) -> None:
    """A steer of a Response that has ended fails with ``response_already_completed``, and gives the input back (OpenAI,
    steering)."""
    client = await talk.socket()
    turn = await client.open(say("Done."))
    await client.send({"type": "response.steer", "previous_response_id": turn.response_id, "input": "Wait."})
    failed = (await client.until("response.steer.failed", "error"))[-1]
    talk.need(failed["type"] == "response.steer.failed", f"it was answered with {failed}")
    code = (failed.get("error") or {}).get("code")
    talk.need(code == "response_already_completed", f"it failed with {code}")
    talk.need((failed.get("steer") or {}).get("input") == "Wait.", f"the input comes back as {failed.get('steer')}")
    await client.still_lives()
