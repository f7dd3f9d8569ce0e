"""Reads a transcript for tests: the lines of a whole text, and the result of copying them."""

from __future__ import annotations

from collections.abc import Iterable

from swink_agent.tui.transcript.line import Line, body_of
from swink_agent.tui.transcript.markdown import MarkdownStream


def markdown_lines(text: str, width: int) -> list[Line]:
    stream = MarkdownStream(width)
    stream.feed(text)
    return stream.update()


def copied_text(lines: Iterable[Line]) -> str:
    parts: list[str] = []
    for line in lines:
        if parts:
            parts.append("\n" if line.glue is None else line.glue)
        parts.append(body_of(line))
    return "".join(parts)
