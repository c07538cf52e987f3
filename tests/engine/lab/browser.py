"""A real browser that opens a page: what it complains about, and what one sees."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium")


def opened(html: str, folder: Path) -> tuple[str, bytes]:
    """What a real browser says on its console about a page, and what one sees."""
    (folder / "page.html").write_text(html, encoding="utf-8")
    picture = folder / "page.png"
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1280,3200"]
    flags += [f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr", f"--screenshot={picture}"]
    command = [str(CHROMIUM), *flags, (folder / "page.html").as_uri()]
    environment = {**os.environ, "HOME": str(folder)}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, env=environment)
    return "\n".join(line for line in ended.stderr.splitlines() if "CONSOLE" in line), picture.read_bytes()


def share_of(colour: str, picture: bytes, folder: Path) -> float:
    """How much of a picture has a colour, in thousandths."""
    from matplotlib.image import imread

    (folder / "seen.png").write_bytes(picture)
    pixels = imread(folder / "seen.png")[:, :, :3]
    wanted = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    near = (abs(pixels - wanted) < 0.02).all(axis=2)
    return float(near.mean()) * 1000
