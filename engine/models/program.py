"""Programs of the ``scripted`` model: their steps, and how they are read from the text of a message.

``docs/scripted.md`` describes them, ``docs/scripted.schema.json`` is their schema. A program is read once, whole, and strictly:
what is not understood is an error with its path (``program[2].call.name``), never ignored. Nothing here runs a program
(``engine.models.mind`` does), and nothing is expanded: a repetition costs what its steps cost once.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Literal, get_args

from attrs import field, frozen

from protocol import codec
from protocol.errors import ProtocolError
from protocol.limits import QUOTED_CHARS

from .base import CallKind
from .outputs import Output, Outputs
from .patterns import Pattern, PatternError, read

NESTING: Final = 32
"""Steps inside steps. Deeper programs are made by machines, to see what breaks."""

STEPS: Final = 100_000
"""What a program may come to when its repetitions are done: some 0.1 s of work if none of it is sampled."""

SAID_TOKENS: Final = 1_000_000
"""Of one ``{"tokens": n}``: what a Response may sample at all, by default."""

CALLS: Final = 10_000
"""Of one step. Real models stop below a hundred."""

NAME_CHARS: Final = 256
KINDS: Final[tuple[CallKind, ...]] = get_args(CallKind)
QUOTED_OUTPUT_CHARS: Final = 2_000
"""What ``{{output}}`` gives of a tool's output."""

MAX_RATE: Final = 1_000_000
"""Tokens per second. Faster is what having no pace is for."""

EndReason = Literal["end", "max_output_tokens", "content_filter"]
Fault = Literal["request", "busy", "broken"]
CODE_OF_FAULT: Final[dict[Fault, str]] = {  # codes that the Responses API has: typed clients know no others
    "request": "invalid_prompt",
    "busy": "rate_limit_exceeded",
    "broken": "server_error",
}


# ---- steps

_TEMPLATE: Final = re.compile(r"\{\{output(?:_of:([^{}]+))?\}\}")


@frozen
class Speech:
    """What is said: a text, perhaps with outputs put into it; or so many tokens; or what a built-in program makes of the
    outputs."""

    text: str = ""
    tokens: int | None = None
    compose: Callable[[Outputs], str] | None = None
    _has_output: bool = field(init=False)

    @_has_output.default
    def _find_template(self) -> bool:
        return _TEMPLATE.search(self.text) is not None

    def words(self, outputs: Outputs) -> str:
        """The text, where it is not a number of tokens."""
        if self.compose is not None:
            return self.compose(outputs)
        return _TEMPLATE.sub(lambda match: _quoted(outputs.of(match[1])), self.text) if self._has_output else self.text

    def is_empty(self, outputs: Outputs) -> bool:
        """Whether nothing would be sampled, so that no item comes of it."""
        return not self.words(outputs) if self.tokens is None else self.tokens == 0


def _quoted(output: Output | None) -> str:
    return output.text[:QUOTED_OUTPUT_CHARS] if output else ""


@frozen
class Say:
    speech: Speech


@frozen
class Reason:
    speech: Speech


@frozen
class Call:
    """``kind`` None: what the request offers under this name."""

    name: str
    arguments: str | Callable[[Outputs], str] = "{}"
    kind: CallKind | None = None


@frozen
class Calls:
    calls: tuple[Call, ...]
    wait: bool = True


@frozen
class Wait:
    pass


@frozen
class Condition:
    """About the last output of ``name``, or of any tool. Without such an output it does not hold."""

    name: str | None
    test: Callable[[Output], bool] = field(eq=False)

    def holds(self, outputs: Outputs) -> bool:
        output = outputs.of(self.name)
        return output is not None and self.test(output)


@frozen
class If:
    condition: Condition
    then: "tuple[Step, ...]"
    otherwise: "tuple[Step, ...]"


@frozen
class Repeat:
    times: int
    steps: "tuple[Step, ...]"


@frozen
class Fail:
    fault: Fault
    code: str
    message: str
    retry_after: float | None


@frozen
class End:
    reason: EndReason


Step = Say | Reason | Calls | Wait | If | Repeat | Fail | End


@frozen
class Program:
    steps: tuple[Step, ...]
    tokens_per_second: float | None = None
    seed: int = 0


class ProgramError(ValueError):
    """A program that can't be read. ``path`` is where, ``message`` what is wrong and what is allowed."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message


# ---- finding a program in a message

_BEGINS: Final = re.compile(r'^[ \t]*\{\s*"program"', re.MULTILINE)


def find_program(texts: Iterable[str]) -> Program | None:
    """The program that one of ``texts`` holds, the first counts; raises ``ProgramError``.

    It is the whole text, a fenced block, or the rest of the text from a line that begins with ``{"program"``.
    """
    for text in texts:
        if '"program"' not in text:
            continue
        for candidate, is_certain in _candidates(text):
            try:
                value = codec.parse(candidate)
            except ProtocolError as error:
                if is_certain:
                    raise ProgramError("program", error.message) from None
                continue
            if isinstance(value, dict) and "program" in value:
                return parse_program(value)
    return None


def _candidates(text: str) -> Iterator[tuple[str, bool]]:
    """Texts that may be a program; and whether one that is no JSON is a mistake that its author wants to hear of."""
    stripped = text.strip()
    if stripped.startswith("{"):
        yield stripped, False
    fenced = [block.strip() for block in _fenced(text)]
    for block in reversed(fenced):
        if block.startswith("{") and '"program"' in block:
            yield block, _BEGINS.match(block) is not None
    begins = [match.start() for match in _BEGINS.finditer(text)]
    if begins:
        yield text[begins[0] :].strip(), False
        yield text[begins[-1] :].strip(), True


def _fenced(text: str) -> Iterator[str]:
    lines: list[str] | None = None
    for line in text.split("\n"):
        if not line.lstrip().startswith("```"):
            if lines is not None:
                lines.append(line)
        elif lines is None:
            lines = []
        elif line.strip() == "```":
            yield "\n".join(lines)
            lines = None


# ---- reading a program


def parse_program(value: Any) -> Program:
    """A program from JSON values; raises ``ProgramError``."""
    top = _object(value, "program", {"program", "tokens_per_second", "seed"}, {"program"})
    steps, cost = _steps(top["program"], "program", 0)
    if cost > STEPS:
        raise ProgramError("program", f"comes to {cost} steps when all is repeated; allowed: {STEPS}")
    rate = None
    if "tokens_per_second" in top:
        rate = _number(top["tokens_per_second"], "tokens_per_second")
        if not 0 < rate <= MAX_RATE:
            raise ProgramError("tokens_per_second", f"more than 0 and up to {MAX_RATE} is allowed, got {rate:g}")
    seed = top.get("seed", 0)
    if type(seed) is not int:
        raise _expected("an integer", seed, "seed")
    return Program(steps, rate, seed)


def _steps(value: Any, path: str, depth: int) -> tuple[tuple[Step, ...], int]:
    """The steps, and how many there are at most when they run."""
    if type(value) is not list:
        raise _expected("a list of steps", value, path)
    if depth > NESTING:
        raise ProgramError(path, f"nested more than {NESTING} deep")
    pairs = [_step(one, f"{path}[{index}]", depth) for index, one in enumerate(value)]
    return tuple(step for step, _ in pairs), sum(cost for _, cost in pairs)


def _step(value: Any, path: str, depth: int) -> tuple[Step, int]:
    if type(value) is not dict:
        raise _expected("a step (an object)", value, path)
    kinds = [kind for kind in _READERS if kind in value] or ["wait"] * ("wait" in value)
    if len(kinds) != 1:
        found = "has several of them" if kinds else f"has none (keys: {', '.join(map(_shown, value)) or 'none'})"
        raise ProgramError(path, f"a step has one of {', '.join([*_READERS, 'wait'])}; this one {found}")
    if kinds == ["wait"]:
        _object(value, path, {"wait"})
        if value["wait"] is not True:
            raise _expected("true", value["wait"], f"{path}.wait")
        return Wait(), 1
    return _READERS[kinds[0]](value, path, depth)


def _say(value: Any, path: str, _: int) -> tuple[Step, int]:
    _object(value, path, {"say"})
    return Say(_speech(value["say"], f"{path}.say")), 1


def _reason(value: Any, path: str, _: int) -> tuple[Step, int]:
    _object(value, path, {"reason"})
    return Reason(_speech(value["reason"], f"{path}.reason")), 1


def _speech(value: Any, path: str) -> Speech:
    if type(value) is str:
        return Speech(value)
    if type(value) is not dict:
        raise _expected('a text or {"tokens": n}', value, path)
    _object(value, path, {"tokens"}, {"tokens"})
    return Speech(tokens=_integer(value["tokens"], f"{path}.tokens", SAID_TOKENS))


def _call_step(value: Any, path: str, _: int) -> tuple[Step, int]:
    _object(value, path, {"call", "wait"})
    return Calls((_call(value["call"], f"{path}.call"),), _wait(value, path)), 2


def _calls_step(value: Any, path: str, _: int) -> tuple[Step, int]:
    _object(value, path, {"calls", "wait"})
    calls = value["calls"]
    if type(calls) is not list:
        raise _expected("a list of calls", calls, f"{path}.calls")
    if not 0 < len(calls) <= CALLS:
        raise ProgramError(f"{path}.calls", f"1 to {CALLS} calls are allowed, got {len(calls)}")
    read_calls = tuple(_call(call, f"{path}.calls[{index}]") for index, call in enumerate(calls))
    return Calls(read_calls, _wait(value, path)), 1 + 2 * len(calls)


def _wait(value: Any, path: str) -> bool:
    wait = value.get("wait", True)
    if type(wait) is not bool:
        raise _expected("a boolean", wait, f"{path}.wait")
    return wait


def _call(value: Any, path: str) -> Call:
    _object(value, path, {"name", "arguments", "kind"}, {"name"})
    name = _text(value["name"], f"{path}.name")
    if not 0 < len(name) <= NAME_CHARS:
        raise ProgramError(f"{path}.name", f"1 to {NAME_CHARS} characters are allowed, got {len(name)}")
    arguments = value.get("arguments", {})
    if type(arguments) is not str:
        arguments = codec.encode(arguments).decode()
    kind: CallKind | None = None
    if "kind" in value:
        kind = _one_of(value["kind"], KINDS, f"{path}.kind")
        expected = kind.removesuffix("_call") if kind not in ("function_call", "custom_tool_call") else name
        if name != expected:
            raise ProgramError(f"{path}.name", f"the tool of a {kind} is called {expected}, got {_shown(name)}")
    return Call(name, arguments, kind)


def _if(value: Any, path: str, depth: int) -> tuple[Step, int]:
    _object(value, path, {"if", "then", "else"}, {"if", "then"})
    then, cost = _steps(value["then"], f"{path}.then", depth + 1)
    otherwise, other_cost = _steps(value.get("else", []), f"{path}.else", depth + 1)
    return If(_condition(value["if"], f"{path}.if"), then, otherwise), 1 + max(cost, other_cost)


def _condition(value: Any, path: str) -> Condition:
    _object(value, path, {"output_of", *_TESTS})
    name = _text(value["output_of"], f"{path}.output_of") if "output_of" in value else None
    tests = [test for test in _TESTS if test in value]
    if len(tests) != 1:
        raise ProgramError(path, f"one of {', '.join(_TESTS)} is wanted, got {' and '.join(tests) or 'none'}")
    return Condition(name, _TESTS[tests[0]](value[tests[0]], f"{path}.{tests[0]}"))


def _contains(value: Any, path: str) -> Callable[[Output], bool]:
    part = _text(value, path)
    return lambda output: part in output.text


def _equals(value: Any, path: str) -> Callable[[Output], bool]:
    whole = _text(value, path)
    return lambda output: whole == output.text


def _matches(value: Any, path: str) -> Callable[[Output], bool]:
    try:
        pattern: Pattern = read(_text(value, path))
    except PatternError as error:
        raise ProgramError(path, f"not a pattern that can be used: {error}") from None
    return lambda output: pattern.found_in(output.text)


def _failed(value: Any, path: str) -> Callable[[Output], bool]:
    if type(value) is not bool:
        raise _expected("a boolean", value, path)
    return lambda output: output.failed is value


_TESTS: Final[dict[str, Callable[[Any, str], Callable[[Output], bool]]]] = {
    "contains": _contains,
    "equals": _equals,
    "matches": _matches,
    "failed": _failed,
}


def _repeat(value: Any, path: str, depth: int) -> tuple[Step, int]:
    _object(value, path, {"repeat", "steps"}, {"repeat", "steps"})
    times = _integer(value["repeat"], f"{path}.repeat", STEPS)
    steps, cost = _steps(value["steps"], f"{path}.steps", depth + 1)
    return Repeat(times, steps), 1 + times * cost


def _fail(value: Any, path: str, _: int) -> tuple[Step, int]:
    _object(value, path, {"fail"})
    value, path = value["fail"], f"{path}.fail"
    _object(value, path, {"fault", "code", "message", "retry_after"})
    fault: Fault = _one_of(value.get("fault", "broken"), tuple(CODE_OF_FAULT), f"{path}.fault")
    code = _text(value.get("code", CODE_OF_FAULT[fault]), f"{path}.code")
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", code):
        raise ProgramError(f"{path}.code", "lower-case letters, digits and _ are allowed, up to 64, a letter first")
    retry_after = _number(value["retry_after"], f"{path}.retry_after") if "retry_after" in value else None
    if retry_after is not None and retry_after < 0:
        raise ProgramError(f"{path}.retry_after", "seconds, 0 or more, are allowed")
    return Fail(fault, code, _text(value.get("message", "the program fails here"), f"{path}.message"), retry_after), 1


def _stop(value: Any, path: str, _: int) -> tuple[Step, int]:
    _object(value, path, {"stop"})
    reason: EndReason = _one_of(value["stop"], get_args(EndReason), f"{path}.stop")
    return End(reason), 2


_READERS: Final[dict[str, Callable[[Any, str, int], tuple[Step, int]]]] = {
    "say": _say,
    "reason": _reason,
    "call": _call_step,
    "calls": _calls_step,
    "if": _if,
    "repeat": _repeat,
    "fail": _fail,
    "stop": _stop,
}


# ---- values


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, str) else type(value).__name__ if isinstance(value, dict | list) else str(value)
    return text if len(text) <= QUOTED_CHARS else text[:QUOTED_CHARS] + "…"


def _expected(what: str, value: Any, path: str) -> ProgramError:
    return ProgramError(path, f"expected {what}, got {_shown(value)}")


def _object(value: Any, path: str, allowed: set[str], required: Iterable[str] = ()) -> dict[str, Any]:
    if type(value) is not dict:
        raise _expected("an object", value, path)
    for key in value:
        if key not in allowed:
            raise ProgramError(path, f"unknown key {_shown(key)}; allowed: {', '.join(sorted(allowed))}")
    for key in required:
        if key not in value:
            raise ProgramError(f"{path}.{key}", "missing")
    return value


def _text(value: Any, path: str) -> str:
    if type(value) is not str:
        raise _expected("a string", value, path)
    return value


def _number(value: Any, path: str) -> float:
    if type(value) not in (int, float):
        raise _expected("a number", value, path)
    return float(value)


def _integer(value: Any, path: str, most: int) -> int:
    if type(value) is not int:
        raise _expected("an integer", value, path)
    if not 0 <= value <= most:
        raise ProgramError(path, f"0 to {most} is allowed, got {value}")
    return value


def _one_of(value: Any, allowed: tuple[Any, ...], path: str) -> Any:
    if type(value) is not str or value not in allowed:
        raise ProgramError(path, f"expected one of {', '.join(allowed)}, got {_shown(value)}")
    return value
