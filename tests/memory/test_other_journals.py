"""The file is one of several possible journals: a database can replace it without other changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentError,
    AssistantMessage,
    CustomMessage,
    Redactor,
    Thinking,
    ToolResultMessage,
    extract_text,
    tool,
)
from swink_agent.core.journal import JournalEntry
from swink_agent.memory import SessionRecord
from swink_agent.memory.log.decoding import EntryDecoder
from swink_agent.memory.log.fold import Fold
from swink_agent.memory.log.masking import masked
from swink_agent.memory.log.records import encode_line
from swink_agent.memory.sessions.session import past_of
from swink_agent.testing import assert_replays, call, check_events, collect, scripted, text, think

sqlite3 = pytest.importorskip("sqlite3")


class Refused(AgentError):
    """The database is gone."""


class Database:
    """A journal in a table. What is not committed is gone with the process, as it would be with a crash."""

    def __init__(self, path: Path, types: Sequence[type[CustomMessage]] = ()) -> None:
        self._connection = sqlite3.connect(path)
        self._connection.execute("CREATE TABLE IF NOT EXISTS records (number INTEGER PRIMARY KEY, line BLOB)")
        self.is_gone = False
        self.fold = Fold()
        self._records: list[SessionRecord] = []
        decoder = EntryDecoder(types)
        for number, line in self._connection.execute("SELECT number, line FROM records ORDER BY number"):
            self._keep(number, decoder.decode(line, number))

    def _keep(self, number: int, entry: Any) -> None:
        self.fold.add(number, entry)
        self._records.append(SessionRecord(number, 0, entry))

    def record(self, entry: JournalEntry, redactor: Redactor | None = None, /) -> int:
        number = len(self._records) + 1
        self._keep(number, entry)
        line = encode_line(number, 0, entry if redactor is None else masked(entry, redactor))
        self._connection.execute("INSERT INTO records VALUES (?, ?)", [number, line])
        return number

    async def durable(self) -> None:
        if self.is_gone:
            raise Refused("the database is gone")
        self._connection.commit()

    def crash(self) -> None:
        self._connection.rollback()
        self.close()

    def close(self) -> None:
        self._connection.close()

    @property
    def messages(self) -> Sequence[Any]:
        return self.fold.messages

    def records(self) -> list[SessionRecord]:
        return self._records


@pytest.fixture
def database_at(tmp_path: Path) -> Iterator[Callable[..., Database]]:
    """Opens the database of the test, and closes it at the end."""
    with ExitStack() as opened:

        def database_at(*given: Any) -> Database:
            return opened.enter_context(closing(Database(tmp_path / "log.db", *given)))

        yield database_at


@tool
async def act(what: str) -> str:
    """Acts."""
    return f"did {what}"


async def test_a_session_in_a_database_goes_on_after_a_crash_in_the_middle_of_a_tool(
    database_at: Callable[..., Database],
) -> None:
    database = database_at()
    before: list[Any] = []

    @tool
    async def crash() -> str:
        """Ends the world."""
        before.extend(agent.messages)
        database.crash()
        raise SystemExit

    script = scripted(call("act", what="a"), [call("crash"), call("act", what="b")], text("never"))
    agent = Agent("test:model", stream_fn=script, tools=[act, crash], tool_execution="sequential")
    agent.attach_journal(database)
    check_events(await collect(agent.prompt_stream("go")))
    assert "the journal failed: ProgrammingError" in str(agent.last_error)

    again = database_at()
    fold = again.fold
    assert list(fold.messages[: len(before)]) == before
    lost, never = fold.messages[len(before) :]
    assert extract_text(lost.content).startswith("outcome unknown")  # type: ignore[union-attr]
    assert extract_text(never.content).startswith("never ran")  # type: ignore[union-attr]
    model = scripted(text("I see."))
    other = Agent("test:model", stream_fn=model, tools=[act])
    other.attach_journal(again, past_of(again))
    assert (await other.prompt("go on")).text == "I see."
    assert database_at().fold.messages == tuple(other.messages)
    assert len([one for one in model.requests[0].messages if isinstance(one, ToolResultMessage)]) == 3


async def test_a_database_that_refuses_ends_the_run_before_the_model_is_asked(
    database_at: Callable[..., Database],
) -> None:
    database = database_at()
    database.is_gone = True
    model = scripted(text("never"))
    agent = Agent("test:model", stream_fn=model)
    agent.attach_journal(database)
    assert isinstance((await agent.prompt("go")).exception, Refused)
    assert model.requests == []


class Notice(CustomMessage, tag="notice"):
    words: str


async def test_a_database_holds_the_same_about_an_agent_as_a_file(
    tmp_path: Path, database_at: Callable[..., Database]
) -> None:
    database = database_at()
    redactor = Redactor(["swordfish-9-swordfish"], environment={})

    def make_agent(stream_fn: Any, wrap_tool: Any) -> Agent:
        messages = [Notice("swordfish-9-swordfish has signed in")]
        return Agent("test:model", stream_fn=stream_fn, tools=[wrap_tool(act)], messages=messages, redactor=redactor)

    thought = think("it is swordfish-9-swordfish", signature="of the provider")
    agent = make_agent(scripted([thought, call("act", what="x")], text("done")), lambda tool: tool)
    agent.attach_journal(database)
    await agent.prompt("go")
    await assert_replays(database, make_agent)

    with closing(sqlite3.connect(tmp_path / "log.db")) as connection:
        assert b"swordfish" not in b"".join(line for (line,) in connection.execute("SELECT line FROM records"))
    notice, _, reply, *_ = database_at([Notice]).fold.messages
    assert isinstance(notice, Notice)
    assert isinstance(reply, AssistantMessage)
    (thinking,) = [block for block in reply.content if isinstance(block, Thinking)]
    assert thinking.signature is None  # a provider refuses one under another text
