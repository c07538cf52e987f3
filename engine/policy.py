"""A policy: patterns that the classifier looks for in items, and what happens when one is found.

Theory. A policy is a list of rules. Each has a regular expression, looks at some kinds of items, in one direction or
both, and blocks, flags or redacts. ``Policy.check`` gets the items that are new and nothing else, so the cost of a
check does not grow with the history. The price is that a match across the border of two items is not found; a text
that is looked at is one content part, one command, one output.

``block`` and ``flag`` look at the texts as they came. Redactions are made in the order of the rules, each on what the
one before it left.

Texts within JSON (the arguments of a function call, the results of a search, items that we only carry) are looked at
string by string, unescaped, so that escapes hide nothing and a redaction never breaks the JSON: in ``arguments`` each
string (keys too) and each number is replaced alone, and what lies between stays byte for byte. Arguments that are no
JSON are one text. Not looked at: URLs and data of images and files, the ids of items and calls, encrypted content,
unknown fields of known items.

Patterns are the operator's code: Python's ``re`` can take exponential time, and nothing can interrupt it. The texts are
bounded by the frame's size alone, since a lower bound would be a way around the policy. See docs/policy.md.
"""

import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, get_args

from attrs import define, evolve, field, frozen

from protocol.codec import parse
from protocol.errors import ProtocolError
from protocol.items import (
    ITEMS,
    OTHER_ITEM_TYPES,
    ApplyPatchCall,
    ApplyPatchCallOutput,
    CustomToolCall,
    CustomToolCallOutput,
    FileSearchCall,
    FunctionCall,
    FunctionCallOutput,
    InputFile,
    InputImage,
    Item,
    LocalShellCall,
    LocalShellCallOutput,
    Message,
    OtherItem,
    Part,
    Reasoning,
    Refusal,
    ShellCall,
    ShellCallOutput,
)

Action = Literal["block", "flag", "redact"]
Direction = Literal["input", "output"]

ACTIONS: Final[tuple[Action, ...]] = get_args(Action)
DIRECTIONS: Final[tuple[Direction, ...]] = get_args(Direction)
ITEM_KINDS: Final = frozenset(ITEMS) | OTHER_ITEM_TYPES
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""A rule's name stands in redacted texts, in logs and in the ledger, so it must need no quoting anywhere."""

RULE_KEYS: Final = ("name", "pattern", "action", "items", "on")
Edit = Callable[[str, str], str]
"""Gets a text and the path to it within its item; returns the text that takes its place."""


class PolicyError(ValueError):
    """A policy file that can't be used. The message names the file, the rule, the key, and what is allowed."""


@frozen(kw_only=True)
class Rule:
    """What to look for, where, and what to do then."""

    name: str
    pattern: re.Pattern[str]
    action: Action
    items: frozenset[str] = ITEM_KINDS
    on: frozenset[str] = frozenset(DIRECTIONS)

    def found_in(self, text: str) -> bool:
        """Whether something matches. A match of nothing (of ``\\b``, for example) is none."""
        return any(match.end() > match.start() for match in self.pattern.finditer(text))

    def redact(self, text: str) -> str:
        """``text`` with each match replaced by ``[redacted:NAME]``."""
        mark = f"[redacted:{self.name}]"
        return self.pattern.sub(lambda match: mark if match.group() else "", text)


@frozen
class Match:
    """A rule matched a text. What it matched is not kept, since it may be a secret.

    ``index`` is the item's place among those checked, ``path`` the text's within the item: ``content[0].text``.
    """

    rule: str
    item_type: str
    index: int
    path: str

    @property
    def param(self) -> str:
        """The path of the text in a request, as errors have it: ``input[2].content[0].text``."""
        return f"input[{self.index}].{self.path}"


@frozen(kw_only=True)
class Verdict:
    """What a check found: one ``Match`` for each rule and text.

    ``items`` are those given, with redactions made; items without any are the same objects. ``looked_at`` and ``bytes``
    count the items, and the UTF-8 bytes of their texts, that some rule looked at.
    """

    items: tuple[Item, ...]
    blocked: tuple[Match, ...] = ()
    flagged: tuple[Match, ...] = ()
    redacted: tuple[Match, ...] = ()
    looked_at: int = 0
    bytes: int = 0


@frozen
class Policy:
    """Rules in their file's order."""

    rules: tuple[Rule, ...] = ()

    @classmethod
    def empty(cls) -> "Policy":
        """A policy that looks at nothing."""
        return cls()

    def check(self, items: Sequence[Item], direction: Direction) -> Verdict:
        """Look at ``items``, which are new: each item is to be checked once. Takes no longer for a longer history."""
        if not self.rules:
            return Verdict(items=tuple(items))
        check = _Check()
        checked = tuple([check.item(self._rules_for(item, direction), index, item) for index, item in enumerate(items)])
        return Verdict(
            items=checked,
            blocked=tuple(check.found["block"]),
            flagged=tuple(check.found["flag"]),
            redacted=tuple(check.found["redact"]),
            looked_at=check.looked_at,
            bytes=check.bytes,
        )

    def _rules_for(self, item: Item, direction: Direction) -> list[Rule]:
        return [rule for rule in self.rules if direction in rule.on and item.type in rule.items]


@define
class _Check:
    """What has been found so far."""

    found: dict[Action, list[Match]] = field(factory=lambda: {action: [] for action in ACTIONS})
    looked_at: int = 0
    bytes: int = 0

    def item(self, rules: Sequence[Rule], index: int, item: Item) -> Item:
        if not rules:
            return item
        self.looked_at += 1
        return edit_texts(item, lambda text, path: self.text(rules, text, Match("", item.type, index, path)))

    def text(self, rules: Sequence[Rule], text: str, where: Match) -> str:
        self.bytes += len(text.encode(errors="replace"))
        edited = text
        for rule in rules:
            if rule.action != "redact":
                if rule.found_in(text):
                    self.found[rule.action].append(evolve(where, rule=rule.name))
            elif (redacted := rule.redact(edited)) != edited:
                self.found["redact"].append(evolve(where, rule=rule.name))
                edited = redacted
        return edited


# ---- the texts of an item


def edit_texts(item: Item, edit: Edit) -> Item:
    """``item`` with each text that a policy looks at replaced by ``edit(text, path)``; ``item`` itself if all are
    equal."""
    editor = _EDITORS.get(type(item))
    changes = editor(item, edit) if editor is not None else {}
    changed = {name: value for name, value in changes.items() if value != getattr(item, name)}
    return evolve(item, **changed) if changed else item


def _message(item: Message, edit: Edit) -> Mapping[str, Any]:
    return {"content": _content(item.content, "content", edit)}


def _reasoning(item: Reasoning, edit: Edit) -> Mapping[str, Any]:
    content = item.content
    return {
        "summary": _content(item.summary, "summary", edit),
        "content": None if content is None else _content(content, "content", edit),
    }


def _function_call(item: FunctionCall, edit: Edit) -> Mapping[str, Any]:
    return {"arguments": _json_text(item.arguments, "arguments", edit)}


def _custom_call(item: CustomToolCall, edit: Edit) -> Mapping[str, Any]:
    return {"input": edit(item.input, "input")}


def _output(item: FunctionCallOutput | CustomToolCallOutput | LocalShellCallOutput, edit: Edit) -> Mapping[str, Any]:
    return {"output": _content(item.output, "output", edit)}


def _shell_call(item: ShellCall, edit: Edit) -> Mapping[str, Any]:
    return {"action": evolve(item.action, commands=_value(item.action.commands, "action.commands", edit))}


def _shell_output(item: ShellCallOutput, edit: Edit) -> Mapping[str, Any]:
    chunks = [
        evolve(
            chunk,
            stdout=edit(chunk.stdout, f"output[{index}].stdout"),
            stderr=edit(chunk.stderr, f"output[{index}].stderr"),
        )
        for index, chunk in enumerate(item.output)
    ]
    return {"output": tuple(chunks)}


def _local_shell_call(item: LocalShellCall, edit: Edit) -> Mapping[str, Any]:
    action = item.action
    command, env = _value(action.command, "action.command", edit), _value(action.env, "action.env", edit)
    return {"action": evolve(action, command=command, env=env)}


def _patch_call(item: ApplyPatchCall, edit: Edit) -> Mapping[str, Any]:
    operation = item.operation
    diff = operation.diff
    path = edit(operation.path, "operation.path")
    return {"operation": evolve(operation, path=path, diff=None if diff is None else edit(diff, "operation.diff"))}


def _patch_output(item: ApplyPatchCallOutput, edit: Edit) -> Mapping[str, Any]:
    return {"output": None if item.output is None else edit(item.output, "output")}


def _file_search(item: FileSearchCall, edit: Edit) -> Mapping[str, Any]:
    return {"queries": _value(item.queries, "queries", edit), "results": _value(item.results, "results", edit)}


def _other(item: OtherItem, edit: Edit) -> Mapping[str, Any]:
    extra = item.extra
    return {"extra": {key: value if key in _OPAQUE else _value(value, key, edit) for key, value in extra.items()}}


_OPAQUE: Final = frozenset({"status", "call_id", "encrypted_content"})
_EDITORS: Final[dict[type[Item], Callable[[Any, Edit], Mapping[str, Any]]]] = {
    Message: _message,
    Reasoning: _reasoning,
    FunctionCall: _function_call,
    FunctionCallOutput: _output,
    CustomToolCall: _custom_call,
    CustomToolCallOutput: _output,
    ShellCall: _shell_call,
    ShellCallOutput: _shell_output,
    LocalShellCall: _local_shell_call,
    LocalShellCallOutput: _output,
    ApplyPatchCall: _patch_call,
    ApplyPatchCallOutput: _patch_output,
    FileSearchCall: _file_search,
    OtherItem: _other,
}
"""Item references have no text."""


def _content(content: str | tuple[Part, ...], path: str, edit: Edit) -> str | tuple[Part, ...]:
    if isinstance(content, str):
        return edit(content, path)
    return tuple([_part(part, f"{path}[{index}]", edit) for index, part in enumerate(content)])


def _part(part: Part, path: str, edit: Edit) -> Part:
    if isinstance(part, InputImage | InputFile):
        return part
    if isinstance(part, Refusal):
        return evolve(part, refusal=edit(part.refusal, f"{path}.refusal"))
    return evolve(part, text=edit(part.text, f"{path}.text"))


def _value(value: Any, path: str, edit: Edit) -> Any:
    """A JSON value with each of its strings edited, keys aside. Loops, not comprehensions: one frame a level."""
    if isinstance(value, str):
        return edit(value, path)
    if isinstance(value, Mapping):
        members = {}
        for key, member in value.items():
            members[key] = _value(member, f"{path}.{key}", edit)
        return members
    if isinstance(value, list | tuple):
        elements = []
        for index, element in enumerate(value):
            elements.append(_value(element, f"{path}[{index}]", edit))
        return type(value)(elements)
    return value


_LITERAL: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|-?\d[\d.eE+-]*', re.DOTALL)
"""The strings and numbers of a text that is JSON."""


def _json_text(text: str, path: str, edit: Edit) -> str:
    try:
        parse(text)
    except ProtocolError:
        return edit(text, path)

    def literal(match: re.Match[str]) -> str:
        written = match.group()
        meant = json.loads(written) if written[0] == '"' else written
        edited = edit(meant, path)
        return written if edited == meant else json.dumps(edited, ensure_ascii=False)

    return _LITERAL.sub(literal, text)


# ---- reading a policy file


def load_policy(path: str | os.PathLike[str]) -> Policy:
    """The policy in the TOML file at ``path``. Raises ``PolicyError``."""
    file = Path(path)
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise PolicyError(f"{file}: can't be read: {error.strerror or error}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PolicyError(f"{file}: not valid TOML: {error}") from None
    if unknown := table.keys() - {"rule"}:
        raise PolicyError(f"{file}: unknown key {_listed(unknown)}; allowed: [[rule]] tables")
    entries = table.get("rule", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise PolicyError(f"{file}: rule: expected tables, each under [[rule]]")
    rules = tuple(_read_rule(f"{file}: rule {number}", entry) for number, entry in enumerate(entries, 1))
    _refuse_duplicates(file, rules)
    return Policy(rules)


def _refuse_duplicates(file: Path, rules: Sequence[Rule]) -> None:
    first: dict[str, int] = {}
    for number, rule in enumerate(rules, 1):
        if first.setdefault(rule.name, number) != number:
            raise PolicyError(f"{file}: rule {number}: name: {rule.name!r} is the name of rule {first[rule.name]}, too")


def _read_rule(where: str, entry: Mapping[str, Any]) -> Rule:
    name = _string(where, entry, "name")
    if not NAME.fullmatch(name):
        raise PolicyError(f"{where}: name: {name!r}; allowed: 1 to 64 letters, digits, '_', '.' and '-'")
    where = f"{where} ({name})"
    if unknown := entry.keys() - set(RULE_KEYS):
        raise PolicyError(f"{where}: unknown key {_listed(unknown)}; allowed: {', '.join(RULE_KEYS)}")
    action = _string(where, entry, "action")
    if action not in ACTIONS:
        raise PolicyError(f"{where}: action: {action!r}; allowed: {', '.join(ACTIONS)}")
    return Rule(
        name=name,
        pattern=_pattern(where, _string(where, entry, "pattern")),
        action=action,
        items=_subset(where, entry, "items", ITEM_KINDS),
        on=_subset(where, entry, "on", frozenset(DIRECTIONS)),
    )


def _string(where: str, entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key)
    if value is None:
        raise PolicyError(f"{where}: {key}: missing")
    if not isinstance(value, str):
        raise PolicyError(f"{where}: {key}: expected a string, got {value!r}")
    return value


def _pattern(where: str, source: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(source)
    except (re.error, OverflowError, RecursionError) as error:
        raise PolicyError(f"{where}: pattern: not a Python regular expression: {error}") from None
    if pattern.search(""):
        raise PolicyError(f"{where}: pattern: matches the empty text, so it would match everything")
    return pattern


def _subset(where: str, entry: Mapping[str, Any], key: str, allowed: frozenset[str]) -> frozenset[str]:
    values = entry.get(key)
    if values is None:
        return allowed
    if not isinstance(values, list) or not values:
        raise PolicyError(f"{where}: {key}: expected a list of at least one of: {_listed(allowed)}")
    for value in values:
        if not isinstance(value, str) or value not in allowed:
            raise PolicyError(f"{where}: {key}: {value!r}; allowed: {_listed(allowed)}")
    return frozenset(values)


def _listed(names: Any) -> str:
    return ", ".join(sorted(map(str, names)))
