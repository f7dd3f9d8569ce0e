"""The program that is killed: it runs agents with sessions, and reports over a pipe what it relies on.

    python life.py      reads one JSON line for each scenario, forks a child that runs it, and reports how it ended

The modules are imported once; a child costs only a fork. It writes `["pid", n]` first, then each fact that it relies
on, as one line with one write, so that no report is lost when it dies. An ended child stays a zombie until the parent
asks for the next scenario, so that its pid is not reused while a test may still kill it.

Owns the scenarios. The invariants after each of them are in `checking` and in the tests.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from swink_agent import (
    Agent,
    AgentMessage,
    ApprovalMode,
    AssistantMessage,
    SlidingWindow,
    ToolContext,
    ToolResultMessage,
    UserMessage,
    extract_text,
    standard_tools,
    tool,
)
from swink_agent.adapters.anthropic import AnthropicStreamFn
from swink_agent.memory import (
    JsonlSessionStore,
    Session,
    SessionInUse,
    SessionStore,
    SqlSessionStore,
    SummarizingCompactor,
)
from swink_agent.memory.storage.files import FileOperations
from swink_agent.testing import call, scripted, text, think

PROMPTS = 3
STEPS = (2, 1, 3)
"""Of each prompt: how many calls each of its replies has, before the one that ends it."""


# -- saying ----------------------------------------------------------------------------------------------------


def say(*what: Any) -> None:
    """Tells the parent something that is relied on from now on."""
    os.write(1, msgspec.json.encode(what) + b"\n")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def digest(messages: Sequence[AgentMessage]) -> str:
    """Messages as a short text that no others have."""
    return hashlib.sha256(msgspec.json.encode(list(messages))).hexdigest()[:24]


# -- the disk --------------------------------------------------------------------------------------------------


class DeadlyFiles(FileOperations):
    """The real files; the process dies at the n-th step that changes one: before it, in the midst of it, or after."""

    def __init__(self, at: int | None, where: str) -> None:
        self._left = at
        self._where = where

    def is_last(self) -> bool:
        if self._left is None:
            return False
        self._left -= 1
        if self._left == 0 and self._where == "before":
            die()
        return self._left == 0

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        is_last = bool(flags & os.O_CREAT) and self.is_last()
        descriptor = super().open(path, flags, mode)
        if is_last:
            die()
        return descriptor

    def write(self, descriptor: int, data: bytes) -> int:
        is_last = self.is_last()
        taken = super().write(descriptor, data[: len(data) // 2] if is_last and self._where == "amid" else data)
        if is_last:
            die()
        return taken

    def sync(self, descriptor: int) -> None:
        is_last = self.is_last()
        super().sync(descriptor)
        if is_last:
            die()

    def replace(self, source: Path, target: Path) -> None:
        is_last = self.is_last()
        super().replace(source, target)
        if is_last:
            die()


class DeadlyConnection(sqlite3.Connection):
    """A real connection; the process dies at the n-th statement that changes something: before it, or after."""

    deadly: DeadlyFiles

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        return self._deadly(sql, lambda: super(DeadlyConnection, self).execute(sql, *values))

    def executemany(self, sql: str, *values: Any) -> sqlite3.Cursor:
        return self._deadly(sql, lambda: super(DeadlyConnection, self).executemany(sql, *values))

    def _deadly(self, sql: str, run: Callable[[], sqlite3.Cursor]) -> sqlite3.Cursor:
        is_last = not sql.startswith(("SELECT", "PRAGMA")) and self.deadly.is_last()
        result = run()
        if is_last:
            die()
        return result


# -- the agent -------------------------------------------------------------------------------------------------


def mark(folder: str, item: str) -> None:
    """Leaves a mark that nothing but a kill of the whole machine takes away."""
    descriptor = os.open(os.path.join(folder, "marks"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, item.encode() + b"\n")
    os.close(descriptor)


def items_of(message: AgentMessage) -> list[str]:
    """The pieces of work that a reply asks for."""
    if not isinstance(message, AssistantMessage):
        return []
    given = [call.arguments for call in message.tool_calls]
    named = [str(one.get("item") or one.get("path") or one.get("command")) for one in given]
    return [name.removeprefix("echo ").split(" ")[0] for name in named]


def next_step(messages: Sequence[AgentMessage]) -> tuple[int, int]:
    """The prompt and the step that it is time for, from the conversation alone, as a model sees it."""
    for message in reversed(messages):
        if isinstance(message, UserMessage):
            return int(extract_text(message.content).split()[1]), 0
        items = items_of(message)
        if items:
            prompt, step, _ = items[0].split("-")
            return int(prompt), int(step) + 1
    raise AssertionError("the model was asked nothing")


def work_of(prompt: int, step: int) -> list[str]:
    return [f"{prompt}-{step}-{number}" for number in range(STEPS[step])] if step < len(STEPS) else []


ALL_WORK = {item for prompt in range(PROMPTS) for step in range(len(STEPS)) for item in work_of(prompt, step)}


class Worker:
    """An agent with a plan, which goes on with it wherever its history is."""

    def __init__(
        self,
        folder: str,
        *,
        seed: int,
        url: str | None = None,
        ids_recur: bool = False,
        sums_up: bool = False,
        say: Callable[..., None] = say,
    ) -> None:
        self.folder, self.say = folder, say
        self.dice = random.Random(seed)
        self.sums_up = sums_up
        self.ids_recur = ids_recur
        """Whether every process counts the ids of its calls from 1, as some models do."""
        self.agent = self._with_provider(url) if url else self._with_script()

    def _telling(self, stream_fn: Any) -> Any:
        """The stream function, which says first what it relies on."""

        async def ask(model: Any, context: Any, options: Any, cancel: Any) -> AsyncIterator[Any]:
            history = self.agent.messages
            ran = self.agent.state.get("ran", 0)
            self.say("asked", len(history), digest(history), len(context.messages), digest(context.messages), ran)
            async for event in stream_fn(model, context, options, cancel):
                yield event

        return ask

    def _with_script(self) -> Agent:
        @tool
        async def work(ctx: ToolContext, item: str, naps: int = 0) -> str:
            """Does a piece of work, once."""
            mark(self.folder, item)
            self.say("started", item)
            for _ in range(naps):
                await asyncio.sleep(0.0002)
            ctx.state["ran"] = ctx.state.get("ran", 0) + 1
            if item.endswith("-1-0"):
                raise ValueError(f"{item} went wrong")
            return f"did {item}: {'ünï ' * 20}"

        def reply(request: Any) -> Any:
            prompt, step = next_step(request.messages)
            items = work_of(prompt, step)
            if not items:
                return text(f"done {prompt}")
            calls = [call("work", item=item, naps=self.dice.randrange(4)) for item in items]
            if not self.ids_recur:
                calls = [one.with_id(f"call_{item}") for one, item in zip(calls, items, strict=True)]
            return [think("hm", signature="s"), text(f"step {step}"), *calls]

        return Agent(
            "test:model",
            stream_fn=self._telling(scripted(*[reply] * 100, suspend=True)),
            tools=[work],
            transform_context=self._compactor(),
        )

    def _compactor(self) -> Any:
        if not self.sums_up:
            return SlidingWindow(400, overflow_tokens=200, keep_first=1)

        async def summaries(model: Any, context: Any, options: Any, cancel: Any) -> AsyncIterator[Any]:
            history = self.agent.messages
            self.say("resumed", len(history), digest(history))  # all that is to be summed up is relied on
            async for event in scripted(text("## Goal\nTo do all the work.\n" + "Done so far. " * 5), suspend=True)(
                model, context, options, cancel
            ):
                yield event

        return SummarizingCompactor(max_tokens=400, keep_recent=180, stream_fn=summaries, overflow_tokens=300)

    def _with_provider(self, url: str) -> Agent:
        folder = os.path.join(self.folder, "work")
        os.makedirs(folder, exist_ok=True)
        return Agent(
            "anthropic:claude-sonnet-4-5",
            stream_fn=self._telling(AnthropicStreamFn(url, "fake-key")),
            tools=standard_tools(folder),
            approval_mode=ApprovalMode.BYPASSED,
        )

    async def live(self, session: Session) -> None:
        """All that is left to do."""
        agent = self.agent
        session.attach(agent)
        if len(agent.messages):
            self.say("resumed", len(agent.messages), digest(agent.messages))
        while True:
            last = agent.messages[-1] if len(agent.messages) else None
            prompts = sum(isinstance(message, UserMessage) for message in agent.messages)
            if last is not None and (isinstance(last, (UserMessage, ToolResultMessage)) or items_of(last)):
                result = await agent.continue_loop()
            elif prompts < PROMPTS:
                result = await agent.prompt(f"prompt {prompts}")
            else:
                return
            assert result.error is None, result
            self.say("returned", len(agent.messages), digest(agent.messages), agent.state.get("ran", 0))
            session.label(f"after {prompts}")


# -- the scenarios -----------------------------------------------------------------------------------------------


def store_of(order: dict[str, Any]) -> SessionStore:
    files = DeadlyFiles(order.get("die_at"), order.get("where", "before"))
    folder = Path(order["folder"]) / "sessions"
    if order.get("store") != "sql":
        return JsonlSessionStore(folder, files=files)
    one = type("DeadlyConnection", (DeadlyConnection,), {"deadly": files})
    return SqlSessionStore(folder / "sessions.sqlite3", connect=partial(sqlite3.connect, factory=one))


def live(order: dict[str, Any]) -> None:
    """A whole life of one session, or the rest of it."""
    store = store_of(order)
    worker = Worker(
        order["folder"],
        seed=order["seed"],
        url=order.get("url"),
        ids_recur=order.get("ids_recur", False),
        sums_up=order.get("sums_up", False),
    )
    with store.open(order["id"]) if order.get("id") else store.create() as session:
        say("opened", session.id)
        asyncio.run(worker.live(session))
    say("closed")


def fork(order: dict[str, Any]) -> None:
    with store_of(order).fork(order["id"], order.get("at")) as session:
        say("forked", session.id, len(session.messages), digest(session.messages))
    say("closed")


def rename(order: dict[str, Any]) -> None:
    store_of(order).rename(order["id"], order["title"])
    say("renamed", order["title"])


def mend(order: dict[str, Any]) -> None:
    with store_of(order).open(order["id"]) as session:
        say("opened", session.id)
    say("closed")


def compete(order: dict[str, Any]) -> None:
    """Holds a session, or says who does not."""
    try:
        session = store_of(order).open(order["id"])
    except SessionInUse:
        say("in use")
        return
    say("held")
    signal.pause()
    session.close()


SCENARIOS: dict[str, Callable[[dict[str, Any]], None]] = {
    "live": live,
    "fork": fork,
    "rename": rename,
    "mend": mend,
    "compete": compete,
}


# -- the process that forks --------------------------------------------------------------------------------------


LOADED_ON_USE = (
    "aiohttp",
    "jsonschema_rs",
    "swink_agent.core.schemas.schema",
    "swink_agent.tools.search.tool",
    "swink_agent.memory.storage.database",
)


def main() -> None:
    for module in LOADED_ON_USE:  # once here, and not in every child
        import_module(module)
    waiting: list[int] = []
    for line in sys.stdin:
        while waiting:
            os.waitpid(waiting.pop(), 0)
        order = msgspec.json.decode(line)
        pid = os.fork()
        if pid == 0:
            say("pid", os.getpid())
            try:
                SCENARIOS[order["do"]](order)
            except BaseException as error:
                say("failed", repr(error)[:2000])
            os._exit(0)
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        waiting.append(pid)
        say("ended", 0 if ended is None else ended.si_status)


if __name__ == "__main__":
    main()
