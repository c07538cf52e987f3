"""What the doors of the kit have in common: how adapters are named, and who may be tested."""

import sys
from collections.abc import Collection
from importlib import import_module
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from .adapters import Adapter, Programs, RealModel, Scripted
from .aimock import Aimock
from .run import CannotCheck


def adapter_of(name: str | None) -> Adapter | None:
    """``scripted``, ``programs``, ``model:NAME``, ``aimock``, or ``MODULE:CLASS``; None for None. Raises ``CannotCheck``."""
    if name is None:
        return None
    kind, _, what = name.partition(":")
    known: dict[str, type[Adapter]] = {"scripted": Scripted, "programs": Programs, "aimock": Aimock, "model": RealModel}
    if kind not in known:
        return _imported(kind, what)
    if kind == "model" and not what:
        raise CannotCheck("which model? Say --adapter model:NAME")
    make: type = known[kind]
    adapter: Adapter = make(what) if what else make()
    return adapter


def _imported(module: str, name: str) -> Adapter:
    """A class or an object of somebody's own. The current folder is looked in, too, as ``python -m`` does."""
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise CannotCheck(
            f"no adapter {module}:{name} ({error}); there are scripted, programs, model:NAME, aimock, and "
            "MODULE:CLASS for your own"
        ) from error
    finally:
        del sys.path[0]
    adapter: Adapter = found() if isinstance(found, type) else found
    return adapter


def names(text: str | None) -> Collection[str]:
    """Names that are joined by commas."""
    return [name.strip() for name in text.split(",") if name.strip()] if text else ()


def need_permission(url: str, *, remote_too: bool) -> None:
    """Raises ``CannotCheck`` if ``url`` may be another machine's, and that was not allowed."""
    host = urlsplit(url).hostname
    if host is not None and not remote_too and not is_loopback(host):
        raise CannotCheck(
            f"{host} is another machine, or may be one. The kit sends hostile frames, breaks connections and makes a model "
            "work: do that to servers of your own only, and say so with --allow-remote"
        )


def is_loopback(host: str) -> bool:
    """Whether ``host`` is this machine, by its name alone: nobody is asked."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
