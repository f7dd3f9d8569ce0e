"""Running an agent from code that is not async: in any thread, inside a loop or not, and with Ctrl+C."""

from __future__ import annotations

import asyncio
import contextvars
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from swink_agent import (
    Agent,
    AgentEvent,
    AssistantMessage,
    InvalidContinue,
    MessageUpdate,
    ModelSpec,
    NoMessages,
    StopReason,
    ToolResultMessage,
    extract_text,
    tool,
)
from swink_agent.core.agent.lifecycle import run_sync
from swink_agent.testing import call, check_events, reply, scripted, stall

MODEL = ModelSpec("test", "model")
REQUEST_ID: contextvars.ContextVar[str] = contextvars.ContextVar("REQUEST_ID", default="none")


def never() -> None:
    raise AssertionError("nothing was interrupted")


def without_a_loop(work: Callable[[], None]) -> None:
    work()


def inside_a_loop(work: Callable[[], None]) -> None:
    """Calls it in a running event loop, and in one that leaves Ctrl+C to Python, as a notebook's does."""

    async def main() -> None:
        work()

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


PLACES = pytest.mark.parametrize("place", [without_a_loop, inside_a_loop])
Place = Callable[[Callable[[], None]], None]


# -- run_sync ------------------------------------------------------------------------------------------------


@PLACES
def test_the_result_of_the_coroutine_comes_back(place: Place) -> None:
    async def work() -> str:
        await asyncio.sleep(0)
        return "done"

    results: list[str] = []
    place(lambda: results.append(run_sync(work, never)))
    assert results == ["done"]


@PLACES
def test_an_error_of_the_coroutine_comes_back_as_it_is(place: Place) -> None:
    error = LookupError("not there")

    async def work() -> None:
        raise error

    def check() -> None:
        with pytest.raises(LookupError) as caught:
            run_sync(work, never)
        assert caught.value is error

    place(check)


async def test_inside_a_loop_another_thread_does_the_work_in_a_loop_of_its_own() -> None:
    async def where() -> tuple[threading.Thread, asyncio.AbstractEventLoop]:
        return threading.current_thread(), asyncio.get_running_loop()

    thread, loop = run_sync(where, never)
    assert thread is not threading.current_thread()
    assert loop is not asyncio.get_running_loop()
    assert loop.is_closed()
    assert not thread.is_alive()


@PLACES
def test_context_variables_of_the_caller_are_seen_in_the_run(place: Place) -> None:
    seen: list[str] = []

    @tool
    def look() -> str:
        """Looks from a worker thread."""
        seen.append(REQUEST_ID.get())
        return "seen"

    agent = Agent(MODEL, stream_fn=scripted(call("look"), "ok"), tools=[look])
    token = REQUEST_ID.set("42")
    try:
        place(lambda: agent.prompt_sync("hi") and None)
    finally:
        REQUEST_ID.reset(token)
    assert seen == ["42"]


# -- agents --------------------------------------------------------------------------------------------------


@PLACES
def test_continuing_without_await(place: Place) -> None:
    agent = Agent(MODEL, stream_fn=scripted("ok"), messages=["hi"])
    texts: list[str] = []
    place(lambda: texts.append(agent.continue_loop_sync().text))
    assert texts == ["ok"]


@PLACES
def test_conversations_that_cannot_continue_are_refused(place: Place) -> None:
    def check() -> None:
        with pytest.raises(NoMessages):
            Agent(MODEL, stream_fn=scripted()).continue_loop_sync()
        with pytest.raises(InvalidContinue):
            Agent(MODEL, stream_fn=scripted(), messages=["hi", AssistantMessage("ok")]).continue_loop_sync()

    place(check)


def test_a_tool_of_one_agent_can_ask_another_agent() -> None:
    def expert(answer: str) -> Agent:
        return Agent(MODEL, stream_fn=scripted(answer))

    @tool
    def ask_in_a_thread() -> str:
        """Runs in a worker thread."""
        return expert("from a thread").prompt_sync("?").text

    @tool
    async def ask_in_the_loop() -> str:
        """Runs in the event loop, and blocks it."""
        return expert("from the loop").prompt_sync("?").text

    stream = scripted(call("ask_in_a_thread") + call("ask_in_the_loop"), "thanks")
    agent = Agent(MODEL, stream_fn=stream, tools=[ask_in_a_thread, ask_in_the_loop])
    assert agent.prompt_sync("ask them").text == "thanks"
    results = [message for message in agent.messages if isinstance(message, ToolResultMessage)]
    assert [extract_text(result.content) for result in results] == ["from a thread", "from the loop"]


def test_one_agent_can_be_run_by_one_thread_after_another() -> None:
    agent = Agent(MODEL, stream_fn=scripted(*[str(number) for number in range(6)]))
    with ThreadPoolExecutor(3) as threads:
        texts = [threads.submit(agent.prompt_sync, "hi").result(10).text for _ in range(6)]
    assert texts == ["0", "1", "2", "3", "4", "5"]
    assert len(agent.messages) == 12


def test_many_agents_can_run_at_the_same_time() -> None:
    together = threading.Barrier(8, timeout=10)

    @tool
    def meet() -> str:
        """Returns when all eight are here."""
        together.wait()
        return "met"

    def run(number: int) -> str:
        return Agent(MODEL, stream_fn=scripted(call("meet"), str(number)), tools=[meet]).prompt_sync("hi").text

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(run, range(8))) == [str(number) for number in range(8)]


# -- interrupts ----------------------------------------------------------------------------------------------


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Python's own handler, also where the tests were started with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def to_the_waiting_thread() -> None:
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGINT)


def without_ending_the_wait() -> None:
    """As a signal does that comes just before the wait begins: Python notes it, and nothing interrupts the wait."""
    signal.raise_signal(signal.SIGINT)


@PLACES
@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("send", [to_the_waiting_thread, without_ending_the_wait])
def test_ctrl_c_aborts_the_run_waits_for_its_end_and_is_raised(place: Place, send: Callable[[], None]) -> None:
    assert threading.current_thread() is threading.main_thread()
    events: list[AgentEvent] = []

    def interrupt(event: AgentEvent) -> None:
        events.append(event)
        if isinstance(event, MessageUpdate):
            send()

    agent = Agent(MODEL, stream_fn=scripted(reply("half", stall())))
    agent.subscribe(interrupt)

    running: list[bool] = []

    def check() -> None:
        with pytest.raises(KeyboardInterrupt):
            agent.prompt_sync("hi")
        running.append(agent.is_running)

    place(check)
    agent.abort()  # for the case that it goes on in its thread, which is what must not be
    assert running == [False]
    check_events(events)
    last = agent.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert (last.text, last.stop_reason) == ("half", StopReason.ABORTED)
    assert agent.last_error is not None


@PLACES
def test_an_abort_from_another_thread_ends_the_wait(place: Place) -> None:
    agent = Agent(MODEL, stream_fn=scripted(reply("half", stall())))
    streaming = threading.Event()
    agent.subscribe(lambda event: streaming.set() if isinstance(event, MessageUpdate) else None)

    def abort() -> None:
        streaming.wait(10)
        agent.abort()

    aborter = threading.Thread(target=abort)
    aborter.start()
    reasons: list[StopReason] = []
    place(lambda: reasons.append(agent.prompt_sync("hi").stop_reason))
    aborter.join(10)
    assert reasons == [StopReason.ABORTED]


@PLACES
def test_a_tool_that_swallows_its_cancellation_does_not_hold_up_an_aborted_run(place: Place) -> None:
    release, returned = threading.Event(), threading.Event()

    @tool
    async def stubborn() -> str:
        """Ends when the test is over, and not before."""
        agent.abort()
        while not release.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                pass
        return "late"

    agent = Agent(MODEL, stream_fn=scripted(call("stubborn")), tools=[stubborn])

    def run() -> None:
        place(lambda: agent.prompt_sync("hi") and None)
        returned.set()

    caller = threading.Thread(target=run)
    caller.start()
    was_prompt = returned.wait(30)
    release.set()
    caller.join(10)
    assert not agent.is_running
    assert was_prompt
