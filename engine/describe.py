"""The server for programs in other languages: OpenAPI 3.1 of its HTTP side, AsyncAPI 3 of its WebSocket side.

Both are made: schemas from the classes (``protocol.describe``), descriptions from the docstrings of what answers, errors from
the table of codes. ``operations`` adds what no signature says; a test compares it with the endpoints that are served.
"""

from collections.abc import Callable, Iterable
from importlib.metadata import version
from typing import Any, Final

from protocol.describe import (
    EVENT,
    METADATA,
    PARAM,
    PREFIX,
    Schema,
    Schemas,
    client_frames,
    error,
    events,
    prose,
    response,
    server_frames,
)
from protocol.errors import CODES, RETRY_LATER
from protocol.events import AppendAccepted, Stub
from protocol.items import ITEMS, OTHER_ITEM_TYPES, PARTS, Item, OtherItem
from protocol.requests import AppendRequest, CreateRequest
from protocol.response import Usage

from .api import Api
from .conversations import ITEMS_AT_ONCE
from .core import Engine
from .operations import BOUNDS, DOOR, KEY, OPERATIONS, Operation
from .paging import PAGE, PAGE_MOST
from .server import HEALTH, PATH, READY, SHAPES
from .services import Services

URL: Final = "http://127.0.0.1:8080"
"""Where ``sostenuto serve`` listens by default."""
TITLE: Final = "Sostenuto"
ABOUT: Final = "The Responses API, and Responses that wait for their tool outputs instead of ending."
NOT_OVER_HTTP: Final = ("type", "stream_id", "generate")
"""Fields of a create that are for WebSockets only."""

BEARER: Final = {"type": "http", "scheme": "bearer", "description": "Needed if the server has keys; each is a tenant."}

SSE_DATA: Final[Schema] = {
    "type": "string",
    "description": "The last is `[DONE]`; each before it is an event's JSON.",
    "anyOf": [
        {"const": "[DONE]"},
        {"contentMediaType": "application/json", "contentSchema": {"$ref": PREFIX + EVENT}},
    ],
}
PARAMETERS: Final[dict[str, tuple[Schema, str]]] = {
    "stream": ({"type": "boolean", "default": False}, "Answer with the Response's events, as server-sent events."),
    "starting_after": ({"type": "integer", "minimum": -1, "default": -1}, "The `sequence_number` behind which to begin."),
    "limit": ({"type": "integer", "minimum": 1, "maximum": PAGE_MOST, "default": PAGE}, "How many items at most."),
    "order": ({"type": "string", "enum": ["desc", "asc"], "default": "desc"}, "Newest or oldest first."),
    "after": ({"type": "string"}, "The `id` of the item behind which to begin."),
}
REPLIES: Final = {
    "response.append": ("AppendAccepted",),
    "response.attach": ("AttachAccepted",),
    "response.steer": ("SteerAccepted", "SteerPending", "SteerFailed"),
}
"""Events that answer a frame, beside errors. All other frames show in the events of their Response."""


def openapi(url: str = URL) -> dict[str, Any]:
    """OpenAPI 3.1 of the HTTP side. ``url`` is where the server is."""
    schemas = _http_schemas()
    paths: dict[str, dict[str, Any]] = {}
    for (method, path), endpoint in Api(Engine(Services(models={}))).endpoints().items():
        paths.setdefault(path, {})[method.lower()] = _operation(path, OPERATIONS[method, path], endpoint)
    for path, own in _of_the_server().items():
        paths.setdefault(path, {})["get"] = own
    for path, operations in paths.items():
        if parameters := [_path_parameter(part[1:-1]) for part in path.split("/") if part.startswith("{")]:
            operations["parameters"] = parameters
    return {
        "openapi": "3.1.0",
        "info": _info(),
        "servers": [{"url": url}],
        "security": [{}, {"key": []}],
        "paths": paths,
        "components": {
            "schemas": schemas.named,
            "responses": {str(status): _failure(status) for status in sorted({code.status for code in CODES.values()})},
            "securitySchemes": {"key": BEARER},
        },
    }


def asyncapi(url: str = URL) -> dict[str, Any]:
    """AsyncAPI 3 of the WebSocket side, as the server has it: it receives what clients send."""
    schemas = Schemas(BOUNDS)
    ours = {_type_of(schemas, name): (name, ref) for name, ref in server_frames(schemas).items()}
    theirs = {kind: (ref["$ref"].removeprefix(PREFIX), ref) for kind, ref in client_frames(schemas).items()}
    messages = {kind: _message(schemas, kind, name, ref) for kind, (name, ref) in {**theirs, **ours}.items()}
    kinds = {name: kind for kind, (name, _) in ours.items()}
    operations: dict[str, Any] = {
        kind.partition(".")[2]: _reception(kind, [kinds[name] for name in REPLIES.get(kind, ())]) for kind in theirs
    }
    operations["events"] = {
        "action": "send",
        "channel": {"$ref": "#/channels/responses"},
        "summary": "The events of each Response that the client created or attached to, in order; and errors.",
        "messages": [{"$ref": f"#/channels/responses/messages/{kind}"} for kind in ours],
    }
    scheme, _, host = url.partition("://")
    return {
        "asyncapi": "3.0.0",
        "info": _info(),
        "defaultContentType": "application/json",
        "servers": {
            "server": {
                "host": host,
                "protocol": "wss" if scheme == "https" else "ws",
                "security": [{"$ref": "#/components/securitySchemes/key"}],
            }
        },
        "channels": {"responses": _channel([*theirs, *ours])},
        "operations": operations,
        "components": {"schemas": schemas.named, "messages": messages, "securitySchemes": {"key": BEARER}},
    }


# ---- both


def _info() -> dict[str, Any]:
    licence = {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"}
    return {"title": TITLE, "version": version("sostenuto"), "description": ABOUT, "license": licence}


def _ref(name: str) -> Schema:
    return {"$ref": PREFIX + name}


# ---- HTTP


def _object(properties: Schema, *, optional: Iterable[str] = ()) -> Schema:
    return {"type": "object", "properties": properties, "required": [name for name in properties if name not in {*optional}]}


def _list_of(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def _const(value: Any) -> Schema:
    return {"type": "boolean" if value is True else "string", "const": value}


def _http_schemas() -> Schemas:
    """All schemas of the HTTP side: those of the classes, and of answers that no class has."""
    schemas = Schemas(BOUNDS)
    events(schemas)
    error(schemas)
    response(schemas)
    schemas.named["Response"]["properties"]["required_input"] = {
        **_list_of(schemas.of(Stub, "written")),
        "description": "What a parked Response waits for.",
    }
    schemas.event(AppendAccepted)
    _add_bodies(schemas)
    text: Schema = {"type": "string"}
    whole: Schema = {"type": "integer"}
    item, usage = schemas.of(Item, "written"), schemas.of(Usage, "written")
    text_or_null: Schema = {"type": ["string", "null"]}
    model = {"id": text, "object": _const("model"), "created": whole, "owned_by": text}
    conversation = {"id": text, "object": _const("conversation"), "created_at": whole, "metadata": {"type": "object"}}
    pages: Schema = {"first_id": text_or_null, "last_id": text_or_null, "has_more": {"type": "boolean"}}
    compaction = {"id": text, "object": _const("response.compaction"), "created_at": whole, "output": _list_of(item)}
    answers: dict[str, Schema] = {
        "ErrorBody": {"error": error(schemas)},
        "Deleted": {"id": text, "object": {"enum": ["response", "conversation.deleted"]}, "deleted": _const(True)},
        "InputTokens": {"object": _const("response.input_tokens"), "input_tokens": whole},
        "Compaction": {**compaction, "usage": usage},
        "ItemList": {"object": _const("list"), "data": _list_of(item), **pages},
        "Model": model,
        "ModelList": {"object": _const("list"), "data": _list_of(_ref("Model"))},
        "Conversation": conversation,
        "ServerSentEvent": {"event": text, "data": SSE_DATA},
        "Health": {"status": _const("ok"), "responses": whole},
        "Ready": {"status": _const("ready")},
    }
    for name, properties in answers.items():
        schemas.add(name, _object(properties, optional=("event",)))
    _discriminate(schemas)
    return schemas


def _add_bodies(schemas: Schemas) -> None:
    """What requests have as their body: the frames of a WebSocket, but for what is said by the path, and is there only."""
    schemas.of(CreateRequest, "read")
    schemas.of(AppendRequest, "read")
    create, append = schemas.named.pop("CreateRequest"), schemas.named.pop("AppendRequest")
    body = _without(create, NOT_OVER_HTTP)
    schemas.add("CreateBody", body)
    about = "As the body of a create; without a model, the server's first."
    schemas.add("CountBody", {name: value for name, value in body.items() if name != "required"} | {"description": about})
    schemas.add("AppendBody", _without(append, ("type", "response_id", "stream_id")))
    metadata = {"type": ["object", "null"], **METADATA}
    some = _list_of(_ref(f"Item{PARAM}")) | {"maxItems": ITEMS_AT_ONCE}
    schemas.add(
        "ConversationBody",
        _object({"items": {**some, "type": ["array", "null"]}, "metadata": metadata}, optional=("items", "metadata")),
    )
    schemas.add("MetadataBody", _object({"metadata": metadata}, optional=("metadata",)))
    schemas.add("ItemsBody", _object({"items": {**some, "minItems": 1}}))


def _without(schema: Schema, names: Iterable[str]) -> Schema:
    properties = {name: value for name, value in schema["properties"].items() if name not in names}
    return schema | {"properties": properties, "required": [name for name in schema["required"] if name not in names]}


def _discriminate(schemas: Schemas) -> None:
    """Tell code generators by which field unions are told apart."""
    kinds = {kind: _ref(cls.__name__)["$ref"] for kind, cls in {**ITEMS, **PARTS}.items()}
    others = dict.fromkeys(sorted(OTHER_ITEM_TYPES), PREFIX + OtherItem.__name__)
    for name, table in (("Item", [*ITEMS, *others]), ("Part", [*PARTS])):
        mapping = {kind: (kinds | others)[kind] for kind in table}
        schemas.named[name]["discriminator"] = {"propertyName": "type", "mapping": mapping}


def _operation(path: str, operation: Operation, endpoint: Callable[..., Any]) -> dict[str, Any]:
    _, _, text = prose(endpoint.__doc__).partition("`: ")
    summary, _, rest = text.partition("\n\n")
    contents: dict[str, Any] = {"application/json": {"schema": _ref(operation.answer)}}
    if operation.streams:
        contents["text/event-stream"] = {"schema": _ref("ServerSentEvent")}
    answer: dict[str, Any] = {"description": operation.answer, "content": contents}
    if operation.leads_to:
        answer["links"] = {name: {"operationId": name, "parameters": operation.by} for name in operation.leads_to}
    described: dict[str, Any] = {
        "operationId": operation.id,
        "summary": " ".join(summary.split()) or operation.id,
        "tags": [path.split("/")[2]],
        "responses": {"200": answer, **_failures((*DOOR, *KEY, *operation.errors))},
    }
    if rest:
        described["description"] = rest
    if operation.query:
        described["parameters"] = [_query_parameter(name) for name in operation.query]
    if operation.body:
        content = {"application/json": {"schema": _ref(operation.body)}}
        described["requestBody"] = {"required": operation.needs_body, "content": content}
    return described


def _of_the_server() -> dict[str, dict[str, Any]]:
    """What is served beside the tenants' endpoints: all by GET."""

    def plain(name: str, summary: str, schema: str, codes: Iterable[str]) -> dict[str, Any]:
        answer = {"description": schema, "content": {"application/json": {"schema": _ref(schema)}}}
        responses = {"200": answer, **_failures((*DOOR, *codes))}
        return {"operationId": name, "summary": summary, "tags": ["server"], "security": [], "responses": responses}

    websocket = {
        "operationId": "openWebSocket",
        "summary": "The handshake of a WebSocket; `sostenuto schema asyncapi` describes what is said over it.",
        "tags": ["responses"],
        "responses": {
            "101": {"description": "It is a WebSocket from here on."},
            **_failures((*DOOR, *KEY, "upgrade_required", "shutting_down")),
        },
    }
    return {
        PATH: websocket,
        HEALTH: plain("health", "Whether the server runs, and how many Responses are live.", "Health", ()),
        READY: plain("ready", "Whether the server takes new Responses.", "Ready", ("shutting_down",)),
    }


def _failures(codes: Iterable[str]) -> dict[str, Any]:
    statuses = sorted({CODES[code].status for code in codes})
    return {str(status): {"$ref": f"#/components/responses/{status}"} for status in statuses}


def _failure(status: int) -> dict[str, Any]:
    codes = ", ".join(f"`{name}`" for name, code in CODES.items() if code.status == status)
    failure: dict[str, Any] = {
        "description": f"Refused: {codes}.",
        "content": {"application/json": {"schema": _ref("ErrorBody")}},
    }
    if status in RETRY_LATER:
        failure["headers"] = {"retry-after": {"description": "Seconds.", "schema": {"type": "integer"}}}
    return failure


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _query_parameter(name: str) -> dict[str, Any]:
    schema, about = PARAMETERS[name]
    return {"name": name, "in": "query", "description": about, "schema": schema}


# ---- WebSockets


def _type_of(schemas: Schemas, name: str) -> str:
    """The ``type`` of the frames of a schema; of a hosted tool's progress, whose types vary, the schema's name."""
    kind: str = schemas.named[name]["properties"]["type"].get("const", name)
    return kind


def _message(schemas: Schemas, kind: str, name: str, payload: Schema) -> dict[str, Any]:
    summary, _, _ = schemas.named[name].get("description", "").partition("\n\n")
    about = {"summary": " ".join(summary.split())} if summary else {}
    return {"name": kind, "title": name, **about, "payload": payload}


def _channel(kinds: Iterable[str]) -> dict[str, Any]:
    shapes = {"type": "string", "enum": sorted(SHAPES), "description": "Which shape Responses have that don't say."}
    headers = {"type": "object", "properties": {"OpenAI-Beta": shapes}}
    return {
        "address": PATH,
        "title": "Responses",
        "description": "Each message is a JSON object, in a text frame.",
        "messages": {kind: {"$ref": f"#/components/messages/{kind}"} for kind in kinds},
        "bindings": {"ws": {"method": "GET", "headers": headers}},
    }


def _reception(kind: str, replies: Iterable[str]) -> dict[str, Any]:
    channel = {"$ref": "#/channels/responses"}
    reception = {
        "action": "receive",
        "channel": channel,
        "messages": [{"$ref": f"#/channels/responses/messages/{kind}"}],
    }
    if answers := [*replies]:
        messages = [{"$ref": f"#/channels/responses/messages/{answer}"} for answer in (*answers, "error")]
        reception["reply"] = {"channel": channel, "messages": messages}
    return reception
