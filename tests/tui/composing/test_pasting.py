"""Pastes: what is folded, and what names pictures."""

from __future__ import annotations

from pathlib import Path

import pytest

from swink_agent.app.talk.prompts import mentioned_documents
from swink_agent.tui.composing.pasting import folded_label, image_files, image_label, may_name_images


def test_more_than_ten_lines_are_folded() -> None:
    assert folded_label("x\n" * 10) is None
    assert folded_label("x\n" * 11) == "[pasted 11 lines #]"
    assert folded_label("\n".join("x" * 11)) == "[pasted 11 lines #]"
    assert folded_label("x" * 5000) == "[pasted 5,000 characters #]"


@pytest.mark.parametrize(
    "pasted",
    ["{0}/my cat.png", "'{0}/my cat.png' ", "{0}/my\\ cat.png", "file://{0}/my%20cat.png", '"{0}/my cat.png"\n'],
)
def test_a_picture_dropped_in_any_form_is_found(tmp_path: Path, pasted: str) -> None:
    (tmp_path / "my cat.png").write_bytes(b"x")
    text = pasted.format(tmp_path)
    assert may_name_images(text)
    assert image_files(text, Path("/")) == [str(tmp_path / "my cat.png")]


def test_several_pictures_at_once_and_names_from_the_folder(tmp_path: Path) -> None:
    for name in ("a.png", "b.JPG", "it's.gif"):
        (tmp_path / name).write_bytes(b"x")
    assert image_files(f"{tmp_path}/a.png {tmp_path}/b.JPG", tmp_path) == [
        str(tmp_path / "a.png"),
        str(tmp_path / "b.JPG"),
    ]
    assert image_files("a.png\nb.JPG", tmp_path) == [str(tmp_path / "a.png"), str(tmp_path / "b.JPG")]
    assert image_files("it's.gif", tmp_path) == [str(tmp_path / "it's.gif")]


def test_files_that_are_not_pictures_stay_text(tmp_path: Path) -> None:
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "a.png").write_bytes(b"x")
    for text in ["see a.png", "gone.png", "folder.png", "file://elsewhere/a.png", "a.txt", "", "a.png and more.png"]:
        assert image_files(text, tmp_path) == []
    assert not may_name_images("a.txt")
    assert not may_name_images("x" * 9000 + ".png")


def test_a_name_cannot_make_a_label_that_is_not_one() -> None:
    assert image_label("/x/a]#\x1b[.png") == "[image #: a____.png]"


def test_a_pdf_is_attached_as_a_document(tmp_path: Path) -> None:
    (tmp_path / "my report.PDF").touch()
    text = f"'{tmp_path}/my report.PDF'"
    assert may_name_images(text)
    assert image_files(text, Path("/")) == [str(tmp_path / "my report.PDF")]
    assert image_label("/x/my report.PDF") == "[document #: my report.PDF]"


def test_mentions_name_documents(tmp_path: Path) -> None:
    (tmp_path / "b c").mkdir()
    for name in ("a.pdf", "b c/d.pdf", "e.txt"):
        (tmp_path / name).touch()
    a, d = str(tmp_path / "a.pdf"), str(tmp_path / "b c/d.pdf")
    for text, found in [
        ("@a.pdf", [a]),
        ("see @a.pdf, and (@a.pdf).", [a]),
        ('see @"b c/d.pdf" and @a.pdf!', [d, a]),
        (f"see @{tmp_path}/a.pdf", [a]),
        ("mail me@a.pdf", []),
        ("see @a.pdf.old, @e.txt, @none.pdf, a.pdf", []),
    ]:
        assert mentioned_documents(text, tmp_path) == found
