"""A line holds the whole entry, in the order of the format, however it was encoded."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import pytest

from swink_agent import Agent, AssistantMessage, ToolCall, ToolResultMessage, UserMessage
from swink_agent.core.journal import CallFacts, HistoryCut, MessageAdded, RunStarted, ToolStarted
from swink_agent.memory import JsonlSessionStore
from swink_agent.memory.log.records import encode_line, fill_line
from swink_agent.testing import scripted, text

REPLY = AssistantMessage([ToolCall("call_1", "add", {"a": 1})], "test", "model")
ENTRIES = [
    MessageAdded(REPLY, "reply"),
    MessageAdded(ToolResultMessage("call_1", "2", tool_name="add"), "result", 0),
    ToolStarted(3, "call_1", "add"),
    ToolStarted(3, "call_1", "add", {"a": 2}),
    ToolStarted(3, "call_1", "add", None, CallFacts(approval="approved", scope={"folder": "/a"})),
    HistoryCut((1, 2)),
    RunStarted("r1"),
]


@pytest.mark.table
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_a_line_is_the_stamp_then_the_entry_then_the_checksum(entry: Any) -> None:
    line = encode_line(7, 1794764608125, entry)
    said: dict[str, Any] = {"seq": 7, "at": 1794764608125, **msgspec.json.decode(msgspec.json.encode(entry))}
    body = line[: line.rindex(b',"crc":')]

    assert list(msgspec.json.decode(line).items()) == [*said.items(), ("crc", f"{crc32(body):08x}")]
    assert line.endswith(b"}\n")


def test_a_buffer_keeps_nothing_of_the_line_before() -> None:
    buffer = bytearray()
    for number, entry in enumerate([*ENTRIES, *reversed(ENTRIES)]):
        fill_line(buffer, number, 5, entry)
        assert bytes(buffer) == encode_line(number, 5, entry)


@pytest.mark.parametrize("odd", [float("nan"), 2**70, "\ud800", object, {1, 2}])
def test_a_line_that_is_not_json_is_shown_whole(odd: Any) -> None:
    line = encode_line(1, 2, ToolStarted(0, "call_1", "add", {"odd": odd, "even": 4}))
    said = msgspec.json.decode(line)

    assert list(said)[:3] == ["seq", "at", "type"]
    assert (said["type"], said["arguments"]["even"]) == ("tool_started", 4)
    assert int(said["crc"], 16) == crc32(line[: line.rindex(b',"crc":')])


@pytest.mark.parametrize("arguments", [{1: 2}, {(1, 2): None}, {1: "long enough to be looked at"}, {None: {}}])
def test_odd_names_of_arguments_do_not_end_a_session(tmp_path: Path, arguments: Any) -> None:
    history = [UserMessage("q"), AssistantMessage([ToolCall("1", "t", arguments)]), ToolResultMessage("1", "r")]
    agent = Agent("scripted:x", stream_fn=scripted(text("ok")), messages=history)
    store = JsonlSessionStore(tmp_path, sync=False)
    with store.create() as session:
        session.attach(agent)
        assert agent.prompt_sync("go on").error is None

    read = store.load(session.id).messages[1]
    assert isinstance(read, AssistantMessage)
    assert read.tool_calls[0].arguments == {str(key): value for key, value in arguments.items()}
