"""The file is one journal among others: a database takes its place, and nothing but the database is new."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Union

import msgspec
import pytest

from swink_agent import Agent, AgentError, Redactor, ToolResultMessage, extract_text, tool
from swink_agent.core import journal
from swink_agent.core.journal import JournalEntry, MessageAdded
from swink_agent.memory.fold import Fold
from swink_agent.testing import call, scripted, text

sqlite3 = pytest.importorskip("sqlite3")

ENTRIES: Any = msgspec.json.Decoder(Union[tuple(journal.JournalEntry.__args__)])  # type: ignore[attr-defined] # noqa: UP007


class Refused(AgentError):
    """The database is gone."""


class Database:
    """A journal in a table. What is not committed is gone with the process, as it would be with a crash."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path)
        self._connection.execute("CREATE TABLE IF NOT EXISTS entries (number INTEGER PRIMARY KEY, entry BLOB)")
        self.is_gone = False

    def record(self, entry: JournalEntry, redactor: Redactor | None = None, /) -> int:
        entry = entry if redactor is None else redactor.redact_value(entry)
        cursor = self._connection.execute("INSERT INTO entries (entry) VALUES (?)", [msgspec.json.encode(entry)])
        return int(cursor.lastrowid or 0)

    async def durable(self) -> None:
        if self.is_gone:
            raise Refused("the database is gone")
        self._connection.commit()

    def crash(self) -> None:
        self._connection.rollback()
        self._connection.close()

    def fold(self) -> Fold:
        fold = Fold()
        for number, entry in self._connection.execute("SELECT number, entry FROM entries ORDER BY number"):
            fold.add(number, ENTRIES.decode(entry))
        return fold


@tool
async def act(what: str) -> str:
    """Acts."""
    return f"did {what}"


async def test_a_session_in_a_database_goes_on_after_a_crash_in_the_middle_of_a_tool(tmp_path: Path) -> None:
    database = Database(tmp_path / "log.db")
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
    with pytest.raises(sqlite3.ProgrammingError):
        await agent.prompt("go")

    again = Database(tmp_path / "log.db")
    fold = again.fold()
    assert list(fold.messages[: len(before)]) == before
    lost, never = fold.messages[len(before) :]
    assert extract_text(lost.content).startswith("outcome unknown")  # type: ignore[union-attr]
    assert extract_text(never.content).startswith("never ran")  # type: ignore[union-attr]
    for one in fold.recovered()[1]:
        entry = MessageAdded(one.message, "result", one.call)
        fold.add(again.record(entry), entry)
    model = scripted(text("I see."))
    other = Agent("test:model", stream_fn=model, tools=[act])
    other.attach_journal(again, fold.past())
    assert (await other.prompt("go on")).text == "I see."
    assert again.fold().messages == tuple(other.messages)
    assert len([one for one in model.requests[0].messages if isinstance(one, ToolResultMessage)]) == 3


async def test_a_database_that_refuses_ends_the_run_before_the_model_is_asked(tmp_path: Path) -> None:
    database = Database(tmp_path / "log.db")
    database.is_gone = True
    model = scripted(text("never"))
    agent = Agent("test:model", stream_fn=model)
    agent.attach_journal(database)
    assert isinstance((await agent.prompt("go")).exception, Refused)
    assert model.requests == []
