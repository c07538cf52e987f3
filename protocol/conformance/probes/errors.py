"""Mistakes: each is answered, in the shape that clients read, and the connection lives."""

from ..transport import Frame
from .base import SHAPES, SOCKETS, probe
from .clients import HttpClient, SocketClient
from .talk import Talk, say
from .turn import Refusal


@probe("L12", basis="OpenAI")
async def an_error_after_which_the_connection_lives(talk: Talk) -> None:
    """A request with a field of the wrong type is refused; the same socket, or server, then serves (OpenAI, WebSocket
    mode: errors do not end the connection; Open Responses tests it)."""
    client = await talk.client()
    frame = {**client.opening(say("Hello.")), "input": 7}
    client.must_refuse(await client.ask(frame), ["invalid_type", "invalid_value"])
    await client.still_lives()


@probe("L12", basis="ours")
async def what_is_no_json(talk: Talk) -> None:
    """A frame, or a body, that is cut in the midst, and one that is JSON and no object: an error (400, over HTTP), and
    the connection lives. litellm closes the socket. OpenAI has not documented what it does."""
    client = await talk.client()
    client.must_refuse(await client.ask('{"type": "response.create", "model": '), ["invalid_json"])
    for text in ("[]", '"response.create"', "null"):
        client.must_refuse(await client.ask(text), ["invalid_frame"])
    await client.still_lives()


@probe("L12", basis="ours", shapes=SOCKETS)
async def a_frame_that_nobody_knows(talk: Talk) -> None:
    """A frame of an unknown ``type``, and one without, is answered with an error: silence (litellm) leaves the client
    waiting. OpenAI has not documented what it does; clients of a newer version do send such frames, so the socket must
    live."""
    client = await talk.socket()
    client.must_refuse(await client.ask({"type": "response.unheard_of", "response_id": "resp_1"}), ["unknown_event"])
    client.must_refuse(await client.ask({"model": "m", "input": "x"}), ["missing_required_parameter"])
    await client.still_lives()


@probe("L12", basis="ours", shapes=SOCKETS)
async def a_binary_frame(talk: Talk) -> None:
    """Frames are text. A binary one is refused, and the socket lives (docs/append.md; OpenAI has not documented what it
    does)."""
    client = await talk.socket()
    await client.send(b'{"type": "response.create"}')
    client.must_refuse(await client.answer(), ["invalid_frame"])
    await client.still_lives()


@probe("L12", basis="OpenAI")
async def the_errors_shape(talk: Talk) -> None:
    """A request whose input is a number is refused. On a socket the frame is ``{"type": "error", "status", "error":
    {"type", "code", "message", "param"}}`` (OpenAI, WebSocket mode; Open Responses asks for ``status``); over HTTP it is
    the status, and a JSON body ``{"error": {"message", "type", "param", "code"}}`` (OpenAI, error codes)."""
    client = await talk.client()
    frame = {**client.opening(say("Hello.")), "input": 7}
    refusal = client.must_refuse(await client.ask(frame), ["invalid_type", "invalid_value"])
    talk.need(isinstance(refusal.frame.get("error"), dict), f"the error has no object error: {refusal.frame}")
    missing = [name for name in ("type", "code", "message", "param") if name not in refusal.error]
    talk.need(not missing, f"the error has no {', '.join(missing)}: {refusal.error}")
    talk.need(type(refusal.status) is int and 400 <= refusal.status < 500, f"the error has the status {refusal.status}")
    if talk.strict and isinstance(client, SocketClient):
        flat = {name: refusal.frame.get(name) for name in ("code", "message", "param")}
        same = {name: refusal.error.get(name) for name in flat}
        talk.need(flat == same, f"flat it says {flat}, nested {same}")


@probe("L12", basis="OpenAI", shapes=["http"], needs=["stream"])
async def a_stream_that_is_refused(talk: Talk) -> None:
    """A request for events that is refused is an HTTP error with a JSON body, and no stream: clients look at the status
    first, and some wait for ever in a stream of status 200 that has an error in it."""
    client = await talk.posting()
    body = {**client.opening(say("Hello.")), "input": 7, "stream": True}
    del body["type"]
    exchange = await client.request("POST", "/responses", body)
    answer = await client.read(exchange)
    kind = answer.headers.get("content-type", "")
    talk.need(400 <= answer.status < 500 and "json" in kind, f"answered with {answer.status}, {kind}")
    talk.check_refusal(Refusal(frame=answer.json, status=answer.status), ["invalid_type", "invalid_value"])


@probe("L12", basis="ours", shapes=["http"])
async def what_is_not_there(talk: Talk) -> None:
    """Another path, and another method, are answered with 404 and 405 (or 404) and an error as JSON, not with a page, so
    that whatever reads errors can read it (docs/http.md)."""
    client = await talk.posting()
    for method, path in (("GET", "/no/such/path"), ("PATCH", "/responses")):
        answer = await client.call(method, path)
        talk.need(answer.status in (404, 405), f"{method} {path} was answered with {answer.status}")
        talk.check_refusal(Refusal(frame=answer.json, status=answer.status), ["not_found", "method_not_allowed"])


@probe("L12", basis="ours", shapes=SHAPES)
async def fields_that_clients_send(talk: Talk) -> None:
    """What Codex and the SDKs send along is no error: ``stream`` and ``client_metadata`` on a socket,
    ``prompt_cache_key``, ``safety_identifier``, ``include`` of encrypted reasoning, null for what is optional. OpenAI's
    server takes it from Codex; that a socket's frame may have ``stream`` is not documented, and Open Responses refuses
    it."""
    client = await talk.client()
    extras: Frame = {
        "prompt_cache_key": "a-key",
        "safety_identifier": "somebody",
        "include": ["reasoning.encrypted_content"],
        "max_output_tokens": None,
        "metadata": None,
        "previous_response_id": None,
    }
    codex: Frame = {} if isinstance(client, HttpClient) else {"stream": True, "client_metadata": {"a": "b"}}
    turn = await client.open(say("Fine."), **extras, **codex)
    talk.need_completed(turn)


@probe("L12", basis="ours", shapes=SOCKETS)
async def background_on_a_socket(talk: Talk) -> None:
    """``background: true`` is not for WebSockets (OpenAI, WebSocket mode; Open Responses forbids it): it is refused,
    rather than taken for something else, and the socket lives."""
    client = await talk.socket()
    await client.refused_opening(say("Hello."), codes=["unsupported_parameter"], background=True)
    await client.still_lives()
