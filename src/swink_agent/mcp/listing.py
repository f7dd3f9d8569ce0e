"""Reads a server's list of tools and makes it safe: the usable tools, and the reasons why others are left out.

Each tool is read separately, so that a bad one does not make the others unusable.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import msgspec

from swink_agent.core.values.value import Value

from .schemas import UnusableSchema, shown_text, tame_schema

MOST_TOOLS = 128
_MOST_PAGES = 1000
_MOST_LOOKED_AT = 2000  # entries of a list that are read, usable or not
_LONGEST_NAME = 16 * 1024
_MOST_WARNINGS = 50


class ToolDefinition(Value, frozen=True):
    """One tool of a server."""

    name: str
    """Its true name, which is sent to the server."""
    title: str
    """Its name for people: one line."""
    description: str
    schema: dict[str, Any]
    digest: str
    """The hash of the name, the description and the schema as the server gave them. An approval is bound to it."""
    reads_only: bool = False
    """Whether the server declares that it changes nothing."""


class Listing(Value, frozen=True):
    """The usable tools of a server by their true names, and warnings about tools that were left out."""

    tools: Mapping[str, ToolDefinition] = {}
    warnings: tuple[str, ...] = ()


async def read_listing(ask: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]) -> Listing:
    """Reads every page of a server's tools. `ask` requests the page with these parameters."""
    tools: dict[str, ToolDefinition] = {}
    warnings: list[str] = []
    cursor: str | None = None
    seen: set[str] = set()
    looked_at = 0
    for _ in range(_MOST_PAGES):
        page = await ask({} if cursor is None else {"cursor": cursor})
        given = page.get("tools")
        if not isinstance(given, list):
            warnings.append("its list of tools is not a list")
            break
        for item in cast("list[object]", given):
            looked_at += 1
            if len(tools) > MOST_TOOLS or looked_at > _MOST_LOOKED_AT:
                break
            await asyncio.sleep(0)  # a schema may take a while, and other tasks must run
            _add(item, tools, warnings)
        following = page.get("nextCursor")
        is_enough = len(tools) > MOST_TOOLS or looked_at > _MOST_LOOKED_AT
        if not isinstance(following, str) or not following or is_enough:
            break
        if following in seen:
            warnings.append("its list of tools leads back to a page that was read: the rest is left out")
            break
        seen.add(following)
        cursor = following
    if len(warnings) > _MOST_WARNINGS:
        warnings[_MOST_WARNINGS:] = [f"and {len(warnings) - _MOST_WARNINGS} more"]
    if looked_at > _MOST_LOOKED_AT:
        warnings.append(f"its list is longer than {_MOST_LOOKED_AT:,} entries: the rest is left out")
    if len(tools) > MOST_TOOLS:
        warnings.append(f"it has more than {MOST_TOOLS} tools: those after the first {MOST_TOOLS} are left out")
        tools = dict(list(tools.items())[:MOST_TOOLS])
    return Listing(tools, tuple(warnings))


def _add(item: object, tools: dict[str, ToolDefinition], warnings: list[str]) -> None:
    fields = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
    name = fields.get("name")
    if not isinstance(name, str) or not name or len(name) > _LONGEST_NAME:
        warnings.append("a tool without a usable name is left out")
        return
    shown = shown_text(name, 80)
    if name in tools:
        warnings.append(f"the tool {shown!r} is listed twice: the second is left out")
        return
    execution = fields.get("execution")
    if isinstance(execution, dict) and cast("dict[str, Any]", execution).get("taskSupport") == "required":
        warnings.append(f"the tool {shown!r} is left out: it can only be called as a task, which is not supported")
        return
    try:
        tools[name] = _definition(name, fields)
    except UnusableSchema as problem:
        warnings.append(f"the tool {shown!r} is left out: its schema {problem}")
    except RecursionError:
        warnings.append(f"the tool {shown!r} is left out: its schema is nested too deeply")


def _definition(name: str, fields: dict[str, Any]) -> ToolDefinition:
    schema = fields.get("inputSchema")
    tame = tame_schema(schema)  # first: it refuses schemas that would be slow to hash
    said = msgspec.json.encode((name, fields.get("description"), schema), order="sorted")
    annotations = fields.get("annotations")
    hints = cast("dict[str, Any]", annotations) if isinstance(annotations, dict) else {}
    return ToolDefinition(
        name=name,
        title=" ".join(shown_text(fields.get("title") or hints.get("title") or name, 80).split()),
        description=shown_text(fields.get("description")),
        schema=tame,
        digest=hashlib.sha256(said).hexdigest(),
        reads_only=hints.get("readOnlyHint") is True,
    )
