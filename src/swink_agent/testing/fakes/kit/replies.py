"""Scripted replies of a fake as plain data, their blocks in order, the ids of calls, and signatures.

Each API's own file encodes the blocks. Frames are written as providers do: server-sent events, JSON lines, and the
binary event stream of AWS.
"""

from __future__ import annotations

import base64
import hashlib
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import field

from swink_agent.core.types import StopReason, Usage
from swink_agent.core.values.value import Value

FakeCall: TypeAlias = tuple[str, Mapping[str, Any]] | tuple[str, Mapping[str, Any], str]
_STRING_HEADER = 7


class FakeReply(Value, frozen=True, kw_only=True):
    """One reply: thinking, then text, then calls, each if given.

    A call is `(name, arguments)`, or `(name, arguments, id)` if the id matters. `ends` is how the reply ends: `done`,
    or `hangs` (the connection stays open) or `cut` (it is closed) while the last block is open.
    """

    text: str = ""
    thinking: str = ""
    calls: Sequence[FakeCall] = ()
    stop_reason: StopReason | None = None
    """By default `tool_use` if there are calls, else `stop`."""
    usage: Usage = field(default_factory=lambda: Usage(12, 7, total=19))
    ends: Literal["done", "hangs", "cut"] = "done"

    @property
    def reason(self) -> StopReason:
        if self.stop_reason is not None:
            return self.stop_reason
        return StopReason.TOOL_USE if self.calls else StopReason.STOP

    @property
    def is_done(self) -> bool:
        return self.ends == "done"


class FakeFailure(Value, frozen=True):
    """An error instead of a reply, in the provider's form."""

    status: int = 500
    message: str = "the fake fails as scripted"


class Block(Value, frozen=True):
    """One block of a reply; an unclosed block is the last that is sent."""

    kind: Literal["thinking", "text", "call"]
    text: str
    """The text, or the arguments as JSON."""
    is_closed: bool
    call_id: str = ""
    name: str = ""
    arguments: Mapping[str, Any] = {}


def blocks(reply: FakeReply, make_id: Callable[[], str]) -> list[Block]:
    """Returns the blocks of a reply; `make_id` makes the ids of its calls."""
    found: list[Block] = []
    if reply.thinking:
        found.append(Block("thinking", reply.thinking, True))
    if reply.text:
        found.append(Block("text", reply.text, True))
    for call in reply.calls:
        name, arguments, *given = call
        text = msgspec.json.encode(arguments).decode()
        found.append(Block("call", text, True, given[0] if given else make_id(), name, arguments))
    if found and not reply.is_done:
        found[-1] = msgspec.structs.replace(found[-1], is_closed=False)
    return found


def pieces(text: str, number: int = 3) -> Iterator[str]:
    """Divides the text into a few pieces, as providers do."""
    size = max(1, -(-len(text) // number))
    for start in range(0, len(text), size):
        yield text[start : start + size]


_numbers = count(1)
_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def new_id(prefix: str, length: int) -> str:
    """Makes an id that is unique in this process: the prefix and `length` letters and digits."""
    number = int.from_bytes(hashlib.sha256(f"{prefix}{next(_numbers)}".encode()).digest() * 2, "big")
    letters: list[str] = []
    for _ in range(length):
        number, position = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[position])
    return prefix + "".join(letters)


def sign(issuer: str, text: str) -> str:
    """Signs the text for an issuer. Text and issuer are enough to check the signature, so validators need no state."""
    digest = hashlib.sha256(f"swink fake {issuer}\n{text}".encode()).digest()
    return base64.b64encode(f"fake:{issuer}:".encode() + digest).decode()


def is_signed(issuer: str, text: str, signature: object) -> bool:
    """Whether the signature is that of the issuer for exactly this text."""
    return signature == sign(issuer, text)


def json_bytes(value: object) -> bytes:
    return msgspec.json.encode(value)


def sse(data: Mapping[str, Any] | str, event: str | None = None) -> bytes:
    """Encodes a server-sent event, with its name if the provider sends one."""
    payload = data.encode() if isinstance(data, str) else json_bytes(data)
    name = b"" if event is None else f"event: {event}\n".encode()
    return name + b"data: " + payload + b"\n\n"


def json_line(data: Mapping[str, Any]) -> bytes:
    return json_bytes(data) + b"\n"


def aws_event(event: str, payload: Mapping[str, Any]) -> bytes:
    """Encodes one message: the prelude with its checksum, the headers, the payload, and the checksum of all of it."""
    headers = b"".join(
        _aws_header(name, value)
        for name, value in ((":event-type", event), (":content-type", "application/json"), (":message-type", "event"))
    )
    body = json_bytes(payload)
    prelude = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + body
    return message + struct.pack(">I", zlib.crc32(message))


def _aws_header(name: str, value: str) -> bytes:
    data = value.encode()
    return struct.pack(">B", len(name)) + name.encode() + struct.pack(">BH", _STRING_HEADER, len(data)) + data
