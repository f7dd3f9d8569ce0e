"""A damaged file: the intact parts open, the rest is reported, and reading changes nothing."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from swink_agent import AgentMessage, AssistantMessage, ToolResultMessage, UserMessage, extract_text
from swink_agent.core.exchanges import repair_pairs
from swink_agent.core.types import LLM_MESSAGES
from swink_agent.memory import (
    JsonlSessionStore,
    LoadedSession,
    SessionDamaged,
    SessionError,
    SessionInUse,
    UnknownMessage,
    UnknownRecord,
)
from swink_agent.memory.log.records import SessionStarted, TitleChanged, encode_line
from swink_agent.memory.storage.files import FileOperations
from swink_agent.testing import check_conversation

from .conftest import record
from .kinds import Files, Kind


def check_history(messages: tuple[AgentMessage, ...]) -> None:
    """Every call has its one result right behind it, in order, and there is no other result."""
    waiting: list[str] = []
    for message in messages:
        if isinstance(message, ToolResultMessage):
            assert waiting, message
            assert waiting.pop(0) == message.tool_call_id
        else:
            assert not waiting, (waiting, message)
            if isinstance(message, AssistantMessage):
                waiting = [call.id for call in message.tool_calls]
    assert not waiting


def check_context(loaded: LoadedSession) -> None:
    """What would be sent is a conversation that a provider takes."""
    context = loaded.messages if loaded.context is None else loaded.context
    check_conversation(repair_pairs([m for m in context if type(m) in LLM_MESSAGES]))  # type: ignore[misc]


def without_recovered(messages: tuple[AgentMessage, ...]) -> list[AgentMessage]:
    return [m for m in messages if not (isinstance(m, ToolResultMessage) and is_recovered(m))]


def is_recovered(message: ToolResultMessage) -> bool:
    return extract_text(message.content).startswith(("never ran", "outcome unknown"))


def is_subsequence(part: list[Any], whole: list[Any]) -> bool:
    rest = iter(whole)
    return all(any(item == other for other in rest) for item in part)


def messages_in(lines: list[bytes]) -> int:
    return sum(b'"type":"message"' in line for line in lines)


class Damaged:
    """A session's log, to be damaged in many ways."""

    def __init__(self, kind: Kind, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        self.store = kind.make(folder)
        self.whole = self.store.load(record(self.store).id)
        self.path = self.whole.path
        self.data = self.log
        self.lines = self.data.splitlines(keepends=True)

    @property
    def log(self) -> bytes:
        return self.kind.read(self.folder, self.whole.id)

    @log.setter
    def log(self, data: bytes) -> None:
        self.kind.write(self.folder, self.whole.id, data)

    def with_bytes(self, data: bytes) -> LoadedSession | None:
        """The session as it is read from other bytes; `None` if nothing can be. The log stays as it is."""
        self.log = data
        try:
            loaded = self.store.load(self.whole.id)
        except SessionDamaged:
            loaded = None
        assert self.log == data
        return loaded


@pytest.fixture
def damaged(kind: Kind, tmp_path: Path) -> Damaged:
    return Damaged(kind, tmp_path / "sessions")


@pytest.fixture
def damaged_file(tmp_path: Path) -> Damaged:
    """One in a file, for what takes long, and what only concerns files."""
    return Damaged(Files(), tmp_path / "sessions")


def starts_of(lines: list[bytes]) -> Iterator[int]:
    at = 0
    for line in lines:
        yield at
        at += len(line)


def check_cut(damaged: Damaged, cut: int) -> None:
    kept = [
        line
        for start, line in zip(starts_of(damaged.lines), damaged.lines, strict=True)
        if start + len(line) - 1 <= cut
    ]
    loaded = damaged.with_bytes(damaged.data[:cut])
    if not kept:
        assert loaded is None
        return
    assert loaded is not None
    check_history(loaded.messages)
    check_context(loaded)
    assert len(loaded.records()) == len(kept)
    found = without_recovered(loaded.messages)
    assert len(found) == messages_in(kept), "a damaged tail costs the record being written, and no other"
    assert is_subsequence(found, list(damaged.whole.messages))
    is_clean = cut == sum(map(len, kept)) or cut == sum(map(len, kept)) - 1
    assert (loaded.info.problems == ()) == is_clean


@pytest.mark.sweep
def test_a_log_that_was_cut_anywhere_opens_with_all_but_the_record_that_was_cut(damaged_file: Damaged) -> None:
    for cut in range(0, len(damaged_file.data), 29):
        check_cut(damaged_file, cut)


@pytest.mark.sweep
@pytest.mark.timeout(600)
def test_a_log_that_was_cut_at_every_byte(damaged_file: Damaged) -> None:
    for cut in range(len(damaged_file.data) + 1):
        check_cut(damaged_file, cut)


def check_flip(damaged: Damaged, position: int, bits: int) -> None:
    data = bytearray(damaged.data)
    data[position] ^= bits
    loaded = damaged.with_bytes(bytes(data))
    assert loaded is not None
    check_history(loaded.messages)
    check_context(loaded)
    assert loaded.info.problems, "damage is reported"
    assert len(loaded.records()) >= len(damaged.lines) - 1, "it costs one record at most"
    hit = sum(start <= position for start in starts_of(damaged.lines)) - 1
    if hit == 0:
        assert loaded.messages == damaged.whole.messages, "a damaged first line costs no message"
        assert loaded.id == damaged.whole.id
        assert loaded.info.created == damaged.whole.info.created


@pytest.mark.sweep
def test_a_flipped_bit_costs_at_most_one_record(damaged_file: Damaged) -> None:
    for position in range(0, len(damaged_file.data), 11):
        check_flip(damaged_file, position, 1 << position % 8)
    for start, line in zip(starts_of(damaged_file.lines), damaged_file.lines, strict=True):
        check_flip(damaged_file, start, 1)
        check_flip(damaged_file, start + len(line) - 1, 2)  # the newline


@pytest.mark.sweep
@pytest.mark.timeout(1800)
def test_every_byte_flipped_in_several_ways(damaged_file: Damaged) -> None:
    for position in range(len(damaged_file.data)):
        value = damaged_file.data[position]
        for bits in {1, 0x80, 0xFF, value ^ 0x0A, value ^ 0x22, value} - {0}:
            check_flip(damaged_file, position, bits)


def test_a_byte_that_became_a_newline_costs_one_record(damaged: Damaged) -> None:
    for start, line in list(zip(starts_of(damaged.lines), damaged.lines, strict=True))[1:]:
        middle = start + len(line) // 2
        data = damaged.data[:middle] + b"\n" + damaged.data[middle + 1 :]
        loaded = damaged.with_bytes(data)
        assert loaded is not None
        assert len(loaded.records()) == len(damaged.lines) - 1


def test_a_lost_newline_costs_nothing(damaged: Damaged) -> None:
    at = len(damaged.lines[0]) + len(damaged.lines[1]) - 1
    for data in (damaged.data[:at] + b"\x8a" + damaged.data[at + 1 :], damaged.data[:at] + damaged.data[at + 1 :]):
        loaded = damaged.with_bytes(data)
        assert loaded is not None
        assert loaded.messages == damaged.whole.messages
        assert len(loaded.records()) == len(damaged.lines)


def test_line_ends_of_an_editor_cost_nothing_and_are_said_once(damaged: Damaged) -> None:
    loaded = damaged.with_bytes(damaged.data.replace(b"\n", b"\r\n"))
    assert loaded is not None
    assert loaded.messages == damaged.whole.messages
    assert loaded.info.problems == (
        f"{len(damaged.lines)} lines end with a carriage return, as some editors write it: nothing is lost",
    )
    damaged.store.open(loaded.id).close()
    assert damaged.store.load(loaded.id).info.problems == ()
    assert damaged.log == damaged.data


def test_zeros_at_the_end_as_a_power_loss_leaves_them(damaged: Damaged) -> None:
    loaded = damaged.with_bytes(damaged.data + bytes(5000))
    assert loaded is not None
    assert loaded.messages == damaged.whole.messages
    assert loaded.info.problems == (f"5000 bytes at {len(damaged.data)} are zero, as after a power failure",)


def test_a_whole_last_record_without_its_newline_is_used_and_gone_on_from(damaged: Damaged) -> None:
    loaded = damaged.with_bytes(damaged.data[:-1])
    assert loaded is not None
    assert loaded.info.problems == ()
    with damaged.store.open(loaded.id) as session:
        session.note("more")
    again = damaged.store.load(loaded.id)
    assert again.info.problems == ()
    assert [note.kind for note in again.notes] == ["mood", "more"]


# -- numbers -------------------------------------------------------------------------------------------------


def test_a_repeated_record_is_applied_once_and_reported(damaged: Damaged) -> None:
    lines = damaged.lines
    loaded = damaged.with_bytes(b"".join([*lines[:4], lines[3], *lines[4:], lines[5]]))
    assert loaded is not None
    assert loaded.messages == damaged.whole.messages
    assert loaded.info.problems == (
        "record 3 occurs twice, and is used once",
        "record 5 occurs twice, and is used once",
    )


def test_records_out_of_order_are_read_in_order_and_reported(damaged: Damaged) -> None:
    lines = damaged.lines
    loaded = damaged.with_bytes(b"".join([*lines[:3], lines[4], lines[3], *lines[5:]]))
    assert loaded is not None
    assert loaded.messages == damaged.whole.messages
    assert loaded.info.problems == ("record 3 comes after record 4: it is read in the right order",)


def test_missing_records_are_reported(damaged: Damaged) -> None:
    lines = damaged.lines
    loaded = damaged.with_bytes(b"".join([*lines[:3], *lines[4:8], *lines[10:]]))
    assert loaded is not None
    check_history(loaded.messages)
    assert "record 3 is missing" in loaded.info.problems
    assert "records 8 to 9 are missing" in loaded.info.problems


def test_every_single_record_may_be_missing(damaged: Damaged) -> None:
    for missing in range(len(damaged.lines)):
        loaded = damaged.with_bytes(b"".join(line for n, line in enumerate(damaged.lines) if n != missing))
        assert loaded is not None
        check_history(loaded.messages)
        check_context(loaded)
        is_last = missing == len(damaged.lines) - 1
        assert (loaded.info.problems == ()) == is_last


# -- opening for writing -------------------------------------------------------------------------------------


def test_going_on_after_damage_keeps_the_damaged_bytes_beside_the_log(damaged: Damaged) -> None:
    at = damaged.data.index(b"First: what")
    bad = damaged.data[:at] + b"\xff" + damaged.data[at + 1 :] + b'{"seq":99,"at":1,"ty'
    assert damaged.with_bytes(bad) is not None
    before = damaged.store.load(damaged.whole.id)
    with damaged.store.open(damaged.whole.id) as session:
        assert session.messages == before.messages
        assert session.info.problems == before.info.problems
        session.note("more")
    after = damaged.store.load(damaged.whole.id)
    assert after.messages == before.messages
    assert [note.kind for note in after.notes] == ["mood", "more"]
    assert [problem for problem in after.info.problems if "bytes" in problem] == [], "the log itself is whole again"
    kept = b"\n".join(damaged.kind.damaged(damaged.folder))
    assert b"\xffirst: what" in kept
    assert b'{"seq":99,"at":1,"ty' in kept
    assert [info.id for info in damaged.store.list()] == [damaged.whole.id]
    modes = [path.stat().st_mode & 0o077 for path in damaged.folder.rglob("*")]
    assert not any(modes), "nobody else can read any of it"
    damaged.store.delete(damaged.whole.id)
    assert b"irst: what" not in damaged.kind.everything(damaged.folder)


def test_going_on_after_the_first_line_was_lost_writes_another(damaged: Damaged) -> None:
    assert damaged.with_bytes(b"#" + damaged.data[1:]) is not None
    with damaged.store.open(damaged.whole.id) as session:
        session.rename("mended")
    info = damaged.store.load(damaged.whole.id).info
    assert (info.title, info.problems, info.created) == ("mended", (), damaged.whole.info.created)


def test_a_mended_session_has_one_writer_too(damaged: Damaged) -> None:
    damaged.log = damaged.data + b"torn"
    with damaged.store.open(damaged.whole.id):
        with pytest.raises(SessionInUse):
            damaged.store.open(damaged.whole.id)
        assert damaged.store.load(damaged.whole.id).messages == damaged.whole.messages
    damaged.store.open(damaged.whole.id).close()


def test_a_process_that_waited_for_a_repair_continues_with_the_repaired_file(damaged_file: Damaged) -> None:
    damaged = damaged_file

    class Late(FileOperations):
        """Opens the file, and gets its lock only when another writer has come and gone."""

        is_late = True

        def lock(self, descriptor: int) -> bool:
            if self.is_late:
                self.is_late = False
                with damaged.store.open(damaged.whole.id) as other:
                    other.note("by the other")
            return super().lock(descriptor)

    damaged.path.write_bytes(damaged.data + b"torn")
    with JsonlSessionStore(damaged.path.parent, sync=False, files=Late()).open(damaged.whole.id) as session:
        session.note("by this one")
    notes = damaged.store.load(damaged.whole.id).notes
    assert [note.kind for note in notes] == ["mood", "by the other", "by this one"]


def test_each_damage_has_a_file_of_its_own(damaged_file: Damaged) -> None:
    for expected in range(1, 4):
        with damaged_file.path.open("ab") as file:
            file.write(b"torn %d" % expected)
        damaged_file.store.open(damaged_file.whole.id).close()
        assert (
            damaged_file.path.with_name(f"{damaged_file.whole.id}.damaged-{expected}").read_bytes()
            == b"torn %d\n" % expected
        )
    assert damaged_file.store.load(damaged_file.whole.id).info.problems == ()


@pytest.mark.parametrize("data", [b"", b"\n", b"hello\n", bytes(1000), b'{"seq":0}\n', b"\xff" * 100])
def test_a_log_that_is_not_a_session_is_left_as_it_is(damaged: Damaged, data: bytes) -> None:
    damaged.log = data
    for use in (damaged.store.load, damaged.store.open, damaged.store.fork):
        with pytest.raises(SessionDamaged, match=re.escape(damaged.kind.place(damaged.folder, damaged.whole.id))):
            use(damaged.whole.id)
    assert damaged.store.list() == []
    assert damaged.log == data
    assert damaged.kind.damaged(damaged.folder) == []


@pytest.mark.sweep
def test_a_hostile_line_takes_no_time(damaged_file: Damaged) -> None:
    line = b'{"seq":1,"at":1,' * 100_000 + b',"crc":"00000000"}' * 20_000
    loaded = damaged_file.with_bytes(damaged_file.data + line + b"\n")
    assert loaded is not None
    assert loaded.messages == damaged_file.whole.messages


# -- versions ------------------------------------------------------------------------------------------------


def line_of(document: dict[str, Any]) -> bytes:
    """A line as some version might write it."""
    body = msgspec.json.encode(document)[:-1]
    return body + b',"crc":"%08x"}\n' % zlib.crc32(body)


USER = {"role": "user", "content": [], "timestamp": 1}


def test_a_newer_version_opens_as_far_as_it_is_understood_and_says_so(damaged: Damaged) -> None:
    start = encode_line(0, 1, SessionStarted(id=damaged.whole.id, version=9, created=5, cwd="/x"))
    reply = {
        "role": "assistant",
        "content": [{"type": "text", "text": "hi"}, {"type": "hologram", "depth": 3}],
        "stop_reason": "bored",
        "mood": "good",
        "timestamp": 1,
    }
    more = [
        {"seq": 1, "at": 2, "type": "telepathy", "of": {"a": [1]}},
        {"seq": 2, "at": 3, "type": "message", "message": USER, "source": "dream", "x": 1},
        {"seq": 3, "at": 4, "type": "message", "message": reply, "source": "reply"},
        {"seq": 4, "at": 5, "type": "message", "message": {"role": "oracle", "says": "42"}, "source": "reply"},
        {"seq": 5, "at": 6, "type": "model", "model": "a string now"},
    ]
    data = start + b"".join(map(line_of, more))
    loaded = damaged.with_bytes(data)
    assert loaded is not None
    user, said, oracle = loaded.messages
    assert isinstance(user, UserMessage)
    assert isinstance(said, AssistantMessage)
    assert said.text == "hi"
    assert [type(block).__name__ for block in said.content] == ["Text", "Extension"]
    assert oracle == UnknownMessage({"role": "oracle", "says": "42"})
    assert loaded.records()[1].entry == UnknownRecord("telepathy", {"of": {"a": [1]}})
    assert loaded.info.version == 9
    problems = loaded.info.problems
    assert problems[0].startswith("it was written by a newer version (format 9; this one knows 1)")
    assert any("'telepathy'" in problem for problem in problems)
    assert any("stop_reason" in problem for problem in problems)
    assert any("'oracle'" in problem for problem in problems)
    assert damaged.store.list()[0].problems == problems
    with pytest.raises(SessionError, match="newer version"):
        damaged.store.open(loaded.id)
    assert damaged.log == data
    with damaged.store.fork(loaded.id) as fork:
        assert fork.messages == loaded.messages, "nothing that was not understood is lost on the way"
    assert damaged.store.load(fork.id).messages == loaded.messages


def test_a_field_of_any_kind_leaves_the_session_in_the_list(damaged: Damaged) -> None:
    sound = {"type": "message", "message": USER, "source": "prompt", "call": None, "facts": None}
    for odd in ([], {}, ["x"], 5, None, 2**63, "x", "\x00"):
        fields = [sound | {name: odd} for name in sound if name != "type"]
        fields += [{"type": "title", "title": odd}, {"type": odd}, {"type": "label", "message": odd, "label": odd}]
        lines = [line_of({"seq": n, "at": n, **each}) for n, each in enumerate(fields, 1)]
        start = {"seq": 0, "at": 0, "type": "session", "id": damaged.whole.id, "version": 1, "created": odd, "cwd": odd}
        assert damaged.with_bytes(line_of(start) + b"".join(lines)) is not None
        assert [info.id for info in damaged.store.list()] == [damaged.whole.id]


def test_a_line_of_another_version_costs_nothing_of_those_around_it(damaged_file: Damaged) -> None:
    """Many lines are decoded at once: one that is not understood, wherever it stands, is the only one."""
    start = encode_line(0, 1, SessionStarted(id=damaged_file.whole.id))
    for odd in range(1, 71):
        lines = [
            line_of({"seq": n, "at": n, "type": "title", "title": str(n)})
            if n != odd
            else line_of({"seq": n, "at": n, "type": "telepathy"})
            for n in range(1, 71)
        ]
        loaded = damaged_file.with_bytes(start + b"".join(lines))
        assert loaded is not None
        expected = [UnknownRecord("telepathy") if n == odd else TitleChanged(str(n)) for n in range(1, 71)]
        assert [record.entry for record in loaded.records()[1:]] == expected
        assert [(record.number, record.at) for record in loaded.records()[1:]] == [(n, n) for n in range(1, 71)]
        assert loaded.info.problems == (f"record {odd} is of a kind that this version does not know, 'telepathy'",)


@pytest.mark.parametrize(
    "said",
    [
        b'"type":"title","title":"one"} {"type":"title","title":"another"',
        b'"type":"title","title":"one"}{"type":"title","title":"another"',
        b'"type":"note","kind":"open","data":{"a":1',
        b'"type":"note","kind":"open","data":["a"',
        b'"type":"title","title":"cut',
        b'"type":"title","title":"cut\\',
        b"",
    ],
)
def test_a_sound_line_that_is_not_one_value_costs_only_itself(damaged: Damaged, said: bytes) -> None:
    start = encode_line(0, 1, SessionStarted(id=damaged.whole.id))
    before = line_of({"seq": 1, "at": 1, "type": "title", "title": "before"})
    body = b'{"seq":2,"at":2,' + said
    after = line_of({"seq": 3, "at": 3, "type": "title", "title": "after"})
    loaded = damaged.with_bytes(start + before + body + b',"crc":"%08x"}\n' % zlib.crc32(body) + after)
    assert loaded is not None
    entries = [record.entry for record in loaded.records()[1:]]
    assert entries == [TitleChanged("before"), UnknownRecord(""), TitleChanged("after")]
    assert loaded.info.problems == ("record 2 is not a JSON object and is skipped",)


def test_a_log_of_the_first_version_opens(kind: Kind, tmp_path: Path) -> None:
    """It was written when the format was new, and stays here as it is."""
    name = "20261115-174328-123-bc72a1.jsonl"
    data = (Path(__file__).with_name("files") / name).read_bytes()
    kind.write(tmp_path, name.removesuffix(".jsonl"), data)
    loaded = kind.make(tmp_path).load("20261115-174328-123")
    assert loaded.info.problems == ()
    assert loaded.info.title == "A talk"
    assert [type(message).__name__[0] for message in loaded.messages] == list("UATTAUATAUAUA")
    assert loaded.state == {"looked": "c"}
    assert [label.text for label in loaded.labels] == ["the end"]
    assert loaded.context is not None
