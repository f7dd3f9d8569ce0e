"""The entries of `SandboxProfile.hosts`: how they are read, and what they allow.

An entry is `example.org`, `*.example.org` (names beneath it, not itself), either with `:port`, an address
(`10.0.0.5`, `[::1]:8000`), a network (`10.0.0.0/8`), or `*` (every public host). The ports are 80 and 443 unless one
is given. Resolves no name: `proxy` does, once a name is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv6Address, ip_network
from typing import NamedTuple

from .addresses import Address, Network, is_metadata, is_public, places_in, read_address

DEFAULT_PORTS = (80, 443)
_EVERY = "*"
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_PORT = re.compile(r"(.*):([0-9]{1,5})", re.DOTALL)
_NETWORK = re.compile(r"[0-9A-Fa-f.:]+/[0-9]{1,3}")
_LONGEST_NAME = 253
_LONGEST_ENTRY = 1000


class _Entry(NamedTuple):
    """One entry, with one of `name`, `beneath`, `address` and `network`. Without any it means every public host."""

    name: str = ""
    beneath: str = ""
    address: Address | None = None
    network: Network | None = None
    port: int | None = None

    @property
    def ports(self) -> tuple[int, ...]:
        return DEFAULT_PORTS if self.port is None else (self.port,)

    def __str__(self) -> str:
        if self.network is not None:
            return str(self.network)
        host = self.name or (f"*.{self.beneath}" if self.beneath else "")
        if self.address is not None:
            host = f"[{self.address}]" if isinstance(self.address, IPv6Address) else str(self.address)
        return (host or _EVERY) + ("" if self.port is None else f":{self.port}")


def host_entry(text: str) -> str:
    """The normal form of an entry: lower case, IDNA, with its port if given. Raises `ValueError` if it is invalid."""
    return str(_read(text))


def covers(allowed: Iterable[str], wanted: Iterable[str]) -> bool:
    """Whether everything that the entries `wanted` allow is allowed by `allowed` too. Raises `ValueError`."""
    held = [_read(text) for text in allowed]
    return all(any(_covers(outer, inner) for outer in held) for entry in wanted for inner in _by_port(_read(entry)))


def places_beyond(entries: Iterable[str]) -> list[str]:
    """What the entries open besides single public hosts and names beneath one: every public host, or places in words.

    Names do not count: what they resolve to is checked when they are used. Raises `ValueError`.
    """
    return list(dict.fromkeys([place for text in entries for place in _places(_read(text))]))


def normal_host(text: str) -> str | Address:
    """A host as it is compared: an address, or a name in lower case and IDNA without a dot at its end.

    Raises `ValueError` if it is neither.
    """
    if text.startswith("[") or ":" in text:
        address = read_address(text)
    else:
        text = _ascii(text).removesuffix(".")
        address = read_address(text)
    if address is not None:
        return address
    if len(text) > _LONGEST_NAME or not all(_LABEL.fullmatch(label) for label in text.split(".")):
        raise ValueError("it is not the name of a host")
    return text


class Hosts:
    """The entries of one profile, asked by the proxy."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._entries = [_read(text) for text in entries]

    def allow(self, host: str | Address, port: int) -> bool:
        """Whether an entry names the host, which is in its normal form, and the port."""
        return any(port in entry.ports and _names(entry, host) for entry in self._entries)

    def refusal(self, addresses: Sequence[Address], port: int) -> Address | None:
        """The first address of an allowed name that may not be connected to, if any.

        An address must be public, or an entry must name it (without a port, or with this one) or its network. A
        metadata address must be named itself.
        """
        return next((address for address in addresses if not self._may_lead_to(address, port)), None)

    def _may_lead_to(self, address: Address, port: int) -> bool:
        if is_public(address) and not is_metadata(address):
            return True
        named = (entry for entry in self._entries if entry.address is not None or entry.network is not None)
        return any(entry.port in (None, port) and _names(entry, address) for entry in named)


def _names(entry: _Entry, host: str | Address) -> bool:
    if isinstance(host, str):
        if entry.name:
            return host == entry.name
        if entry.beneath:
            return host.endswith(f".{entry.beneath}")
        return entry.address is None and entry.network is None
    if entry.address is not None:
        return entry.address == host
    if is_metadata(host) or entry.name or entry.beneath:
        return False
    return is_public(host) if entry.network is None else host in entry.network


def _places(entry: _Entry) -> list[str]:
    if entry.name or entry.beneath:
        return []
    if (opened := entry.network or entry.address) is None:
        return ["every public host"]
    return places_in(ip_network(opened))


def _by_port(entry: _Entry) -> Iterator[_Entry]:
    """The entry once for each of its ports; one of an address or a network unchanged, because it may mean all ports."""
    if entry.network is not None or entry.address is not None:
        yield entry
    else:
        yield from (entry._replace(port=port) for port in entry.ports)


def _covers(outer: _Entry, inner: _Entry) -> bool:
    if inner.port is None:
        if outer.port is not None:
            return False
    elif inner.port not in outer.ports:
        return False
    if inner.name:
        return _names(outer, inner.name)
    if inner.address is not None:
        return _names(outer, inner.address)
    is_every = outer == _Entry()
    if inner.beneath:
        return is_every or inner.beneath == outer.beneath or bool(outer.beneath and _names(outer, inner.beneath))
    if inner.network is None:
        return is_every
    if outer.network is None or outer.network.version != inner.network.version:
        return False
    return inner.network.subnet_of(outer.network)  # type: ignore[arg-type]


def _read(text: object) -> _Entry:
    if not isinstance(text, str):
        raise TypeError(f"a host is a text, not of type {type(text).__name__}")
    try:
        return _parse(text)
    except ValueError as error:
        raise ValueError(
            f"{text[:100]!r} is not a host that can be allowed: {error}. Give a name (example.org), the names beneath "
            "one (*.example.org), either with :port, an address, a network (10.0.0.0/8), or * for every public host"
        ) from None


def _parse(text: str) -> _Entry:
    if len(text) > _LONGEST_ENTRY:
        raise ValueError("it is too long")
    if text == _EVERY:
        return _Entry()
    if "/" in text:
        if _NETWORK.fullmatch(text) is None:
            raise ValueError("it has a scheme or a path")
        try:
            return _Entry(network=ip_network(text))
        except ValueError as error:
            raise ValueError(f"it is not a network ({error})") from None
    host, port = _split_port(text)
    if host.startswith("*."):
        beneath = normal_host(host[2:])
        if not isinstance(beneath, str):
            raise ValueError("an address has no names beneath it")
        if "." not in beneath:
            raise ValueError("at least two labels must follow the *")
        return _Entry(beneath=beneath, port=port)
    name = normal_host(host)
    return _Entry(name=name, port=port) if isinstance(name, str) else _Entry(address=name, port=port)


def _split_port(text: str) -> tuple[str, int | None]:
    # A bracket closes an IPv6 address, which has no port; without brackets it has several colons.
    if text.endswith("]") if text.startswith("[") else text.count(":") != 1:
        return text, None
    found = _PORT.fullmatch(text)
    if found is None or not 1 <= int(found[2]) <= 65535:
        raise ValueError("a port is a number from 1 to 65535")
    return found[1], int(found[2])


def _ascii(text: str) -> str:
    """The name in lower case, and in IDNA if it has other than ASCII letters."""
    if text.isascii():
        return text.lower()
    import idna

    try:
        text = idna.uts46_remap(text, std3_rules=False, transitional=False)
        return text if text.isascii() else idna.encode(text, uts46=True).decode("ascii").lower()
    except (idna.IDNAError, UnicodeError) as error:
        raise ValueError(f"it is not a name ({str(error)[:100]})") from None
