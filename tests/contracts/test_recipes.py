"""The recipes keep their promises: above all, a run ends when its reader leaves."""

from __future__ import annotations

import ast
import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

import pytest
from aiohttp import ClientSession, web

from swink_agent import Agent, StreamFn, tool
from swink_agent.testing import call, scripted, stall, text

from .documents import ROOT, blocks_of

SECONDS = 30.0
"""The longest wait in these tests: far longer than needed, also on a busy machine."""


def file_of_the_page(page: str, name: str) -> ModuleType:
    (block,) = [block for block in blocks_of(ROOT / "docs/recipes" / page) if block.argument == name]
    module = ModuleType(name.removesuffix(".py"))
    exec(compile(block.code, f"{page}:{name}", "exec"), module.__dict__)
    return module


class Server:
    """Runs the recipe's server on loopback, in the same way as the recipe."""

    def __init__(self, make_agent: Callable[[], Agent]) -> None:
        self.recipe = file_of_the_page("web-server.md", "server.py")
        self.app: web.Application = self.recipe.make_app(make_agent)
        self.url = ""

    @property
    def agent(self) -> Agent:
        return self.app[self.recipe.CHATS]["1"]

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[Server]:
        runner = web.AppRunner(self.app, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/chats/1"
        try:
            yield self
        finally:
            await runner.cleanup()


class Ended:
    """A stream function that sets an event when the inner one is closed, as an HTTP request would be."""

    def __init__(self, inner: StreamFn) -> None:
        self.inner = inner
        self.event = asyncio.Event()

    async def __call__(self, *arguments: Any) -> AsyncIterator[Any]:
        try:
            async for event in self.inner(*arguments):
                yield event
        finally:
            self.event.set()


def test_the_recipe_starts_its_server_as_these_tests_do() -> None:
    (code,) = [block.code for block in blocks_of(ROOT / "docs/recipes/web-server.md") if block.argument == "server.py"]
    (started,) = [node for node in ast.walk(ast.parse(code)) if ast.unparse(node).startswith("web.run_app(")][:1]
    assert "handler_cancellation=True" in ast.unparse(started)


async def read_until(response: Any, wanted: bytes) -> bytes:
    seen = b""
    async with asyncio.timeout(SECONDS):
        while wanted not in seen:
            seen += await response.content.readany()
    return seen


async def test_a_client_that_leaves_ends_the_request_to_a_silent_model() -> None:
    model = Ended(scripted([text("Let me see"), stall()]))
    server = Server(lambda: Agent("scripted:demo", stream_fn=model))
    async with server.serve(), ClientSession() as client:
        response = await client.post(server.url, data="Hi!")
        await read_until(response, b"Let me see")
        assert server.agent.is_running
        assert not model.event.is_set()
        response.close()
        async with asyncio.timeout(SECONDS):
            await model.event.wait()
            await server.agent.wait_for_idle()
        assert server.agent.last_error == "the run was aborted"
        assert server.agent.messages[-1].text == "Let me see"


async def test_a_client_that_leaves_while_a_tool_runs_stops_the_tool_and_the_chat_goes_on() -> None:
    stopped = asyncio.Event()

    @tool
    async def dig() -> str:
        """Digs."""
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.set()
        return "a hole"

    model = scripted(call("dig"), "Where were we?")
    server = Server(lambda: Agent("scripted:demo", stream_fn=model, tools=[dig]))
    async with server.serve(), ClientSession() as client:
        response = await client.post(server.url, data="Dig.")
        await read_until(response, b"tool_execution_start")
        response.close()
        async with asyncio.timeout(SECONDS):
            await stopped.wait()
            await server.agent.wait_for_idle()
        assert server.agent.messages[-1].outcome == "cancelled"
        async with client.post(server.url, data="Hello?") as response:
            assert b'event: done\ndata: {"error": null}' in await response.read()
    assert len(model.requests) == 2


async def test_a_client_that_stays_without_reading_holds_the_model_back() -> None:
    flood = scripted(text("x" * 4_000_000, deltas=40_000))
    server = Server(lambda: Agent("scripted:demo", stream_fn=flood))
    async with server.serve(), ClientSession(read_bufsize=1024) as client:
        response = await client.post(server.url, data="Everything!")
        await read_until(response, b"x")
        so_far, before = -1, -2
        async with asyncio.timeout(SECONDS):
            while so_far != before:  # until the sockets' buffers are full
                before = so_far
                await asyncio.sleep(0.2)
                message = server.agent.streaming_message
                so_far = len(message.text) if message is not None else 0
        assert server.agent.is_running
        assert so_far < 4_000_000
        response.close()
        async with asyncio.timeout(SECONDS):
            await server.agent.wait_for_idle()


async def test_a_second_question_is_refused_and_steering_reaches_the_first() -> None:
    @tool
    async def dig() -> str:
        """Digs."""
        await asyncio.sleep(3600)
        return "a hole"

    server = Server(lambda: Agent("scripted:demo", stream_fn=scripted(call("dig"), "I stopped."), tools=[dig]))
    async with server.serve(), ClientSession() as client:
        async with client.post(f"{server.url}/steer", data="?") as refused:
            assert refused.status == 409
        async with client.post(server.url, data="Dig.") as response:
            await read_until(response, b"tool_execution_start")
            async with client.post(server.url, data="And?") as refused:
                assert (refused.status, await refused.text()) == (
                    409,
                    "this chat is answering already: steer it, or wait",
                )
            async with client.post(f"{server.url}/steer", data="Enough!") as taken:
                assert taken.status == 204
            await read_until(response, b"event: done")
        assert server.agent.messages[-1].text == "I stopped."


async def test_a_run_that_cannot_start_is_answered_with_a_status_and_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    server = Server(lambda: Agent("anthropic:claude-sonnet-4-6"))
    async with server.serve(), ClientSession() as client:
        async with client.post(server.url, data="Hi!") as response:
            assert response.status == 503
            assert "ANTHROPIC_API_KEY" in await response.text()
        async with client.post(server.url, data=" ") as response:
            assert response.status == 400


async def test_a_server_that_shuts_down_does_not_wait_for_answers() -> None:
    server = Server(lambda: Agent("scripted:demo", stream_fn=scripted([text("Let me see"), stall()])))
    async with ClientSession() as client:
        async with server.serve():
            response = await client.post(server.url, data="Hi!")
            await read_until(response, b"Let me see")
            started = time.monotonic()
        assert time.monotonic() - started < SECONDS  # aiohttp itself would wait for a minute
        assert server.agent.last_error == "the run was aborted"
        response.close()
