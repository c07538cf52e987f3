"""How instances become JSON values: what is always there, what is left out, what is put back."""

from protocol.events import ItemAdded, Stub
from protocol.items import FunctionCall, InputText, Message, OutputText
from protocol.writing import write


def test_constants_come_first_and_nothing_is_left_out_but_what_may_be() -> None:
    call = FunctionCall(call_id="call_1", name="look", arguments="{}", id=None, status="completed")
    assert list(write(call).items()) == [
        ("type", "function_call"),
        ("call_id", "call_1"),
        ("name", "look"),
        ("arguments", "{}"),
        ("status", "completed"),
    ]
    assert write(Stub("function_call_output", call_id="call_1")) == {"type": "function_call_output", "call_id": "call_1"}


def test_unknown_fields_are_put_back() -> None:
    part = InputText(text="hi", extra={"cache": {"ttl": 5}})
    assert write(part) == {"type": "input_text", "text": "hi", "cache": {"ttl": 5}}
    assert InputText(text="hi").extra == {}


def test_what_is_inside_is_written_by_its_own_class() -> None:
    item = Message(role="assistant", content=(OutputText(text="hi", annotations=({"type": "x"},)),), id="msg_1")
    assert write(ItemAdded(3, item)) == {
        "type": "response.output_item.added",
        "output_index": 3,
        "item": {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "hi", "annotations": [{"type": "x"}]}],
            "id": "msg_1",
        },
    }
    assert write(Message(role="user", content="hi"))["content"] == "hi"


def test_what_is_json_already_is_as_it_is() -> None:
    for value in ("text", 1, 1.5, True, None, {"a": [1]}, [1, 2]):
        assert write(value) is value
    nobody = object()
    assert write(nobody) is nobody
