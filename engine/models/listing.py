"""``sostenuto models``: which kinds of models there are, and whether some models answer."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Final

from attrs import asdict, frozen

from protocol.codec import encode

from . import KINDS, load_model
from .base import KeptModel, ModelError
from .pull import PULLABLE, pulled

ABOUT: Final[dict[str, tuple[str, str]]] = {
    "scripted": ("scripted", "does what the program in the request says"),
    "trajectory": ("trajectory:FILE", "replays a recorded rollout"),
    "smollm2": ("smollm2", "SmolLM2-135M-Instruct, in our own care"),
    "gguf": ("gguf:FILE", "a GGUF file, in our own care"),
    "completions": ("completions:URL?gguf=FILE[#MODEL]", "a server that takes token ids: llama.cpp, vLLM, SGLang"),
    "chat": ("chat:URL[#MODEL]", "a server of /v1/chat/completions: vLLM, Ollama, hosted models"),
    "responses": ("responses:URL[#MODEL]", "another server of the Responses API"),
}
"""By the names in ``KINDS``: how ``--model`` spells it, and what it is."""


@frozen
class Kind:
    """A kind of model. ``note`` says what to do first, if it is not ``ready``."""

    model: str
    ready: bool
    about: str
    note: str | None = None


@frozen
class Tried:
    """A model that was tried: what it says of itself, or what is wrong."""

    model: str
    name: str | None
    answers: bool
    about: str | None = None
    error: str | None = None


def kinds() -> list[Kind]:
    """All kinds; those in our own care are ready if what they need is here."""
    missing = None if find_spec("xllamacpp") else "pip install 'sostenuto[local]'"
    return [
        Kind(spelled, note is None, about, note)
        for kind, (spelled, about) in ABOUT.items()
        if kind in KINDS
        for note in [_pull_first(kind) or (missing if kind in ("gguf", *PULLABLE) else None)]
    ]


def _pull_first(kind: str) -> str | None:
    return f"sostenuto pull {kind}" if kind in PULLABLE and pulled(kind) is None else None


async def try_models(specs: Sequence[str]) -> list[Tried]:
    """Start or ask each of them, one after the other. Cancelled, none of them is left running."""
    return [await _try(spec) for spec in specs]


async def _try(spec: str) -> Tried:
    try:
        model = load_model(spec)
    except (ValueError, OSError) as error:
        return Tried(spec, None, answers=False, error=str(error))
    if not isinstance(model, KeptModel):
        return Tried(spec, model.name, answers=True, about="needs nothing")
    try:
        async with model.running():
            return Tried(spec, model.name, answers=True, about=await model.check())
    except ModelError as error:
        return Tried(spec, model.name, answers=False, error=error.message)


def as_json(found: Sequence[Kind | Tried]) -> str:
    """``{"kinds": […]}`` or ``{"models": […]}``."""
    key = "models" if any(isinstance(one, Tried) for one in found) else "kinds"
    plain: list[dict[str, Any]] = [asdict(one) for one in found]
    return encode({key: plain}).decode()


def as_lines(found: Sequence[Kind | Tried]) -> str:
    """A line each, fields separated by tabs."""
    return "\n".join("\t".join(field.replace("\n", " ").replace("\t", " ") for field in _fields(one)) for one in found)


def _fields(one: Kind | Tried) -> tuple[str, str, str]:
    if isinstance(one, Kind):
        return one.model, "ready" if one.ready else f"first: {one.note}", one.about
    return one.model, "answers" if one.answers else "does not answer", one.about or one.error or ""
