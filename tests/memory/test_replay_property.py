"""Replay and forks of random sessions: the same agent replays any of them without a difference, and a fork at any
message is a valid history."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from swink_agent import (
    Agent,
    AgentError,
    AgentMessage,
    ApproveWith,
    AssistantMessage,
    Inject,
    PolicyContext,
    PreDispatchContext,
    Redactor,
    Skip,
    Stop,
    Text,
    ToolContext,
    ToolError,
    ToolResultMessage,
    UserMessage,
    tool,
)
from swink_agent.core.journal import JournalEntry
from swink_agent.memory import JsonlSessionStore, replay
from swink_agent.testing import call, fail, scripted, stall, text, think, truncated

MODEL = "test:model"
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class Record(NamedTuple):
    number: int
    entry: Any


class Ledger:
    """A journal in memory, and the session that it holds."""

    messages = ()

    def __init__(self, entries: list[JournalEntry] | None = None) -> None:
        self.entries = [] if entries is None else entries

    def record(self, entry: JournalEntry, redactor: Redactor | None = None, /) -> int:
        self.entries.append(entry)
        return len(self.entries)

    async def durable(self) -> None:
        pass

    def records(self) -> list[Record]:
        return [Record(number, entry) for number, entry in enumerate(self.entries, 1)]


@tool
async def good(n: int) -> str:
    """Is quick."""
    return f"good {n}"


@tool
async def late(n: int) -> str:
    """Takes a moment."""
    await asyncio.sleep(0.002 * n)
    return f"late {n}"


@tool
async def bad(n: int) -> str:
    """Fails."""
    raise ToolError(f"bad {n}")


@tool
async def slow() -> str:
    """Ends only when it is stopped."""
    await asyncio.Event().wait()
    return "never"


@tool(on_steer="finish")
async def stubborn(n: int) -> str:
    """Is not stopped by steering."""
    await asyncio.sleep(0.003)
    return f"done {n}"


@tool(requires_approval=True)
async def guarded(n: int) -> str:
    """Asks first."""
    return f"allowed {n}"


@tool
async def count(ctx: ToolContext) -> str:
    """Counts in the state."""
    ctx.state["n"] = ctx.state.get("n", 0) + 1
    return "counted"


TOOLS = [good, late, bad, slow, stubborn, guarded, count]


class Whims:
    """A policy that does anything at all, and the same again at the same place."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def _wants(self, what: str, ctx: Any, chance: float) -> bool:
        place = f"{self.seed} {what} {len(ctx.messages)} {getattr(ctx, 'call_id', '')}"
        return random.Random(place).random() < chance

    def pre_turn(self, ctx: PolicyContext) -> Any:
        if self._wants("inject before", ctx, 0.1):
            return Inject([UserMessage("before the turn")])
        return Stop("before the turn") if self._wants("stop before", ctx, 0.03) else None

    def pre_dispatch(self, ctx: PreDispatchContext) -> Any:
        if self._wants("skip", ctx, 0.1):
            return Skip("not this one")
        if self._wants("inject at", ctx, 0.05):
            return Inject([UserMessage("at the call")])
        if self._wants("stop at", ctx, 0.02):
            return Stop("at the call")
        if "n" in ctx.arguments and self._wants("change", ctx, 0.1):
            ctx.arguments = {"n": 9}
        return None

    def post_turn(self, ctx: PolicyContext) -> Any:
        if self._wants("inject after", ctx, 0.1):
            return Inject([UserMessage("after the turn")])
        if ctx.state.get("n", 0) > 6:
            return Stop("counted enough")
        if ctx.message is not None and self._wants("replace", ctx, 0.1):
            blocks = [Text("in other words"), *ctx.message.tool_calls]
            return Inject([AssistantMessage(blocks, "t", "m", stop_reason=ctx.message.stop_reason)])
        return None

    def post_loop(self, ctx: PolicyContext) -> Any:
        return Inject([UserMessage("not yet")]) if self._wants("go on", ctx, 0.1) else None


def approve(request: Any) -> Any:
    chance = random.Random(str(request.arguments)).random()
    return ApproveWith({"n": 5}) if chance < 0.3 else chance < 0.7


def a_part(dice: random.Random) -> Any:
    return dice.choice(
        [
            *[text(f"said {dice.randrange(9)}")] * 3,
            think("hm", signature=dice.choice([None, "signed"])),
            *(call("slow"), call("count"), call("good", n="x"), call("nobody"), call("final_answer", n=1)),
            *[call(dice.choice(["good", "late", "bad", "stubborn", "guarded"]), n=dice.randrange(4))] * 5,
        ]
    )


def a_reply(dice: random.Random) -> Any:
    match dice.randrange(14):
        case 0:
            return [text("so far"), fail(dice.choice(["throttled", "network", "auth", "context_overflow", "stream"]))]
        case 1:
            return truncated(call("good", n=12))
        case 2:
            return [text("so far"), stall()]
        case _:
            return [a_part(dice) for _ in range(dice.randrange(1, 4))]


async def no_wait(_: float) -> None:
    pass


async def one_run(agent: Agent, dice: random.Random) -> None:
    """One run of any kind, which somebody ends if it does not end by itself."""

    async def watch() -> None:
        await asyncio.sleep(0.04)
        if dice.random() < 0.5:
            agent.steer("hurry up")
            await asyncio.sleep(0.1)
        agent.abort()

    watching = asyncio.ensure_future(watch())
    chance = dice.random()
    with suppress(AgentError):
        if chance < 0.6:
            await agent.prompt("go")
        elif chance < 0.8:
            await agent.continue_loop()
        else:
            await agent.structured_output("how many?", SCHEMA, 1)
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching


async def a_session(dice: random.Random, options: dict[str, Any]) -> list[JournalEntry]:
    ledger = Ledger()
    agent = an_agent(dice, options)
    agent.attach_journal(ledger)
    await some_runs(agent, dice)
    return ledger.entries


def an_agent(dice: random.Random, options: dict[str, Any]) -> Agent:
    model = scripted(*[a_reply(dice) for _ in range(60)])
    return Agent(MODEL, stream_fn=model, sleep=no_wait, tools=TOOLS, **options)


async def some_runs(agent: Agent, dice: random.Random) -> None:
    acts = {
        "steer": lambda: agent.steer("steered"),
        "steer twice": lambda: agent.steer(["first", "second"]),
        "abort": agent.abort,
        "follow up": lambda: agent.follow_up(["more", "and more"]),
    }
    plan = {dice.randrange(1, 60): dice.choice(list(acts)) for _ in range(dice.randrange(4))}
    seen = 0

    def meddle(_: object) -> None:
        nonlocal seen
        seen += 1
        if seen in plan:
            acts[plan[seen]]()

    agent.subscribe(meddle)
    for _ in range(dice.randrange(1, 4)):
        await one_run(agent, dice)
        if dice.random() < 0.2:
            agent.messages.append("by the way")
        if dice.random() < 0.1:
            agent.messages = list(agent.messages)[:1]  # a reply without the results of its calls would get them


def some_options(seed: int, dice: random.Random) -> dict[str, Any]:
    return {
        "approve": approve,
        "policies": [Whims(seed)] if dice.random() < 0.6 else [],
        "steering_mode": dice.choice(["all", "one_at_a_time"]),
        "follow_up_mode": dice.choice(["all", "one_at_a_time"]),
        "tool_execution": dice.choice(["concurrent", "sequential"]),
    }


async def try_one(seed: int) -> None:
    dice = random.Random(seed)
    options = some_options(seed, dice)
    entries = await a_session(dice, options)

    def make(stream_fn: Any, wrap_tool: Any) -> Agent:
        return Agent(MODEL, stream_fn=stream_fn, tools=[wrap_tool(item) for item in TOOLS], **options)

    for end in (len(entries), dice.randrange(len(entries) + 1)):  # whole, and broken off somewhere
        report = await replay(Ledger(entries[:end]), make, patience=10)
        assert report.divergence is None, f"seed {seed}, {end} of {len(entries)} entries: {report}"


@pytest.mark.parametrize("first", range(0, 40, 10))
async def test_a_session_of_any_kind_comes_out_the_same(first: int) -> None:
    for seed in range(first, first + 10):
        await try_one(seed)


@pytest.mark.sweep
@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(1000, 1500, 50))
async def test_many_sessions_of_any_kind_come_out_the_same(first: int) -> None:
    for seed in range(first, first + 50):
        await try_one(seed)


# -- on disk ---------------------------------------------------------------------------------------------------


def half_of_it(messages: Sequence[AgentMessage], overflow: bool) -> Sequence[AgentMessage] | None:
    """Compacts at some lengths, and keeps what follows one of the prompts."""
    prompts = [at for at, message in enumerate(messages) if isinstance(message, UserMessage)]
    if not prompts or not (overflow or len(messages) % 7 == 6):
        return None
    return [UserMessage("what was before"), *messages[prompts[len(prompts) // 2] :]]


def is_valid(messages: Sequence[AgentMessage]) -> bool:
    """Whether each call is answered right behind its reply, in order, and nothing else is."""
    waiting: list[str] = []
    for message in messages:
        if isinstance(message, ToolResultMessage):
            if not waiting or message.tool_call_id != waiting.pop(0):
                return False
        elif waiting:
            return False
        elif isinstance(message, AssistantMessage):
            waiting = [call.id for call in message.tool_calls]
    return not waiting


async def try_one_on_disk(seed: int, folder: Path) -> None:
    """A session that is left and gone on with, and all of its forks."""
    dice = random.Random(seed)
    options = {**some_options(seed, dice), "transform_context": half_of_it}
    store = JsonlSessionStore(folder / str(seed), sync=False)
    session = store.create()
    for _ in range(dice.randrange(1, 4)):
        with session:
            agent = an_agent(dice, options)
            session.attach(agent)
            await some_runs(agent, dice)
        session = store.open(session.id)
    session.close()

    def make(stream_fn: Any, wrap_tool: Any) -> Agent:
        return Agent(MODEL, stream_fn=stream_fn, tools=[wrap_tool(item) for item in TOOLS], **options)

    whole = store.load(session.id)
    report = await replay(whole, make, patience=10)
    assert report.divergence is None, f"seed {seed}: {report}"
    for at in range(len(whole.messages) + 1):
        with store.fork(session.id, at) as fork:
            pass
        assert fork.messages[:at] == whole.messages[:at]
        assert is_valid(fork.messages), f"seed {seed}, forked at {at}"
        if fork.context is not None:
            assert is_valid(fork.context), f"seed {seed}, forked at {at}"
            assert fork.messages[-1:] == fork.context[-1:], f"seed {seed}, forked at {at}"
        again = store.load(fork.id)
        assert (again.messages, again.context, again.state) == (fork.messages, fork.context, fork.state)


async def test_a_session_of_any_kind_can_be_forked_anywhere(tmp_path: Path) -> None:
    for seed in range(8):
        await try_one_on_disk(seed, tmp_path)


@pytest.mark.sweep
@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(1000, 1200, 50))
async def test_many_sessions_of_any_kind_can_be_forked_anywhere(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 50):
        await try_one_on_disk(seed, tmp_path)
