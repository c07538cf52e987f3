"""What each endpoint takes and gives, as data: for descriptions of the server. ``api`` and ``conversations_api`` do it.

Schemas are named, and made in ``describe``; codes are those of ``protocol.errors``.
"""

from collections.abc import Mapping
from typing import Final

from attrs import field, frozen

from protocol.describe import Bounds, Schema

from .server import PATH
from .stages.validate import INCLUDABLE

FORMAT: Final[Schema] = {
    "description": "What the answer must be; `schema` is a JSON Schema 2020-12.",
    "anyOf": [
        {"type": "null"},
        {"type": "object", "properties": {"type": {"enum": ["text", "json_object"]}}, "required": ["type"]},
        {
            "type": "object",
            "properties": {"type": {"const": "json_schema"}, "name": {"type": "string"}, "schema": {"type": "object"}},
            "required": ["type", "name", "schema"],
        },
    ],
}
BOUNDS: Final[Bounds] = {
    "CreateRequest": {
        "tool_choice": {
            "anyOf": [{"type": "string", "enum": ["none", "auto", "required"]}, {"type": "object"}, {"type": "null"}]
        },
        "max_output_tokens": {"minimum": 1},
        "max_tool_calls": {"minimum": 1},
        "temperature": {"minimum": 0, "maximum": 2},
        "top_p": {"minimum": 0, "maximum": 1},
        "top_logprobs": {"minimum": 0, "maximum": 0},
        "presence_penalty": {"minimum": -2, "maximum": 2},
        "frequency_penalty": {"minimum": -2, "maximum": 2},
        "include": {"items": {"type": "string", "enum": sorted(INCLUDABLE)}},
        "service_tier": {"enum": ["auto", "default", None]},
        "text": {"properties": {"format": FORMAT}},
    }
}
"""What this server takes of what the wire allows: ``validate.RANGES``, which a test holds against it."""

DOOR: Final = (
    "bad_request",
    "expectation_failed",
    "header_fields_too_large",
    "request_timeout",
    "server_error",
    "too_many_connections",
    "unsupported_http_version",
    "unsupported_transfer_coding",
)
"""What any request may be answered with, wherever it goes."""
KEY: Final = ("invalid_api_key",)
BODY: Final = (
    "invalid_frame",
    "invalid_json",
    "invalid_type",
    "invalid_value",
    "message_too_large",
    "missing_required_parameter",
    "unsupported_media_type",
)
QUERY: Final = ("invalid_type", "invalid_value")
PAIRING: Final = ("tool_call_not_found", "tool_output_conflict", "tool_output_missing", "tool_output_type_mismatch")
PREPARE: Final = (
    *BODY,
    *PAIRING,
    "content_policy_violation",
    "conversation_not_found",
    "item_not_found",
    "model_not_found",
    "previous_response_not_found",
    "unsupported_parameter",
)
CREATE: Final = (*PREPARE, "conversation_locked", "idempotency_conflict", "queue_full", "shutting_down")
APPEND: Final = (
    *BODY,
    *PAIRING,
    "content_policy_violation",
    "echo_mismatch",
    "idempotency_conflict",
    "response_not_active",
    "response_not_found",
)


@frozen(kw_only=True)
class Operation:
    """What an endpoint takes and gives, by the names of schemas; ``errors`` are codes."""

    id: str
    answer: str
    errors: tuple[str, ...] = ()
    body: str | None = None
    needs_body: bool = True
    query: tuple[str, ...] = ()
    streams: bool = False
    """It may answer with server-sent events."""
    leads_to: tuple[str, ...] = ()
    """Operations on what it answers with."""
    by: Mapping[str, str] = field(default={"id": "$response.body#/id"}, repr=False)
    """Where in its answer they find their parameters."""


_OF_RESPONSES: Final = ("retrieveResponse", "deleteResponse", "cancelResponse", "appendToResponse", "listInputItems")
_OF_CONVERSATIONS: Final = (
    "retrieveConversation",
    "updateConversation",
    "deleteConversation",
    "listConversationItems",
    "createConversationItems",
)
_PAGES: Final = ("limit", "order", "after")

OPERATIONS: Final[dict[tuple[str, str], Operation]] = {
    ("POST", PATH): Operation(
        id="createResponse", body="CreateBody", answer="Response", streams=True, errors=CREATE, leads_to=_OF_RESPONSES
    ),
    ("POST", f"{PATH}/input_tokens"): Operation(id="countInputTokens", body="CountBody", answer="InputTokens", errors=PREPARE),
    ("POST", f"{PATH}/compact"): Operation(id="compact", body="CreateBody", answer="Compaction", errors=PREPARE),
    ("GET", f"{PATH}/{{id}}"): Operation(
        id="retrieveResponse",
        answer="Response",
        streams=True,
        query=("stream", "starting_after"),
        errors=(*QUERY, "invalid_cursor", "response_not_found"),
    ),
    ("DELETE", f"{PATH}/{{id}}"): Operation(id="deleteResponse", answer="Deleted", errors=("response_not_found",)),
    ("POST", f"{PATH}/{{id}}/cancel"): Operation(
        id="cancelResponse", answer="Response", errors=("invalid_value", "response_not_found")
    ),
    ("POST", f"{PATH}/{{id}}/append"): Operation(
        id="appendToResponse", body="AppendBody", answer="AppendAccepted", errors=APPEND
    ),
    ("GET", f"{PATH}/{{id}}/input_items"): Operation(
        id="listInputItems", answer="ItemList", query=_PAGES, errors=(*QUERY, "response_not_found")
    ),
    ("GET", "/v1/models"): Operation(
        id="listModels", answer="ModelList", leads_to=("retrieveModel",), by={"id": "$response.body#/data/0/id"}
    ),
    ("GET", "/v1/models/{id}"): Operation(id="retrieveModel", answer="Model", errors=("model_not_found",)),
    ("POST", "/v1/conversations"): Operation(
        id="createConversation",
        body="ConversationBody",
        needs_body=False,
        answer="Conversation",
        errors=(*BODY, "content_policy_violation", "item_not_found"),
        leads_to=_OF_CONVERSATIONS,
    ),
    ("GET", "/v1/conversations/{id}"): Operation(
        id="retrieveConversation", answer="Conversation", errors=("conversation_not_found",)
    ),
    ("POST", "/v1/conversations/{id}"): Operation(
        id="updateConversation",
        body="MetadataBody",
        needs_body=False,
        answer="Conversation",
        errors=(*BODY, "conversation_not_found"),
    ),
    ("DELETE", "/v1/conversations/{id}"): Operation(
        id="deleteConversation", answer="Deleted", errors=("conversation_not_found",)
    ),
    ("GET", "/v1/conversations/{id}/items"): Operation(
        id="listConversationItems", answer="ItemList", query=_PAGES, errors=(*QUERY, "conversation_not_found")
    ),
    ("POST", "/v1/conversations/{id}/items"): Operation(
        id="createConversationItems",
        body="ItemsBody",
        answer="ItemList",
        errors=(*BODY, "content_policy_violation", "conversation_not_found", "item_not_found"),
        leads_to=("retrieveConversationItem", "deleteConversationItem"),
        by={"id": "$request.path.id", "item_id": "$response.body#/data/0/id"},
    ),
    ("GET", "/v1/conversations/{id}/items/{item_id}"): Operation(
        id="retrieveConversationItem", answer="Item", errors=("conversation_not_found", "not_found")
    ),
    ("DELETE", "/v1/conversations/{id}/items/{item_id}"): Operation(
        id="deleteConversationItem", answer="Conversation", errors=("conversation_not_found", "not_found")
    ),
}
"""All that tenants ask over HTTP; see ``Api.endpoints``."""
