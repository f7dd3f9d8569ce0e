"""The names of servers, of their variables and headers, and of their tools as a model sees them.

Also our own version, for clients and servers.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from swink_agent.core.values.checks import check_text, is_not
from swink_agent.core.values.value import is_secret_name

_SERVER = re.compile(r"[a-z0-9_-]{1,20}", re.ASCII)
_PREFIX = re.compile(r"[A-Za-z0-9_-]{0,32}", re.ASCII)
_OTHERS = re.compile(r"[^A-Za-z0-9_-]", re.ASCII)
_VARIABLE = re.compile(r"[^=\0]+")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_LONGEST = 64  # every provider takes names of this length
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
    check_text("prefix", prefix)
    if not _PREFIX.fullmatch(prefix):
        raise ValueError(f"the prefix of tools has up to 32 letters, digits, '_' and '-': not {prefix[:80]!r}")
    wished = {true: prefix + _OTHERS.sub("_", true) for true in tools}
    seen = Counter(wished.values())
    digits = _DIGITS
    names = {
        true: _hashed(name, true, digits) if len(name) > _LONGEST or seen[name] > 1 else name
        for true, name in wished.items()
    }
    # A hostile server may name a tool like another's name with its digest, or find two names with the same digits.
    while len(seen := Counter(names.values())) < len(names):
        digits *= 2
        names = {true: _hashed(wished[true], true, digits) if seen[name] > 1 else name for true, name in names.items()}
    return names


def check_env(env: Mapping[str, str]) -> None:
    """Raises `ValueError` for entries that cannot be environment variables. The error does not repeat values."""
    if not isinstance(env, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise is_not("env", env, "a mapping of variables")
    _check_texts(env, "variable", _VARIABLE, lambda value: "\0" not in value, "without a null character")


def check_headers(headers: Mapping[str, str]) -> None:
    """Raises `ValueError` for entries that cannot be HTTP headers. The error does not repeat values."""
    if not isinstance(headers, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise is_not("headers", headers, "a mapping of HTTP headers")
    _check_texts(headers, "header", _HEADER, str.isprintable, "in one line")


def secrets_in(headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The secrets inside headers, which a server may repeat alone, each with the name of its header.

    That is a token after the word for its kind (`Bearer …`), the password of `Basic …`, and the values of cookies.
    """
    for name, value in headers.items():
        if name.lower() == "cookie":
            yield from ((name, part.partition("=")[2]) for part in value.split(";"))
        elif is_secret_name(name):
            kind, _, secret = value.strip().partition(" ")
            yield name, secret
            if kind.lower() == "basic":
                with suppress(ValueError):
                    yield name, b64decode(secret).decode().partition(":")[2]


def _check_texts(
    given: Mapping[Any, Any], what: str, names: re.Pattern[str], is_value: Callable[[str], bool], how: str
) -> None:
    for name, value in given.items():
        if not isinstance(name, str) or not names.fullmatch(name):
            raise ValueError(f"{str(name)[:80]!r} cannot be the name of a {what}")
        if not isinstance(value, str) or not is_value(value):
            raise ValueError(f"the value of the {what} {name} must be a text {how}")


def _hashed(name: str, true: str, digits: int) -> str:
    digest = hashlib.sha256(true.encode("utf-8", "backslashreplace")).hexdigest()[:digits]
    return f"{name[: _LONGEST - digits - 1]}_{digest}"


def own_version() -> str:
    """The version of this package, for the other side."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("swink-agent")
    except PackageNotFoundError:
        return "0"
