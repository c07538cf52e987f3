"""What to do next when a conversation meets an error."""

from typing import Final

from ...client import ConnectionLost, RolloutError

ADVICE: Final = {
    "invalid_api_key": "Give the server's key: --key KEY, or set SOSTENUTO_KEY.",
    "model_not_found": "Choose one that is there: --model NAME.",
    "context_length_exceeded": "The conversation is too long for the model: /new begins another one.",
    "rate_limit_exceeded": "Wait a little, and say it again.",
    "too_many_connections": "Wait a little, and say it again.",
    "message_too_large": "Say it shorter, or begin another conversation: /new.",
    "content_policy_violation": "Say it in another way.",
    "upgrade_required": "The server takes no WebSockets, and chat needs one: start it without --no-websocket.",
}


def advice_for(error: RolloutError | ConnectionLost) -> str:
    """A sentence, or nothing."""
    if isinstance(error, ConnectionLost):
        return "See that the server runs, and say it again: what was said before is kept here."
    return ADVICE.get(error.code, "")
