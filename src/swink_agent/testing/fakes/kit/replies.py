"""What a fake is told to say, and what it signs while saying it.

Owns scripted replies as simple data, their blocks in the order of the wire, the ids of calls, and signatures. How a
block looks on the wire is the business of each API's own file.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Literal, TypeAlias

import msgspec

from swink_agent.core.types import StopReason, Usage
from swink_agent.core.values.value import Value

__all__ = [
    "Block",
    "FakeFailure",
    "FakeReply",
    "blocks",
    "is_signed",
    "new_id",
    "pieces",
    "sign",
]

FakeCall: TypeAlias = tuple[str, Mapping[str, Any]] | tuple[str, Mapping[str, Any], str]


class FakeReply(Value, frozen=True, kw_only=True):
    """One reply: thinking, then text, then calls, each if given.

    A call is `(name, arguments)`, or `(name, arguments, id)` where the id matters. `ends` tells how the reply ends:
    `done`, or `hangs` (the connection stays open) or `cut` (it is closed) while the last block is still open.
    """

    text: str = ""
    thinking: str = ""
    calls: Sequence[FakeCall] = ()
    stop_reason: StopReason | None = None
    """By default `tool_use` if there are calls, else `stop`."""
    usage: Usage = Usage(12, 7, total=19)
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
    """An error instead of a reply, in the shape of the provider."""

    status: int = 500
    message: str = "the fake was told to fail"


class Block(Value, frozen=True):
    """One block of a reply on its way; one that is not closed is the last that is sent."""

    kind: Literal["thinking", "text", "call"]
    text: str
    """What is said, or the arguments as JSON."""
    is_closed: bool
    call_id: str = ""
    name: str = ""
    arguments: Mapping[str, Any] = {}


def blocks(reply: FakeReply, make_id: Callable[[], str]) -> list[Block]:
    """The blocks of a reply; `make_id` gives the ids of its calls."""
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
    """The text in a few pieces, as providers send it."""
    size = max(1, -(-len(text) // number))
    for start in range(0, len(text), size):
        yield text[start : start + size]


# -- ids -----------------------------------------------------------------------------------------------------

_numbers = count(1)
_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def new_id(prefix: str, length: int) -> str:
    """An id that no fake of this process has used: the prefix and `length` letters and digits."""
    number = int.from_bytes(hashlib.sha256(f"{prefix}{next(_numbers)}".encode()).digest() * 2, "big")
    letters: list[str] = []
    for _ in range(length):
        number, position = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[position])
    return prefix + "".join(letters)


# -- signatures ----------------------------------------------------------------------------------------------


def sign(issuer: str, text: str) -> str:
    """A signature of the issuer's over the text. Who knows both can check it, so validators need no memory."""
    digest = hashlib.sha256(f"swink fake {issuer}\n{text}".encode()).digest()
    return base64.b64encode(f"fake:{issuer}:".encode() + digest).decode()


def is_signed(issuer: str, text: str, signature: object) -> bool:
    """Whether the signature is the issuer's, over exactly this text."""
    return signature == sign(issuer, text)
