"""The directions of the imports, read from the sources: a breach or a circle fails here."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("protocol", "tools", "engine")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))

MAY_IMPORT = {"protocol": set(), "tools": {"protocol"}, "engine": {"protocol", "tools"}}
"""Our packages that each of our packages may import, beside itself."""

ONLY_IN = {
    "cattrs": ("protocol/codec.py",),
    "orjson": ("protocol/codec.py",),
    "hypothesis": ("protocol/conformance/", "engine/testing/"),
    "tiktoken": ("engine/tokens.py", "engine/vocabulary.py"),
    "tiktoken_ext": ("engine/tokens.py",),
    "trio_websocket": ("engine/transport/", "engine/client.py", "protocol/conformance/streams.py"),
    "wsproto": ("engine/transport/", "engine/testing/", "protocol/conformance/streams.py"),
    "h11": ("engine/transport/", "protocol/conformance/streams.py"),
    "click": ("engine/cli.py",),
    "rich": ("engine/cli.py", "engine/lab/"),
    "pytest": ("protocol/conformance/plugin.py",),
    "matplotlib": ("engine/lab/figures.py", "engine/lab/heatmap.py"),
    "splintr": ("engine/tokens.py",),
    "websockets": ("engine/transport/framing.py",),
    "xllamacpp": ("engine/models/llama_child.py",),
    "sqlite3": ("engine/database.py", "tools/hosted/"),
}
"""Libraries that are known in a few places only."""

PROTOCOL_NEVER = {"trio", "socket", "time", "random", "logging", "asyncio", "threading", "ssl", "os", "subprocess"}
"""What ``protocol`` never imports."""

BUT_FOR = {"protocol/conformance/": {"trio"}, "protocol/conformance/sockets.py": {"socket", "ssl"}}
BUT_FOR |= {"protocol/conformance/runner.py": {"ssl"}, "protocol/conformance/run.py": {"time"}}
"""Its conformance kit reaches servers, and stops in time."""

DOWNWARDS = ("cli", "serving", "server", "session", "core", "rollout")
"""Inside ``engine`` each of these may import only what stands behind it here, or is not here at all."""


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> Iterator[str]:
    """The modules that ``path`` imports at any depth, relative ones resolved."""
    package = module_of(path).split(".") if path.name == "__init__.py" else module_of(path).split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_imports_go_in_one_direction(path: Path) -> None:
    home = path.relative_to(ROOT).parts[0]
    allowed = MAY_IMPORT[home] | {home}
    tops = {name.split(".")[0] for name in imports_of(path)}
    assert not (tops & set(PACKAGES)) - allowed
    assert not tops & {"tests", "examples", "bench"}


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_libraries_stay_where_they_belong(path: Path) -> None:
    for name in imports_of(path):
        places = ONLY_IN.get(name.split(".")[0])
        assert places is None or name_of(path).startswith(places), f"{name_of(path)} imports {name}"


@pytest.mark.parametrize("path", [path for path in SOURCES if name_of(path).startswith("protocol/")], ids=name_of)
def test_protocol_has_no_io_no_clock_no_randomness(path: Path) -> None:
    allowed = {name for place, names in BUT_FOR.items() if name_of(path).startswith(place) for name in names}
    assert not {name.split(".")[0] for name in imports_of(path)} & (PROTOCOL_NEVER - allowed)


def test_the_engine_imports_downwards() -> None:
    for path in SOURCES:
        module = module_of(path).split(".")
        if module[0] != "engine" or len(module) < 2 or module[1] not in DOWNWARDS:
            continue
        above = DOWNWARDS[: DOWNWARDS.index(module[1])]
        upwards = {name for name in imports_of(path) for one in above if f"{name}.".startswith(f"engine.{one}.")}
        assert not upwards, f"{name_of(path)} imports upwards: {upwards}"


def test_no_module_imports_in_a_circle() -> None:
    modules = {module_of(path): path for path in SOURCES}
    edges = {
        module: {name for name in imports_of(path) if name in modules and name != module} for module, path in modules.items()
    }
    packages = {module for module, path in modules.items() if path.name == "__init__.py"}
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " imports ".join([*trail[trail.index(module) :], module])
        if module not in done:
            # A package's __init__ gathers what its modules offer; that is no circle of theirs.
            for other in edges[module] - packages:
                visit(other, (*trail, module))
            done.add(module)

    for module in modules:
        if module not in packages:
            visit(module, ())


@pytest.mark.parametrize("package", PACKAGES)
def test_the_public_door_is_small_and_true(package: str) -> None:
    module = __import__(package)
    assert module.__all__ == sorted(module.__all__)
    assert all(hasattr(module, name) for name in module.__all__)
    assert module.__doc__


def test_the_command_tells_its_help_without_the_engine() -> None:
    code = "import sys, engine.cli; print('engine.server' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, cwd=ROOT)
    assert done.stdout.strip() == "False"
