"""A browser for the tests of the page: Chromium, without a network beyond this machine."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from swink_agent import Agent
from swink_agent.core.stream import StreamDone, StreamStart, TextDelta, TextEnd, TextStart
from swink_agent.core.types import AssistantMessage, ModelSpec, Text, UserMessage
from swink_agent.testing import scripted

from .conftest import TOKEN, Client, store_of

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
IS_NEEDED = "SWINK_NEEDS_BROWSER" in os.environ
"""Set by .ci/run, where a browser that is missing is a failure and no reason to look away."""
QUIET = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
    "--disable-extensions",
)


def _missing() -> str:
    try:
        import playwright.async_api  # noqa: F401
    except ImportError:
        return "playwright is not installed here; the extra dev has it"
    return "" if BROWSER else "chromium is not installed here; .ci/run installs it"


quick_marks = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(_missing()) and not IS_NEEDED, reason=_missing() or "there"),
]
marks = [pytest.mark.sweep, *quick_marks]


@asynccontextmanager
async def browser() -> AsyncGenerator[Browser]:
    from playwright.async_api import async_playwright, expect

    expect.set_options(timeout=20_000)  # the machine may be busy
    assert BROWSER is not None, "install chromium: these tests are not to be left out here"
    async with async_playwright() as playwright:
        opened = await playwright.chromium.launch(executable_path=BROWSER, args=list(QUIET))
        try:
            yield opened
        finally:
            await opened.close()


@asynccontextmanager
async def browsing(client: Client, path: str = "/", **options: Any) -> AsyncGenerator[Page]:
    """A page of the server in a browser of its own. What its console reports as an error fails the test."""
    async with browser() as opened:
        context = await opened.new_context(**options)
        context.set_default_timeout(15_000)
        page = await context.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda said: errors.append(said.text) if "Content Security Policy" in said.text else None)
        await page.goto(f"{client.base}{path}?token={TOKEN}")
        yield page
        assert errors == []


# -- what pages show ---------------------------------------------------------------------------------------

OLD = "".join([f"line {number}\n" for number in range(30)])


class Held:
    """A model that gives the first half of a reply, waits, and gives the rest."""

    def __init__(self, *halves: str) -> None:
        self.go = asyncio.Event()
        self._halves = halves

    def __call__(self, *_: Any) -> Any:
        return self._events()

    async def _events(self) -> Any:
        yield StreamStart()
        yield TextStart(0)
        yield TextDelta(0, self._halves[0])
        await self.go.wait()
        yield TextDelta(0, self._halves[1])
        yield TextEnd(0)
        yield StreamDone()


def filled(folder: Path, count: int, title: str = "Long") -> str:
    messages: list[Any] = []
    for number in range(count // 2):
        messages += [UserMessage(f"question {number}"), AssistantMessage((Text(f"answer {number}"),))]
    return stored(folder, title, *messages)


def stored(folder: Path, title: str, *messages: Any) -> str:
    """A session with these messages."""
    with store_of(folder).create(str(folder), title=title) as session:
        agent = Agent(model=ModelSpec("anthropic", "claude-sonnet-4-6"), stream_fn=scripted(), messages=messages)
        session.attach(agent)
        session.detach()
    return session.id
