"""Every provider's parser: bytes may be split, cut off or damaged; each reply ends once, with the right kind."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent import ErrorKind, MessageAssembler, StopReason, StreamDone, StreamFailed
from swink_agent.adapters.kit.frames import FrameError

from .bodies import BAD_FRAME, MODEL, SO_FAR, Wire, anthropic, bedrock, chat, gemini, message_of, ollama, responses

WIRES: dict[str, Wire] = {
    "anthropic": anthropic.WIRE,
    "bedrock": bedrock.WIRE,
    "chat": chat.WIRE,
    "gemini": gemini.WIRE,
    "ollama": ollama.WIRE,
    "responses": responses.WIRE,
}
BODIES = [
    pytest.param(wire, body, id=f"{name}-{which}")
    for name, wire in WIRES.items()
    for which, body in wire.bodies.items()
]
PIECE = 300
"""Bytes of a piece: some frames, and the beginning of another."""
providers = pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES.keys())


def in_pieces(body: bytes, cuts: list[int]) -> list[bytes]:
    return [body[start:end] for start, end in pairwise([0, *cuts, len(body)])]


def ends_in(events: list[object]) -> int:
    return sum(isinstance(event, (StreamDone, StreamFailed)) for event in events)


@pytest.mark.parametrize(("wire", "body"), BODIES)
def test_the_bytes_may_be_split_anywhere(wire: Wire, body: bytes) -> None:
    whole = wire.read(body)
    assert BAD_FRAME not in str(whole[-1])
    assert wire.read(*in_pieces(body, list(range(1, len(body))))) == whole
    for first in range(1, min(PIECE, len(body)) + 1):  # between them, these cut at every byte
        assert wire.read(*in_pieces(body, list(range(first, len(body), PIECE)))) == whole


@pytest.mark.parametrize(
    ("wire", "ends"),
    [pytest.param(wire, ends, id=f"{name}-{ends!r}") for name, wire in WIRES.items() for ends in wire.line_ends],
)
def test_lines_may_end_in_any_way_and_be_split_there(wire: Wire, ends: bytes) -> None:
    plain = next(iter(wire.bodies.values()))
    body, whole = plain.replace(b"\n", ends), wire.read(plain)
    assert wire.read(body) == whole
    assert wire.read(*in_pieces(body, list(range(1, len(body))))) == whole
    for cut in sorted(_near(body, ends)):
        assert wire.read(body[:cut], body[cut:]) == whole


def _near(body: bytes, ends: bytes) -> set[int]:
    """The places within two bytes of a line's end."""
    found = [place for place in range(len(body)) if body.startswith(ends, place)]
    return {place + offset for place in found for offset in range(-2, 4) if 0 < place + offset < len(body)}


@pytest.mark.parametrize(("wire", "body"), BODIES)
def test_a_reply_cut_anywhere_ends_once_with_its_blocks_closed(wire: Wire, body: bytes) -> None:
    whole = message_of(wire.read(body))
    for cut in range(len(body)):
        events = wire.read(body[:cut])
        message = message_of(events)
        assert ends_in(events) == 1
        assert not str(message.error_message).startswith(BAD_FRAME), cut
        if message.is_failed:
            assert message.error_kind is ErrorKind.NETWORK
            assert not (wire.calls_are_whole and message.tool_calls)
        else:
            assert (message.stop_reason, message.content) == (whole.stop_reason, whole.content)
            assert wire.usage_is_last or message.usage == whole.usage


@pytest.mark.table
@pytest.mark.parametrize(
    ("wire", "body", "expected"),
    [
        pytest.param(wire, body, expected, id=f"{name}-{reason}")
        for name, wire in WIRES.items()
        for reason, (body, expected) in wire.stop_reasons.items()
    ],
)
def test_every_stop_reason_has_its_meaning(wire: Wire, body: bytes, expected: StopReason) -> None:
    assert message_of(wire.read(body)).stop_reason is expected


@pytest.mark.table
@providers
def test_calls_without_an_id_or_with_the_same_get_ids_of_their_own(wire: Wire) -> None:
    ids = [call.id for call in message_of(wire.read(wire.twins)).tool_calls]
    assert "same" in ids
    assert all(ids)
    assert len({*ids}) == len(ids) == 3


@pytest.mark.table
@providers
def test_an_error_in_the_stream_is_a_failure_of_its_kind_with_what_came_before(wire: Wire) -> None:
    for body, kind, words in wire.failures:
        events = wire.read(body)
        last = events[-1]
        assert isinstance(last, StreamFailed)
        assert (last.kind, message_of(events).text) == (kind, SO_FAR), body
        assert words in last.message


@pytest.mark.table
@providers
def test_a_reply_is_whole_once_its_end_is_there_whatever_follows(wire: Wire) -> None:
    for body, expected in wire.ended:
        events = wire.read(body)
        assert message_of(events).stop_reason is expected, body
        assert isinstance(events[-1], StreamDone)
        assert ends_in(events) == 1


@pytest.mark.table
@providers
def test_what_is_not_a_frame_is_reported_as_such(wire: Wire) -> None:
    for body in wire.not_frames:
        with pytest.raises(FrameError):
            wire.parser().feed(body)


@pytest.mark.parametrize(("wire", "body"), BODIES)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=200)
@pytest.mark.table
def test_damaged_bytes_never_raise_and_never_end_twice(wire: Wire, body: bytes, seed: int) -> None:
    events = wire.read(wire.damage(body, random.Random(seed)))
    assembler = MessageAssembler(MODEL)
    for event in events:
        assembler.feed(event)
    assert assembler.is_finished
    # Whether arguments are JSON is for the assembler to find out.
    assert not assembler.is_broken or "JSON object" in (assembler.message().error_message or "")
    assert ends_in(events) == 1
