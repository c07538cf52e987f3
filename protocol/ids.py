"""Ids as they stand on the wire: a prefix that tells the kind, and 32 hex digits.

Randomness comes in as an argument (``protocol`` has none of its own), so that a seeded run has the same ids every time.
"""

from collections.abc import Callable
from typing import Final, Literal

Entropy = Callable[[int], bytes]
"""Gives that many random bytes, as ``os.urandom`` does."""

Kind = Literal["response", "message", "function_call", "custom_tool_call", "reasoning", "call", "append"]

PREFIXES: Final[dict[str, str]] = {
    "response": "resp_",
    "message": "msg_",
    "function_call": "fc_",
    "custom_tool_call": "ctc_",
    "shell_call": "sh_",
    "local_shell_call": "lsh_",
    "apply_patch_call": "apc_",
    "file_search_call": "fs_",
    "web_search_call": "ws_",
    "mcp_call": "mcp_",
    "reasoning": "rs_",
    "call": "call_",
    "append": "app_",
    "steer": "steer_",
    "conversation": "conv_",
}
"""The prefix of each kind of id. Clients strip item ids with a prefix that they don't know before they send them back."""


def new_id(kind: str, entropy: Entropy) -> str:
    """A fresh id of ``kind``; an item kind without a prefix of its own gets ``item_``."""
    return PREFIXES.get(kind, "item_") + entropy(16).hex()
