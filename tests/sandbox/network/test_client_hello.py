"""The host that TLS names: found in hellos that real clients send, however they are cut into records and reads."""

from __future__ import annotations

import struct
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent.sandbox.network.addresses import read_address
from swink_agent.sandbox.network.client_hello import HelloGate, NotTls, OtherHost

from .test_proxy import hello_of


def record(data: bytes, kind: int = 22) -> bytes:
    return struct.pack("!BHH", kind, 0x0301, len(data)) + data


def in_records(hello: bytes, size: int) -> bytes:
    """The same handshake message, in records of that many bytes."""
    message = hello[5:]
    return b"".join(record(message[at : at + size]) for at in range(0, len(message), size))


def feed(gate: HelloGate, data: bytes, size: int) -> bytes:
    return b"".join(gate.feed(data[at : at + size]) for at in range(0, len(data), size))


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("read", [1, 7, 5000])
@pytest.mark.parametrize("size", [1, 50, 16000])
def test_a_hello_is_found_however_it_is_cut(read: int, size: int) -> None:
    data = in_records(hello_of("example.org"), size) + record(b"\1", 20) + record(b"rest", 23)
    assert feed(HelloGate("example.org"), data, read) == data
    with pytest.raises(OtherHost, match=r"^example\.org$"):
        feed(HelloGate("example.com"), data, read)


def test_nothing_passes_before_the_name_is_known() -> None:
    hello = hello_of("evil.test")
    gate = HelloGate("example.org")
    assert all(gate.feed(hello[at : at + 1]) == b"" for at in range(len(hello) - 1))
    with pytest.raises(OtherHost, match="evil"):
        gate.feed(hello[-1:])


def test_a_second_hello_is_checked_too() -> None:
    gate = HelloGate("example.org")
    first, change = hello_of("example.org"), record(b"\1", 20)
    assert gate.feed(first) == first
    assert gate.feed(change) == change
    with pytest.raises(OtherHost, match="evil"):
        gate.feed(hello_of("evil.test"))
    gate = HelloGate("example.org")
    assert gate.feed(first + first + b"anything") == first + first + b"anything"
    assert gate.is_open


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("read", [1, 7, 5000])
@pytest.mark.parametrize(
    "encrypted",
    [
        *(b"\1\xff\xff\xff" + bytes(36), b"\1" + bytes(3) + b"\xff" * 60, b"\1\0\x20\0" + b"\x80" * 36),
        *(b"\2" * 40, b"\xff" * 32),
    ],
)
def test_the_end_of_a_handshake_that_goes_on_with_a_session_passes(encrypted: bytes, read: int) -> None:
    """Of TLS 1.2: encrypted, so that it may begin with any byte."""
    data = hello_of("example.org") + record(b"\1", 20) + record(encrypted) + record(b"data", 23)
    gate = HelloGate("example.org")
    assert feed(gate, data, read) == data
    assert gate.is_open


def test_plain_text_passes_only_where_it_may() -> None:
    plain = b"GET / HTTP/1.1\r\nHost: other.example\r\n\r\n"
    assert feed(HelloGate("example.org"), plain, 5) == plain
    with pytest.raises(NotTls):
        HelloGate("example.org", only_tls=True).feed(plain)
    hello = hello_of("example.org")
    assert feed(HelloGate("example.org", only_tls=True), hello, 7) == hello


def test_a_second_hello_that_is_too_long_to_be_read_does_not_pass() -> None:
    hello = hello_of("evil.test")[5:]
    padded = b"\1" + (100_000).to_bytes(3, "big") + hello[4:] + bytes(100_000 - len(hello) + 4)
    data = b"".join(record(padded[at : at + 16000]) for at in range(0, len(padded), 16000))
    gate = HelloGate("example.org")
    gate.feed(hello_of("example.org"))
    with pytest.raises(OtherHost):
        feed(gate, data, 65536)


def test_a_name_inside_a_tunnel_to_an_address_is_another_host() -> None:
    address = read_address("93.184.216.34")
    assert address is not None
    with pytest.raises(OtherHost):
        HelloGate(address).feed(hello_of("example.org"))
    assert HelloGate(address).feed(hello_of(None))


def test_other_protocols_than_tls_pass() -> None:
    for data in (b"GET / HTTP/1.1\r\n", b"\x00", b"SSH-2.0", bytes.fromhex("802e0103")):
        assert HelloGate("example.org").feed(data) == data


def test_unreadable_tls_does_not_pass() -> None:
    hello = hello_of("example.org")
    for data in (
        record(b"") + b"x",
        record(b"\2" + hello[6:]),
        b"\x16\x02" + hello[2:],
        record(hello[5:] + b"more"),
        record(b"\1\xff\xff\xff" + bytes(100)),
        b"".join(record(b"\1" if at == 0 else b"\0") for at in range(50_000)),
        record(hello[5:50] + b"\xff" * (len(hello) - 50)),
    ):
        with pytest.raises(OtherHost):
            feed(HelloGate("example.org"), data, 65536)


@given(st.binary(max_size=300), st.integers(0, 300), st.integers(1, 200))
@settings(max_examples=600)
def test_no_change_of_a_hello_lets_another_name_pass(noise: bytes, at: int, read: int) -> None:
    """Whatever is put into a hello of another host, either it does not pass or its name is no longer there."""
    hello = _evil_hello()
    data = hello[:at] + noise + hello[at + len(noise) :]
    try:
        passed = feed(HelloGate("example.org"), data, read)
    except OtherHost:
        return
    assert not passed or passed[:1] != b"\x16" or b"evil.test" not in passed or _says_nothing(passed)


@cache
def _evil_hello() -> bytes:
    """One hello for all examples: each has its own random numbers, so an example could not be repeated."""
    return hello_of("evil.test")


def _says_nothing(passed: bytes) -> bool:
    """The bytes of the name are there, but a server finds no name: its extension is not one."""
    gate = HelloGate("evil.test")
    return gate.feed(passed) == passed and HelloGate("another.test").feed(passed) == passed
