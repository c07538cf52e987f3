"""What must be true of a Response that has ended: by itself, beside the one that it continues, and in the server's books."""

from collections.abc import Sequence

from ...codec import canonical
from ..script import said_by
from ..transport import Books, Frame
from .model import Deviation, Link

Wrong = tuple[str, str]
"""A law, and how it was broken."""


def check_final(link: Link, *, strict: bool = True) -> Wrong | None:
    """What is wrong with a Response as it has ended; ``strict`` if it is one of ours."""
    final = link.final or {}
    if link.status == "failed" and not strict:
        return None if link.was_to_fail else ("L8", f"{link.id} has failed: {final.get('error')}")
    if link.status == "cancelled" and not (link.cancels or link.dropped):
        return "L10", f"{link.id} is cancelled, and nobody did"
    try:
        link.follow()
    except Deviation as deviation:
        return "L8", f"{link.id}: {deviation}"
    seen = [glimpse for glimpse in link.glimpses if [item for item in link.output if item in glimpse] != list(glimpse)]
    if seen:  # what a hosted tool is still at may be left out
        return "L14", f"{link.id} was seen with {seen[0]}, and has put out {link.output}"
    if final.get("previous_response_id") != link.asked.named:
        return "L14", f"{link.id} continues {link.asked.named}, and says {final.get('previous_response_id')}"
    return _check_usage(link, final) or (_check_reuse(link, final) if strict else None) or _check_stages(link, final)


def _check_usage(link: Link, final: Frame) -> Wrong | None:
    usage = final.get("usage")
    if not isinstance(usage, dict):
        return "L15", f"{link.id} has no usage"
    given, made, total = (usage.get(name, -1) for name in ("input_tokens", "output_tokens", "total_tokens"))
    if not all(type(number) is int and number >= 0 for number in (given, made, total)) or total != given + made:
        return "L15", f"the usage of {link.id} is not whole: {usage}"
    if given == 0 or (made == 0 and any(map(said_by, link.output))) or (made > 0 and link.asked.how.warm):
        return "L15", f"the usage of {link.id} has {given} and {made} tokens, of {len(link.output)} items"
    if link.asked.how.most is not None and made > link.asked.how.most:
        return "L15", f"{link.id} has put out {made} tokens, and was to have {link.asked.how.most} at most"
    parent = link.asked.parent
    before = ((parent.final if parent is not None else None) or {}).get("usage") or {}
    if before and given < before.get("input_tokens", 0):
        return "L15", f"{link.id} has read {given} tokens, the Response before it {before['input_tokens']}"
    return None


def _check_reuse(link: Link, final: Frame) -> Wrong | None:
    usage, parent = final["usage"], link.asked.parent
    before = ((parent.final if parent is not None else None) or {}).get("usage") or {}
    cached = (usage.get("input_tokens_details") or {}).get("cached_tokens", 0)
    if link.obeys and link.asked.remembered and before and cached < before["input_tokens"]:
        return "L1", f"{link.id} has reused {cached} tokens of {before['input_tokens']} that the connection remembers"
    return None


def _check_stages(link: Link, final: Frame) -> Wrong | None:
    runs = (final.get("engine") or {}).get("stage_runs") or {}
    if any(count != 1 for count in runs.values()):
        return "L1", f"{link.id} has run its stages {runs}"
    return None


def check_listed(link: Link, items: Sequence[Frame], *, exact: bool = True) -> Wrong | None:
    """What is wrong with ``items``, listed as the input of ``link``: not ``exact``, they may have what stood before it, too."""
    sent = [_plain(item) for item in link.asked.input]
    listed = [_plain(item) for item in items]
    if len({item.get("id") for item in items}) < len(items):
        return "L14", f"the input of {link.id} is listed with an id twice"
    if listed != sent and (exact or listed[len(listed) - len(sent) :] != sent):
        return "L14", f"the input of {link.id} was {sent}, and is listed as {listed}"
    return None


def _plain(item: Frame) -> Frame:
    """An item without what a server may fill in."""
    plain = {key: value for key, value in item.items() if key not in ("id", "status")}
    if isinstance(plain.get("content"), str):
        plain["content"] = [{"type": "input_text", "text": plain["content"]}]
    return plain


def check_books(link: Link, books: Books) -> Wrong | None:
    """What is wrong in the books, where they are open."""
    return _check_rows(link, books.rows(link.id)) or _check_context(link, books.context(link.id))


def _check_rows(link: Link, rows: Sequence[Frame] | None) -> Wrong | None:
    if rows is None:
        return None
    if len(rows) != 1:
        return "L15", f"{link.id} has {len(rows)} rows"
    usage, names = (link.final or {}).get("usage") or {}, ("input_tokens", "output_tokens")
    row = {name: rows[0][name] for name in ("status", *names)}
    told = {"status": link.status, **{name: usage.get(name) for name in names}}
    return ("L15", f"the row of {link.id} says {row}, its end {told}") if row != told else None


def _check_context(link: Link, context: Sequence[Frame] | None) -> Wrong | None:
    """It has what was sent and what came, as it was and in its order, and nothing else."""
    if context is None or not link.asked.stored:
        return None
    if len(context) != len(link.context):
        return "L14", f"{link.id} has kept {len(context)} items of {len(link.context)}"
    for number, (kept, item) in enumerate(zip(context, link.context, strict=True)):
        if canonical(kept) != canonical(item):
            return "L14", f"item {number} of {link.id} was {item}, and is kept as {kept}"
    return None
