"""Bodies of each provider's replies, and the expected results of its parser; `test_reading` tests them all."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from swink_agent import AssistantMessage, AssistantMessageEvent, ErrorKind, MessageAssembler, ModelSpec, StopReason
from swink_agent.adapters.kit.frames import FrameError

__all__ = ["BAD_FRAME", "SO_FAR", "Wire", "damaged", "message_of"]

MODEL = ModelSpec("test", "some-model")
SO_FAR = "So far"
"""The text of a reply before it fails."""
BAD_FRAME = "bad frame: "


def damaged(body: bytes, dice: random.Random) -> bytes:
    """The body with some bytes replaced, deleted or added."""
    spoiled = bytearray(body)
    fragments = [b"", b"\x00", b"\xff", b'"', b"{", b"}", b"null", b"[]", b"\n", b"1e999", b"-1", b"true"]
    for _ in range(dice.choice([1, 3, 8, 20])):
        place = dice.randrange(len(spoiled))
        fragment = dice.choice([*fragments, bytes([dice.randrange(256)])])
        spoiled[place : place + dice.randrange(3)] = fragment
    return bytes(spoiled)


@dataclass(frozen=True, kw_only=True)
class Wire:
    """A provider's stream of replies."""

    parser: Callable[[], Any]
    bodies: Mapping[str, bytes]
    """Whole replies, and replies that the provider breaks off."""
    line_ends: Sequence[bytes] = ()
    """By which else the line ends of the first body may be replaced."""
    stop_reasons: Mapping[str, tuple[bytes, StopReason]]
    failures: Sequence[tuple[bytes, ErrorKind, str]]
    """Replies that say `SO_FAR` and then fail, and what is in the error."""
    ended: Sequence[tuple[bytes, StopReason]]
    """Replies that are complete, although something follows or is missing behind their end."""
    not_frames: Sequence[bytes]
    twins: bytes
    """A reply with a call without an id, if the provider may leave it out, and two calls with the id `same`."""
    damage: Callable[[bytes, random.Random], bytes] = damaged
    calls_are_whole: bool = False
    """Whether a call comes in one piece, so that a reply which breaks off has none."""
    usage_is_last: bool = False
    """Whether usage comes behind the stop reason, so that it may be missing from a complete reply."""

    def read(self, *pieces: bytes) -> list[AssistantMessageEvent]:
        """The events of a body that comes in pieces, ended as the stream function ends it."""
        parser = self.parser()
        events: list[AssistantMessageEvent] = []
        try:
            for piece in pieces:
                parser.feed(piece)
                events += parser.writer.take()
            parser.end()
        except FrameError as error:
            parser.writer.fail(f"{BAD_FRAME}{error}", ErrorKind.NETWORK)
        parser.writer.fail("cut off", ErrorKind.NETWORK)
        return events + parser.writer.take()


def message_of(events: Iterable[AssistantMessageEvent], model: ModelSpec = MODEL) -> AssistantMessage:
    assembler = MessageAssembler(model)
    for event in events:
        assembler.feed(event)
    assert not assembler.is_broken, assembler.failure
    return assembler.message()
