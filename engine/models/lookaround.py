"""What the ``scripted`` model does without a program: programs that are made from the user's message and the tools.

With a shell it looks around: it lists the folder, reads something that it saw there, and reports. Asked to run ``echo``, it
does, so that a person sees it obey; nothing else of a message ever becomes a command. Without a shell it calls the function
whose name has a word in common with the message, with made-up arguments, and reports.
"""

import re
import shlex
from typing import Final

from .offers import Offers, Shell
from .outputs import Output, Outputs, json_object
from .program import Call, Calls, Program, Say, Speech, Step

ASKED_CHARS: Final = 200
SEEN_CHARS: Final = 600
"""How much of the user's message, and of each output, is quoted."""

_ECHO: Final = (
    re.compile(r"\bsay\s+(?P<what>[^\n]{1,200}?)\s+by\s+running\s+`?echo\b", re.IGNORECASE),
    re.compile(r"`\s*echo\s+(?P<what>[^`\n]{1,200})`", re.IGNORECASE),
    re.compile(r"\b(?:run|runs|running|execute|call)\s+echo\s+(?P<what>[^`\n]{1,200})", re.IGNORECASE),
)
_PLAIN: Final = re.compile(r"[\w ,.:@%+/=-]+")
_LISTED: Final = re.compile(r"^-[rwxsStT-]{9}\S*\s+\d+\s+\S+\s+\S+\s+\d+\s+\w+\s+\d+\s+[\d:]+ (?P<name>.+)$", re.MULTILINE)
"""A regular file in what ``ls -la`` prints."""

_PRIVATE: Final = re.compile(r"^\.|secret|passw|token|credential|key|\.pem$", re.IGNORECASE)
_TEXT: Final = re.compile(r"\.(?:md|rst|txt|toml|json|ya?ml|cfg|py|js|ts|rs|go|c|h|cpp|java|rb|sh|html|css)$|^[A-Z]+$")


def echo(message: str) -> Program:
    """The answer to a message after a program's end."""
    asked = shorten(message.strip(), ASKED_CHARS)
    return _program(Say(Speech(f"You said: {asked}" if asked else "You said nothing that I can read.")))


def look_around(message: str, offers: Offers) -> Program:
    """What to do for ``message`` when there never was a program."""
    shell = offers.shell()
    asked = shorten(message.strip(), ASKED_CHARS)
    if shell is None:
        return _without_shell(message, asked, offers)
    wanted = obeyed_echo(message)
    if wanted is not None:
        report = Say(Speech(compose=lambda outputs: _report_echo(wanted, outputs)))
        return _program(Calls((shell.call(wanted),)), report)
    return _program(
        Calls((shell.call("ls -la"),)),
        Calls((Call(shell.name, lambda outputs: shell.write(_reading(outputs.last))),)),
        Say(Speech(compose=lambda outputs: _report(asked, shell, outputs))),
    )


def _without_shell(message: str, asked: str, offers: Offers) -> Program:
    call = offers.named_in(message)
    if call is None:
        answer = f"You said: “{asked}”. I am a scripted model, and this request offers no shell to look around with."
        return _program(Say(Speech(answer)))
    return _program(Calls((call,)), Say(Speech(compose=lambda outputs: _report_call(asked, call, outputs))))


def _program(*steps: Step) -> Program:
    return Program(steps)


def obeyed_echo(message: str) -> str | None:
    """The ``echo`` command that ``message`` asks for, if it does."""
    for pattern in _ECHO:
        match = pattern.search(message)
        if match is not None:
            what = match["what"].strip().strip("\"'“”‘’").rstrip(".!?").strip("\"'“”‘’") or "hi"
            return f"echo {what if _PLAIN.fullmatch(what) else shlex.quote(what)}"
    return None


def _reading(listing: Output | None) -> str:
    """The command that reads something harmless of what ``ls -la`` listed."""
    names = [match["name"].strip() for match in _LISTED.finditer(printed(listing))]
    names = [name for name in names if not _PRIVATE.search(name)]
    readmes = [name for name in names if name.upper().startswith("README")]
    for name in [*readmes, *filter(_TEXT.search, names), *names]:
        return f"head -n 20 {shlex.quote(f'./{name}' if name.startswith('-') else name)}"
    return "pwd"


def printed(output: Output | None) -> str:
    """What the command printed, without what known agents wrap around it."""
    text = output.text if output else ""
    value = json_object(text)
    if value is not None:
        found = [value[key] for key in ("output", "stdout", "stderr") if isinstance(value.get(key), str)]
        return "\n".join(found) or text
    _, mark, rest = text.partition("Output:\n")
    return rest if mark else text


def _report_echo(command: str, outputs: Outputs) -> str:
    if outputs.last is None:
        return f"I would have run `{command}`, but could not."
    return f"I ran `{command}`, and it printed:\n\n{_quoted(outputs.last)}"


def _report_call(asked: str, call: Call, outputs: Outputs) -> str:
    if outputs.last is None:
        return f"You said: “{asked}”. I would have called {call.name}, but could not."
    return f"You said: “{asked}”. I called {call.name}, and it returned:\n\n{_quoted(outputs.last)}"


def _report(asked: str, shell: Shell, outputs: Outputs) -> str:
    seen = list(outputs.recent)
    if not seen:
        return f"You said: “{asked}”. I would have looked around with {shell.name}, but could not."
    text = f"You said: “{asked}”. I looked around. `ls -la` printed:\n\n{_quoted(seen[0])}"
    if len(seen) > 1:
        text += f"\n\nThen `{_reading(seen[0])}` printed:\n\n{_quoted(seen[1])}"
    return text


def _quoted(output: Output) -> str:
    text = shorten(printed(output).strip(), SEEN_CHARS) or "(nothing)"
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}\n{text}\n{fence}"


def shorten(text: str, most: int) -> str:
    """At most ``most`` characters of ``text``, and a sign that there was more."""
    return text if len(text) <= most else f"{text[:most]}…"
