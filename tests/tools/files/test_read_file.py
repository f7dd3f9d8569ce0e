"""read_file: exact text by lines, images as images, other files refused, large files at little cost."""

from __future__ import annotations

import base64
import os
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from swink_agent import AgentToolResult, Base64Image, CancellationToken, Image, Text, ToolContext, extract_text
from swink_agent.tools import ReadFileTool
from swink_agent.tools._bounded import OUTPUT_LIMIT
from swink_agent.tools.workspace.workspace import WHOLE_FILE_LIMIT

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


@pytest.fixture
def tool(folder: Path) -> ReadFileTool:
    return ReadFileTool(folder)


def said(result: AgentToolResult) -> str:
    assert not result.is_error, extract_text(result.content)
    return extract_text(result.content)


def refused(result: AgentToolResult) -> str:
    assert result.is_error
    return extract_text(result.content)


async def test_a_file_is_given_exactly_as_it_is(tool: ReadFileTool, folder: Path, use: Any) -> None:
    text = "def f():\n\treturn 'ü'  \n\n\x0c# end\u2028of it\n"
    (folder / "a.py").write_text(text)
    result = await use(tool, path="a.py")
    assert said(result) == text
    assert result.details == {"path": "a.py", "first_line": 1, "last_line": 4, "total_lines": 4}


@pytest.mark.parametrize(
    ("offset", "limit", "shown"),
    [
        (1, 2, "1\n2\n[lines 1-2 of 5; continue with offset=3]"),
        (3, 2, "3\n4\n[lines 3-4 of 5; continue with offset=5]"),
        (4, 9, "4\n5\n[lines 4-5 of 5, the end of the file]"),
        (1, 5, "1\n2\n3\n4\n5\n"),
        (5, 1, "5\n[lines 5-5 of 5, the end of the file]"),
    ],
)
async def test_a_range_of_lines_says_which_they_are(
    tool: ReadFileTool, folder: Path, use: Any, offset: int, limit: int, shown: str
) -> None:
    (folder / "a").write_text("1\n2\n3\n4\n5\n")
    assert said(await use(tool, path="a", offset=offset, limit=limit)) == shown


async def test_a_range_beyond_the_end_is_an_error(tool: ReadFileTool, folder: Path, use: Any) -> None:
    (folder / "a").write_text("1\n2")
    assert refused(await use(tool, path="a", offset=3)) == (
        "a has 2 lines: offset=3 is beyond its end; leave offset out to read from line 1"
    )


async def test_an_empty_file_says_so(tool: ReadFileTool, folder: Path, use: Any) -> None:
    (folder / "a").touch()
    assert said(await use(tool, path="a")) == "[the file is empty]"


async def test_many_lines_come_in_parts_that_add_up(tool: ReadFileTool, folder: Path, use: Any) -> None:
    lines = [f"{number} " + "ü" * (number % 300) for number in range(1, 4001)]
    (folder / "a").write_text("\n".join(lines))
    found: list[str] = []
    offset = 1
    while offset:
        text = said(await use(tool, path="a", offset=offset))
        assert len(text.encode()) <= OUTPUT_LIMIT
        *shown, note = text.split("\n")
        found += shown
        offset = int(note.partition("offset=")[2].rstrip("]") or 0)
    assert found == lines


async def test_a_line_longer_than_the_limit_is_cut_between_characters(
    tool: ReadFileTool, folder: Path, use: Any
) -> None:
    (folder / "a").write_text("x" + "😀" * 50_000 + "\nnext\n")
    text = said(await use(tool, path="a"))
    line, note = text.split("\n")
    assert line == "x" + "😀" * (len(line) - 1)
    assert note == (
        "[line 1 has 200.0 KB and only its beginning is shown; see the rest with a command; lines 1-1 of 2; continue "
        "with offset=2]"
    )
    assert 0.98 * OUTPUT_LIMIT < len(text.encode()) <= OUTPUT_LIMIT


async def test_line_ends_and_marks_are_not_shown(tool: ReadFileTool, folder: Path, use: Any) -> None:
    (folder / "a").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    assert said(await use(tool, path="a")) == "one\ntwo\n"


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ("grüße\n".encode("utf-16"), "grüße\n[the file is UTF-16; shown as text]"),
        (b"\xfe\xff" + "grüße\n".encode("utf-16-be"), "grüße\n[the file is UTF-16; shown as text]"),
        ("grüße\n".encode("latin-1"), "grüße\n[the file is Latin-1; shown as text]"),
        (
            "grüße, größer\n".encode() + b"\xff\n",
            "grüße, größer\n\ufffd\n[the file is UTF-8 with stray bytes; shown as text]",
        ),
    ],
)
async def test_other_encodings_are_read_and_named(
    tool: ReadFileTool, folder: Path, use: Any, data: bytes, shown: str
) -> None:
    (folder / "a").write_bytes(data)
    assert said(await use(tool, path="a")) == shown


async def test_a_pdf_is_refused_with_what_can_read_it(tool: ReadFileTool, folder: Path, use: Any) -> None:
    (folder / "a.pdf").write_bytes(b"%PDF-1.4\n\x00\x01\xff")
    assert refused(await use(tool, path="a.pdf")) == (
        "a.pdf is a PDF of 12 bytes, not text: read it with a command, such as pdftotext, or ask the user to attach it"
    )


@pytest.mark.parametrize("data", [b"\x7fELF\0\0", b"text\0text", bytes(range(1, 256)) * 4, b"\xff\xfe\x00\x00a\0\0\0"])
async def test_binary_files_are_refused_politely(tool: ReadFileTool, folder: Path, use: Any, data: bytes) -> None:
    (folder / "a.bin").write_bytes(data)
    size = f"{len(data)} bytes" if len(data) < 1000 else "1.0 KB"
    assert refused(await use(tool, path="a.bin")) == (
        f"a.bin is a binary file of {size}, not text: look into it with a command, such as file or hexdump"
    )


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0\0", "image/jpeg"),
        (b"GIF89a\0", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
    ],
)
async def test_images_are_shown_as_images(
    tool: ReadFileTool, folder: Path, use: Any, data: bytes, media_type: str
) -> None:
    (folder / "a.txt").write_bytes(data)  # by what it is, not by its name
    result = await use(tool, path="a.txt")
    encoded = base64.b64encode(data).decode()
    assert result.content == (
        Text(f"[a.txt: {media_type}, {len(data)} bytes]"),
        Image(Base64Image(media_type, encoded)),
    )


@pytest.mark.parametrize("size", [4_000_000, WHOLE_FILE_LIMIT + 1])
async def test_images_too_large_for_providers_are_refused(
    tool: ReadFileTool, folder: Path, use: Any, size: int
) -> None:
    (folder / "a.png").write_bytes(PNG)
    os.truncate(folder / "a.png", size)
    assert "make a smaller copy of it first" in refused(await use(tool, path="a.png"))


async def test_a_folder_sends_to_list_dir(tool: ReadFileTool, folder: Path, use: Any) -> None:
    (folder / "sub").mkdir()
    assert refused(await use(tool, path="sub")) == "sub is a folder: use list_dir to see what is in it"


async def test_files_outside_are_not_read(tool: ReadFileTool, folder: Path, outside: Path, use: Any) -> None:
    (folder / "link").symlink_to(outside / "secret")
    for path in ("../outside/secret", str(outside / "secret"), "link"):
        assert "outside the workspace" in (text := refused(await use(tool, path=path))) or "leads out" in text


async def test_a_vast_sparse_file_costs_little(tool: ReadFileTool, folder: Path, use: Any) -> None:
    (folder / "vast").write_text("first\nsecond\n")
    os.truncate(folder / "vast", 5 * 1024**3)
    tracemalloc.start()
    started = time.process_time()
    text = said(await use(tool, path="vast", limit=2))
    assert "binary" in refused(await use(tool, path="vast"))
    assert time.process_time() - started < 2
    assert tracemalloc.get_traced_memory()[1] < 30 * 1024**2
    tracemalloc.stop()
    assert text == "first\nsecond\n[lines 1-2 of 5.4 GB; continue with offset=3]"


async def test_a_large_text_is_read_anywhere(tool: ReadFileTool, folder: Path, use: Any) -> None:
    filling = "-" * 1000 + "\r\n"
    count = WHOLE_FILE_LIMIT // 1000
    middle, end = count // 2, count - 1
    marked = [f"zeile {number:07} ü\r\n" for number in (1, 2, middle, middle + 1, end, count)]
    parts = [*marked[:2], filling * (middle - 3), *marked[2:4], filling * (end - middle - 2), *marked[4:]]
    (folder / "log").write_text("".join(parts), newline="")
    assert said(await use(tool, path="log", offset=middle, limit=2)) == (
        f"zeile {middle:07} ü\nzeile {middle + 1:07} ü\n[lines {middle}-{middle + 1} of 16.8 MB; "
        f"continue with offset={middle + 2}]"
    )
    assert said(await use(tool, path="log", offset=end)) == (
        f"zeile {end:07} ü\nzeile {count:07} ü\n[lines {end}-{count} of {count}, the end of the file]"
    )
    assert refused(await use(tool, path="log", offset=count + 1)) == (
        f"log has {count} lines: offset={count + 1} is beyond its end; leave offset out to read from line 1"
    )
    first = said(await use(tool, path="log"))
    assert len(first.encode()) <= OUTPUT_LIMIT
    assert first.startswith("zeile 0000001 ü\nzeile 0000002 ü\n")


async def test_a_search_through_a_vast_file_ends_when_it_is_not_wanted(
    tool: ReadFileTool, folder: Path, use: Any
) -> None:
    (folder / "vast").write_text("a\n")
    os.truncate(folder / "vast", 64 * 1024**3)
    cancel = CancellationToken()
    cancel.cancel()
    result = await use(tool, ToolContext(cancel=cancel), path="vast", offset=10)
    assert refused(result) == "read_file was cancelled"
