"""What must be true of a Response that has ended, by its whole log and by the server's books, where they are open."""

from collections.abc import Sequence

from ...codec import canonical
from ...items import OUTPUT_TYPE_OF
from ..transport import Books, Frame
from .model import Rollout
from .world import World


def check_ended(world: World, rollout: Rollout, books: Books) -> None:
    """Raises ``ConformanceError`` if ``rollout`` is not what it must have come to."""
    response = dict(rollout.trace.response or {})
    if response.get("status") == "cancelled" and not rollout.cancelled:
        raise world.fail("L10", f"{rollout.id} is cancelled, and nobody did")
    context = books.context(rollout.id)
    if rollout.muddled and context is not None:
        _read_books(rollout, context)
    wrong = rollout.explain()
    if wrong is not None:
        raise world.fail("L7", f"{rollout.id}: {wrong}")
    _check_rows(world, rollout, response, books.rows(rollout.id))
    if context is not None:
        _check_context(world, rollout, response, context)


def _read_books(rollout: Rollout, context: Sequence[Frame]) -> None:
    """Where nobody could tell which of several appends an acknowledgement meant, the books tell."""
    outputs = {answered: canonical(item) for item in context if (answered := item.get("call_id")) and "output" in item}
    kept = [item["content"] for item in context if item.get("role") == "user"][1:]
    for one in rollout.appends:
        one.number = None
    for event in rollout.log:
        if event["type"] != "response.append.accepted":
            continue
        told = event["append"]
        able = [one for one in rollout.appends if one.possible and one.number is None and one.call_ids == told["call_ids"]]
        alike = [one for one in able if all(canonical(one.body_for(call)) == outputs.get(call) for call in one.call_ids)]
        if not told["duplicate"]:
            alike = [one for one in alike if one.messages == kept[: len(one.messages)]]
            alike.sort(key=lambda one: (one.refused, -len(one.messages)))  # what was kept, somebody has said
        for one in [*alike, *able][:1]:
            one.number = event["sequence_number"]
            kept = kept if told["duplicate"] else kept[len(one.messages) :]


def _check_rows(world: World, rollout: Rollout, response: Frame, rows: Sequence[Frame] | None) -> None:
    if rows is None:
        return
    if len(rows) != 1:
        raise world.fail("L15", f"{rollout.id} has {len(rows)} rows")
    usage, names = response.get("usage") or {}, ("input_tokens", "output_tokens")
    row = {name: rows[0][name] for name in ("status", *names)}
    told = {"status": response.get("status"), **{name: usage.get(name) for name in names}}
    if row != told:
        raise world.fail("L15", f"the row of {rollout.id} says {row}, its end {told}")


def _check_context(world: World, rollout: Rollout, response: Frame, context: Sequence[Frame]) -> None:
    """What was acknowledged is there, once, as it was sent, in call order; and nothing else."""
    outputs = [item for item in context if item["type"] in OUTPUT_TYPE_OF.values()]
    results = [found for call_id in rollout.trace.calls if (found := rollout.result(call_id)) is not None]
    refused = [canonical(item) for one in rollout.appends if one.refused for item in one.items]
    for item in outputs:
        if item not in results and canonical(item) in refused:
            raise world.fail("L6", f"{rollout.id} has kept a result of an append that was refused: {item}")
    if [canonical(item) for item in outputs] != [canonical(item) for item in results]:
        raise world.fail("L14", f"{rollout.id} has kept the results {outputs}; acknowledged, in call order: {results}")
    said = [item["content"] for item in context if item.get("role") == "user"][1:]
    heard = [text for _, text in rollout.facts()[0]]
    if said != heard:
        raise world.fail("L14", f"{rollout.id} has kept the messages {said}, acknowledged were {heard}")
    made = [item for item in context if item.get("role") != "user" and item not in outputs]
    if made != list(response["output"]):
        raise world.fail("L14", f"{rollout.id} has not kept its own items as it sent them")
