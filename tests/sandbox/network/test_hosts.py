"""Host entries: how they are parsed, what they allow, and which entries cover others."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from swink_agent.sandbox import SandboxProfile
from swink_agent.sandbox.network.addresses import is_metadata, is_public, read_address
from swink_agent.sandbox.network.hosts import Hosts, covers, host_entry, normal_host, places_beyond

NORMAL = {
    "example.org": "example.org",
    "EXAMPLE.Org.": "example.org",
    "example.org:8443": "example.org:8443",
    "*.Example.ORG": "*.example.org",
    "*.example.org:22": "*.example.org:22",
    "bücher.example": "xn--bcher-kva.example",
    "BÜCHER.example:80": "xn--bcher-kva.example:80",
    "例え。テスト": "xn--r8jz45g.xn--zckzah",
    "a_b.example.org": "a_b.example.org",
    "localhost": "localhost",
    "*": "*",
    "10.0.0.5": "10.0.0.5",
    "10.0.0.5:8000": "10.0.0.5:8000",
    "2130706433": "127.0.0.1",
    "0x7f.1": "127.0.0.1",
    "0177.0.0.1": "127.0.0.1",
    "127.1": "127.0.0.1",
    "\N{FULLWIDTH DIGIT ONE}\N{FULLWIDTH DIGIT TWO}\N{FULLWIDTH DIGIT SEVEN}.0.0.1": "127.0.0.1",
    "::1": "[::1]",
    "[::1]": "[::1]",
    "[::1]:8000": "[::1]:8000",
    "[0:0::1]:8000": "[::1]:8000",
    "::ffff:10.0.0.5": "10.0.0.5",
    "10.0.0.0/8": "10.0.0.0/8",
    "fd00::/8": "fd00::/8",
}

NOT_ENTRIES = (
    *("", " ", "example.org ", "http://example.org", "https://example.org:443", "example.org/", "example.org/path"),
    *("user@example.org", "user:password@example.org", "exa mple.org", "example..org", "example.org..", ".example.org"),
    *("*.org", "*.", "**", "*example.org", "a.*.org", "*.*.example.org", "*:80", "*.10.0.0.5", "*.localhost"),
    *(
        "example.org:",
        "example.org:0",
        "example.org:65536",
        "example.org:x",
        "example.org:\N{FULLWIDTH DIGIT EIGHT}\N{FULLWIDTH DIGIT ZERO}",
        ":80",
        "a:b:80",
    ),
    *("1.2.3.4.5", "256.1.1.1", "example.1", "08.1.1.1", "1.2.3.0x100", "0x1ffffffff", "[10.0.0.5]"),
    *("[::1", "::1]", "[::1]x", "[::1]:", "fe80::1%eth0", "10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/8:80", "a/8"),
    *(
        "[10.0.0.0]/8",
        "[fd00::]/8",
        "10.0.0.0/\N{FULLWIDTH DIGIT EIGHT}",
        "10.0.0.0/",
        "/8",
        "10.0.0.0/255.0.0.0",
        "0x0a000000/8",
    ),
    *("-a.org", "a-.org", f"{'a' * 64}.org", f"{'a.' * 130}org", "a\n", "a\0b", "example.org?x", "example.org#x", "\\"),
)


@pytest.mark.table
@pytest.mark.parametrize(("given", "normal"), NORMAL.items())
def test_an_entry_has_one_normal_form(given: str, normal: str) -> None:
    assert host_entry(given) == normal
    assert host_entry(normal) == normal


@pytest.mark.table
@pytest.mark.parametrize("text", NOT_ENTRIES)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a host that can be allowed"):
        host_entry(text)
    with pytest.raises(ValueError, match="is not a host that can be allowed"):
        SandboxProfile(hosts=("example.org", text))


def test_a_profile_has_its_hosts_in_normal_form_and_in_its_fingerprint() -> None:
    profile = SandboxProfile(hosts=("Example.org", "example.org.", "*.PyPI.org"))
    assert profile.hosts == ("example.org", "*.pypi.org")
    assert profile.fingerprint != SandboxProfile().fingerprint
    assert profile.fingerprint == SandboxProfile(hosts=("example.org", "*.pypi.org")).fingerprint
    assert SandboxProfile(hosts="example.org").hosts == ("example.org",)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="hosts"):
        SandboxProfile(hosts=(1,))  # type: ignore[arg-type]
    assert profile.proxied_hosts == profile.hosts
    assert SandboxProfile(hosts=("example.org",), network=True).proxied_hosts == ()


ALLOWED = [
    # entries, host, port, whether it is allowed
    ("example.org", "example.org", 443, True),
    ("example.org", "example.org", 80, True),
    ("example.org", "EXAMPLE.org.", 443, True),
    ("example.org", "example.org", 8080, False),
    ("example.org", "www.example.org", 443, False),
    ("example.org", "example.org.evil.test", 443, False),
    ("example.org", "notexample.org", 443, False),
    ("example.org:8080", "example.org", 8080, True),
    ("example.org:8080", "example.org", 443, False),
    ("*.example.org", "a.example.org", 443, True),
    ("*.example.org", "a.b.example.org", 443, True),
    ("*.example.org", "example.org", 443, False),
    ("*.example.org", "aexample.org", 443, False),
    ("bücher.example", "xn--bcher-kva.example", 443, True),
    ("xn--bcher-kva.example", "BÜCHER.example", 443, True),
    ("*", "anything.test", 443, True),
    ("*", "anything.test", 22, False),
    ("*", "93.184.216.34", 80, True),
    ("*", "10.0.0.5", 80, False),
    ("*", "127.1", 80, False),
    ("*", "0x7f000001", 80, False),
    ("*", "169.254.169.254", 80, False),
    ("*", "168.63.129.16", 80, False),
    ("168.63.129.16", "168.63.129.16", 80, True),
    ("10.0.0.5", "10.0.0.5", 80, True),
    ("10.0.0.5", "167772165", 80, True),
    ("10.0.0.5", "[::ffff:10.0.0.5]", 80, True),
    ("10.0.0.5", "10.0.0.6", 80, False),
    ("10.0.0.0/8", "10.1.2.3", 443, True),
    ("10.0.0.0/8", "10.1.2.3", 8080, False),
    ("[::1]:8000", "[::1]", 8000, True),
    ("[::1]:8000", "[::1]", 80, False),
    ("169.254.0.0/16", "169.254.1.1", 80, True),
    ("169.254.0.0/16", "169.254.169.254", 80, False),
    ("0.0.0.0/0", "169.254.169.254", 80, False),
    ("169.254.169.254", "169.254.169.254", 80, True),
]


@pytest.mark.table
@pytest.mark.parametrize(("entry", "host", "port", "allowed"), ALLOWED)
def test_an_entry_allows_what_it_names(entry: str, host: str, port: int, allowed: bool) -> None:
    assert Hosts([entry]).allow(normal_host(host), port) is allowed


LEADS = [
    # entries besides a name, an address of the name, whether it may be connected to at port 8080
    ((), "93.184.216.34", True),
    ((), "2606:2800:220:1::1", True),
    ((), "10.0.0.5", False),
    ((), "127.0.0.1", False),
    ((), "::1", False),
    ((), "169.254.169.254", False),
    ((), "168.63.129.16", False),
    (("*",), "10.0.0.5", False),
    (("10.0.0.5",), "10.0.0.5", True),
    (("10.0.0.5:8080",), "10.0.0.5", True),
    (("10.0.0.5:80",), "10.0.0.5", False),
    (("10.0.0.0/8",), "10.0.0.5", True),
    (("10.0.0.0/8",), "192.168.0.1", False),
    (("169.254.0.0/16",), "169.254.169.254", False),
    (("169.254.169.254",), "169.254.169.254", True),
]


@pytest.mark.table
@pytest.mark.parametrize(("entries", "address", "allowed"), LEADS)
def test_a_name_leads_to_public_addresses_and_to_those_named_besides(
    entries: tuple[str, ...], address: str, allowed: bool
) -> None:
    public, given = ip_address("93.184.216.34"), ip_address(address)
    refused = Hosts(["example.org:8080", *entries]).refusal([public, given], 8080)
    assert refused == (None if allowed else given)


COVERED = [
    # allowed, wanted, whether the first cover the second
    ((), (), True),
    (("a.org",), (), True),
    ((), ("a.org",), False),
    (("a.org", "b.org"), ("b.org", "A.org"), True),
    (("a.org",), ("a.org:443",), True),
    (("a.org:443",), ("a.org",), False),
    (("a.org:443", "a.org:80"), ("a.org",), True),
    (("a.org",), ("a.org:8080",), False),
    (("*.a.org",), ("x.a.org", "*.x.a.org", "*.a.org"), True),
    (("*.a.org",), ("a.org",), False),
    (("x.a.org",), ("*.x.a.org",), False),
    (("*.x.a.org",), ("*.a.org",), False),
    (("*",), ("a.org", "*.a.org", "93.184.216.34", "*"), True),
    (("*",), ("a.org:22",), False),
    (("*",), ("10.0.0.5",), False),
    (("*",), ("10.0.0.0/8",), False),
    (("*.a.org",), ("*",), False),
    (("10.0.0.0/8",), ("10.0.0.5", "10.1.0.0/16"), True),
    (("10.1.0.0/16",), ("10.0.0.0/8",), False),
    (("fd00::/8",), ("10.0.0.0/8",), False),
    (("10.0.0.5",), ("10.0.0.0/8",), False),
    (("10.0.0.5",), ("10.0.0.5:80",), True),
    (("10.0.0.5:80", "10.0.0.5:443"), ("10.0.0.5",), False),  # it also lets names lead there, on any port
    (("169.254.0.0/16",), ("169.254.169.254",), False),
]


@pytest.mark.table
@pytest.mark.parametrize(("allowed", "wanted", "covered"), COVERED)
def test_entries_cover_others_if_these_allow_no_more(
    allowed: tuple[str, ...], wanted: tuple[str, ...], covered: bool
) -> None:
    assert covers(allowed, wanted) is covered


PUBLIC = (
    *("1.1.1.1", "93.184.216.34", "2606:4700::1111", "64:ff9b::1.1.1.1", "2002:101:101::1"),
    "2001:0:101:101::fefe:fefe",
)
NOT_PUBLIC = (
    *("0.0.0.0", "10.0.0.1", "100.64.0.1", "127.0.0.1", "169.254.1.1", "172.16.0.1", "192.0.0.8", "192.168.1.1"),
    *("198.18.0.1", "203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "::127.0.0.1", "fe80::1", "fec0::1", "fc00::1", "fd12::1", "ff02::1", "2001:db8::1", "3fff::1"),
    *("64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::1", "2002:a00:1::", "100::1"),
    *("2001:0:7f00:1::fefe:fefe", "2001:0:101:101::80ff:fffe"),  # Teredo: server, client 127.0.0.1
)


@pytest.mark.table
@pytest.mark.parametrize("text", [*PUBLIC, *NOT_PUBLIC])
def test_an_address_is_public_if_all_in_it_are(text: str) -> None:
    address = read_address(text)
    assert address is not None
    assert is_public(address) is (text in PUBLIC)


def test_ipv4_inside_ipv6_is_what_counts() -> None:
    assert str(read_address("::ffff:127.0.0.1")) == "127.0.0.1"
    for text in ("169.254.169.254", "::ffff:a9fe:a9fe", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::", "fd00:ec2::254"):
        address = read_address(text)
        assert address is not None
        assert is_metadata(address)
    assert read_address("example.org") is None


OWN, PRIVATE = "this machine's own services", "the private network that this machine is in"
SHARED = "the shared network of this machine's provider or VPN"
DIRECT = "what is directly connected to this machine (link-local)"
KEYS = "the service from which a cloud gives this machine its keys"
OTHER = "addresses that do not belong to the public Internet"
PLACES: list[tuple[str, list[str]]] = [
    ("example.org", []),
    ("*.example.org:22", []),
    ("localhost", []),  # what names resolve to is checked when they are used
    ("1.1.1.1", []),
    ("8.8.0.0/16", []),
    ("2606:4700::/32", []),
    ("*", ["every public host"]),
    ("127.0.0.1:8000", [OWN]),
    ("2130706433", [OWN]),
    ("[::1]", [OWN]),
    ("[::ffff:127.0.0.1]:80", [OWN]),
    ("10.0.0.5", [PRIVATE]),
    ("192.168.1.0/24", [PRIVATE]),
    ("fd12::/16", [PRIVATE]),
    ("[64:ff9b::10.0.0.1]", [PRIVATE]),
    ("100.96.0.0/12", [SHARED, KEYS]),
    ("100.65.0.1", [SHARED]),
    ("169.254.1.1", [DIRECT]),
    ("fe80::/64", [DIRECT]),
    ("169.254.169.254", [DIRECT, KEYS]),
    ("168.63.129.16", [KEYS]),
    ("168.63.0.0/16", [KEYS]),
    ("198.18.0.1", [OTHER]),
    ("64:ff9b::/96", [OTHER]),
    ("2002::/16", [OTHER]),
    ("96.0.0.0/5", [SHARED, KEYS]),
    ("0.0.0.0/0", [OWN, PRIVATE, SHARED, DIRECT, KEYS]),
    ("::/0", [OWN, PRIVATE, DIRECT, KEYS]),
]


@pytest.mark.table
@pytest.mark.parametrize(("entry", "places"), PLACES)
def test_an_entry_says_in_words_what_it_opens_beyond_public_hosts(entry: str, places: list[str]) -> None:
    assert places_beyond(["pypi.org", entry]) == places
