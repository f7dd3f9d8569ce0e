"""Requests are built and replies are read as the files in `made` say, also if the bytes are split, cut or damaged."""

from __future__ import annotations

import importlib
import json
import random
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent import ErrorKind, MessageAssembler, ModelSpec, StreamDone, StreamFailed
from swink_agent.adapters.kit.frames import FrameError
from swink_agent.testing.fakes import APIS as FAKED
from swink_agent.testing.servers import LoopbackServer, answer

from .exchanges import (
    APIS,
    BAD_FRAME,
    CUT,
    MADE,
    Exchange,
    adapter,
    body_of,
    cases,
    events_of,
    frame,
    framed,
    load,
    message_of,
    model_for,
    read,
    request_for,
    shown,
    stored,
)

REPLIES = [pytest.param(api, case, id=f"{api}-{case}") for api, case in cases("reply")]
REQUESTS = [pytest.param(api, case, id=f"{api}-{case}") for api, case in cases("request")]
PIECE = 300
"""Bytes of a piece: some frames, and the beginning of another."""
CALLS_ARE_WHOLE = ("gemini", "ollama")
"""Their calls come in one piece, so that a reply that breaks off has whole calls or none."""
USAGE_IS_LAST = ("azure", "bedrock", "mistral", "openai", "xai", "gemini")
"""Their usage comes behind the stop reason, so that it may be missing from a complete reply."""
CONTENT_TYPES = {"bedrock": "application/vnd.amazon.eventstream", "ollama": "application/x-ndjson"}
LINES = [api for api in APIS if api not in ("bedrock", "ollama")]
"""Their frames are server-sent events, whose lines may end in three ways."""
KNOWN = ("signature", "encrypted_content", "was not found", "was not issued", "made_up", "madeUp")
"""What a fake says about what it did not issue itself, and about the extra field of a conversation."""
every_api = pytest.mark.parametrize("api", APIS)


def body(api: str, case: str) -> bytes:
    return body_of(api, load(api, f"{case}.reply"))


# -- both ways -------------------------------------------------------------------------------------------------------


@pytest.mark.table
@pytest.mark.parametrize(("api", "case"), REQUESTS)
async def test_a_conversation_is_sent_as_its_file_says(api: str, case: str) -> None:
    sent = await request_for(api, load("conversations", case))
    assert json.dumps(sent, indent=1) == json.dumps(load(api, f"{case}.request"), indent=1)  # in the same order


@pytest.mark.table
@pytest.mark.parametrize(("api", "case"), REPLIES)
async def test_a_reply_is_read_as_its_file_says(api: str, case: str) -> None:
    data, expected = body(api, case), load(api, f"{case}.events")
    assert shown(read(api, data), data) == expected
    assert shown(await events_of(api, Exchange(data, pieces=3)), data) == expected


def test_files_are_written_in_one_form() -> None:
    for path in MADE.glob("*/*.json"):
        assert path.read_text() == stored(json.loads(path.read_text())), f"run python -m tests.wire.exchanges ({path})"


def test_every_conversation_has_a_request_for_every_api() -> None:
    told = [path.stem for path in MADE.glob("conversations/*.json")]
    assert sorted(cases("request")) == sorted(product(APIS, told))


@every_api
async def test_a_reply_is_read_from_a_socket(api: str) -> None:
    data, told = body(api, "whole"), load("conversations", "plain")
    async with LoopbackServer(answer(data, pieces=7, content_type=CONTENT_TYPES.get(api))) as server:
        events = await events_of(api, None, told, url=server.url)
    assert shown(events, data) == load(api, "whole.events")
    (request,) = server.requests
    expected = load(api, "plain.request")
    assert (request.path, json.loads(request.body)) == (expected["path"], expected["body"])
    assert expected["headers"].items() <= request.headers.items()


@pytest.mark.table
@pytest.mark.parametrize(("api", "case"), REQUESTS)
def test_a_request_breaks_no_rule_of_its_provider(api: str, case: str) -> None:
    if api not in FAKED:
        pytest.skip("the proxy is our own")
    fake = importlib.import_module(f"swink_agent.testing.fakes.{api.replace('-', '_')}")
    told = load("conversations", case)
    model = [model_for(api, told).model_id] if api in ("gemini", "bedrock") else []
    problems = fake.problems(load(api, f"{case}.request")["body"], *model)
    assert [problem for problem in problems if not any(words in problem for words in KNOWN)] == []


# -- ends and errors -------------------------------------------------------------------------------------------------


@pytest.mark.table
@pytest.mark.parametrize("api", [path.parent.name for path in sorted(MADE.glob("*/stop_reasons.json"))])
def test_a_stop_reason_has_its_meaning(api: str) -> None:
    told = load(api, "stop_reasons")
    for reason, expected in told["reasons"].items():
        frames = json.loads(json.dumps(told["frames"]).replace("REASON", reason))
        end = read(api, body_of(api, frames))[-1]
        found = f"{end.kind}: {end.message}" if isinstance(end, StreamFailed) else str(end.stop_reason)
        assert found == expected, reason


@pytest.mark.table
@every_api
def test_an_error_midway_has_its_kind_and_keeps_the_text_before_it(api: str) -> None:
    told = load(api, "errors")
    for error, kind, words in told["frames"]:
        events = read(api, body_of(api, [*told["so_far"], error]))
        end = events[-1]
        assert isinstance(end, StreamFailed)
        assert (str(end.kind), end.message, message_of(events).text) == (kind, words, "So far"), error


@pytest.mark.table
@every_api
async def test_an_answer_with_an_error_has_its_kind(api: str) -> None:
    for refused in load(api, "errors")["answers"]:
        data = refused["body"] if isinstance(refused["body"], str) else json.dumps(refused["body"])
        headers = {"content-type": "application/json", **refused.get("headers", {})}
        *_, end = await events_of(api, Exchange(data.encode(), status=refused["status"], headers=headers))
        kind, words, *wait = refused["failed"]
        assert isinstance(end, StreamFailed)
        assert (str(end.kind), end.message, end.retry_after) == (kind, words, *(wait or [None])), refused
        assert "made-key" not in repr(end)


@pytest.mark.table
@every_api
def test_bytes_that_are_not_a_frame_raise_a_frame_error(api: str) -> None:
    wrong_shapes = [framed(api, each) for each in load(api, "errors")["not_frames"]]
    for data in [*[framed_bytes(api, junk) for junk in JUNK], *wrong_shapes]:
        with pytest.raises(FrameError):
            adapter(api).parser(model_for(api), {}).feed(data)


JUNK = [b"{not json}", b"[1, 2]", b'"text"', b"\xff\xfe", b"[" * 100_000, b'{"x":' + b"[" * 50_000]


def framed_bytes(api: str, data: bytes) -> bytes:
    if api == "bedrock":
        return frame(data, {":event-type": "metadata"})
    return data + b"\n" if api == "ollama" else b"data: " + data + b"\n\n"


@pytest.mark.parametrize(
    ("api", "spoiled"),
    [
        ("openai-responses", b'{"type": "response.output_text.delta", "delta": "\xff"}'),
        (
            "gemini",
            b'{"candidates": [{"content": {"parts": [{"functionCall": {"name": "a", "args": {"b": "\xff"}}}]}}]}',
        ),
        ("ollama", b'{"message": {"tool_calls": [{"function": {"name": "a", "arguments": {"b": "\xff"}}}]}}'),
    ],
)
def test_bytes_that_are_not_text_are_not_passed_on(api: str, spoiled: bytes) -> None:
    with pytest.raises(FrameError):
        adapter(api).parser(model_for(api), {}).feed(framed_bytes(api, spoiled))


# -- anywhere --------------------------------------------------------------------------------------------------------


def in_pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    return [data[start:end] for start, end in pairwise([0, *cuts, len(data)])]


def is_end(event: object) -> bool:
    return isinstance(event, (StreamDone, StreamFailed))


@pytest.mark.table
@pytest.mark.parametrize(("api", "case"), REPLIES)
def test_a_reply_may_be_split_anywhere(api: str, case: str) -> None:
    data, expected = body(api, case), load(api, f"{case}.events")
    assert shown(read(api, *in_pieces(data, list(range(1, len(data))))), data) == expected
    for first in range(1, min(PIECE, len(data)) + 1, 1 if case == "whole" else 17):  # for the first, every byte is cut
        assert shown(read(api, *in_pieces(data, list(range(first, len(data), PIECE)))), data) == expected


@pytest.mark.table
@pytest.mark.parametrize("api", LINES)
@pytest.mark.parametrize("ends", [b"\n", b"\r\n", b"\r"])
def test_lines_may_end_in_any_way_and_be_split_there(api: str, ends: bytes) -> None:
    data, expected = body(api, "whole").replace(b"\n", ends), load(api, "whole.events")
    near = {place + offset for place in range(len(data)) if data.startswith(ends, place) for offset in range(-2, 4)}
    for cut in sorted(cut for cut in near if 0 < cut < len(data)):
        assert shown(read(api, data[:cut], data[cut:]), data) == expected


@pytest.mark.table
@pytest.mark.parametrize(("api", "case"), REPLIES)
def test_a_reply_that_is_cut_ends_once_with_its_blocks_closed(api: str, case: str) -> None:
    data = body(api, case)
    whole = message_of(read(api, data))
    for cut in range(0, len(data), 3 if case == "whole" else 13):
        events = read(api, data[:cut])
        message = message_of(events)
        assert sum(map(is_end, events)) == 1
        assert BAD_FRAME not in str(message.error_message), cut
        assert whole.text.startswith(message.text)
        if message.error_message == CUT:
            assert message.error_kind is ErrorKind.NETWORK
            assert not any(call.is_incomplete for call in message.tool_calls if api in CALLS_ARE_WHOLE)
        elif case == "whole":
            assert (message.stop_reason, message.content) == (whole.stop_reason, whole.content)
            assert api in USAGE_IS_LAST or message.usage == whole.usage


@pytest.mark.parametrize("api", [api for api in APIS if api != "gemini"])  # its reply ends with the body
def test_frames_after_the_end_of_a_reply_are_not_read(api: str) -> None:
    data = body(api, "whole")
    assert shown(read(api, data + data), data) == load(api, "whole.events")


@pytest.mark.table
@every_api
@given(seed=st.integers(0, 2**32))
@settings(max_examples=200)
def test_damaged_bytes_never_raise_and_never_end_twice(api: str, seed: int) -> None:
    dice = random.Random(seed)
    frames = [framed(api, each) for each in load(api, "whole.reply")]
    if api == "bedrock":  # damage of a frame itself is found by its checksum
        place = dice.randrange(len(frames))
        frames[place] = frame(damaged(frames[place][12:-4], dice), {":event-type": "contentBlockDelta"})
        data = b"".join(frames)
    else:
        data = damaged(b"".join(frames), dice)
    events = read(api, data)
    assembler = MessageAssembler(ModelSpec("test", "some-model"))
    for event in events:
        assembler.feed(event)
    assert assembler.is_finished
    # Whether arguments are JSON is for the assembler to find out.
    assert not assembler.is_broken or "JSON object" in (assembler.message().error_message or "")
    assert sum(map(is_end, events)) == 1


def damaged(data: bytes, dice: random.Random) -> bytes:
    """The bytes with some of them replaced, deleted or added."""
    spoiled = bytearray(data)
    fragments = [b"", b"\x00", b"\xff", b'"', b"{", b"}", b"null", b"[]", b"\n", b"1e999", b"-1", b"true"]
    for _ in range(dice.choice([1, 3, 8, 20])):
        place = dice.randrange(len(spoiled))
        fragment = dice.choice([*fragments, bytes([dice.randrange(256)])])
        spoiled[place : place + dice.randrange(3)] = fragment
    return bytes(spoiled)
