"""Finds out which host TLS names inside a tunnel, from the first bytes that a client sends.

What follows the hello is encrypted and unseen. A name that is encrypted too (ECH) is not seen either.
"""

from __future__ import annotations

from .addresses import Address
from .hosts import normal_host

_HANDSHAKE, _CHANGE_CIPHER = 22, 20
_CLIENT_HELLO, _SERVER_NAME, _HOST_NAME = 1, 0, 0
_RECORD_HEAD, _MESSAGE_HEAD = 5, 4
_LONGEST_RECORD = 16384 + 2048
_LONGEST_HELLO = 16 * 1024
_LONGEST_ANYWHERE = 256 * 1024
"""No server accepts a longer hello."""
_AT_SESSION, _LONGEST_SESSION = _MESSAGE_HEAD + 2 + 32, 32


class OtherHost(Exception):
    """TLS names another host than the tunnel leads to, or begins in a way that cannot be read."""


class NotTls(Exception):
    """The client sends plain text where only TLS passes."""


class HelloGate:
    """Passes on the bytes of a client, unless they begin TLS that names another host than the tunnel's.

    TLS that cannot be read is refused too. A server may ask for a second hello, which is checked too.
    """

    def __init__(self, host: str | Address, *, only_tls: bool = False) -> None:
        """`only_tls`: other bytes do not pass. Plain HTTP in a tunnel could name any `Host`."""
        self._host = host
        self._only_tls = only_tls
        self._held = bytearray()
        self._read = 0  # how many of the held bytes are records that were read
        self._message = bytearray()  # what they contain
        self._hellos = 0
        self.is_open = False
        """Whether everything that follows passes."""

    def feed(self, data: bytes) -> bytes:
        """The bytes that may be sent on now. Raises `OtherHost` or `NotTls`."""
        self._held += data
        passed = b""
        while self._held and not self.is_open:
            end = self._judged()
            if not end and not self.is_open:
                return passed  # more must come
            passed += self._held[:end]
            del self._held[:end]
        if self.is_open:
            passed += self._held
            self._held.clear()
        return passed

    def _judged(self) -> int:
        """How many of the held bytes pass. Opens the gate if all that follow do."""
        held = self._held
        if self._hellos and held[0] == _CHANGE_CIPHER:
            size = _RECORD_HEAD + 1
            return size if len(held) >= size else 0
        if held[0] != _HANDSHAKE:
            if self._only_tls and not self._hellos:
                raise NotTls
            self.is_open = True
            return 0
        if len(held) <= _RECORD_HEAD:
            return 0
        if self._hellos and self._is_not_a_hello():
            self.is_open = True
            return 0
        if not self._has_hello():
            return 0
        self._check(bytes(self._message[_MESSAGE_HEAD:]))
        end, self._read = self._read, 0
        self._message.clear()
        self._hellos += 1
        self.is_open = self._hellos > 1
        return end

    def _is_not_a_hello(self) -> bool:
        """Whether the next record does not begin a hello for any server.

        In a resumed session of TLS 1.2 the record is encrypted, and its first byte may happen to be that of a hello.
        """
        size = int.from_bytes(self._held[_RECORD_HEAD - 2 : _RECORD_HEAD])
        message = self._held[_RECORD_HEAD : _RECORD_HEAD + size]
        if message[0] != _CLIENT_HELLO:
            return True
        if len(message) >= _MESSAGE_HEAD and int.from_bytes(message[1:_MESSAGE_HEAD]) > _LONGEST_ANYWHERE:
            return True
        return len(message) > _AT_SESSION and message[_AT_SESSION] > _LONGEST_SESSION

    def _has_hello(self) -> bool:
        """Reads the records that came since the last call, each with a part of a hello. Returns whether it is whole."""
        held, message = self._held, self._message
        while len(held) >= (start := self._read + _RECORD_HEAD):
            size = int.from_bytes(held[start - 2 : start])
            if held[self._read] != _HANDSHAKE or held[self._read + 1] != 3 or not 0 < size <= _LONGEST_RECORD:
                raise _unreadable()
            if len(held) < start + size:
                break
            message += held[start : start + size]
            self._read = start + size
            if message[0] != _CLIENT_HELLO:
                raise _unreadable()
            if len(message) >= _MESSAGE_HEAD:
                whole = _MESSAGE_HEAD + int.from_bytes(message[1:_MESSAGE_HEAD])
                if len(message) > whole or whole > _LONGEST_HELLO:
                    raise _unreadable()
                if len(message) == whole:
                    return True
        if len(held) > 2 * _LONGEST_HELLO:  # in tiny records
            raise _unreadable()
        return False

    def _check(self, hello: bytes) -> None:
        for name in _names(hello):
            try:
                named = normal_host(name.decode("ascii"))
            except ValueError:
                raise OtherHost("something that is not a name") from None
            if named != self._host:
                raise OtherHost(str(named))


def _unreadable() -> OtherHost:
    return OtherHost("something that cannot be read")


def _names(hello: bytes) -> list[bytes]:
    """All server names in a hello. Raises `OtherHost` if it is not whole."""
    fields = _Fields(hello)
    fields.skip(2 + 32)  # version, random
    fields.sized(1)  # session
    fields.sized(2)  # ciphers
    fields.sized(1)  # compressions
    if fields.is_empty:
        return []
    extensions = _Fields(fields.sized(2))
    if not fields.is_empty:
        raise _unreadable()
    names: list[bytes] = []
    while not extensions.is_empty:
        kind, content = extensions.number(2), extensions.sized(2)
        if kind == _SERVER_NAME:
            entries = _Fields(_Fields(content).sized(2))
            while not entries.is_empty:
                if entries.number(1) != _HOST_NAME:
                    raise OtherHost("something that is not a name")
                names.append(entries.sized(2))
    return names


class _Fields:
    """Reads numbers and sized fields one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_empty(self) -> bool:
        return self._at >= len(self._data)

    def skip(self, size: int) -> bytes:
        part = self._data[self._at : self._at + size]
        if len(part) < size:
            raise _unreadable()
        self._at += size
        return part

    def number(self, size: int) -> int:
        return int.from_bytes(self.skip(size))

    def sized(self, size: int) -> bytes:
        return self.skip(self.number(size))
