"""From a move to the create that it means: what stands in it, and where the model then stands."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...items import OUTPUT_TYPE_OF
from ..adapters import Adapter
from ..sayings import bare, result_of, user
from ..script import HOSTED, Script, message_of
from ..transport import Frame
from .model import OUTPUT_TYPES, Asked, Link, goes_on, pair
from .moves import Begin, Go, How, Said, Wrong

BARED: Final = frozenset({"message", *OUTPUT_TYPE_OF})
"""Items that need no id in an input."""
OTHER_KIND: Final = {"function_call_output": "custom_tool_call_output", "custom_tool_call_output": "function_call_output"}


def begun(move: Begin, adapter: Adapter, key: str | None) -> Asked:
    """The create that begins a chain."""
    fields = dict(adapter.opening(move.steps, tokens_per_second=move.tokens_per_second))
    given = fields.pop("input")
    script = Script(tuple(move.steps))
    fields = _with(fields, move.how, hosted=move.hosted)
    return Asked(key, given, fields, script=script, how=move.how, hosted=move.hosted)


def continued(move: Go, link: Link, adapter: Adapter, key: str | None) -> Asked:
    """The create that continues ``link``."""
    context = link.context
    outputs = _outputs(move, context)
    items = [adapter.saying(one) if not isinstance(one, str) else user(one) for one in move.say]
    first, said = (heard(move.say), []) if move.before else ([], heard(move.say))
    new = [*items, *outputs] if move.before else [*outputs, *items]
    script = goes_on(link.end, new, said, first)
    fields = _with(adapter.following(script or Script(())), move.how, hosted=link.asked.hosted)
    whole = move.whole if link.status is not None or link.dropped else None
    if whole is None:
        return Asked(key, new, fields, link, link.id, None, new, said, first, move.how, link.asked.hosted)
    given = _styled([*context, *new], whole)
    return Asked(key, given, fields, None, None, script, new, said, first, move.how, link.asked.hosted)


def heard(say: Sequence[Said]) -> list[str]:
    """What a script hears of what the user says."""
    return [one if isinstance(one, str) else message_of(one) for one in say]


def _with(fields: Mapping[str, Any], how: How, *, hosted: bool) -> Frame:
    asked: Frame = {name: value for name, value in fields.items() if name != "input"}
    if hosted:
        asked["tools"] = [*asked.get("tools", ()), {"type": HOSTED}]
    asked |= {"store": how.store} if how.store is not None else {}
    asked |= {"generate": False} if how.warm else {}
    asked |= {"max_output_tokens": how.most} if how.most is not None else {}
    return asked


def _outputs(move: Go, context: Sequence[Frame]) -> list[Frame]:
    """The outputs of the calls that wait behind ``context``, in the move's order, and with what is wrong with them."""
    good = [result_of(call) for call in pair(context, {})[0].values()]
    by = move.turn % len(good) if good else 0
    good = [*good[by:], *good[:by]]
    return good if move.wrong is None else _spoiled(move.wrong, good, context)


def _spoiled(wrong: Wrong, good: list[Frame], context: Sequence[Frame]) -> list[Frame]:
    nobodys: Frame = {"type": "function_call_output", "call_id": "call_nobody_made", "output": "?"}
    stale = [item for item in context if item.get("type") in OUTPUT_TYPES]
    if wrong == "stale":
        return [*good, *stale[-1:]]
    if wrong == "unknown" or not good:
        return [*good, nobodys]
    if wrong == "missing":
        return good[:-1]
    if wrong == "again":
        return [*good, good[0]]
    if wrong == "conflict":
        return [*good, {**good[0], "output": "another result"}]
    if wrong == "mismatch":
        return [{**good[0], "type": OTHER_KIND[good[0]["type"]]}, *good[1:]]
    return [{**good[0], "call_id": nobodys["call_id"]}, *good[1:]]


def _styled(items: Sequence[Frame], style: str) -> list[Frame]:
    """A history as a client may send it again."""
    if style == "bare":
        return [bare(item) if item["type"] in BARED and item.get("status") != "incomplete" else item for item in items]
    return _renamed(items) if style == "renamed" else list(items)


def _renamed(items: Sequence[Frame]) -> list[Frame]:
    """With other call ids: they are counted anew whenever no call waits."""
    names: dict[str, str] = {}
    waiting: set[str] = set()
    renamed: list[Frame] = []
    for item in items:
        call_id = item.get("call_id")
        if call_id is not None and item.get("status") != "incomplete":
            if item["type"] in OUTPUT_TYPES:
                waiting.discard(call_id)
            else:
                names[call_id] = f"call_{len(waiting)}"
                waiting.add(call_id)
            item = {**item, "call_id": names.get(call_id, call_id)}
        renamed.append(item)
    return renamed
