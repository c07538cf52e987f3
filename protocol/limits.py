"""The numbers of the wire, each with its reason.

A limit of the protocol is one that a peer can run into and must be able to look up. Limits of one process (timeouts,
caches, buffers) are in ``engine.config``.
"""

from typing import Final

SOFT_FRAME_BYTES: Final = 16 * 1024 * 1024
"""A larger text frame is answered with the error ``message_too_large``; the socket and its Responses live on."""

HARD_FRAME_BYTES: Final = 32 * 1024 * 1024
"""A larger one closes the socket with 1009: more than this is not worth holding in memory to answer it politely. It is
counted in characters, as they arrive; a text of 32 Mi characters has at least so many bytes."""

INPUT_ITEMS: Final = 50_000
"""Items in one ``response.create``; a history of 10,000 tool calls is 20,000 items."""

APPEND_ITEMS: Final = 1_024
"""Items in one ``response.append``: more than a model calls at once, few enough to check between two ticks."""

TOOLS: Final = 1_024
"""Tools in one request; the largest real lists (an agent with several MCP servers) have a few hundred."""

METADATA_PAIRS: Final = 16
METADATA_KEY_CHARS: Final = 64
METADATA_VALUE_CHARS: Final = 512
"""As the Responses API documents ``metadata``."""

STREAM_ID_CHARS: Final = 256
STREAM_IDS: Final = 32
IN_FLIGHT: Final = 16
"""Lanes of one socket, as OpenAI's guide has them: 32 names ever, 16 Responses in flight."""

IDEMPOTENCY_KEY_CHARS: Final = 256
"""As common HTTP APIs have it."""

QUOTED_CHARS: Final = 80
"""How much of what a peer sent is quoted back in an error message."""
