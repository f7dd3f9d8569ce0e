"""Several threads use one session: they see consistent data, and acknowledged records are kept."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from swink_agent import (
    Agent,
    AgentEnd,
    AgentEvent,
    AssistantMessage,
    ToolCall,
    ToolContext,
    ToolExecutionEnd,
    ToolResultMessage,
    UserMessage,
    tool,
)
from swink_agent.core.journal import MessageAdded
from swink_agent.memory import JsonlSessionStore, Session, SessionError
from swink_agent.memory.storage.files import FileOperations
from swink_agent.testing import call, check_conversation, scripted, text

from .kinds import Kind

PATIENCE = 60.0


@pytest.fixture
def hurried() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@contextmanager
def meanwhile(*works: Callable[[], object]) -> Iterator[None]:
    """Does each again and again, in a thread of its own, until the block is left; what one raises is raised there."""
    is_over = threading.Event()
    failures: list[BaseException] = []

    def repeat(work: Callable[[], object]) -> None:
        try:
            while not is_over.is_set():
                work()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=repeat, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    for failure in failures:
        raise failure


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("rounds", [500, pytest.param(6000, marks=[pytest.mark.sweep, pytest.mark.timeout(600)])])
def test_readers_see_a_whole_history(tmp_path: Path, rounds: int) -> None:
    session = JsonlSessionStore(tmp_path, sync=False).create()
    reply = AssistantMessage([ToolCall("a", "look", {}), ToolCall("b", "look", {})])

    def read() -> None:
        messages = session.messages
        assert len(messages) % 4 in (0, 1), "a request, or one with its reply and a result for each call"
        assert session.info.messages % 4 in (0, 1)
        check_conversation(messages[-4:] if len(messages) % 4 == 0 else messages[-1:])

    with meanwhile(read, read, read):
        for n in range(rounds):
            session.log.record(MessageAdded(UserMessage(str(n)), "prompt"))
            session.log.record(MessageAdded(reply, "reply"))
            session.log.record(MessageAdded(ToolResultMessage("b", "seen", tool_name="look"), "result", 1))
            session.log.record(MessageAdded(ToolResultMessage("a", "seen", tool_name="look"), "result", 0))
    session.close()
    assert len(session.messages) == 4 * rounds


class SlowDisk(FileOperations):
    """A disk that writes when it is let to, and says when it is asked."""

    def __init__(self) -> None:
        self.is_asked, self.may_write = threading.Event(), threading.Event()

    def write(self, descriptor: int, data: bytes) -> int:  # pyright: ignore[reportIncompatibleMethodOverride] - in place of a function
        self.is_asked.set()
        assert self.may_write.wait(PATIENCE)
        return super().write(descriptor, data)


def slow_session(folder: Path, disk: SlowDisk) -> Session:
    disk.may_write.set()
    session = JsonlSessionStore(folder, files=disk).create()
    disk.may_write.clear()
    disk.is_asked.clear()
    return session


def test_messages_added_while_a_session_closes_are_refused_or_kept(tmp_path: Path) -> None:
    disk = SlowDisk()
    session = slow_session(tmp_path, disk)
    session.note("before")
    assert disk.is_asked.wait(PATIENCE)
    closing = threading.Thread(target=session.close)
    closing.start()
    kept = 0
    with suppress(SessionError):
        while not session.log.is_closed:
            session.note("meanwhile", "x" * 1000)
            kept += 1
    with pytest.raises(SessionError, match="was closed"):
        session.note("too late")
    with pytest.raises(SessionError, match="was closed"):
        session.rename("too late")
    with pytest.raises(SessionError, match="was closed"):
        session.label("too late")
    disk.may_write.set()
    closing.join(PATIENCE)
    notes = [note.kind for note in JsonlSessionStore(tmp_path).load(session.id).notes]
    assert notes == ["before"] + ["meanwhile"] * kept


@pytest.mark.usefixtures("hurried")
def test_every_note_that_was_taken_is_there_after_closing(kind: Kind, tmp_path: Path) -> None:
    store = kind.make(tmp_path, sync=True)
    for _ in range(10):
        session = store.create()
        taken: list[int] = []

        def add(session: Session = session, taken: list[int] = taken) -> None:
            session.note("n", len(taken))
            taken.append(len(taken))

        with suppress(SessionError), meanwhile(add):  # the thread may end before it meets the closed session
            session.close()
        with pytest.raises(SessionError, match="was closed"):
            add()
        assert [note.data for note in store.load(session.id).notes] == taken


async def test_a_run_whose_session_is_being_closed_ends_with_an_error(tmp_path: Path) -> None:
    disk = SlowDisk()
    session = slow_session(tmp_path, disk)
    agent = Agent("test:model", stream_fn=scripted(text("never asked")))
    closing = threading.Thread(target=session.close)

    def close(_: object) -> None:
        if not closing.ident:
            closing.start()
            while not session.log.is_closed:
                pass

    disk.may_write.set()
    session.attach(agent)
    disk.may_write.clear()
    with agent.subscribe(close):
        result = await agent.prompt("go")
    assert "was closed" in (result.error or "")
    assert [type(message) for message in result.messages] == [UserMessage, AssistantMessage]
    assert not result.text
    disk.may_write.set()
    closing.join(PATIENCE)
    assert JsonlSessionStore(tmp_path).load(session.id).info.problems == ()


@pytest.mark.usefixtures("hurried")
def test_tools_may_change_the_state_while_others_end(tmp_path: Path) -> None:
    has_begun, have_ended = threading.Event(), threading.Event()
    others = 10

    @tool
    def grow(ctx: ToolContext) -> str:
        """Changes the state until all others have ended."""
        for n in range(100_000):
            ctx.state[f"new {n}"] = n
            has_begun.set()
            if have_ended.is_set():
                break
        return "grown"

    @tool
    def end() -> str:
        """Ends."""
        assert has_begun.wait(PATIENCE)
        return "ended"

    seen: list[str] = []

    def watch(event: AgentEvent) -> None:
        if isinstance(event, ToolExecutionEnd):
            seen.append(event.name)
        if len(seen) == others or isinstance(event, AgentEnd):
            have_ended.set()

    calls = [call("grow"), *[call("end") for _ in range(others)]]
    agent = Agent("test:model", stream_fn=scripted(calls, text("Done.")), tools=[grow, end])
    agent.state.update({str(n): n for n in range(4_000)})
    store = JsonlSessionStore(tmp_path)
    try:
        with store.create() as session, agent.subscribe(watch):
            session.attach(agent)
            result = agent.prompt_sync("go")
    finally:
        have_ended.set()
    assert (result.error, result.text) == (None, "Done.")
    loaded = store.load(session.id)
    assert loaded.messages == tuple(agent.messages)
    assert loaded.state == agent.state
