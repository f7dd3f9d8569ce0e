"""The names of servers, the names under which a model sees their tools, and our own version, for both sides."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable

_SERVER = re.compile(r"[a-z0-9_-]{1,20}", re.ASCII)
_PREFIX = re.compile(r"[A-Za-z0-9_-]{0,32}", re.ASCII)
_OTHERS = re.compile(r"[^A-Za-z0-9_-]", re.ASCII)
_LONGEST = 64
"""What every provider takes."""
_DIGITS = 8


def check_server_name(name: object) -> str:
    """The name of a server. Raises `ValueError` for one that cannot be part of a tool's name."""
    if not isinstance(name, str) or not _SERVER.fullmatch(name) or "__" in name:
        raise ValueError(
            f"the name of an MCP server has 1 to 20 of a-z, 0-9, '_' and '-', and not '__': not {str(name)[:80]!r}"
        )
    return name


def tool_names(server: str, tools: Iterable[str], prefix: str | None = None) -> dict[str, str]:
    """The name of each tool by its true one: `mcp__SERVER__TOOL`, or with another `prefix`.

    Names that are too long or the same as another end in a digest of the true one, so they are the same in every run.
    """
    if prefix is None:
        prefix = f"mcp__{server}__"
    elif not _PREFIX.fullmatch(prefix):
        raise ValueError(f"the prefix of tools has up to 32 letters, digits, '_' and '-': not {prefix[:80]!r}")
    wished = {true: prefix + _OTHERS.sub("_", true) for true in tools}
    seen = Counter(wished.values())
    return {
        true: _hashed(name, true) if len(name) > _LONGEST or seen[name] > 1 else name for true, name in wished.items()
    }


def _hashed(name: str, true: str) -> str:
    digest = hashlib.sha256(true.encode("utf-8", "backslashreplace")).hexdigest()[:_DIGITS]
    return f"{name[: _LONGEST - _DIGITS - 1]}_{digest}"


def own_version() -> str:
    """The version that we tell the other side."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("swink-agent")
    except PackageNotFoundError:
        return "0"
