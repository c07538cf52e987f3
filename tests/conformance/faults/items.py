"""Faults of items: their ids, their places, their kinds."""

from protocol.conformance.transport import Frame

from .base import Line, says

ADDED, DONE = "response.output_item.added", "response.output_item.done"


@says("L4", probes=["item ids stay the same"])
def an_items_id_changes(frame: Frame, line: Line) -> None:
    """An item has one id when it is added, and another when it is done."""
    if frame["type"] == DONE:
        frame["item"]["id"] += "_done"


@says("L4")
def deltas_name_another_item(frame: Frame, line: Line) -> None:
    """item_id of deltas is msg_0, whatever the item's id."""
    if frame["type"].endswith(".delta"):
        frame["item_id"] = "msg_0"


@says("L4")
def all_items_have_one_id(frame: Frame, line: Line) -> None:
    """Each item has the id item_0."""
    if "item" in frame:
        frame["item"]["id"] = "item_0"
    if "item_id" in frame:
        frame["item_id"] = "item_0"


@says("L4")
def an_item_has_no_id(frame: Frame, line: Line) -> None:
    """Items are added without an id."""
    if frame["type"] == ADDED:
        frame["item"].pop("id", None)


@says("L4", "L5", "L12")
def a_calls_id_changes(frame: Frame, line: Line) -> None:
    """A call has one call_id when it is added, and another when it is done."""
    if frame["type"] == ADDED and "call_id" in frame["item"]:
        frame["item"]["call_id"] += "_added"


@says("L5", "L12", "L4", probes=["parallel calls keep their own arguments"])
def calls_have_one_id(frame: Frame, line: Line) -> None:
    """The second call of a Response has the call_id of the first."""
    if frame["type"] in (ADDED, DONE) and "call_id" in frame["item"]:
        key = "call", frame.get("stream_id")
        if frame["output_index"] == 0:
            line.memory[key] = frame["item"]["call_id"]
        frame["item"]["call_id"] = line.memory.setdefault(key, frame["item"]["call_id"])


@says("L4")
def a_calls_name_changes(frame: Frame, line: Line) -> None:
    """A call has its name in a namespace only when it is done."""
    if frame["type"] == DONE and "name" in frame["item"]:
        frame["item"]["name"] = f"functions.{frame['item']['name']}"


@says("L4")
def items_are_added_done(frame: Frame, line: Line) -> None:
    """An item is added with the status completed."""
    if frame["type"] == ADDED:
        frame["item"]["status"] = "completed"


@says("L4")
def items_are_never_done(frame: Frame, line: Line) -> None:
    """An item is done with the status in_progress."""
    if frame["type"] == DONE:
        frame["item"]["status"] = "in_progress"


@says("L4")
def places_begin_at_one(frame: Frame, line: Line) -> None:
    """The first item has output_index 1."""
    if "output_index" in frame:
        frame["output_index"] += 1


@says("L4", probes=["output index is the place"])
def all_items_have_one_place(frame: Frame, line: Line) -> None:
    """Each item has output_index 0."""
    if "output_index" in frame:
        frame["output_index"] = 0


@says("L4", shapes=["append"])
def places_begin_again_after_a_park(frame: Frame, line: Line) -> None:
    """After response.done the next item has output_index 0."""
    lane = frame.get("stream_id")
    if frame["type"] == "response.done":
        line.memory[lane, "base"] = line.memory.get((lane, "items"), 0)
    elif frame["type"] == "response.created":
        line.memory[lane, "base"] = line.memory[lane, "items"] = 0
    elif "output_index" in frame:
        line.memory[lane, "items"] = frame["output_index"] + 1
        frame["output_index"] -= line.memory.get((lane, "base"), 0)


@says("L4", renumber=True, probes=["each item is announced"])
def an_item_is_not_added(frame: Frame, line: Line) -> list[Frame] | None:
    """Of an item nothing is told until its text comes."""
    return [] if frame["type"] == ADDED else None


@says("L4", renumber=True)
def an_item_is_not_closed(frame: Frame, line: Line) -> list[Frame] | None:
    """response.output_item.done is left out."""
    return [] if frame["type"] == DONE else None


@says("L4", renumber=True, probes=["the grammar of a rollout"])
def items_overlap(frame: Frame, line: Line) -> list[Frame] | None:
    """An item is done when the next one has begun."""
    lane = frame.get("stream_id")
    held = line.memory.pop(lane, None)
    if frame["type"] == DONE:
        line.memory[lane] = frame
        return []
    if held is None:
        return None
    return [frame, held] if frame["type"] == ADDED else [held, frame]


@says("L4")
def the_model_speaks_as_the_user(frame: Frame, line: Line) -> None:
    """A message that the model says has the role user."""
    if frame.get("item", {}).get("type") == "message":
        frame["item"]["role"] = "user"


@says("L4")
def a_custom_call_is_a_function_call(frame: Frame, line: Line) -> None:
    """What is added as custom_tool_call is done as function_call."""
    if frame["type"] == DONE and frame["item"]["type"] == "custom_tool_call":
        item = frame["item"]
        item |= {"type": "function_call", "arguments": item.pop("input")}


@says("L4", renumber=True)
def an_event_that_nobody_knows(frame: Frame, line: Line) -> list[Frame] | None:
    """Before each item there is a response.token_count, numbered like the rest."""
    if frame["type"] != ADDED:
        return None
    return [{**frame, "type": "response.token_count"}, frame]


@says("L4")
def the_type_is_missing(frame: Frame, line: Line) -> None:
    """An item has no type."""
    if frame["type"] == ADDED:
        del frame["item"]["type"]


@says("L4")
def output_is_null_at_first(frame: Frame, line: Line) -> None:
    """response.created has a Response whose output is null."""
    if frame["type"] == "response.created":
        frame["response"]["output"] = None


@says("L4", "L13")
def a_response_has_no_id(frame: Frame, line: Line) -> None:
    """response.created has a Response without an id."""
    if frame["type"] == "response.created":
        frame["response"]["id"] = ""


@says("L4", "L13", renumber=True, probes=["what begins has not ended"])
def nothing_is_created(frame: Frame, line: Line) -> list[Frame] | None:
    """A stream begins with response.in_progress."""
    return [] if frame["type"] == "response.created" else None
