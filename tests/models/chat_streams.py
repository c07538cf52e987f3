"""Streams of chat servers that are not as the specification has them: each with what it shows, and what must become of it.

They are written for these tests, after what public bug reports describe.
"""

from collections.abc import Sequence
from typing import Any, Final

from attrs import field, frozen

from engine.testing.upstreams import DONE, chunk, event, usage


@frozen(kw_only=True)
class Stream:
    """``items`` are what is heard: ``("text", …)``, ``("reasoning", …)``, ``("call", name, arguments)``. Then either it
    stops, for ``stop``, or it fails, with ``error`` in its message."""

    shows: str
    sent: bytes
    items: Sequence[tuple[str, ...]] = ()
    stop: str | None = None
    error: str | None = None
    code: str = "server_error"
    tokens: int | None = None
    ids: Sequence[str] = field(factory=tuple)
    """Ids of calls, as the server named them."""
    content_type: str = "text/event-stream"


def call(
    name: str | None = None, arguments: Any = None, *, index: int | None = None, call_id: str | None = None
) -> dict[str, Any]:
    """An entry of ``tool_calls``, without what is None."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    entry = {"index": index, "id": call_id, "type": "function", "function": function}
    return {key: value for key, value in entry.items() if value is not None}


def calls(*entries: dict[str, Any], **more: Any) -> bytes:
    """A chunk with calls."""
    return chunk(tool_calls=list(entries), **more)


STOP: Final = chunk(finish_reason="stop")
CALLED: Final = chunk(finish_reason="tool_calls")
HI: Final = (("text", "Hi there"),)
LOOK: Final = (("call", "look", '{"at": "a"}'),)
TWO: Final = (*LOOK, ("call", "look", '{"at": "b"}'))
A, B = '{"at": "a"}', '{"at": "b"}'

STREAMS: Final[dict[str, Stream]] = {
    # ---- as it should be
    "plain": Stream(
        shows="an answer in deltas, the usage in a chunk without choices",
        sent=chunk(role="assistant", content="") + chunk(content="Hi") + chunk(content=" there") + STOP + usage(7, 2) + DONE,
        items=HI,
        stop="end",
        tokens=2,
    ),
    "parallel": Stream(
        shows="two calls, by their indices, one after the other",
        sent=calls(call("look", "", index=0, call_id="one"))
        + calls(call(None, '{"at":', index=0))
        + calls(call(None, ' "a"}', index=0))
        + calls(call("look", "", index=1, call_id="two"))
        + calls(call(None, B, index=1))
        + CALLED
        + DONE,
        items=TWO,
        stop="tool_calls",
        ids=("one", "two"),
    ),
    # ---- calls
    "interleaved": Stream(
        shows="the deltas of two calls take turns",
        sent=calls(call("look", '{"at"', index=0, call_id="one"), call("look", '{"a', index=1, call_id="two"))
        + calls(call(None, ': "a"', index=0), call(None, 't": "b', index=1))
        + calls(call(None, '"}', index=1), call(None, "}", index=0))
        + CALLED
        + DONE,
        items=TWO,
        stop="tool_calls",
        ids=("one", "two"),
    ),
    "announced": Stream(
        shows="all calls are announced before the arguments of the first",
        sent=calls(call("look", "", index=0, call_id="one"), call("look", "", index=1, call_id="two"))
        + calls(call(None, A, index=0))
        + calls(call(None, B, index=1))
        + CALLED
        + DONE,
        items=TWO,
        stop="tool_calls",
    ),
    "no_index": Stream(
        shows="arguments come without an index (Gemini, proxies)",
        sent=calls(call("look", '{"at":', call_id="one")) + calls(call(None, ' "a"}')) + CALLED + DONE,
        items=LOOK,
        stop="tool_calls",
        ids=("one",),
    ),
    "no_index_two": Stream(
        shows="two calls, one after the other, told apart by their ids only",
        sent=calls(call("look", '{"at":', call_id="one"))
        + calls(call(None, ' "a"}'))
        + calls(call("look", B, call_id="two"))
        + CALLED
        + DONE,
        items=TWO,
        stop="tool_calls",
        ids=("one", "two"),
    ),
    "one_chunk": Stream(
        shows="two whole calls in one chunk, without an index, and the reason in the same",
        sent=calls(call("look", A, call_id="one"), call("look", B, call_id="two"), finish_reason="tool_calls") + DONE,
        items=TWO,
        stop="tool_calls",
        ids=("one", "two"),
    ),
    "one_chunk_bare": Stream(
        shows="the same without ids",
        sent=calls(call("look", A), call("look", B)) + STOP + DONE,
        items=TWO,
        stop="tool_calls",
    ),
    "one_chunk_in_parts": Stream(
        shows="two calls side by side, without an index or an id: their place in the chunk tells whose delta it is",
        sent=calls(call("look", '{"at":'), call("look", '{"at":'))
        + calls(call(None, ' "a"}'), call(None, ' "b"}'))
        + CALLED
        + DONE,
        items=TWO,
        stop="tool_calls",
    ),
    "bare": Stream(
        shows="a call in each chunk, without an index or an id (an old Ollama)",
        sent=calls(call("look", A)) + calls(call("look", B)) + STOP + DONE,
        items=TWO,
        stop="tool_calls",
    ),
    "index_zero": Stream(
        shows="every call has the index 0 (Ollama)",
        sent=calls(call("look", A, index=0, call_id="one")) + calls(call("look", B, index=0, call_id="two")) + CALLED + DONE,
        items=TWO,
        stop="tool_calls",
        ids=("one", "two"),
    ),
    "index_zero_bare": Stream(
        shows="every call has the index 0, and none has an id",
        sent=calls(call("look", A, index=0)) + calls(call("look", B, index=0)) + CALLED + DONE,
        items=TWO,
        stop="tool_calls",
    ),
    "no_id": Stream(
        shows="a call without an id (gpt-oss at Ollama)",
        sent=calls(call("look", "", index=0)) + calls(call(None, A, index=0)) + CALLED + DONE,
        items=LOOK,
        stop="tool_calls",
    ),
    "empty_id": Stream(
        shows="the ids are empty",
        sent=calls(call("look", A, index=0, call_id=""), call("look", B, index=1, call_id="")) + CALLED + DONE,
        items=TWO,
        stop="tool_calls",
    ),
    "same_id": Stream(
        shows="an id in every delta, the same (Fireworks)",
        sent=calls(call("look", "", index=0, call_id="one"))
        + calls(call("look", '{"at":', index=0, call_id="one"))
        + calls(call("look", ' "a"}', index=0, call_id="one"))
        + CALLED
        + DONE,
        items=LOOK,
        stop="tool_calls",
        ids=("one",),
    ),
    "other_ids": Stream(
        shows="another id in every delta",
        sent=calls(call("look", '{"at":', index=0, call_id="one"))
        + calls(call(None, ' "a"}', index=0, call_id="x"))
        + CALLED
        + DONE,
        items=LOOK,
        stop="tool_calls",
        ids=("one",),
    ),
    "name_again": Stream(
        shows="the whole name in every delta (MiniMax at NIM)",
        sent=b"".join(calls(call("look", piece, index=0)) for piece in ("", '{"at"', ': "a', '"}')) + CALLED + DONE,
        items=LOOK,
        stop="tool_calls",
    ),
    "name_in_pieces": Stream(
        shows="the name comes in pieces",
        sent=calls(call("lo", index=0, call_id="one"))
        + calls(call("ok", index=0))
        + calls(call(None, A, index=0))
        + CALLED
        + DONE,
        items=LOOK,
        stop="tool_calls",
    ),
    "name_grows": Stream(
        shows="each delta has the name as far as it is known",
        sent=calls(call("lo", index=0)) + calls(call("look", index=0)) + calls(call("look", A, index=0)) + CALLED + DONE,
        items=LOOK,
        stop="tool_calls",
    ),
    "arguments_again": Stream(
        shows="the arguments once more as a whole at the end",
        sent=calls(call("look", '{"at":', index=0, call_id="one"))
        + calls(call(None, ' "a"}', index=0))
        + calls(call("look", A, index=0, call_id="one"))
        + CALLED
        + DONE,
        items=LOOK,
        stop="tool_calls",
    ),
    "arguments_object": Stream(
        shows="the arguments are an object and no text (a llama.cpp of March 2026, MiniMax)",
        sent=calls(call("look", {"at": "a"}, index=0, call_id="one")) + CALLED + DONE,
        items=(("call", "look", '{"at":"a"}'),),
        stop="tool_calls",
    ),
    "no_arguments": Stream(
        shows="a call without arguments",
        sent=calls(call("look", "", index=0, call_id="one"), call("look", index=1, call_id="two")) + CALLED + DONE,
        items=(("call", "look", "{}"), ("call", "look", "{}")),
        stop="tool_calls",
    ),
    "null_function": Stream(
        shows="nulls wherever there may be nothing",
        sent=event(
            {"choices": [{"delta": {"content": None, "tool_calls": None, "reasoning": None}}], "usage": None, "error": None}
        )
        + event({"choices": [{"delta": None}]})
        + event({"choices": None})
        + calls({"index": 0, "id": "one", "function": {"name": "look", "arguments": None}})
        + calls({"index": 0, "id": None, "function": {"name": None, "arguments": A}})
        + calls({"index": 0, "function": None})
        + CALLED
        + DONE,
        items=LOOK,
        stop="tool_calls",
        ids=("one",),
    ),
    "function_call": Stream(
        shows="one call, as it was before there were parallel ones",
        sent=chunk(function_call={"name": "look", "arguments": ""})
        + chunk(function_call={"arguments": A})
        + chunk(finish_reason="function_call")
        + DONE,
        items=LOOK,
        stop="tool_calls",
    ),
    "stop_with_calls": Stream(
        shows="the reason is stop, though there are calls",
        sent=chunk(content="Hi there") + calls(call("look", A, index=0)) + STOP + DONE,
        items=(*HI, *LOOK),
        stop="tool_calls",
    ),
    "calls_without_one": Stream(
        shows="the reason is tool_calls, and there is none",
        sent=chunk(content="Hi there") + CALLED + DONE,
        items=HI,
        stop="end",
    ),
    "text_behind_calls": Stream(
        shows="text behind a call that is whole, and in the middle of one that is not",
        sent=calls(call("look", A, index=0))
        + chunk(content="Hi")
        + calls(call("look", '{"at":', index=1))
        + chunk(content=" there")
        + calls(call(None, ' "b"}', index=1))
        + CALLED
        + DONE,
        items=(LOOK[0], ("text", "Hi"), TWO[1], ("text", " there")),
        stop="tool_calls",
    ),
    "call_cut": Stream(
        shows="the limit is reached in the middle of the second call",
        sent=calls(call("look", A, index=0)) + calls(call("look", '{"at', index=1)) + chunk(finish_reason="length") + DONE,
        items=(LOOK[0], ("open", "look", '{"at')),
        stop="max_output_tokens",
    ),
    "no_name": Stream(
        shows="a call that is never named",
        sent=calls(call(None, A, index=0)) + CALLED + DONE,
        error="without a name",
    ),
    "odd_calls": Stream(
        shows="entries that are none",
        sent=chunk(tool_calls=[None, "x", 3])
        + chunk(tool_calls={})
        + chunk(tool_calls="x")
        + chunk(content="Hi there")
        + STOP
        + DONE,
        items=HI,
        stop="end",
    ),
    # ---- text and reasoning
    "reasoning_content": Stream(
        shows="reasoning under the name that DeepSeek gave it",
        sent=chunk(reasoning_content="Hm", content=None)
        + chunk(reasoning_content=".")
        + chunk(content="Hi there")
        + STOP
        + DONE,
        items=(("reasoning", "Hm."), *HI),
        stop="end",
    ),
    "reasoning": Stream(
        shows="reasoning under the name that Ollama, OpenRouter and newer vLLMs use, with an empty content beside it",
        sent=chunk(reasoning="Hm.", content="") + chunk(content="Hi there") + STOP + DONE,
        items=(("reasoning", "Hm."), *HI),
        stop="end",
    ),
    "thinking": Stream(
        shows="reasoning under a third name",
        sent=chunk(thinking="Hm.") + chunk(content="Hi there") + STOP + DONE,
        items=(("reasoning", "Hm."), *HI),
        stop="end",
    ),
    "reasoning_twice": Stream(
        shows="the same reasoning under two names",
        sent=chunk(reasoning="Hm.", reasoning_content="Hm.") + chunk(content="Hi there") + STOP + DONE,
        items=(("reasoning", "Hm."), *HI),
        stop="end",
    ),
    "parts": Stream(
        shows="the content is a list of parts, one of them reasoning (Mistral)",
        sent=chunk(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}])
        + chunk(content=[{"type": "text", "text": "Hi"}, {"type": "text", "text": " there"}])
        + STOP
        + DONE,
        items=(("reasoning", "Hm."), *HI),
        stop="end",
    ),
    "refusal": Stream(
        shows="a refusal",
        sent=chunk(content=None, refusal="Hi") + chunk(refusal=" there") + STOP + DONE,
        items=HI,
        stop="end",
    ),
    "surrogates": Stream(
        shows="a character whose two halves stand in two chunks, as escapes",
        sent=b'data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\n\ndata: {"choices":[{"delta":{"content":"\\ude00!"}}]}\n\n'
        + STOP
        + DONE,
        items=(("text", "\U0001f600!"),),
        stop="end",
    ),
    "half": Stream(
        shows="half a character, alone",
        sent=b'data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}\n\n' + STOP + DONE,
        items=(("text", "a\ufffd"),),
        stop="end",
    ),
    "whole": Stream(
        shows="a server that does not stream: one message, over several lines, no events at all",
        sent=b'{\n "choices": [{"index": 0, "finish_reason": "stop",\r\n  "message": {"content": "Hi there"}}],\n'
        b' "usage": {"prompt_tokens": 7, "completion_tokens": 2}\n}\n',
        items=HI,
        stop="end",
        tokens=2,
        content_type="application/json; charset=utf-8",
    ),
    "wrong_type": Stream(
        shows="events that are said to be JSON",
        sent=chunk(content="Hi there") + STOP + DONE,
        items=HI,
        stop="end",
        content_type="application/json",
    ),
    "other_choice": Stream(
        shows="a second choice that nobody asked for",
        sent=event({"choices": [{"index": 1, "delta": {"content": "No"}}, {"index": 0, "delta": {"content": "Hi there"}}]})
        + event({"choices": [{"index": 1, "delta": {}, "finish_reason": "length"}]})
        + STOP
        + DONE,
        items=HI,
        stop="end",
    ),
    # ---- the reason, the usage, the end
    "empty_reason": Stream(
        shows="an empty reason before the real one",
        sent=chunk(content="Hi", finish_reason="") + chunk(content=" there", finish_reason="") + STOP + DONE,
        items=HI,
        stop="end",
    ),
    "usage_each": Stream(
        shows="the usage so far in every chunk",
        sent=chunk(content="Hi", usage={"prompt_tokens": 7, "completion_tokens": 1})
        + chunk(content=" there", usage={"prompt_tokens": 7, "completion_tokens": 9})
        + chunk(finish_reason="stop", usage={"prompt_tokens": 7, "completion_tokens": 9})
        + DONE,
        items=HI,
        stop="end",
        tokens=9,
    ),
    "usage_nulls": Stream(
        shows="a usage of nulls",
        sent=chunk(content="Hi there")
        + STOP
        + event(
            {
                "choices": [],
                "usage": {"completion_tokens": None, "prompt_tokens_details": None, "completion_tokens_details": None},
            }
        )
        + DONE,
        items=HI,
        stop="end",
    ),
    "usage_reasoning": Stream(
        shows="tokens of reasoning that were not shown",
        sent=chunk(content="Hi there") + STOP + usage(7, 60, completion_tokens_details={"reasoning_tokens": 55}) + DONE,
        items=HI,
        stop="end",
        tokens=60,
    ),
    "no_reason": Stream(
        shows="[DONE] without a reason",
        sent=chunk(content="Hi there") + DONE,
        items=HI,
        stop="end",
    ),
    "no_done": Stream(
        shows="a reason, and then no [DONE]",
        sent=chunk(content="Hi there") + STOP + usage(7, 2),
        items=HI,
        stop="end",
        tokens=2,
    ),
    "no_last_line_end": Stream(
        shows="the last line has no end",
        sent=chunk(content="Hi there") + STOP + b"data: [DONE]",
        items=HI,
        stop="end",
    ),
    "no_end": Stream(
        shows="an end without a reason or [DONE]: the server, or a proxy, has given up",
        sent=chunk(content="Hi there"),
        items=HI,
        error="in the middle",
    ),
    "no_end_in_call": Stream(
        shows="the same within a call",
        sent=calls(call("look", A, index=0)) + calls(call("look", '{"at', index=1)),
        items=(LOOK[0], ("open", "look", '{"at')),
        error="in the middle",
    ),
    "nothing": Stream(
        shows="[DONE], and nothing before it: an error that was lost on its way", sent=DONE, error="in the middle"
    ),
    "empty": Stream(shows="no bytes at all", sent=b"", error="in the middle"),
    "empty_answer": Stream(shows="the model had nothing to say", sent=STOP + usage(7, 1) + DONE, stop="end", tokens=1),
    "length": Stream(
        shows="the limit is reached",
        sent=chunk(content="Hi there") + chunk(finish_reason="length") + DONE,
        items=HI,
        stop="max_output_tokens",
    ),
    "content_filter": Stream(
        shows="a filter has cut it",
        sent=chunk(content="Hi there") + chunk(finish_reason="content_filter") + DONE,
        items=HI,
        stop="content_filter",
    ),
    "aborted": Stream(
        shows="the server was stopped",
        sent=chunk(content="Hi there") + chunk(finish_reason="abort") + DONE,
        items=HI,
        error="abort",
    ),
    "odd_reason": Stream(
        shows="a reason that nobody knows",
        sent=chunk(content="Hi there") + chunk(finish_reason="EOS_TOKEN") + DONE,
        items=HI,
        stop="end",
    ),
    # ---- errors in the middle
    "error": Stream(
        shows="an error in place of a chunk",
        sent=chunk(content="Hi there") + event({"error": {"message": "out of memory", "code": 500}}) + DONE,
        items=HI,
        error="out of memory",
    ),
    "error_text": Stream(
        shows="an error that is a text",
        sent=chunk(content="Hi there") + event({"error": "out of memory"}) + DONE,
        items=HI,
        error="out of memory",
    ),
    "error_object": Stream(
        shows="an error without a field around it (an old vLLM)",
        sent=chunk(content="Hi there") + event({"object": "error", "message": "out of memory", "code": 500}),
        items=HI,
        error="out of memory",
    ),
    "error_in_chunk": Stream(
        shows="an error beside choices, with a reason (OpenRouter)",
        sent=chunk(content="Hi there")
        + event(
            {
                "error": {"code": 502, "message": "out of memory"},
                "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}],
            }
        )
        + DONE,
        items=HI,
        error="out of memory",
    ),
    "error_in_choice": Stream(
        shows="an error within a choice",
        sent=chunk(content="Hi there") + event({"choices": [{"error": {"message": "out of memory"}}]}) + DONE,
        items=HI,
        error="out of memory",
    ),
    "error_reason": Stream(
        shows="a reason that is an error, without words",
        sent=chunk(content="Hi there") + chunk(finish_reason="error") + DONE,
        items=HI,
        error="error",
    ),
    "error_event": Stream(
        shows="an event whose name is error",
        sent=chunk(content="Hi there") + b'event: error\ndata: {"message": "out of memory", "type": "internal"}\n\n',
        items=HI,
        error="out of memory",
    ),
    "error_field": Stream(
        shows="an error in a field of its own (llama.cpp in 2025)",
        sent=chunk(content="Hi there") + b'error: {"code":500,"message":"out of memory","type":"server_error"}\n\n' + DONE,
        items=HI,
        error="out of memory",
    ),
    "error_line": Stream(
        shows="an error in a line without a field",
        sent=chunk(content="Hi there") + b'{"error":{"message":"out of memory"}}\n',
        items=HI,
        error="out of memory",
    ),
    "error_first": Stream(
        shows="an error that could have been a status: the context is too long (SGLang)",
        sent=b'data: {"error": {"object": "error", "message": "more tokens than the maximum context length", "code": 400}}\n'
        b"data: [DONE]\n",
        error="maximum context length",
        code="context_length_exceeded",
    ),
    "error_busy": Stream(
        shows="an error that will pass",
        sent=event({"error": {"message": "worker limit reached", "code": 429}}) + DONE,
        error="worker limit",
        code="rate_limit_exceeded",
    ),
    # ---- lines
    "comments": Stream(
        shows="comments that keep the connection alive (OpenRouter, llama.cpp)",
        sent=b": WORKING\n\n" + chunk(content="Hi") + b":\n\n: ping\n\n" + chunk(content=" there") + STOP + DONE,
        items=HI,
        stop="end",
    ),
    "words": Stream(
        shows="words in place of JSON that keep the connection alive",
        sent=b"data: ping\n\ndata:\n\ndata: 17\n\ndata: null\n\n" + chunk(content="Hi there") + STOP + DONE,
        items=HI,
        stop="end",
    ),
    "no_space": Stream(
        shows="no space behind the colon",
        sent=(chunk(content="Hi there") + STOP + DONE).replace(b"data: ", b"data:"),
        items=HI,
        stop="end",
    ),
    "crlf": Stream(
        shows="CRLF",
        sent=(chunk(content="Hi") + chunk(content=" there") + STOP + DONE).replace(b"\n", b"\r\n"),
        items=HI,
        stop="end",
    ),
    "cr": Stream(
        shows="CR alone",
        sent=(chunk(content="Hi") + chunk(content=" there") + STOP + DONE).replace(b"\n", b"\r"),
        items=HI,
        stop="end",
    ),
    "one_line_end": Stream(
        shows="no empty line between events (SGLang)",
        sent=(chunk(content="Hi") + chunk(content=" there") + STOP + DONE).replace(b"\n\n", b"\n"),
        items=HI,
        stop="end",
    ),
    "bom": Stream(shows="a BOM", sent=b"\xef\xbb\xbf" + chunk(content="Hi there") + STOP + DONE, items=HI, stop="end"),
    "fields": Stream(
        shows="all fields of the standard, and some that it does not know",
        sent=b"retry: 3000\n\nid: 1\nevent: message\nfoo: bar\nbaz\n" + chunk(content="Hi there") + STOP + DONE,
        items=HI,
        stop="end",
    ),
    "many_lines": Stream(
        shows="an event over several data lines",
        sent=b'data: {"choices": [\ndata:   {"delta": {"content": "Hi there"}}\ndata: ]}\n\n' + STOP + DONE,
        items=HI,
        stop="end",
    ),
    "infinity": Stream(
        shows="numbers that JSON does not have",
        sent=b'data: {"choices":[{"delta":{"content":"Hi there"},"logprobs":{"top":-Infinity}}]}\n\n' + STOP + DONE,
        items=HI,
        stop="end",
    ),
    "behind_done": Stream(
        shows="something behind [DONE]",
        sent=chunk(content="Hi there") + STOP + DONE + chunk(content="!") + b"\n\n",
        items=HI,
        stop="end",
    ),
    "half_json": Stream(
        shows="an event that breaks off",
        sent=chunk(content="Hi there") + b'data: {"choices":[{"delta":{"cont\n\n' + STOP + DONE,
        items=HI,
        error="no JSON",
    ),
    "half_line": Stream(
        shows="an end in the middle of a line",
        sent=chunk(content="Hi there") + b'data: {"choices":[{"delta":{"cont',
        items=HI,
        error="no JSON",
    ),
}
