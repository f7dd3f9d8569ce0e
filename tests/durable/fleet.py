"""A program that forks workers, for tests that kill them. It has loaded all modules, and has no threads.

Each line of its input is an order: `{"do": "start", …}` starts a worker and answers with its process id. Agents write
marks to a file of the test: the requests to the model, and the calls that ran.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
import traceback
import uuid
from pathlib import Path
from typing import Any

from swink_agent import Agent, AssistantMessage, Defer, ToolContext, UserMessage, tool
from swink_agent.core.types import extract_text
from swink_agent.durable import Durable
from swink_agent.testing import ModelRequest, call, scripted, text

STEPS = 4


def make_durable(url: str, folder: Path) -> Durable:
    """The agents of the tests."""
    marks = folder / "marks"

    def mark(*words: object) -> None:
        descriptor = os.open(marks, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, (" ".join(map(str, words)) + "\n").encode())
        finally:
            os.close(descriptor)

    def prompt_of(request: ModelRequest) -> str:
        message = next(message for message in request.messages if isinstance(message, UserMessage))
        return extract_text(message.content)

    def replies_in(request: ModelRequest) -> int:
        return sum(isinstance(message, AssistantMessage) for message in request.messages)

    durable = Durable(url)

    @tool
    async def effect(ctx: ToolContext, run: str, step: int, nonce: str, seconds: float = 0.0) -> str:
        """Does something that is seen from outside."""
        mark("ran", run, step, nonce, os.getpid())
        await asyncio.sleep(seconds)
        return f"did {nonce}"

    @tool(requires_approval=True)
    async def refund(order: str) -> str:
        """Pays money back."""
        mark("refunded", order)
        return f"refunded {order}"

    def step(request: ModelRequest) -> Any:
        run, done = prompt_of(request), replies_in(request)
        nonce = uuid.uuid4().hex
        mark("asked", run, done, nonce, time.monotonic_ns())
        if done >= STEPS:
            return text(f"done {nonce}")
        seconds = 0.02 if done % 2 else 0.0
        return [text(nonce), call("effect", run=run, step=done, nonce=nonce, seconds=seconds)]

    @durable.agent("steps")
    def steps() -> Agent:
        return Agent("test:model", stream_fn=scripted(*[step] * 50), tools=[effect])

    def long_step(request: ModelRequest) -> Any:
        run, done = prompt_of(request), replies_in(request)
        mark("asked", run, done, "-", time.monotonic_ns())
        if done:
            return text("over")
        return call("effect", run=run, step=done, nonce=f"{run}-long", seconds=60.0)

    @durable.agent("long")
    def long() -> Agent:
        return Agent("test:model", stream_fn=scripted(*[long_step] * 5), tools=[effect])

    @durable.agent("refunds")
    def refunds() -> Agent:
        def ask(request: ModelRequest) -> Any:
            done = replies_in(request)
            return text("all paid") if done else [call("refund", order="17"), call("refund", order="18")]

        return Agent("test:model", stream_fn=scripted(*[ask] * 5), tools=[refund], approve=lambda _: Defer("a person"))

    @durable.agent("poison", max_attempts=2)
    def poison() -> Agent:
        mark("died", os.getpid())
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    def hang(request: ModelRequest) -> Any:
        if os.path.exists(folder / "hang"):
            os.unlink(folder / "hang")
            mark("hangs", os.getpid())
            time.sleep(60)  # the whole event loop stands still
        return text("awake")

    @durable.agent("hanging")
    def hanging() -> Agent:
        return Agent("test:model", stream_fn=scripted(*[hang] * 5))

    return durable


async def serve(durable: Durable, order: dict[str, Any]) -> None:
    options = {name: order[name] for name in ("slots", "poll", "lease", "drain") if name in order}
    async with durable.worker(**options) as worker:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, worker.drain)
        print(f"{worker.id} serves {', '.join(worker.agents)}", file=sys.stderr, flush=True)  # noqa: T201
        await worker.wait()
    await durable.close()


def main() -> None:
    import swink_agent.durable.store.store
    import swink_agent.durable.worker  # noqa: F401

    url, folder = sys.argv[1], Path(sys.argv[2])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        order = json.loads(line)
        process = os.fork()
        if process == 0:
            status = 1
            try:
                log = os.open(folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
                os.dup2(log, 2)
                null = os.open(os.devnull, os.O_RDWR)
                os.dup2(null, 0)
                os.dup2(null, 1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                asyncio.run(serve(make_durable(url, folder), order))
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                (folder / f"exit-{os.getpid()}").write_text(str(status))
                os._exit(status)
        sys.stdout.write(f"{process}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
