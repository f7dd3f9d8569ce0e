"""The worker process: it starts when needed, is shared, restarts, and ends when it should."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from swink_agent.local.worker.engine import Engine, Workers
from swink_agent.local.worker.values import (
    Chunk,
    Completion,
    EngineError,
    Finished,
    Overflowed,
    Piece,
    WorkerSettings,
)

COMMAND = (sys.executable, str(Path(__file__).with_name("fake_llama.py")))


def weights(folder: Path, name: str = "model.gguf") -> str:
    (folder / name).touch()
    return str(folder / name)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Engine]]:
    engines: list[Engine] = []

    def make(name: str = "model.gguf", **options: Any) -> Engine:
        settings = WorkerSettings(path=weights(tmp_path, name), state_dir=str(tmp_path), **options)
        engines.append(Engine(settings, command=COMMAND))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """One worker for the tests that leave it running."""
    folder = tmp_path_factory.mktemp("states")
    engine = Engine(WorkerSettings(path=weights(folder), state_dir=str(folder)), command=COMMAND)
    asyncio.run(engine.load())
    yield engine
    engine.close()


async def said(engine: Engine, prompt: str) -> list[Chunk]:
    return [chunk async for chunk in engine.complete(Completion(prompt=prompt))]


def is_there(pid: int) -> bool:
    """Whether the process runs; one that ended and was not waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        if Path("/proc/self").exists():
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


async def test_it_is_started_on_first_use_and_used_again(start: Callable[..., Engine]) -> None:
    engine = start(context_length=77)
    assert not engine.is_up
    assert await said(engine, "two words") == [Piece("two"), Piece("words"), Finished(False, 3, 1, 2)]
    pid = engine.pid
    assert (await engine.load()).context_length == 77
    assert engine.is_loaded
    assert await engine.render([("user", "x")]) == "[user]x[assistant]"
    assert await engine.embed(["abc", "d"]) == [[3.0, float(pid or 0)], [1.0, float(pid or 0)]]
    assert engine.pid == pid
    engine.close()
    assert not engine.is_up
    assert not is_there(pid or 0)


async def test_requests_at_once_do_not_mix(engine: Engine) -> None:
    answers = await asyncio.gather(*[said(engine, f"a{number} b{number}") for number in range(20)])
    for number, chunks in enumerate(answers):
        assert [chunk.text for chunk in chunks if isinstance(chunk, Piece)] == [f"a{number}", f"b{number}"]


async def test_a_worker_that_dies_fails_its_requests_and_is_started_again(start: Callable[..., Engine]) -> None:
    engine = start()
    await engine.load()
    first = engine.pid
    waiting = asyncio.ensure_future(said(engine, "wait"))
    await asyncio.sleep(0)
    dying = asyncio.ensure_future(said(engine, "die"))
    await asyncio.sleep(0.05)
    assert first is not None
    os.kill(first, signal.SIGKILL)
    for task in (waiting, dying):
        with pytest.raises(EngineError, match="was killed by signal 9") as caught:
            await task
        assert caught.value.is_gone
    assert (await said(engine, "again"))[0] == Piece("again")
    assert engine.pid != first


async def test_a_crash_in_a_reply_says_its_last_words(start: Callable[..., Engine]) -> None:
    engine = start()
    reply = engine.complete(Completion(prompt="die"))
    assert await anext(reply) == Piece("I ")
    with pytest.raises(EngineError, match="signal 9; its last lines: the last words"):
        await anext(reply)
    with pytest.raises(EngineError, match="has ended"):
        await said(engine, "exit")


async def test_a_failed_request_leaves_the_worker_up(engine: Engine) -> None:
    pid = engine.pid
    for prompt, words in (("fail", "failed to parse grammar"), ("fail late", "no memory"), ("no json", "not from")):
        with pytest.raises(EngineError, match=f"(?s)refused the request: .*{words}") as caught:
            await said(engine, prompt)
        assert not caught.value.is_gone
    assert await said(engine, "long") == [Overflowed(9_000, 2_048)]
    assert engine.pid == pid


async def test_a_model_that_cannot_be_loaded_says_why(start: Callable[..., Engine]) -> None:
    engine = start("broken.gguf")
    with pytest.raises(EngineError, match=r"cannot be loaded: not a model / 0\.1 E gguf: bad magic$") as caught:
        await engine.load()
    assert not caught.value.is_gone
    missing = Engine(engine.settings, command=("/nowhere/python",))
    with pytest.raises(EngineError, match="cannot be started"):
        await missing.load()
    missing.close()


async def test_keys_in_the_environment_do_not_reach_it(
    start: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "canary")
    monkeypatch.setenv("HF_TOKEN", "canary")
    (piece, _) = await said(start(), "environment")
    assert isinstance(piece, Piece)
    names = piece.text.split()
    assert "OMP_WAIT_POLICY" in names
    assert "PATH" in names
    assert not {"ANTHROPIC_API_KEY", "HF_TOKEN"} & set(names)


async def test_leaving_a_reply_stops_the_work(start: Callable[..., Engine], tmp_path: Path) -> None:
    engine = start()
    stream = engine.complete(Completion(prompt="wait"))
    await anext(stream)
    await stream.aclose()
    await asyncio.to_thread(wait_until, (tmp_path / "closed").exists)
    assert await said(engine, "next") == [Piece("next"), Finished(False, 3, 1, 2)]


async def test_a_request_cancelled_in_the_queue_is_never_worked_on(engine: Engine) -> None:
    busy = engine.complete(Completion(prompt="wait"))
    await anext(busy)
    queued = asyncio.ensure_future(said(engine, "die"))
    await asyncio.sleep(0.02)
    queued.cancel()
    await asyncio.wait([queued])
    await busy.aclose()
    pid = engine.pid
    assert (await said(engine, "still here"))[0] == Piece("still")
    assert engine.pid == pid


async def test_an_event_loop_that_ended_holds_nobody_up(engine: Engine) -> None:
    """Its task waits for its turn for ever: the loop was closed without ending it."""
    busy = engine.complete(Completion(prompt="wait"))
    await anext(busy)
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(said(engine, "never"))

    def leave() -> None:
        loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()

    await asyncio.to_thread(leave)
    await busy.aclose()
    assert await said(engine, "next") == [Piece("next"), Finished(False, 3, 1, 2)]
    assert not waiting.done()


def test_every_event_loop_can_use_it(engine: Engine) -> None:
    """A run from sync code has its own event loop, which ends with it."""
    pids = set[int | None]()
    for _ in range(3):
        assert asyncio.run(said(engine, "hi")) == [Piece("hi"), Finished(False, 3, 1, 2)]
        pids.add(engine.pid)
    assert len(pids) == 1


async def test_an_idle_worker_ends_and_comes_back(start: Callable[..., Engine]) -> None:
    engine = start(idle_seconds=0.1)
    await engine.load()
    pid = engine.pid or 0
    await asyncio.to_thread(wait_until, lambda: not is_there(pid))
    assert not engine.is_up
    assert (await engine.load()).context_length == 8_192
    assert engine.pid != pid


async def test_a_working_worker_is_not_idle(start: Callable[..., Engine]) -> None:
    engine = start(idle_seconds=0.1)
    stream = engine.complete(Completion(prompt="wait"))
    for _ in range(60):
        await anext(stream)
    await stream.aclose()
    assert engine.is_up


async def test_closing_while_it_loads_ends_it(start: Callable[..., Engine]) -> None:
    engine = start("slow.gguf")
    loading = asyncio.ensure_future(engine.load())
    await asyncio.to_thread(wait_until, lambda: engine.pid is not None)
    pid = engine.pid or 0
    await asyncio.to_thread(engine.close)
    with pytest.raises(EngineError):
        await loading
    assert not is_there(pid)


def test_agents_share_one_worker_per_file(tmp_path: Path) -> None:
    workers = Workers(lambda settings: Engine(settings, command=COMMAND))
    one = WorkerSettings(path=weights(tmp_path), state_dir=str(tmp_path))
    assert workers.engine(one) is workers.engine(WorkerSettings(path=one.path, state_dir=one.state_dir))
    assert workers.engine(one) is not workers.engine(WorkerSettings(path="b", state_dir=one.state_dir))
    asyncio.run(workers.engine(one).load())
    pid = workers.engine(one).pid or 0
    workers.close()
    assert not is_there(pid)


PROGRAM = """
import asyncio, os, sys, threading, time
from swink_agent.local.worker.values import WorkerSettings
from swink_agent.local.worker.engine import Engine, shared_workers
engine = Engine(WorkerSettings(path=sys.argv[2], state_dir=sys.argv[3]), command=(sys.executable, sys.argv[1]))
shared_workers()._engines[engine.settings] = engine
def use():
    asyncio.run(engine.load())
if not sys.argv[2].endswith("slow.gguf"):
    thread = threading.Thread(target=use)   # one that ends long before the worker is to end
    thread.start()
    thread.join()
else:
    engine._entered()
    while engine.pid is None:
        time.sleep(0.01)
print(engine.pid, flush=True)
if sys.argv[4] == "stay":
    time.sleep(60)
"""


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("name", ["model.gguf", "slow.gguf"])
def test_it_is_gone_when_its_parent_was_killed(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, COMMAND[1], weights(tmp_path, name), str(tmp_path), "stay"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        pid = int(program.stdout.readline())
        assert is_there(pid)
        program.kill()
    wait_until(lambda: not is_there(pid))


IS_SLOW = re.compile(r"^Executing .* took [\d.]+ seconds$")
"""What asyncio says of a callback while it is debugged and the machine is busy."""


def test_it_is_gone_when_its_parent_ended(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "dev", "-c", PROGRAM, COMMAND[1], weights(tmp_path), str(tmp_path), "end"]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert [line for line in outcome.stderr.splitlines() if not IS_SLOW.search(line)] == []
    wait_until(lambda: not is_there(int(outcome.stdout)))


# -- the socket and the states -------------------------------------------------------------------------------


def names(folder: Path, pattern: str) -> list[str]:
    return [path.name for path in folder.glob(pattern)]


async def test_the_socket_is_private_and_goes_with_the_process() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        folder = Path(short)
        engine = Engine(WorkerSettings(path=weights(folder), state_dir=short), command=COMMAND)
        await engine.load()
        (socket,) = names(folder, "*.socket")
        assert (folder / socket).stat().st_mode & 0o777 == 0o700
        engine.close()
        assert names(folder, "*.socket") == []


async def test_a_long_path_of_states_is_too_long_for_no_socket(tmp_path: Path) -> None:
    states = tmp_path / ("x" * 120)
    engine = Engine(WorkerSettings(path=weights(tmp_path), state_dir=str(states)), command=COMMAND)
    await engine.load()
    assert names(states, "*.socket") == []
    engine.close()


def test_leavings_of_killed_programs_are_removed(start: Callable[..., Engine], tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    (tmp_path / f"{ended.pid}.abc.socket").mkdir()
    (tmp_path / f"{ended.pid}.1.new").touch()
    (tmp_path / f"{os.getpid()}.1.new").touch()
    asyncio.run(start().load())
    assert names(tmp_path, "*.new") == [f"{os.getpid()}.1.new"]
    assert all(name.startswith(f"{os.getpid()}.") for name in names(tmp_path, "*.socket"))


LONG = Completion(prompt="a" * 300 + "b" * 300, prefixes=(100, 300, 500))  # 100 characters are too few


async def done(engine: Engine, request: Completion = LONG) -> tuple[list[int], list[str]]:
    """The lengths of the prompts that the server was given, and what was done with its states."""
    async for _ in engine.complete(request):
        pass
    found = [Path(engine.settings.state_dir, name) for name in ("asked.jsonl", "slots")]
    asked, slots = [path.read_text().splitlines() if path.exists() else [] for path in found]
    for path in found:
        path.unlink(missing_ok=True)
    return [len(json.loads(line)["prompt"]) for line in asked], slots


async def test_states_after_stable_beginnings_are_kept(start: Callable[..., Engine], tmp_path: Path) -> None:
    engine = start()
    assert await done(engine) == ([300, 500, 600], ["save", "save"])
    assert await done(engine) == ([600], []), "the context holds it"
    engine.close()
    assert await done(engine) == ([600], ["restore"])
    assert len(names(tmp_path, "*.state")) == 2
    assert await done(engine, Completion(prompt="c" * 400, prefixes=(250,))) == ([250, 400], ["save"])


async def test_a_broken_state_is_read_and_kept_anew(start: Callable[..., Engine], tmp_path: Path) -> None:
    engine = start()
    await done(engine)
    engine.close()
    for name in names(tmp_path, "*.state"):
        (tmp_path / name).write_text("broken")
    assert await done(engine) == ([300, 500, 600], ["restore", "restore", "save", "save"])


async def test_a_state_that_cannot_be_kept_costs_only_time(start: Callable[..., Engine], tmp_path: Path) -> None:
    engine = start()
    (tmp_path / "model.gguf").write_text('{"is_full": true}')
    assert await done(engine) == ([300, 500, 600], ["save", "save"])
    assert names(tmp_path, "*.state") == []


async def test_the_states_used_last_are_kept(start: Callable[..., Engine], tmp_path: Path) -> None:
    engine = start()
    for letter in "abcdefgh":
        await done(engine, Completion(prompt=letter * 300, prefixes=(250,)))
    assert len(names(tmp_path, "*.state")) == 6
    engine.close()
    assert await done(engine, Completion(prompt="h" * 300, prefixes=(250,))) == ([300], ["restore"])
    engine.close()
    assert await done(engine, Completion(prompt="a" * 300, prefixes=(250,))) == ([250, 300], ["save"])


async def test_a_reply_that_was_left_while_it_read_its_prompt_counts_for_nothing(
    start: Callable[..., Engine],
) -> None:
    engine = start()
    await done(engine)
    stream = engine.complete(Completion(prompt="wait"))
    await anext(stream)
    await stream.aclose()
    assert (await done(engine))[1] == ["restore"], "nobody knows what the context holds"
