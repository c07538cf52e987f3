"""The laws that the kit checks, by name. What each says in full is in ``docs/conformance.md``."""

from collections.abc import Mapping
from typing import Final

LAWS: Final[Mapping[str, str]] = {
    "L1": "once: each Response is validated, routed, rendered, billed and stored once, an append over its new items only",
    "L2": "one end: exactly one terminal event, the last of its Response, whatever happens",
    "L3": "gap-free: sequence numbers are 0, 1, 2, … in each Response",
    "L4": "grammar: added, deltas, done; deltas concatenate to the done value, byte for byte",
    "L5": "write-once: a call takes one result; the same again changes nothing, a different one is refused",
    "L6": "atomic: a frame applies whole or not at all",
    "L7": "order-free: results in any order, split or batched, give the same continuation",
    "L8": "same rollout: items, texts and calls are the model's, in every shape",
    "L9": "held: a stream that is joined again goes on exactly where it was left",
    "L10": "decided once: between cancel, completion and append there is one winner, and all hear of the same",
    "L11": "bounded: a reader that stops stalls its own Response only, and nothing is left behind",
    "L12": "live: each request is answered, and each Response ends",
    "L13": "apart: a stranger's id cannot be told from an unknown one; a bad frame disturbs no other lane",
    "L14": "no repair: items are kept as they were sent; nothing is invented, dropped or bound anew",
    "L15": "one row: one row in the ledger for each Response, with its usage; usage is there, and adds up",
    "L16": "sizes speak: what is too large gets an error, and loses nothing",
}

BASIS: Final[Mapping[str, str]] = {
    "L1": "ours: seen by the counters that Sostenuto puts into a Response",
    "L2": "OpenAI: the terminal events of streaming",
    "L3": "OpenAI has `sequence_number`, from 0 on; that none is left out is Open Responses'",
    "L4": "OpenAI: the events of streaming, and the items that they build",
    "L5": "OpenAI: a call has one output; what a second one is answered with is ours",
    "L6": "ours",
    "L7": "ours",
    "L8": "ours: checked where the model does what it is told",
    "L9": "OpenAI: `starting_after`; attaching on a WebSocket is ours",
    "L10": "OpenAI: `cancelled`; who wins a race is ours",
    "L11": "ours",
    "L12": "OpenAI: the shape of errors; that each request is answered is everybody's",
    "L13": "ours; that keys don't see each other's Responses is everybody's",
    "L14": "OpenAI: items come back as they were given",
    "L15": "OpenAI: `usage` and its sums; rows are ours, and seen in memory only",
    "L16": "ours: limits differ, but what is beyond one is answered",
}
"""Where each is written: in OpenAI's documentation, in the specification of Open Responses, or in our own documents only."""
