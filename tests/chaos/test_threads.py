"""Many threads use one agent: no message is lost or doubled, and no thread waits forever."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from itertools import count

import pytest

from swink_agent import (
    Agent,
    AgentContext,
    AgentEnd,
    AgentEvent,
    AgentMessage,
    AgentStart,
    AlreadyRunning,
    AssistantMessageEvent,
    CancellationToken,
    MessagesInjected,
    ModelSpec,
    StopReason,
    StreamOptions,
    ToolContext,
    UserMessage,
    extract_text,
    tool,
)
from swink_agent.testing import call, check_events, scripted

MODEL = ModelSpec("test", "model")
EACH = 120
"""How many things each thread says."""
PATIENCE = 40.0
"""Seconds after which threads that have not ended are taken for a deadlock."""


@tool
async def nothing(ctx: ToolContext) -> str:
    """Lets others have a turn."""
    await asyncio.sleep(0)
    ctx.update("half")
    return "nothing"


@tool
def nothing_in_a_thread() -> str:
    """The same, in a worker thread."""
    return "nothing"


class Endless:
    """A model that calls two tools in every other reply, and never runs out of replies."""

    def __init__(self) -> None:
        self._replies = count()

    def __call__(
        self, model: ModelSpec, context: AgentContext, options: StreamOptions, cancel: CancellationToken, /
    ) -> AsyncIterator[AssistantMessageEvent]:
        number = next(self._replies)
        calls = call("nothing").with_id(f"{number}a") + call("nothing_in_a_thread").with_id(f"{number}b")
        stream = scripted(calls if number % 2 else "ok", suspend=True)
        return stream(model, context, options, cancel)


def an_agent() -> Agent:
    return Agent(MODEL, stream_fn=Endless(), tools=[nothing, nothing_in_a_thread])


class Pace:
    """Lets threads act when events of the agent happen, so that what they do is spread over its runs."""

    def __init__(self, agent: Agent) -> None:
        self._steps = threading.Semaphore(0)
        agent.subscribe(lambda event: self._steps.release())

    def wait(self) -> None:
        self._steps.acquire(timeout=PATIENCE)


class Crowd:
    """Threads that end in time, and whose errors are the test's."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self.threads: list[threading.Thread] = []

    def add(self, work: Callable[[], object]) -> None:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                self.errors.append(error)

        self.threads.append(threading.Thread(target=run, daemon=True))

    @property
    def is_busy(self) -> bool:
        return any(thread.is_alive() for thread in self.threads)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        for thread in self.threads:
            thread.start()
        yield
        deadline = time.monotonic() + PATIENCE
        for thread in self.threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        assert not [thread for thread in self.threads if thread.is_alive()], "some threads never ended"
        assert self.errors == []


def texts(messages: tuple[AgentMessage, ...] | list[AgentMessage]) -> list[str]:
    return [extract_text(message.content) for message in messages if isinstance(message, UserMessage)]


def run_until_nothing_is_queued(agent: Agent) -> None:
    while agent.has_queued_messages:
        agent.continue_loop_sync()


# -- nothing is lost -----------------------------------------------------------------------------------------


@pytest.mark.sweep
def test_messages_of_many_threads_enter_exactly_once_and_in_order() -> None:
    agent = an_agent()
    pace = Pace(agent)
    runs: list[list[AgentEvent]] = []
    crowd = Crowd()

    def collect(event: AgentEvent) -> None:
        if isinstance(event, AgentStart):
            runs.append([])
        runs[-1].append(event)

    def speaker(say: Callable[[str], None], name: str) -> Callable[[], None]:
        def speak() -> None:
            for number in range(EACH):
                pace.wait()
                say(f"{name} {number}")

        return speak

    def abort_now_and_then() -> None:
        for _ in range(100):
            for _ in range(7):
                pace.wait()
            agent.abort()

    agent.subscribe(collect)
    for number in range(4):
        crowd.add(speaker(agent.steer, f"steering {number}"))
        crowd.add(speaker(agent.follow_up, f"follow-up {number}"))
    crowd.add(abort_now_and_then)

    with crowd.at_work():
        deadline = time.monotonic() + PATIENCE
        while crowd.is_busy and time.monotonic() < deadline:
            agent.prompt_sync("go on")
    run_until_nothing_is_queued(agent)

    said = [text for text in texts(list(agent.messages)) if text != "go on"]
    expected = [
        f"{kind} {who} {number}" for kind in ("steering", "follow-up") for who in range(4) for number in range(EACH)
    ]
    assert Counter(said) == Counter(expected)
    for kind in ("steering", "follow-up"):
        for who in range(4):
            mine = [text for text in said if text.startswith(f"{kind} {who} ")]
            assert mine == [f"{kind} {who} {number}" for number in range(EACH)]
    for events in runs:
        check_events(events)
    ends = [event for events in runs for event in events if isinstance(event, AgentEnd)]
    assert [message for end in ends for message in end.messages] == list(agent.messages)
    assert len(ends) == len(runs) > 1


def test_messages_queued_while_the_queues_are_cleared_enter_at_most_once() -> None:
    agent = an_agent()
    pace = Pace(agent)
    crowd = Crowd()
    injected: list[str] = []

    def collect(event: AgentEvent) -> None:
        if isinstance(event, MessagesInjected):
            injected.extend(texts(event.messages))

    def speaker(say: Callable[[str], None], name: str) -> Callable[[], None]:
        def speak() -> None:
            for number in range(60):
                pace.wait()
                say(f"{name} {number}")

        return speak

    def clear_again_and_again() -> None:
        for clear in [agent.clear_steering, agent.clear_follow_ups, agent.clear_queues] * 20:
            pace.wait()
            clear()
            assert agent.has_queued_messages in (True, False)

    agent.subscribe(collect)
    for number in range(3):
        crowd.add(speaker(agent.steer, f"steering {number}"))
        crowd.add(speaker(agent.follow_up, f"follow-up {number}"))
    crowd.add(clear_again_and_again)

    with crowd.at_work():
        deadline = time.monotonic() + PATIENCE
        while crowd.is_busy and time.monotonic() < deadline:
            agent.prompt_sync("go on")
    run_until_nothing_is_queued(agent)

    assert max(Counter(injected).values(), default=1) == 1
    said = [text for text in texts(list(agent.messages)) if text != "go on"]
    assert said == injected
    agent.steer("one more")
    agent.follow_up("and one more")
    agent.clear_queues()
    assert not agent.has_queued_messages


# -- nobody is in the way ------------------------------------------------------------------------------------


def test_threads_may_come_and_go_as_subscribers_while_the_agent_runs() -> None:
    agent = an_agent()
    pace = Pace(agent)
    crowd = Crowd()
    counts = Counter[str]()
    lock = threading.Lock()

    def come_and_go(name: str) -> Callable[[], None]:
        def count_event(event: AgentEvent) -> None:
            with lock:
                counts[name] += 1

        def watch() -> None:
            for _ in range(40):
                with agent.subscribe(count_event):
                    pace.wait()

        return watch

    def fail_at_once(event: AgentEvent) -> None:
        raise RuntimeError("a subscriber that fails")

    def fail_again_and_again() -> None:
        for _ in range(20):
            agent.subscribe(fail_at_once)
            pace.wait()

    faithful: list[AgentEvent] = []
    agent.subscribe(faithful.append)
    for number in range(4):
        crowd.add(come_and_go(str(number)))
    crowd.add(fail_again_and_again)

    with crowd.at_work():
        deadline = time.monotonic() + PATIENCE
        while crowd.is_busy and time.monotonic() < deadline:
            assert agent.prompt_sync("go on").stop_reason == StopReason.STOP

    seen_before, faithful_before = counts.total(), len(faithful)
    agent.prompt_sync("once more")
    assert counts.total() == seen_before
    assert len(faithful) > faithful_before
    assert all(counts[str(number)] for number in range(4))


def test_of_many_threads_that_prompt_at_once_each_runs_alone() -> None:
    agent = an_agent()
    crowd = Crowd()
    start = threading.Barrier(6, timeout=PATIENCE)
    done: list[str] = []
    running = 0
    most = 0

    def watch(event: AgentEvent) -> None:
        nonlocal running, most
        if isinstance(event, AgentStart):
            running += 1
            most = max(most, running)
        elif isinstance(event, AgentEnd):
            running -= 1

    def prompt(name: str) -> Callable[[], None]:
        def insist() -> None:
            start.wait()
            for number in range(5):
                while True:
                    try:
                        result = agent.prompt_sync(f"{name} {number}")
                    except AlreadyRunning:
                        asyncio.run(agent.wait_for_idle())
                    else:
                        assert result.stop_reason == StopReason.STOP
                        done.append(f"{name} {number}")
                        break

        return insist

    agent.subscribe(watch)
    for number in range(6):
        crowd.add(prompt(str(number)))
    with crowd.at_work():
        pass
    assert most == 1
    assert not agent.is_running
    prompts = texts(list(agent.messages))
    assert sorted(prompts) == sorted(done) == sorted(f"{who} {number}" for who in range(6) for number in range(5))


@pytest.mark.sweep
def test_the_state_of_a_running_agent_can_be_read_from_any_thread() -> None:
    agent = an_agent()
    crowd = Crowd()
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            message = agent.streaming_message
            assert message is None or message.text in ("", "ok")
            assert len(agent.pending_tool_calls) <= 2
            history = list(agent.messages)
            assert len(agent.messages) >= len(history)
            assert "test:model" in repr(agent)
            assert agent.last_error is None

    for _ in range(2):
        crowd.add(read)
    with crowd.at_work():
        try:
            for _ in range(8):
                agent.prompt_sync("go on")
        finally:
            over.set()


def test_aborts_and_waits_from_many_threads_end_every_run() -> None:
    agent = an_agent()
    crowd = Crowd()
    over = threading.Event()
    pace = Pace(agent)
    reasons = Counter[StopReason]()

    def abort() -> None:
        while not over.is_set():
            pace.wait()
            agent.abort()

    def wait() -> None:
        while not over.is_set():
            asyncio.run(agent.wait_for_idle())

    for _ in range(2):
        crowd.add(abort)
        crowd.add(wait)
    with crowd.at_work():
        try:
            for _ in range(60):
                result = agent.prompt_sync("go on")
                reasons[result.stop_reason] += 1
                assert result.stop_reason in (StopReason.STOP, StopReason.ABORTED)
        finally:
            over.set()
            agent.prompt_sync("let the last ones go")
    assert reasons[StopReason.ABORTED] > 0
    assert not agent.is_running


def test_resetting_from_another_thread_is_refused_during_a_run_and_done_between_two() -> None:
    agent = Agent(MODEL, stream_fn=Endless(), tools=[nothing, nothing_in_a_thread], messages=["start"])
    crowd = Crowd()
    over = threading.Event()
    outcomes = Counter[str]()

    def reset() -> None:
        while not over.is_set():
            try:
                agent.reset()
                outcomes["reset"] += 1
            except AlreadyRunning:
                outcomes["refused"] += 1

    crowd.add(reset)
    with crowd.at_work():
        try:
            deadline = time.monotonic() + PATIENCE
            while not (outcomes["reset"] and outcomes["refused"]) and time.monotonic() < deadline:
                result = agent.prompt_sync("go on")
                assert result.stop_reason == StopReason.STOP
                assert texts(list(result.messages)) == ["go on"]
        finally:
            over.set()
    assert outcomes["reset"] > 0
    assert outcomes["refused"] > 0
    agent.reset()
    assert texts(list(agent.messages)) == ["start"]
