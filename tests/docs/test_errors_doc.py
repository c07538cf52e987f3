"""``docs/errors.md`` has every code of ``protocol.errors``, with the status, type and work that it has there."""

import pytest

from protocol.errors import CODES

from .blocks import check_block, read, rows

# code: (meaning, what to do)
SAID = {
    "invalid_json": (
        "the frame or body is not JSON, or JSON that can't be sent on: NaN, a lone surrogate, nested more than some 250 deep",
        "correct the encoder",
    ),
    "invalid_frame": ("the frame or body is JSON but no object, or the frame is binary", "send objects, in text frames"),
    "unknown_event": ("no frame of this `type` is served", "see the list in the message"),
    "message_too_large": (
        "the frame or body is larger than 16 MiB, or the Response would hold more than 256 MiB",
        "send a shorter output; the Response is still parked",
    ),
    "invalid_type": ("a field has the wrong type; `param` is its path", "correct the field"),
    "invalid_value": ("a field has a value that it can't have, or an item a type that is unknown", "correct the field"),
    "missing_required_parameter": ("a field is missing", "add it"),
    "unsupported_parameter": ("the field asks for something that is not served here", "do what the message says instead"),
    "invalid_stream_id": ("the lane's name is none", "1 to 256 letters, digits, `_`, `-` and `.`"),
    "websocket_stream_limit_reached": ("the socket has named 32 lanes", "use one of them again, or another socket"),
    "websocket_connection_limit_reached": (
        "the socket is an hour old: it is closed behind this error",
        "open another socket; continue stored Responses there",
    ),
    "model_not_found": ("the server has no such model", "take one of the message's list"),
    "content_policy_violation": (
        "a rule of the server's policy blocks an item of the request or the append",
        "leave it out, or say it in another way; a parked Response still waits",
    ),
    "response_not_found": (
        "no such Response: it is unknown, another tenant's, or has ended too long ago to be attached to",
        "continue it by `previous_response_id` if it was stored, else begin anew",
    ),
    "previous_response_not_found": (
        "no such Response to continue: unknown, another tenant's, still live, or not stored",
        "if it is live, append to it; else send the whole history as `input`",
    ),
    "item_not_found": (
        "an `item_reference` names no item that can be named: unknown, another tenant's, deleted, or not stored",
        "send the item itself",
    ),
    "conversation_not_found": (
        "no such conversation: it is unknown, another tenant's, or was deleted",
        "create one",
    ),
    "conversation_locked": (
        "another Response is being made in this conversation",
        "try again when it has ended",
    ),
    "response_not_active": (
        "no Response is live on this lane; or the one that is named has ended, is about to, or is not of the append shape",
        "read on until its terminal event; then create a new one",
    ),
    "response_ambiguous": ("more than one Response is live on this lane", "say `response_id`"),
    "stale_epoch": (
        "another client has attached since this socket did",
        "leave the Response to it, or attach again and take it back",
    ),
    "tool_call_not_found": (
        "the output's `call_id` names no call of this Response (in a create: no call in front of it)",
        "look at `response.done`, or at the message, for the calls that wait",
    ),
    "tool_output_conflict": (
        "the call has another result already",
        "nothing: the first result counts, drop yours",
    ),
    "tool_output_type_mismatch": ("the call takes another kind of output", "send the type that the message names"),
    "tool_output_missing": (
        "a call in the create's context has no output; the message names it",
        "add the output, behind the call",
    ),
    "echo_mismatch": (
        "an append has an item that is neither an output nor a user message, nor what this Response has put out",
        "leave it out",
    ),
    "idempotency_conflict": (
        "the key came with another body before",
        "send the first body unchanged, or take another key",
    ),
    "invalid_cursor": ("`starting_after` is below -1, or above the newest event", "use the number of an event that you have"),
    "bad_request": ("not HTTP/1.1, or a broken body", "correct the client"),
    "request_timeout": ("the head or the body of the request came too slowly", "send it at once"),
    "unsupported_media_type": ("the body is not `application/json`, or is compressed", "send plain JSON"),
    "expectation_failed": ("an `Expect` other than `100-continue`", "leave it out"),
    "header_fields_too_large": ("the request's head is larger than 64 KiB", "send fewer or shorter headers"),
    "unsupported_transfer_coding": (
        "a `Transfer-Encoding` other than `chunked`",
        "send the body in chunks, or with its length",
    ),
    "unsupported_http_version": ("neither HTTP/1.1 nor HTTP/1.0", "speak HTTP/1.1"),
    "invalid_api_key": ("no key, or none of the server's", "send `Authorization: Bearer KEY`"),
    "not_found": ("nothing is served at this path, or the list has no such item", "see the [endpoints](http.md#endpoints)"),
    "method_not_allowed": ("the path takes no such method", "take one of the header `Allow`"),
    "upgrade_required": (
        "a GET of `/v1/responses` that asks for no WebSocket, or WebSockets are off here",
        "send the headers of a WebSocket's handshake; or use `POST`",
    ),
    "queue_full": (
        "64 creates wait in this lane, or the server has as many Responses as it takes",
        "try again when a Response has ended",
    ),
    "too_many_connections": ("the server has as many connections as it takes", "try again after `Retry-After` seconds"),
    "shutting_down": ("the server takes no new Responses or sockets", "try another server, or again later"),
    "attached_elsewhere": (
        "another client has attached to this Response: this socket gets no more of its events",
        "leave it to that client; don't attach again by yourself",
    ),
    "server_error": ("a bug of the server", "attach and see what was done; report it"),
}


def table() -> str:
    head = ["| code | status | type | `work` | meaning | what to do |", "|---|---|---|---|---|---|"]
    lines = [
        f"| `{name}` | {code.status} | `{code.type}` | `{code.work}` | {SAID[name][0]} | {SAID[name][1]} |"
        for name, code in CODES.items()
    ]
    return "\n".join([*head, *lines, ""])


def test_every_code_is_explained() -> None:
    assert list(SAID) == list(CODES)
    check_block("errors.md", "codes", table())


@pytest.mark.parametrize("name", CODES)
def test_every_code_stands_in_the_page_of_a_shape_too(name: str) -> None:
    assert any(f"`{name}`" in read(page) for page in ("append.md", "create.md", "http.md"))


@pytest.mark.parametrize("page", ["append.md", "create.md", "http.md"])
def test_the_codes_of_a_page_exist(page: str) -> None:
    _, _, section = read(page).partition("## Errors\n")
    section, _, _ = section.partition("\n## ")
    told = {code.strip(" `") for cells in rows(section)[2:] for code in cells[1].split(",")}
    assert told
    assert told <= set(CODES)
