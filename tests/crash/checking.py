"""Child processes to kill, and the invariants of a session after each kill.

Owns the pipe to `life.py`, and the invariants: everything that was relied on is on disk, at most the record that was
being written is lost, providers accept the history, and every piece of work was done at most once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from swink_agent import AgentMessage, AssistantMessage, ToolOutcome, ToolResultMessage, extract_text
from swink_agent.core.journal import ToolStarted
from swink_agent.memory import JsonlSessionStore, LoadedSession, SessionStore, SqlSessionStore
from swink_agent.memory.log.fold import Fold
from swink_agent.testing import check_conversation

from .life import digest, items_of

Said = list[Any]


class Nursery:
    """The process that forks children, for as long as the `with` block lasts."""

    def __enter__(self) -> Nursery:
        program = Path(__file__).with_name("life.py")
        self._process = subprocess.Popen(
            [sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()

    def begin(self, do: str, folder: Path, **order: Any) -> Child:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = msgspec.json.encode({"do": do, "folder": str(folder), **order}).decode()
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return Child(self._process.stdout)

    def lives(self, do: str, folder: Path, **order: Any) -> Child:
        """A child that is not killed by anyone else, at its end."""
        child = self.begin(do, folder, **order)
        child.wait()
        return child


class Child:
    """One life. `said` is what it relied on, in order."""

    def __init__(self, pipe: Any) -> None:
        self._lines: Iterator[str] = iter(pipe.readline, "")
        self.said: list[Said] = []
        self.was_killed = False
        self._has_ended = False
        self.pid: int = self._next()[1]

    def _next(self) -> Said:
        return msgspec.json.decode(next(self._lines))

    def read(self, most: int | None = None, until: str | None = None) -> None:
        """Takes what the child says: `most` lines, up to a word, or all."""
        while not self._has_ended and most != 0:
            line = self._next()
            if line[0] == "ended":
                self._has_ended = True
                self.was_killed = line[1] == signal.SIGKILL
                return
            self.said.append(line)
            most = None if most is None else most - 1
            if line[0] == until:
                return

    def kill(self) -> None:
        """`kill -9`, at once; harmless if it has ended, since nobody else has its pid yet."""
        os.kill(self.pid, signal.SIGKILL)
        self.wait()

    def kill_after(self, lines: int, seconds: float) -> None:
        self.read(lines)
        time.sleep(seconds)  # not for anything to happen: it is a moment that nothing chose
        self.kill()

    def wait(self) -> None:
        self.read()
        failures = [line for line in self.said if line[0] == "failed"]
        assert not failures, failures

    def all(self, what: str) -> list[Said]:
        return [line for line in self.said if line[0] == what]

    def one(self, what: str) -> Said | None:
        found = self.all(what)
        return found[-1] if found else None


# -- promises ----------------------------------------------------------------------------------------------------


def check_loaded(loaded: LoadedSession) -> None:
    """A session after a kill: nothing wrong but the record that was being written, and a history that is valid."""
    problems = loaded.info.problems
    assert all(problem.startswith("the last record was cut off") for problem in problems), problems
    assert len(problems) <= 1, problems
    assert [record.number for record in loaded.records()] == list(range(len(loaded.records())))
    check_conversation(loaded.messages)
    if loaded.context is not None:
        check_conversation(loaded.context)


def check_relied_on(loaded: LoadedSession, said: list[Said]) -> None:
    """Everything that a child relied on is in the session.

    A history only grows here, so that the last of each kind speaks for those before it.
    """
    last = {line[0]: line for line in said}
    for line in last.values():
        match line:
            case ["asked", count, known, sent, context, ran]:
                check_prefix(loaded.messages, count, known, line)
                assert loaded.state.get("ran", 0) >= ran, (line, loaded.state)
                assert any(digest(was[:sent]) == context for was in contexts(loaded, count)), line
            case ["resumed", count, known]:
                check_prefix(loaded.messages, count, known, line)
            case ["returned", count, known, ran]:
                check_prefix(loaded.messages, count, known, line)
                assert loaded.state.get("ran", 0) >= ran, (line, loaded.state)
            case _:
                pass
    missing = {line[1] for line in said if line[0] == "started"} - started_items(loaded)
    assert not missing, f"work was started of which nothing is on record: {missing}"


def check_prefix(messages: tuple[AgentMessage, ...], count: int, known: str, line: Said) -> None:
    assert len(messages) >= count, f"{line}: only {len(messages)} messages are there"
    assert digest(messages[:count]) == known, f"{line}: other messages are there"


def contexts(loaded: LoadedSession, count: int) -> Iterator[tuple[AgentMessage, ...]]:
    """What the model was to be sent, at every moment since there were `count` messages."""
    fold = Fold()
    for record in loaded.records():
        fold.add(record.number, record.entry, record.at)
        if fold.count >= count:
            messages = fold.messages
            yield messages if fold.context is None else fold.context


def started_items(loaded: LoadedSession) -> set[str]:
    """The work whose start is on record."""
    found: set[str] = set()
    reply: AssistantMessage | None = None
    for record in loaded.records():
        message = getattr(record.entry, "message", None)
        if isinstance(message, AssistantMessage):
            reply = message
        if isinstance(record.entry, ToolStarted) and reply is not None:
            call = record.entry.call
            if call < len(reply.tool_calls) and reply.tool_calls[call].id == record.entry.call_id:
                found.add(items_of(reply)[call])  # else it is one of a reply that a loss of power took
    return found


def check_work(loaded: LoadedSession, marks: Counter[str]) -> None:
    """No work was done twice, and the results say truly which was done."""
    assert not [item for item, times in marks.items() if times > 1], marks
    results = results_of(loaded.messages)
    started = started_items(loaded)
    assert set(marks) <= set(results), "work was done of which nothing is on record"
    for item, result in results.items():
        words = extract_text(result.content)
        if result.outcome == ToolOutcome.NEVER_RAN:
            assert words.startswith("never ran"), result
            assert item not in marks, f"{item} was done"
            assert item not in started
        elif result.outcome == ToolOutcome.LOST:
            assert words.startswith("outcome unknown"), result
            assert item in started
        else:
            assert item in marks, f"{item} was not done: {result}"


def results_of(messages: tuple[AgentMessage, ...]) -> dict[str, ToolResultMessage]:
    found: dict[str, ToolResultMessage] = {}
    items: list[str] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            items = items_of(message)
        elif isinstance(message, ToolResultMessage):
            item = items.pop(0)
            assert item not in found, f"{item} was asked for twice"
            found[item] = message
    return found


def read_marks(folder: Path) -> Counter[str]:
    try:
        return Counter((folder / "marks").read_text().split())
    except FileNotFoundError:
        return Counter()


def store_in(folder: Path, kind: str = "files") -> SessionStore:
    """The store that the children use."""
    place = folder / "sessions"
    return JsonlSessionStore(place) if kind == "files" else SqlSessionStore(place / "sessions.sqlite3")


def check_after_kill(
    folder: Path,
    session_id: str,
    said: list[Said],
    marks: Callable[[Path], Counter[str]] = read_marks,
    kind: str = "files",
) -> LoadedSession:
    """All of it; looking changes nothing."""
    store = store_in(folder, kind)
    path = store.load(session_id).path
    before = path.read_bytes()
    loaded = store.load(session_id)
    check_loaded(loaded)
    check_relied_on(loaded, said)
    check_work(loaded, marks(folder))
    assert path.read_bytes() == before
    return loaded
