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
