"""IP addresses: parsing them, which of them are public or a cloud's metadata service, and words for the others.

The tables are written out here, because those of `ipaddress` differ between versions of Python.
"""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


def _networks(*texts: str) -> tuple[Network, ...]:
    return tuple(map(ip_network, texts))


_NOT_PUBLIC_4 = _networks(
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24"),
    *("192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
    *("224.0.0.0/4", "240.0.0.0/4"),
)
_UNICAST_6 = IPv6Network("2000::/3")
"""Every public IPv6 address is in it, except those that contain an IPv4 address (mapped, NAT64)."""
_TEREDO, _SIX_TO_FOUR, _NAT64 = IPv6Network("2001::/32"), IPv6Network("2002::/16"), IPv6Network("64:ff9b::/96")
_NOT_PUBLIC_6 = _networks("2001::/23", "2001:db8::/32", "3fff::/20")
_METADATA = frozenset(
    {
        # Amazon (also for containers and pods), Azure, Google, Oracle, DigitalOcean and most others
        *(IPv4Address("169.254.169.254"), IPv4Address("169.254.170.2"), IPv4Address("169.254.170.23")),
        *(IPv6Address("fd00:ec2::254"), IPv6Address("fd00:ec2::23"), IPv6Address("fd20:ce::254")),
        # Azure's host, whose address is public; Alibaba, Oracle, Tencent, Scaleway
        *(IPv4Address("168.63.129.16"), IPv4Address("100.100.100.200"), IPv4Address("192.0.0.192")),
        *(IPv4Address("169.254.0.23"), IPv4Address("169.254.42.42"), IPv6Address("fd00:42::42")),
    }
)
_OTHER = "addresses that do not belong to the public Internet"
_PLACES = {
    "this machine's own services": _networks("127.0.0.0/8", "0.0.0.0/8", "::/127"),
    "the private network that this machine is in": _networks(
        *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
    ),
    "the shared network of this machine's provider or VPN": _networks("100.64.0.0/10"),
    "what is directly connected to this machine (link-local)": _networks("169.254.0.0/16", "fe80::/10"),
    "the service from which a cloud gives this machine its keys": tuple(map(ip_network, _METADATA)),
}
_PART = re.compile(r"0[xX][0-9a-fA-F]*|[0-9]+")


def read_address(text: str) -> Address | None:
    """The address that a text is, in any form that a C library reads, or `None` if it is a name.

    `127.1`, `0x7f000001`, `0177.0.0.1` and `2130706433` are all 127.0.0.1. Brackets around IPv6 are allowed. Raises
    `ValueError` for a text that is neither a name nor an address, such as `1.2.3.4.5` or an address with a zone.
    """
    if text.startswith("[") != text.endswith("]"):
        raise ValueError("its brackets do not match")
    if text.startswith("[") or ":" in text:
        try:
            address = IPv6Address(text[1:-1] if text.startswith("[") else text)
        except AddressValueError as error:
            raise ValueError(f"it is not an IPv6 address ({error})") from None
        if address.scope_id is not None:
            raise ValueError("it has a zone")
        return address.ipv4_mapped or address  # packets go to the IPv4 one inside `::ffff:`
    parts = text.split(".")
    if not _PART.fullmatch(parts[-1]):
        return None
    numbers = [_number(part) for part in parts]
    *first, last = numbers
    if len(numbers) > 4 or any(number > 255 for number in first) or last >= 256 ** (5 - len(numbers)):
        raise ValueError("it ends in a number and is not an address")
    return IPv4Address(sum(number << 8 * (3 - at) for at, number in enumerate(first)) + last)


def _number(part: str) -> int:
    if not _PART.fullmatch(part):
        raise ValueError("it ends in a number and is not an address")
    try:
        if part[:2] in ("0x", "0X"):
            return int(part[2:] or "0", 16)
        return int(part, 8 if part.startswith("0") else 10) if len(part) <= 16 else 1 << 32
    except ValueError:  # 08
        raise ValueError("it ends in a number and is not an address") from None


def is_metadata(address: Address) -> bool:
    """Whether a cloud gives a machine its keys there. IPv4 addresses inside an IPv6 address count."""
    return any(inner in _METADATA for inner in (address, *_inside(address)))


def is_public(address: Address) -> bool:
    """Whether the address belongs to the public Internet. If an IPv6 address contains IPv4 addresses, they decide."""
    if isinstance(address, IPv6Address) and (inner := _inside(address)):
        return all(map(is_public, inner))
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_4)
    return address in _UNICAST_6 and not any(address in network for network in _NOT_PUBLIC_6)


def places_in(network: Network) -> list[str]:
    """What is in the network, or at the single address, besides hosts of the public Internet; in words."""
    inner = _inside(network.network_address) if network.prefixlen == network.max_prefixlen else ()
    if inner:
        return list(dict.fromkeys([place for address in inner for place in places_in(ip_network(address))]))
    places = [words for words, networks in _PLACES.items() if any(map(network.overlaps, networks))]
    return places or ([] if _is_all_public(network) else [_OTHER])


def _is_all_public(network: Network) -> bool:
    if isinstance(network, IPv4Network):
        return not any(map(network.overlaps, _NOT_PUBLIC_4))
    return network.subnet_of(_UNICAST_6) and not any(map(network.overlaps, (*_NOT_PUBLIC_6, _SIX_TO_FOUR)))


def _inside(address: Address) -> tuple[IPv4Address, ...]:
    """The IPv4 addresses that packets to an IPv6 address may go to."""
    if isinstance(address, IPv4Address):
        return ()
    if mapped := address.ipv4_mapped:
        return (mapped,)
    number = int(address)
    if address in _SIX_TO_FOUR:
        return (IPv4Address(number >> 80 & 0xFFFFFFFF),)
    if address in _TEREDO:  # its server, and its client, whose bits are inverted
        return IPv4Address(number >> 64 & 0xFFFFFFFF), IPv4Address(~number & 0xFFFFFFFF)
    if address in _NAT64:
        return (IPv4Address(number & 0xFFFFFFFF),)
    return ()
