"""What Ctrl+V takes from the clipboard, with test programs instead of the system's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from swink_agent.tui.clipboard import ClipboardError, read_clipboard

pytestmark = pytest.mark.usefixtures("no_usual_programs")
PNG = b"\x89PNG\r\n\x1a\n rest"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "bin").mkdir()
    (tmp_path / "own").mkdir()
    return {"DISPLAY": ":0", "PATH": str(tmp_path / "bin")}


def put(folder: Path, picture: bytes, text: bytes) -> None:
    """An `xclip` that has these."""
    (folder / "picture").write_bytes(picture)
    (folder / "text").write_bytes(text)
    script = folder / "xclip"
    script.write_text(
        f"#!/bin/sh\ncase \"$*\" in *image/png*) name=picture;; *) name=text;; esac\nexec /bin/cat '{folder}'/$name\n"
    )
    script.chmod(0o755)


def test_a_picture_becomes_a_file(tmp_path: Path, environ: dict[str, str]) -> None:
    put(tmp_path / "bin", PNG, b"text")
    found = read_clipboard(environ, (), str(tmp_path / "own"), "linux")
    assert found.picture is not None
    assert Path(found.picture).read_bytes() == PNG
    assert Path(found.picture).parent == tmp_path / "own"


def test_without_a_picture_it_is_the_text(tmp_path: Path, environ: dict[str, str]) -> None:
    put(tmp_path / "bin", b"no picture", "gr\xfc\xdfe".encode())
    assert read_clipboard(environ, (), str(tmp_path / "own"), "linux") == (None, "gr\xfc\xdfe")


@pytest.mark.parametrize(
    ("written", "found"),
    [
        (f"\u00abdata PNGf{PNG.hex().upper()}\u00bb\n", PNG),
        ("\u00abdata PNGfnothing of the kind\u00bb\n", None),
        ("", None),
    ],
)
def test_a_mac_without_pngpaste_gives_the_picture_as_well(tmp_path: Path, written: str, found: bytes | None) -> None:
    (tmp_path / "written").write_text(written, "utf-8")
    for name, source in {"osascript": "written", "pbpaste": "text"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\nexec /bin/cat '{tmp_path / source}'\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "text").write_text("words")
    pasted = read_clipboard({"PATH": str(tmp_path)}, (), str(tmp_path), "darwin")
    if found is None:
        assert pasted == (None, "words")
    else:
        assert pasted.picture is not None
        assert Path(pasted.picture).read_bytes() == found


def test_a_program_in_the_folder_of_the_model_is_not_started(tmp_path: Path, environ: dict[str, str]) -> None:
    put(tmp_path / "bin", PNG, b"planted")
    with pytest.raises(ClipboardError, match="install xclip"):
        read_clipboard(environ, [str(tmp_path / "bin")], str(tmp_path / "own"), "linux")


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "there is no clipboard here (no DISPLAY, no WAYLAND_DISPLAY): name the picture's file instead"),
        ({"DISPLAY": ":0"}, "install xclip"),
    ],
)
def test_a_missing_clipboard_is_reported(tmp_path: Path, environ: dict[str, str], said: str) -> None:
    with pytest.raises(ClipboardError, match=re.escape(said)):
        read_clipboard({"PATH": str(tmp_path), **environ}, (), str(tmp_path), "linux")
