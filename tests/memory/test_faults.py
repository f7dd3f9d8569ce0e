"""A failing disk: nothing relies on unsafe records, and acknowledged records are on disk."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from swink_agent import Agent, AssistantMessage, StopReason, ToolContext, UserMessage, extract_text, tool
from swink_agent.core.journal import MessageAdded, ToolStarted
from swink_agent.memory import JsonlSessionStore, LoadedSession, Session, SessionError
from swink_agent.memory.search.index import INDEX_NAME
from swink_agent.memory.storage.files import FileOperations
from swink_agent.testing import call, scripted, text


class Disk(FileOperations):
    """The real files, in which the n-th write or the n-th sync of a file fails."""

    def __init__(self) -> None:
        self.writes = self.syncs = 0
        self.fail_write: int | None = None
        self.fail_sync: int | None = None
        self.error = errno.ENOSPC
        self.is_short = False
        self.safe: dict[int, int] = {}
        """Of each file, by its inode, how much of it was synced."""
        self.gate: threading.Event | None = None

    def write(self, descriptor: int, data: bytes) -> int:
        self.writes += 1
        if self.writes == self.fail_write:
            if self.is_short:
                return super().write(descriptor, data[: len(data) // 2])
            raise OSError(self.error, os.strerror(self.error))
        return super().write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        if self.gate is not None:
            self.gate.wait()
        self.syncs += 1
        if self.syncs == self.fail_sync:
            raise OSError(self.error, os.strerror(self.error))
        status = os.fstat(descriptor)
        super().sync(descriptor)
        self.safe[status.st_ino] = status.st_size


class World:
    """An agent with a session on a disk that fails, which notes what anyone relied on too early."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self.folder, self.disk = folder, disk
        self.store = JsonlSessionStore(folder, files=disk)
        self.asked: list[list[str]] = []
        self.ran: list[str] = []
        self.session: Session | None = None

        @tool
        async def act(ctx: ToolContext, what: str) -> str:
            """Acts."""
            self.ran.append(what)
            started = [entry.entry for entry in self.safely().records() if isinstance(entry.entry, ToolStarted)]
            assert ctx.call_id in [entry.call_id for entry in started], "a tool ran whose start is not safe"
            ctx.state["last"] = what
            return f"did {what}"

        script = scripted([call("act", what="a"), call("act", what="b")], call("act", what="c"), text("done"))

        def ask(model: Any, context: Any, options: Any, cancel: Any) -> Any:
            self.asked.append([type(message).__name__ for message in context.messages])
            assert self.safely().messages[: len(context.messages)] == tuple(context.messages), "not all of it is safe"
            return script(model, context, options, cancel)

        self.agent = Agent("test:model", stream_fn=ask, tools=[act])

    def safely(self) -> LoadedSession:
        """The session as it would be after a loss of power now."""
        assert self.session is not None
        folder = self.folder / "after"
        folder.mkdir(exist_ok=True)
        path = self.session.path
        data = path.read_bytes()[: self.disk.safe.get(path.stat().st_ino, 0)]
        (folder / self.session.path.name).write_bytes(data)
        return JsonlSessionStore(folder).load(self.session.id)

    async def run(self) -> Any:
        self.session = self.store.create()
        self.session.attach(self.agent)
        return await self.agent.prompt("go")


def count_operations(tmp_path: Path) -> tuple[int, int]:
    disk = Disk()
    world = World(tmp_path / "clean", disk)
    result = asyncio.run(world.run())
    assert result.error is None
    assert world.ran == ["a", "b", "c"]
    writes, syncs = disk.writes, disk.syncs
    assert world.session is not None
    world.session.close()
    return writes, syncs


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("how", ["full", "broken", "short"])
def test_whichever_write_fails_the_run_ends_and_nothing_acknowledged_is_lost(tmp_path: Path, how: str) -> None:
    writes, _ = count_operations(tmp_path)
    for n in range(2, writes + 1):
        disk = Disk()
        disk.fail_write, disk.is_short = n, how == "short"
        disk.error = errno.ENOSPC if how == "full" else errno.EIO
        check_failed_run(tmp_path / f"{how}-{n}", disk, "only" if how == "short" else os.strerror(disk.error))


def test_whichever_sync_fails_the_run_ends_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    _, syncs = count_operations(tmp_path)
    for n in range(1, syncs + 1):
        disk = Disk()
        disk.fail_sync, disk.error = n, errno.EIO
        check_failed_run(tmp_path / str(n), disk, os.strerror(errno.EIO))


def check_failed_run(folder: Path, disk: Disk, reason: str) -> None:
    world = World(folder, disk)
    result = asyncio.run(world.run())
    session = world.session
    assert session is not None
    is_only_the_summary = result.error is None
    if not is_only_the_summary:
        assert result.stop_reason is StopReason.ERROR
        assert isinstance(result.exception, SessionError)
        assert str(session.path) in result.error
        assert reason in result.error
        assert "open the session again" in result.error
    asked, ran = len(world.asked), len(world.ran)
    again = asyncio.run(prompt_again(world.agent))
    assert isinstance(again.exception, SessionError), "a log that failed once takes nothing more"
    assert (len(world.asked), len(world.ran)) == (asked, ran), "and nobody is asked or run any more"
    with pytest.raises(SessionError, match="again"):
        session.close()

    with JsonlSessionStore(folder).open(session.id) as opened:
        found = opened.messages
        said = [message for message in found if isinstance(message, UserMessage)]
        results = {extract_text(m.content) for m in found if m.__class__.__name__ == "ToolResultMessage"}
        assert len(said) <= 1
        for what in world.ran:
            reported = f"did {what}" in results or any(text.startswith("outcome unknown") for text in results)
            assert reported, "what a tool did is known, or known to be unknown"
        agent = Agent("test:model", stream_fn=scripted(text("on")), tools=world.agent.tools)
        opened.attach(agent)
        assert tuple(agent.messages) == found
        assert asyncio.run(prompt_again(agent)).error is None


async def prompt_again(agent: Agent) -> Any:
    return await agent.prompt("again")


def test_a_session_that_cannot_be_made_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    disk = Disk()
    disk.fail_write = 1
    store = JsonlSessionStore(tmp_path, files=disk)
    with pytest.raises(SessionError, match=f"{tmp_path}.*{os.strerror(errno.ENOSPC)}"):
        store.create()
    assert list(tmp_path.iterdir()) == []


def test_mending_that_fails_changes_nothing(tmp_path: Path) -> None:
    store = JsonlSessionStore(tmp_path, sync=False)
    with store.create() as session:
        session.note("one")
        session.note("two")
    data = session.path.read_bytes()
    data = data[:100] + b"#" + data[101:]
    session.path.write_bytes(data)
    for failing in ("fail_write", "fail_sync"):
        for n in range(1, 3 if failing == "fail_write" else 5):
            disk = Disk()
            setattr(disk, failing, n)
            with pytest.raises(SessionError, match=str(session.path)):
                JsonlSessionStore(tmp_path, files=disk).open(session.id)
            if (failing, n) == ("fail_sync", 4):
                assert store.load(session.id).info.problems == (), "the copy has taken its place"
            else:
                assert session.path.read_bytes() == data
                assert list(tmp_path.glob("*.damaged-*")) == [], "who tries often on a full disk does not fill it more"
            assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    store.open(session.id).close()


def test_a_torn_last_record_needs_no_room_for_the_others(tmp_path: Path) -> None:
    """A disk with room for a few hundred bytes more, as after one that was full."""

    class Small(Disk):
        room = 300

        def write(self, descriptor: int, data: Any) -> int:  # type: ignore[override]
            if len(data) > self.room:
                raise OSError(errno.ENOSPC, "No space left on device")
            self.room -= len(data)
            return os.write(descriptor, data)

    store = JsonlSessionStore(tmp_path, sync=False)
    with store.create() as session:
        for _ in range(50):
            session.note("much", "x" * 100)
    whole, inode = session.path.read_bytes(), session.path.stat().st_ino
    torn = b'{"seq":51,"at":17947647'
    session.path.write_bytes(whole + torn)
    with JsonlSessionStore(tmp_path, files=Small()).open(session.id) as again:
        assert len(again.notes) == 50
        again.note("more")
    assert session.path.stat().st_ino == inode, "it is the same file"
    assert session.path.read_bytes().startswith(whole)
    assert [note.kind for note in store.load(session.id).notes][-1] == "more"
    assert store.load(session.id).info.problems == ()
    assert session.path.with_name(f"{session.id}.damaged-1").read_bytes() == torn + b"\n"


@pytest.mark.parametrize("step", ["open", "write", "sync", "truncate", "last_sync"])
def test_a_torn_record_is_never_lost_whenever_it_ends(tmp_path: Path, step: str) -> None:
    """At each step on the way, as one that is killed there leaves it: the bytes are in the log, or beside it."""

    class Dying(FileOperations):
        is_cut = False

        def truncate(self, descriptor: int, size: int) -> None:
            if step == "truncate":
                os.kill(os.getpid(), signal.SIGKILL)
            super().truncate(descriptor, size)
            self.is_cut = True

        def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
            descriptor = super().open(path, flags, mode)
            if step == "open" and "damaged" in path.name:
                os.kill(os.getpid(), signal.SIGKILL)
            return descriptor

        def write_all(self, descriptor: int, data: bytes) -> None:
            super().write_all(descriptor, data)
            if step == "write":
                os.kill(os.getpid(), signal.SIGKILL)

        def sync(self, descriptor: int) -> None:
            super().sync(descriptor)
            if step == "sync" or (step == "last_sync" and self.is_cut):
                os.kill(os.getpid(), signal.SIGKILL)

    store = JsonlSessionStore(tmp_path, sync=False)
    with store.create() as session:
        session.note("one")
    whole = session.path.read_bytes()
    torn = b'{"seq":2,"at":17947647'
    session.path.write_bytes(whole + torn)
    child = os.fork()
    if not child:
        try:
            JsonlSessionStore(tmp_path, files=Dying()).open(session.id)
        finally:
            os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    store.open(session.id).close()
    assert session.path.read_bytes().startswith(whole)
    assert store.load(session.id).info.problems == ()
    kept = [path.read_bytes() for path in tmp_path.glob("*.damaged-*")]
    assert [data for data in kept if data] == [torn + b"\n"], "once"


async def test_new_folders_are_synced_with_the_first_record(tmp_path: Path) -> None:
    synced: list[Path] = []

    class Watched(Disk):
        def sync_folder(self, folder: Path) -> None:
            synced.append(folder)
            super().sync_folder(folder)

    store = JsonlSessionStore(tmp_path / "a" / "b", files=Watched())
    with store.create() as session:
        assert synced == [], "making a session waits for no disk"
        await session.log.durable()
        assert synced == [tmp_path / "a" / "b", tmp_path / "a", tmp_path]
    with store.create() as session:
        await session.log.durable()
    assert synced[3:] == [tmp_path / "a" / "b"]


async def test_no_more_threads_is_a_failure_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    session = JsonlSessionStore(tmp_path).create()
    agent = Agent("test:model", stream_fn=scripted(text("never")))
    monkeypatch.setattr(threading.Thread, "start", refuse)
    session.attach(agent)
    result = await agent.prompt("hello")
    monkeypatch.undo()
    assert "can't start new thread" in (result.error or "")
    assert str(session.path) in (result.error or "")
    with pytest.raises(SessionError):
        session.close()


@pytest.mark.parametrize("change", ["edit", "insert", "replace", "repeat"])
def test_whichever_write_fails_while_the_history_is_changed_no_message_is_lost(tmp_path: Path, change: str) -> None:
    """A full disk, or a kill, may come before all of the new history is written: then the old one is there."""
    failed = 0
    for fail_write in range(1, 9):
        disk = Disk()
        store = JsonlSessionStore(tmp_path / str(fail_write), files=disk)
        session = store.create()
        agent = Agent("test:model", stream_fn=scripted(text("one"), text("two")))
        session.attach(agent)
        agent.prompt_sync("first")
        agent.prompt_sync("second")
        session.log.flush(10)
        old = tuple(agent.messages)
        disk.fail_write = disk.writes + fail_write
        match change:
            case "edit":
                agent.messages[1] = AssistantMessage("edited")
            case "insert":
                agent.messages.insert(0, "before all")
            case "replace":
                agent.messages = ["another", *old[2:], "and one more"]
            case _:
                agent.messages = [*old, *old]
        new = tuple(agent.messages)
        try:
            session.close()
        except SessionError:
            failed += 1
        found = JsonlSessionStore(store.folder).load(session.id).messages
        assert found == new or (found[: len(old)] == old and all(message in new for message in found[len(old) :]))
        if disk.writes < disk.fail_write:
            assert found == new
    assert failed


async def test_many_agents_record_in_one_event_loop(tmp_path: Path) -> None:
    store = JsonlSessionStore(tmp_path)
    sessions = [store.create() for _ in range(30)]
    agents = [Agent("test:model", stream_fn=scripted(*[text("x")] * 3)) for _ in sessions]

    async def talk(session: Session, agent: Agent) -> None:
        session.attach(agent)
        for number in range(3):
            assert (await agent.prompt(f"{session.id} {number}")).error is None

    await asyncio.gather(*map(talk, sessions, agents))
    for session, agent in zip(sessions, agents, strict=True):
        session.close()
        assert store.load(session.id).messages == tuple(agent.messages)
        assert store.load(session.id).info.problems == ()


# -- waiting -------------------------------------------------------------------------------------------------


async def test_records_that_are_due_together_share_one_sync(tmp_path: Path) -> None:
    disk = Disk()
    with JsonlSessionStore(tmp_path, files=disk).create() as session:
        await session.log.durable()
        before = disk.syncs
        for n in range(50):
            session.log.record(MessageAdded(UserMessage(str(n)), "given"))
        await asyncio.gather(*[session.log.durable() for _ in range(20)])
        assert disk.syncs - before <= 2
        await session.log.durable()
        assert disk.syncs - before <= 2, "what is safe already is not synced again"


@pytest.mark.parametrize("sync", [True, False])
async def test_each_record_is_one_write(tmp_path: Path, sync: bool) -> None:
    """So a crash of the program never leaves more than one record that is not whole."""
    written: list[bytes] = []

    class Scales(Disk):
        def write(self, descriptor: int, data: bytes) -> int:
            written.append(bytes(data))
            return super().write(descriptor, data)

    script = scripted([call("act", what="a"), call("act", what="b")], text("done"))

    @tool
    async def act(what: str) -> str:
        """Acts."""
        return what

    with JsonlSessionStore(tmp_path, files=Scales(), sync=sync).create(title="a title") as session:
        agent = Agent("test:model", stream_fn=script, tools=[act], state={"n": 1})
        session.attach(agent)
        await agent.prompt("go")
        session.label("here")
        session.note("kind", {"n": 1})
    lines = session.path.read_bytes().splitlines(keepends=True)
    assert written == lines
    assert len(lines) == len(session.records()) >= 12


async def test_a_record_is_written_at_once_whether_anyone_waits_or_not(tmp_path: Path) -> None:
    disk = Disk()
    disk.gate = threading.Event()
    session = JsonlSessionStore(tmp_path, files=disk).create()
    session.note("here")
    session.log.flush(10)
    assert b'"kind":"here"' in session.path.read_bytes()
    assert disk.syncs == 0
    disk.gate.set()
    session.close()


async def test_agents_do_not_wait_for_each_others_disk(tmp_path: Path) -> None:
    slow, fast = Disk(), Disk()
    slow.gate = threading.Event()
    with (
        JsonlSessionStore(tmp_path, files=slow).create() as stuck,
        JsonlSessionStore(tmp_path, files=fast).create() as free,
    ):
        waiting = Agent("test:model", stream_fn=scripted(text("late")))
        stuck.attach(waiting)
        task = asyncio.create_task(waiting.prompt("hello"))
        await asyncio.sleep(0)
        others = [Agent("test:model", stream_fn=scripted(text("now"))) for _ in range(3)]
        for agent in others:
            free.attach(agent)
            assert (await agent.prompt("hello")).text == "now"
            free.detach()
        assert not task.done()
        slow.gate.set()
        assert (await task).text == "late"


async def test_a_wait_that_is_cancelled_leaves_the_writing_alone(tmp_path: Path) -> None:
    disk = Disk()
    disk.gate = threading.Event()
    with JsonlSessionStore(tmp_path, files=disk).create() as session:
        session.log.record(MessageAdded(UserMessage("kept"), "given"))
        waiting = asyncio.create_task(session.log.durable())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        disk.gate.set()
        await session.log.durable()
    assert len(JsonlSessionStore(tmp_path).load(session.id).messages) == 1


async def test_an_aborted_run_does_not_wait_for_a_disk_that_hangs(tmp_path: Path, promptly: Any) -> None:
    disk = Disk()
    session = JsonlSessionStore(tmp_path, files=disk).create()
    agent = Agent("test:model", stream_fn=scripted(text("never")))
    session.attach(agent)
    await session.log.durable()
    disk.gate = threading.Event()
    task = asyncio.create_task(agent.prompt("hello"))
    await asyncio.sleep(0.01)
    agent.abort()
    with promptly(0.5):
        assert (await task).stop_reason is StopReason.ABORTED
    disk.gate.set()
    session.close()


def test_one_session_serves_one_event_loop_after_another(tmp_path: Path) -> None:
    with JsonlSessionStore(tmp_path).create() as session:
        agent = Agent("test:model", stream_fn=scripted(text("one"), text("two"), text("three")))
        session.attach(agent)
        assert agent.prompt_sync("1").text == "one"
        assert asyncio.run(prompt_again(agent)).text == "two"
        assert agent.prompt_sync("3").text == "three"
    assert len(JsonlSessionStore(tmp_path).load(session.id).messages) == 6


async def test_closing_during_a_run_ends_the_run_with_an_error(tmp_path: Path) -> None:
    reached = asyncio.Event()
    go_on = asyncio.Event()

    @tool
    async def wait() -> str:
        """Waits."""
        reached.set()
        await go_on.wait()
        return "done"

    session = JsonlSessionStore(tmp_path).create()
    model = scripted(call("wait"), text("never asked"))
    agent = Agent("test:model", stream_fn=model, tools=[wait])
    session.attach(agent)
    task = asyncio.create_task(agent.prompt("go"))
    await reached.wait()
    session.close()
    go_on.set()
    result = await task
    assert isinstance(result.exception, SessionError)
    assert "was closed" in (result.error or "")
    assert len(model.requests) == 1
    with JsonlSessionStore(tmp_path).open(session.id) as again:
        again.attach(agent)
        assert extract_text(again.messages[-1].content).startswith("outcome unknown")  # type: ignore[union-attr]


# -- what need not be waited for -------------------------------------------------------------------------------


async def test_a_log_is_durable_where_waiting_for_it_takes_no_time(tmp_path: Path) -> None:
    disk = Disk()
    with JsonlSessionStore(tmp_path, files=disk).create() as session:
        log = session.log
        seen: list[bool] = []
        for number in range(3):
            log.record(MessageAdded(UserMessage(f"{number}"), "given"))
            seen.append(log.is_durable)
            await log.durable()
            seen.append(log.is_durable)
        assert seen == [False, True] * 3
    assert not log.is_durable, "it is closed, and takes nothing more"


async def test_a_log_that_failed_is_durable_no_more(tmp_path: Path) -> None:
    disk = Disk()
    session = JsonlSessionStore(tmp_path, files=disk, sync=False).create()
    assert session.log.is_durable
    disk.fail_write = disk.writes + 1
    session.log.record(MessageAdded(UserMessage("lost"), "given"))
    assert not session.log.is_durable
    with pytest.raises(SessionError, match="No space left"):
        session.close()


def test_a_line_is_one_object_whatever_it_says(tmp_path: Path) -> None:
    odd = '}\n{","crc":"00000000"}\n{"seq":1'
    store = JsonlSessionStore(tmp_path, sync=False)
    with store.create(title=odd) as session:
        session.log.record(MessageAdded(UserMessage(odd), "given"))
    loaded = store.load(session.id)
    assert (loaded.info.title, loaded.messages[0].content[0].text, loaded.info.problems) == (odd, odd, ())


def test_a_deletion_that_a_loss_of_power_could_undo_is_an_error(tmp_path: Path) -> None:
    disk = Disk()
    store = JsonlSessionStore(tmp_path, files=disk)
    with store.create() as session:
        session.attach(Agent("test:model", stream_fn=scripted("Yes."), messages=[UserMessage("the xylophone")]))
    assert len(store.search("xylophone")) == 1
    disk.fail_sync = disk.syncs + 1
    with pytest.raises(SessionError, match=f"{session.id}.jsonl was deleted, but may reappear after a power failure"):
        store.delete(session.id)
    assert store.list() == []
    with closing(sqlite3.connect(tmp_path / INDEX_NAME)) as index:
        assert index.execute("SELECT text FROM messages").fetchall() == []
