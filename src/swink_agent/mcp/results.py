"""Turns a server's answer to a call into the result of a tool.

A part of an unknown shape becomes one line, and the rest is kept.
"""

from __future__ import annotations

from base64 import b64encode
from binascii import Error, a2b_base64
from typing import Any, cast

import msgspec

from swink_agent.core.encoding.media import kind_of
from swink_agent.core.secrets.redaction import Redactor, masked_beginning
from swink_agent.core.tool import AgentToolResult
from swink_agent.core.types import Base64Source, Image, Text, UserBlock
from swink_agent.core.values.data import encodable

from .schemas import LONGEST_DESCRIPTION, shown_text

_MOST_TEXT = 100 * 1024
_MOST_IMAGE = 3_932_160  # 3.75 MiB: 5 MiB in Base64, which providers accept
_MOST_STRUCTURED = 1024 * 1024
_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_NOTE = 160
_MOST_PARTS = 1000  # of a result: even empty ones cost memory, and time to mask


def result_of(
    answer: dict[str, Any], server: str, tool: str, redactor: Redactor | None, own: Redactor | None = None
) -> AgentToolResult:
    """The result of a call, with at most 100 KiB of text, masked before it is cut.

    `own` masks the secrets of the server, also in `details`, which the run's `redactor` masks later. Takes time in
    proportion to the answer.
    """
    structured = answer.get("structuredContent")
    if own is not None and structured is not None:
        structured = own.redact_value(structured)
    encoded = b"" if structured is None else msgspec.json.encode(structured)
    details = {"server": server, "tool": tool, "structured": structured if len(encoded) <= _MOST_STRUCTURED else None}
    if answer.get("resultType") == "input_required":
        return AgentToolResult.error("the server asks for input, which is not offered", details)
    content = answer.get("content")
    items = cast("list[object]", content) if isinstance(content, list) else [] if content is None else [content]
    parts = items[:_MOST_PARTS] if own is None else own.redact_value(items[:_MOST_PARTS])
    blocks: list[UserBlock] = [
        _block(cast("dict[str, Any]", part) if isinstance(part, dict) else {}, redactor) for part in parts
    ]
    if not blocks and structured is not None:
        blocks = [Text(encoded.decode())]
    kept = _within_limit(blocks, redactor) or [Text("(no content)")]
    if len(items) > _MOST_PARTS:
        kept.append(
            Text(f"[… {len(items) - _MOST_PARTS:,} more parts left out: a result has at most {_MOST_PARTS:,} …]")
        )
    return AgentToolResult(kept, details, answer.get("isError") is True)


def progress_text(progress: float, total: float | None, message: str | None, *redactors: Redactor | None) -> str:
    """The text of an update: the server's message, else `3/10` or `3`."""
    if message and (shown := shown_text(message, LONGEST_DESCRIPTION, *redactors)):
        return shown
    return f"{progress:g}" if total is None else f"{progress:g}/{total:g}"


def _block(item: dict[str, Any], redactor: Redactor | None) -> UserBlock:
    kind = item.get("type")
    text = item.get("text")
    if kind == "text" and isinstance(text, str):
        return Text(encodable(text))
    if kind in ("image", "audio"):
        return _data(str(kind), item.get("data"), _one_line(item.get("mimeType"), redactor), "")
    if kind == "resource" and isinstance(item.get("resource"), dict):
        resource = cast("dict[str, Any]", item["resource"])
        where = _one_line(resource.get("uri"), redactor) or "without an address"
        if isinstance(inner := resource.get("text"), str):
            return Text(f"[resource {where}]\n{encodable(inner)}")
        return _data("resource", resource.get("blob"), _one_line(resource.get("mimeType"), redactor), where)
    if kind == "resource_link":
        words = [_one_line(item.get(key), redactor) for key in ("uri", "name", "description")]
        return Text(f"[link {': '.join(word for word in words if word)}]")
    return Text(f"[content of an unknown kind: {_one_line(kind, redactor) or 'without a type'}]")


def _data(what: str, encoded: object, media_type: str, where: str) -> UserBlock:
    """An image, if the content is of a kind that models take; one line for other data."""
    told = " ".join(word for word in (what, where, media_type) if word)
    try:
        data = a2b_base64(encoded) if isinstance(encoded, str) else b""
    except (Error, ValueError):
        return Text(f"[{told}: not valid Base64]")
    kind = kind_of(data)
    if kind not in _IMAGES or what == "audio":
        return Text(f"[{told}: {len(data):,} bytes, not shown]")
    if len(data) > _MOST_IMAGE:
        return Text(f"[{told}: {len(data):,} bytes, larger than 3.75 MB, not shown]")
    return Image(Base64Source(kind, b64encode(data).decode()))


def _within_limit(blocks: list[UserBlock], redactor: Redactor | None) -> list[UserBlock]:
    left = _MOST_TEXT - _NOTE
    dropped = 0
    kept: list[UserBlock] = []
    for block in blocks:
        if not isinstance(block, Text):
            kept.append(block)
            continue
        if redactor is None or left == 0:
            data, rest = (block.text.encode("utf-8", "replace"), "")
        else:
            data, rest = masked_beginning(redactor, block.text, left)
        if len(data) <= left and not rest:
            kept.append(Text(data.decode()))
            left -= len(data)
            continue
        part = data[:left].decode("utf-8", "ignore")
        dropped += len(data) - len(part.encode()) + len(rest.encode("utf-8", "replace"))
        left = 0
        if part:
            kept.append(Text(part))
    if dropped:
        kept.append(Text(f"\n[… {dropped:,} bytes left out: a result has at most 100 KiB of text …]"))
    return kept


def _one_line(text: object, redactor: Redactor | None) -> str:
    return " ".join(shown_text(text, 400, redactor).split())
