"""``text.format``: what the answer must be, checked before sampling (is it a format?) and after it (is it of that format?).

A model that can be constrained never fails the second check. For one that can't, a wrong answer is no answer: the Response
fails, and says where the answer deviates.
"""

from collections.abc import Sequence
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from protocol.codec import parse
from protocol.errors import ProtocolError
from protocol.fields import Json
from protocol.items import Item, Message, text_of

KINDS = ("text", "json_object", "json_schema")


def check_format(text: Json | None) -> None:
    """Whether ``text`` of a request says what can be; raises ``ProtocolError``."""
    wanted = (text or {}).get("format")
    if wanted is None:
        return
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    if kind not in KINDS:
        raise ProtocolError("invalid_value", f"text.format.type: expected one of {', '.join(KINDS)}", "text.format.type")
    if kind != "json_schema":
        return
    for name, tp in (("name", str), ("schema", dict)):
        if not isinstance(wanted.get(name), tp):
            what = "a string" if tp is str else "an object"
            raise ProtocolError("invalid_value", f"text.format.{name}: must be {what}", f"text.format.{name}")
    try:
        Draft202012Validator.check_schema(wanted["schema"])
    except SchemaError as error:
        path = "text.format.schema"
        raise ProtocolError("invalid_value", f"{path}: not a JSON Schema: {error.message[:200]}", path) from None


def deviation(text: Json | None, output: Sequence[Item]) -> str | None:
    """How the answer in ``output`` deviates from the format of a request, in words; None if it does not."""
    wanted: dict[str, Any] = (text or {}).get("format") or {}
    if wanted.get("type", "text") == "text":
        return None
    answers = [item for item in output if isinstance(item, Message)]
    if not answers:
        return None
    try:
        value = parse(text_of(answers[-1].content))
    except ProtocolError as error:
        return error.message
    if wanted["type"] == "json_object":
        return None if isinstance(value, dict) else "not a JSON object"
    first = next(Draft202012Validator(wanted["schema"]).iter_errors(value), None)
    return None if first is None else f"{first.json_path}: {first.message[:200]}"
