"""Frames: the same frames however a body is split, and a bounded amount of memory for any body."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent.adapters.kit import frames
from swink_agent.adapters.kit.frames import (
    MOST_BYTES,
    AwsEventFrames,
    AwsMessage,
    FrameError,
    JsonArrayFrames,
    LineFrames,
    SseFrames,
)

thoroughly = settings(max_examples=150)
PIECE = 1024 * 1024


def frames_of(reader: Any, body: bytes, *cuts: int) -> list[Any]:
    """All frames of a body that arrives cut at these places."""
    found: list[Any] = []
    start = 0
    for cut in (*sorted(cuts), len(body)):
        found += reader.feed(body[start:cut])
        start = cut
    return found + reader.end()


def cuts_of(body: bytes) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, len(body)), max_size=20)


def check_every_split(make: Callable[[], Any], body: bytes, expected: Sequence[Any]) -> None:
    assert frames_of(make(), body) == expected
    assert frames_of(make(), body, *range(len(body))) == expected
    for cut in range(len(body) + 1):
        assert frames_of(make(), body, cut) == expected, cut


def feed_pieces(reader: Any, piece: bytes, count: int) -> None:
    for _ in range(count):
        reader.feed(piece)


# -- server-sent events --------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_events_are_the_same_with_any_line_end_and_any_split(end: bytes) -> None:
    lines = [b"data: one", b"", b": comment", b"event: named", b"data: two", b"data: more", b"", b"data: three", b""]
    check_every_split(SseFrames, end.join(lines) + end, [(b"", b"one"), (b"named", b"two\nmore"), (b"", b"three")])


def test_line_ends_may_be_mixed() -> None:
    body = b"data: one\r\n\ndata: two\r\rdata: three\n\r\ndata: four\r\n\r\n"
    check_every_split(SseFrames, body, [(b"", b"one"), (b"", b"two"), (b"", b"three"), (b"", b"four")])


@pytest.mark.table
@pytest.mark.parametrize(
    ("body", "frames"),
    [
        (b"data:tight\n\n", [(b"", b"tight")]),
        (b"data:  one space is the field's\n\n", [(b"", b" one space is the field's")]),
        (b"data:\n\n", [(b"", b"")]),
        (b"data: a\ndata:\ndata: b\n\n", [(b"", b"a\n\nb")]),
        (b"data: a: b\n\n", [(b"", b"a: b")]),
        (b"data: \xff\x00\n\n", [(b"", b"\xff\x00")]),
        (b"event:tight\ndata: a\n\n", [(b"tight", b"a")]),
        (b"event: first\nevent: second\ndata: a\n\n", [(b"second", b"a")]),
        (b"data: a\nevent: late\n\n", [(b"late", b"a")]),
        (b"event: x\ndata: a\n\ndata: b\n\n", [(b"x", b"a"), (b"", b"b")]),
        (b"id: 7\nretry: 10\ndata: a\nunknown: b\n\n", [(b"", b"a")]),
        (b": only\n\n: comments\n\n", []),
        (b":\n\n\n\n\n", []),
        (b"database: not data\neventful\n\n", []),
        (b"", []),
    ],
)
def test_an_event_is_its_data_and_its_name(body: bytes, frames: list[tuple[bytes, bytes]]) -> None:
    check_every_split(SseFrames, body, frames)


@pytest.mark.parametrize("rest", [b"", b"\n", b"\r", b"\r\n"])
def test_an_event_without_its_blank_line_still_counts_when_the_body_ends(rest: bytes) -> None:
    check_every_split(SseFrames, b"data: one\n\nevent: x\ndata: two" + rest, [(b"", b"one"), (b"x", b"two")])


def test_an_event_waits_for_its_blank_line() -> None:
    reader = SseFrames()
    assert reader.feed(b"event: x\ndata: a") == []
    assert reader.feed(b"\n") == []
    assert reader.feed(b"data: b\n") == []
    assert reader.feed(b"\n") == [(b"x", b"a\nb")]
    assert reader.end() == []


def test_a_byte_order_mark_is_passed_over() -> None:
    check_every_split(SseFrames, b"\xef\xbb\xbfdata: one\n\ndata: two\n\n", [(b"", b"one"), (b"", b"two")])


class SseBody:
    """A body and the events in it, written with every freedom that the format leaves."""

    def __init__(self, events: list[tuple[bytes, list[bytes]]], ends: list[bytes], comments: list[bytes]) -> None:
        self.events = [(name, b"\n".join(lines)) for name, lines in events]
        self.body = b""
        self._count = 0
        for number, (name, lines) in enumerate(events):
            for comment in comments[number::3]:
                self._write(b":" + comment, ends)
            if name:
                self._write(b"event: " + name, ends)
            for line in lines:
                self._write(b"data: " + line, ends)
            self._write(b"", ends)

    def _write(self, line: bytes, ends: list[bytes]) -> None:
        end = ends[self._count % len(ends)]
        if not line and end == b"\n" and self.body.endswith(b"\r"):
            end = b"\r\n"  # CR and LF next to each other would be one line end
        self.body += line + end
        self._count += 1


LINE = st.binary(max_size=12).map(lambda data: data.replace(b"\r", b"r").replace(b"\n", b"n"))
NAME = st.sampled_from([b"", b"message", b"response.completed"])


@given(
    st.builds(
        SseBody,
        st.lists(st.tuples(NAME, st.lists(LINE, min_size=1, max_size=4)), max_size=8),
        st.lists(st.sampled_from([b"\n", b"\r\n", b"\r"]), min_size=1, max_size=7),
        st.lists(LINE, max_size=5),
    ),
    st.data(),
)
@thoroughly
def test_any_body_gives_its_events_however_it_is_split(written: SseBody, data: st.DataObject) -> None:
    assert frames_of(SseFrames(), written.body, *data.draw(cuts_of(written.body))) == written.events


@given(st.binary(max_size=200), st.data())
@thoroughly
def test_any_bytes_at_all_give_the_same_events_however_they_are_split(body: bytes, data: st.DataObject) -> None:
    assert frames_of(SseFrames(), body, *data.draw(cuts_of(body))) == frames_of(SseFrames(), body)


@given(st.lists(st.sampled_from([b"data: a", b"event: b", b"\n", b"\r", b"\r\n", b":", b""]), max_size=30), st.data())
@thoroughly
def test_any_lines_give_the_same_events_however_they_are_split(lines: list[bytes], data: st.DataObject) -> None:
    body = b"".join(lines)
    assert frames_of(SseFrames(), body, *data.draw(cuts_of(body))) == frames_of(SseFrames(), body)


def test_an_event_of_the_largest_size_passes() -> None:
    body = b"data: " + b"x" * (MOST_BYTES - 6) + b"\n\n"
    assert frames_of(SseFrames(), body, *range(0, len(body), PIECE)) == [(b"", body[6:-2])]


@pytest.mark.parametrize("start", [b"data: ", b": ", b"event: ", b""])
def test_a_line_without_an_end_is_refused(start: bytes) -> None:
    reader = SseFrames()
    reader.feed(start)
    with pytest.raises(FrameError, match=str(MOST_BYTES)):
        feed_pieces(reader, b"x" * PIECE, MOST_BYTES // PIECE + 1)


def test_an_event_of_lines_without_an_end_is_refused() -> None:
    with pytest.raises(FrameError, match=str(MOST_BYTES)):
        feed_pieces(SseFrames(), b"data: " + b"x" * PIECE + b"\n", MOST_BYTES // PIECE + 1)


def test_an_event_of_empty_lines_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MOST_BYTES", 100_000)  # eight million lines would take their time
    with pytest.raises(FrameError, match="100000"):
        feed_pieces(SseFrames(), b"data:\n" * 10_000, 11)


def test_comments_without_an_end_take_no_memory() -> None:
    reader = SseFrames()
    feed_pieces(reader, b": " + b"x" * PIECE + b"\n", 3 * MOST_BYTES // PIECE)
    assert reader.feed(b"data: a\n\n") == [(b"", b"a")]


def test_sizes_are_counted_for_each_event_anew() -> None:
    reader = SseFrames()
    for _ in range(3):
        assert len(reader.feed(b"data: " + b"x" * (5 * PIECE) + b"\n\n")) == 1


# -- lines ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (b'{"a":1}\n{"b":2}\n', [b'{"a":1}', b'{"b":2}']),
        (b'{"a":1}\n{"b":2}', [b'{"a":1}', b'{"b":2}']),
        (b'{"a":"\\n"}\n', [b'{"a":"\\n"}']),
        (b"\n\n", [b"", b""]),
        (b"", []),
    ],
)
def test_a_line_is_a_document(body: bytes, lines: list[bytes]) -> None:
    check_every_split(LineFrames, body, lines)


def test_documents_on_lines_that_end_in_crlf_can_be_read() -> None:
    assert [json.loads(line) for line in frames_of(LineFrames(), b'{"a":1}\r\n[2]\r\n')] == [{"a": 1}, [2]]


@given(st.binary(max_size=200), st.data())
@thoroughly
def test_any_bytes_give_the_same_lines_however_they_are_split(body: bytes, data: st.DataObject) -> None:
    lines = body.split(b"\n")
    expected = lines if lines[-1] else lines[:-1]
    assert frames_of(LineFrames(), body, *data.draw(cuts_of(body))) == expected


def test_a_line_of_the_largest_size_passes_and_a_longer_one_is_refused() -> None:
    reader = LineFrames()
    feed_pieces(reader, b"x" * PIECE, MOST_BYTES // PIECE)
    assert [len(line) for line in reader.feed(b"\n")] == [MOST_BYTES]
    with pytest.raises(FrameError, match=str(MOST_BYTES)):
        feed_pieces(reader, b"x" * PIECE, MOST_BYTES // PIECE + 1)


def test_a_line_that_arrives_at_once_is_measured_too() -> None:
    with pytest.raises(FrameError, match=str(MOST_BYTES)):
        LineFrames().feed(b"x" * (MOST_BYTES + 1) + b"\n")


# -- a JSON array --------------------------------------------------------------------------------------------

TRICKY = [
    {"a": 1},
    {},
    {"brace": "}{", "bracket": "][", "quote": 'say "}"', "slash": "\\", "both": '\\"}'},
    {"deep": [{"er": {"est": [[{}]]}}]},
    {"wide": "☕\u2028"},
]


@pytest.mark.parametrize("indent", [None, 2])
def test_the_documents_of_an_array_are_found_wherever_it_is_split(indent: int | None) -> None:
    body = json.dumps(TRICKY, indent=indent, ensure_ascii=False).encode()
    expected = [json.loads(document) for document in frames_of(JsonArrayFrames(), body)]
    assert expected == TRICKY
    for cut in range(len(body)):
        assert [json.loads(found) for found in frames_of(JsonArrayFrames(), body, cut)] == TRICKY
    assert [json.loads(found) for found in frames_of(JsonArrayFrames(), body, *range(len(body)))] == TRICKY


def test_a_document_is_given_as_soon_as_it_is_complete() -> None:
    reader = JsonArrayFrames()
    assert reader.feed(b'[{"a":1') == []
    assert reader.feed(b"}") == [b'{"a":1}']
    assert reader.feed(b',\r\n{"b":2}]') == [b'{"b":2}']
    assert reader.end() == []


@pytest.mark.table
@pytest.mark.parametrize("body", [b"", b"[", b"[]", b"[]]", b"}}", b'["{"]', b"[1, null]", b'[{"cut": "in '])
def test_invalid_documents_give_nothing(body: bytes) -> None:
    check_every_split(JsonArrayFrames, body, [])


JSON_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text(max_size=4), JSON_VALUE, max_size=3), max_size=6), st.data())
@thoroughly
def test_any_array_gives_its_documents_however_it_is_split(documents: list[Any], data: st.DataObject) -> None:
    body = json.dumps(documents, ensure_ascii=data.draw(st.booleans())).encode()
    found = frames_of(JsonArrayFrames(), body, *data.draw(cuts_of(body)))
    assert [json.loads(document) for document in found] == documents


@given(st.binary(max_size=200), st.data())
@thoroughly
def test_any_bytes_give_the_same_documents_however_they_are_split(body: bytes, data: st.DataObject) -> None:
    assert frames_of(JsonArrayFrames(), body, *data.draw(cuts_of(body))) == frames_of(JsonArrayFrames(), body)


@pytest.mark.sweep
def test_a_document_without_an_end_is_refused() -> None:
    reader = JsonArrayFrames()
    reader.feed(b'[{"a":"')
    with pytest.raises(FrameError, match=str(MOST_BYTES)):
        feed_pieces(reader, b"x" * PIECE, MOST_BYTES // PIECE + 1)


# -- the AWS event stream ------------------------------------------------------------------------------------


def header(name: str, kind: int, value: bytes) -> bytes:
    encoded = name.encode()
    return bytes([len(encoded)]) + encoded + bytes([kind]) + value


def string(name: str, value: str) -> bytes:
    encoded = value.encode()
    return header(name, 7, struct.pack(">H", len(encoded)) + encoded)


def aws(payload: bytes = b"", headers: bytes = b"") -> bytes:
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload
    return message + struct.pack(">I", zlib.crc32(message))


DELTA = aws(b'{"delta":{"text":"Hi"}}', string(":event-type", "contentBlockDelta") + string(":message-type", "event"))
STOP = aws(b'{"stopReason":"end_turn"}', string(":event-type", "messageStop"))
MESSAGES = [
    AwsMessage({":event-type": "contentBlockDelta", ":message-type": "event"}, b'{"delta":{"text":"Hi"}}'),
    AwsMessage({":event-type": "messageStop"}, b'{"stopReason":"end_turn"}'),
]


def test_messages_are_the_same_wherever_they_are_split() -> None:
    check_every_split(AwsEventFrames, DELTA + STOP, MESSAGES)


def test_a_message_may_have_no_headers_and_no_payload() -> None:
    check_every_split(
        AwsEventFrames,
        aws() + aws(b"x") + aws(b"", string("a", "")),
        [AwsMessage({}, b""), AwsMessage({}, b"x"), AwsMessage({"a": ""}, b"")],
    )


def test_headers_of_every_other_type_are_passed_over() -> None:
    headers = (
        header("true", 0, b"")
        + header("false", 1, b"")
        + header("byte", 2, b"\x01")
        + header("short", 3, b"\x00\x01")
        + header("integer", 4, b"\x00" * 4)
        + header("long", 5, b"\x00" * 8)
        + header("bytes", 6, b"\x00\x03abc")
        + string("string", "☕")
        + header("timestamp", 8, b"\x00" * 8)
        + header("uuid", 9, b"\x00" * 16)
        + string("last", "here")
    )
    assert frames_of(AwsEventFrames(), aws(b"p", headers)) == [AwsMessage({"string": "☕", "last": "here"}, b"p")]


def test_a_message_that_is_cut_gives_nothing_and_no_error() -> None:
    for cut in range(len(STOP)):
        assert frames_of(AwsEventFrames(), DELTA + STOP[:cut]) == MESSAGES[:1]


def test_a_damaged_byte_anywhere_is_found() -> None:
    for place in range(len(DELTA)):
        body = bytearray(DELTA)
        body[place] ^= 0x10
        with pytest.raises(FrameError, match="checksum"):
            frames_of(AwsEventFrames(), bytes(body))


def prelude(total: int, headers_length: int) -> bytes:
    lengths = struct.pack(">II", total, headers_length)
    return lengths + struct.pack(">I", zlib.crc32(lengths))


@pytest.mark.table
@pytest.mark.parametrize(
    ("total", "headers_length"), [(0, 0), (15, 0), (16, 1), (100, 85), (MOST_BYTES + 1, 0), (2**32 - 1, 2**32 - 1)]
)
def test_lengths_that_cannot_be_are_refused_at_once(total: int, headers_length: int) -> None:
    with pytest.raises(FrameError, match=f"{total} bytes"):
        AwsEventFrames().feed(prelude(total, headers_length))


def test_a_message_of_the_largest_size_passes() -> None:
    body = aws(b"x" * (MOST_BYTES - 16))
    (message,) = frames_of(AwsEventFrames(), body, *range(0, len(body), PIECE))
    assert len(message.payload) == MOST_BYTES - 16


@pytest.mark.table
@pytest.mark.parametrize(
    "headers",
    [
        b"\x05",
        b"\x05name",
        b"\x04name",
        header("name", 10, b""),
        header("name", 255, b""),
        header("name", 7, b"\x00"),
        header("name", 7, b"\x00\x01\xff"),
        b"\x01\xff\x07\x00\x00",
    ],
    ids=["no name", "short name", "no type", "type 10", "type 255", "short length", "UTF-8 value", "UTF-8 name"],
)
def test_headers_that_cannot_be_read_are_refused(headers: bytes) -> None:
    with pytest.raises(FrameError, match="headers"):
        frames_of(AwsEventFrames(), aws(b"", headers))


@pytest.mark.parametrize(
    "headers",
    [header("name", 7, b"\x00\x09short"), header("name", 6, b"\x00\x09short"), header("name", 9, b"\x00\x01")],
    ids=["string", "bytes", "uuid"],
)
def test_a_header_that_is_longer_than_its_room_is_refused(headers: bytes) -> None:
    with pytest.raises(FrameError, match="headers"):
        frames_of(AwsEventFrames(), aws(b"", headers))


@given(
    st.lists(
        st.tuples(st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=20), max_size=3), st.binary()),
        max_size=5,
    ),
    st.data(),
)
@thoroughly
def test_any_messages_are_read_however_they_are_split(
    written: list[tuple[dict[str, str], bytes]], data: st.DataObject
) -> None:
    body = b"".join(aws(payload, b"".join(string(*pair) for pair in headers.items())) for headers, payload in written)
    found = frames_of(AwsEventFrames(), body, *data.draw(cuts_of(body)))
    assert found == [AwsMessage(headers, payload) for headers, payload in written]


@given(st.binary(max_size=100), st.binary(max_size=20))
@thoroughly
def test_any_headers_are_read_or_refused_but_nothing_else(headers: bytes, payload: bytes) -> None:
    try:
        (message,) = frames_of(AwsEventFrames(), aws(payload, headers))
    except FrameError:
        return
    assert message.payload == payload


@given(st.binary(max_size=100))
@thoroughly
def test_any_bytes_are_messages_or_refused_but_nothing_else(body: bytes) -> None:
    try:
        messages = frames_of(AwsEventFrames(), body)
    except FrameError:
        return
    assert all(message.payload in body for message in messages)
