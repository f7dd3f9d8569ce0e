"""Answers of servers as results of tools."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.types import Base64Source, Image, Text, extract_text
from swink_agent.mcp.results import progress_text, result_of

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


def _encoded(data: bytes) -> str:
    return b64encode(data).decode()


def _result(answer: dict[str, Any], redactor: Redactor | None = None) -> Any:
    return result_of(answer, "srv", "tool", redactor)


def _texts(*items: dict[str, Any]) -> list[str]:
    return [
        block.text if isinstance(block, Text) else repr(type(block))
        for block in _result({"content": list(items)}).content
    ]


def test_text_is_text_and_an_error_is_an_error() -> None:
    result = _result({"content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], "isError": True})
    assert result.content == (Text("one"), Text("two"))
    assert result.is_error
    assert result.details == {"server": "srv", "tool": "tool", "structured": None}


def test_images_are_known_by_their_content() -> None:
    [image] = _result({"content": [{"type": "image", "data": _encoded(PNG), "mimeType": "image/jpeg"}]}).content
    assert image == Image(Base64Source("image/png", _encoded(PNG)))
    assert _texts({"type": "image", "data": _encoded(b"II*\0tiff"), "mimeType": "image/png"}) == [
        "[image image/png: 8 bytes, not shown]"
    ]
    assert _texts({"type": "image", "data": "a", "mimeType": "image/png"}) == ["[image image/png: not valid Base64]"]
    [large] = _texts({"type": "image", "data": _encoded(PNG + b"\0" * 4_000_000), "mimeType": "image/png"})
    assert "larger than 3.75 MB" in large


def test_resources_links_audio_and_the_unknown_are_told() -> None:
    assert _texts(
        {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}},
        {"type": "resource", "resource": {"uri": "file:///b", "blob": _encoded(b"xx"), "mimeType": "a/b"}},
        {"type": "resource_link", "uri": "http://x/y", "name": "a\nname"},
        {"type": "audio", "data": _encoded(b"xxx"), "mimeType": "audio/wav"},
        {"type": "hologram"},
        {"type": "text"},
    ) == [
        "[resource file:///a]\ninside",
        "[resource file:///b a/b: 2 bytes, not shown]",
        "[link http://x/y: a name]",
        "[audio audio/wav: 3 bytes, not shown]",
        "[content of an unknown kind: hologram]",
        "[content of an unknown kind: text]",
    ]


def test_structured_content_becomes_text_if_there_is_no_other() -> None:
    alone = _result({"structuredContent": {"a": 1}})
    assert extract_text(alone.content) == '{"a":1}'
    assert alone.details["structured"] == {"a": 1}
    beside = _result({"content": [{"type": "text", "text": "shown"}], "structuredContent": {"a": 1}})
    assert extract_text(beside.content) == "shown"
    assert beside.details["structured"] == {"a": 1}


@pytest.mark.table
@pytest.mark.parametrize("answer", [{}, {"content": []}, {"content": None}])
def test_nothing_is_said_to_be_nothing(answer: dict[str, Any]) -> None:
    assert extract_text(_result(answer).content) == "(no content)"


@pytest.mark.table
@pytest.mark.parametrize("content", ["bare", 5, {}, ["bare"], [[]], [{"type": "text", "text": 5}]])
def test_content_of_a_wrong_shape_is_not_said_to_be_nothing(content: object) -> None:
    assert extract_text(_result({"content": content}).content).startswith("[content of an unknown kind: ")


def test_text_is_masked_before_it_is_cut() -> None:
    secret = "sk-live-0123456789abcdef"
    redactor = Redactor([secret], environment={})
    # The secret stands across the cut: without masking first, half of it would be left.
    filler = "é" * (51_120 - 6)
    items = [{"type": "text", "text": f"{filler}{secret}"}, {"type": "text", "text": "x" * 5000}]
    result = _result({"content": items}, redactor)
    said = extract_text(result.content)
    assert "sk-live" not in said
    assert len(said.encode()) <= 100 * 1024
    assert "bytes left out" in said


@pytest.mark.table
@pytest.mark.parametrize(
    "item",
    [
        {"type": "resource_link", "uri": "." * 390 + "k2mPx4Wt7LrBq8vZ"},
        {"type": "resource", "resource": {"uri": "." * 390 + "k2mPx4Wt7LrBq8vZ", "text": "inside"}},
        {"type": "audio", "data": "", "mimeType": "." * 390 + "k2mPx4Wt7LrBq8vZ"},
        {"type": "." * 390 + "k2mPx4Wt7LrBq8vZ"},
    ],
)
def test_one_line_messages_are_masked_before_they_are_cut(item: dict[str, Any]) -> None:
    result = _result({"content": [item]}, Redactor(["k2mPx4Wt7LrBq8vZ"], environment={}))
    assert "....[redacted" in extract_text(result.content)
    assert "k2mP" not in extract_text(result.content)


@pytest.mark.table
@pytest.mark.parametrize(
    ("given", "shown"),
    [((3, 10, None), "3/10"), ((3, None, None), "3"), ((0.5, 1, "half"), "half"), ((2, None, "\u200b"), "2")],
)
def test_progress_is_its_message_or_its_numbers(given: Any, shown: str) -> None:
    assert progress_text(*given) == shown


OWN, KNOWN = "4f9a8b7c6d5e4f3a2b1c", "k2mPx4Wt7LrBq8vZ"


@pytest.mark.table
@pytest.mark.parametrize("secret", [OWN, KNOWN])
@pytest.mark.parametrize("filler", [".", " ", "\u200b", " \u200b"])
@pytest.mark.parametrize("size", [0, 2040, 8184, 65_528])
@pytest.mark.parametrize("rest", ["", " and more" * 1_000])
def test_progress_and_errors_show_no_half_of_a_secret_wherever_they_are_cut(
    secret: str, filler: str, size: int, rest: str
) -> None:
    redactors = [Redactor([one], environment={}) for one in (OWN, KNOWN)]
    for hidden in ("", "\u200b", "\x00", "\u202e"):
        said = (filler * size)[:size] + hidden.join(secret) + rest
        assert secret[:4] not in progress_text(1, None, said, *redactors)
        assert secret[:4] not in progress_text(1, None, said, *reversed(redactors))


def test_progress_is_cut_to_what_can_be_shown() -> None:
    redactors = [Redactor([one], environment={}) for one in (OWN, KNOWN)]
    assert progress_text(1, None, "word " * 100_000, *redactors) == ("word " * 1000)[:2047] + "…"
    assert progress_text(1, None, "\u200b" * 100 + " a\u200bb \n", *redactors, None) == "ab"
