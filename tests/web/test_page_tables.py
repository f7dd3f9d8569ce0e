"""The pages of durable runs and evaluations in a browser."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from swink_agent import Agent, tool
from swink_agent.core.approval import Defer
from swink_agent.testing import call, scripted, text
from swink_agent.web import app

from .browsing import browser, browsing, marks
from .conftest import running
from .test_embedding import mounted, store_at
from .test_runs import evaluated

playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed here")
expect = playwright.expect
pytestmark = marks


async def test_evaluations_are_read_and_compared_and_runs_need_a_store(folder: Path) -> None:
    before = await evaluated(folder, "Hello!", "What?")
    after = await evaluated(folder, "Hello!", "Goodbye!")
    async with running(folder, text("x")) as client, browsing(client, "/evals") as page:
        await page.get_by_role("link", name=before).click()
        async with page.expect_download() as coming:
            await page.get_by_role("link", name="HTML").click()
        report = await (await coming.value).path()
        assert "Bye" in await asyncio.to_thread(report.read_text)
        await page.get_by_role("link", name="Bye", exact=True).click()
        await expect(page.get_by_role("article").nth(1)).to_contain_text("What?")
        await page.get_by_role("navigation", name="Main").get_by_role("link", name="Evaluations").click()
        await page.get_by_label("Before").select_option(before)
        await page.get_by_label("After").select_option(after)
        await page.get_by_role("button", name="Compare").click()
        await expect(page.get_by_role("row", name=re.compile("Better"))).to_contain_text("bye")
        await page.get_by_role("navigation", name="Main").get_by_role("link", name="Runs").click()
        await expect(page.get_by_role("heading", name="Runs")).to_be_visible()
        await expect(page.get_by_role("main")).to_contain_text("no store of durable runs")


async def test_a_durable_run_is_followed_answered_and_cancelled(tmp_path: Path) -> None:
    pytest.importorskip("dbos")
    from swink_agent.durable import Durable

    durable = Durable(f"sqlite:///{tmp_path / 'runs.db'}")

    @tool(requires_approval=True)
    async def pay(amount: int) -> str:
        """Pays."""
        return f"paid {amount}"

    @tool(external=True)
    def ship() -> str:
        raise AssertionError

    stream = scripted(call("pay", amount=7), call("ship"), text("It is paid."))

    @durable.agent("payer")
    def payer() -> Agent:
        return Agent(
            model="anthropic:claude-sonnet-4-6", stream_fn=stream, tools=[pay, ship], approve=lambda *_: Defer()
        )

    inner = app(lambda _: payer(), authorize=lambda *_: "ada", store=store_at(tmp_path), durable=durable)
    async with durable, mounted(inner) as base, browser() as opened:
        await durable.submit("payer", "pay", id="first")
        await durable.submit("payer", "pay", id="second")
        page = await opened.new_page()
        await page.goto(f"{base}/runs")
        await expect(page.get_by_role("columnheader")).to_have_text(
            ["Run", "Agent", "Status", "Worker", "Cost", "Age", "Waits"]
        )
        await expect(page.get_by_role("row", name=re.compile("second"))).to_contain_text("queued")
        await page.get_by_role("link", name="second").click()
        await page.get_by_role("button", name="Cancel run").click()
        await expect(page.get_by_role("main")).to_contain_text("cancelled")
        await page.goto(f"{base}/runs/first")
        async with durable.worker(poll=0.05):
            waits = page.get_by_role("group", name="pay waits")
            await expect(waits).to_contain_text("7", timeout=15_000)
            time = page.get_by_role("article").first.locator("time")
            await expect(time).to_have_text(re.compile("M$"))  # also when the page was read again
            await waits.get_by_role("button", name="Approve").click()
            waits = page.get_by_role("group", name="ship waits")
            await waits.get_by_label("Result (JSON)").fill('"by sea"', timeout=15_000)
            await waits.get_by_role("button", name="Send result").click()
            await expect(page.get_by_role("log", name="Conversation")).to_contain_text("by sea", timeout=15_000)
            await expect(page.get_by_role("log", name="Conversation")).to_contain_text("It is paid.", timeout=15_000)
            await expect(page.get_by_role("main")).to_contain_text("done")


async def test_a_run_that_failed_is_tried_again(tmp_path: Path) -> None:
    pytest.importorskip("dbos")
    from swink_agent.durable import Durable

    durable = Durable(f"sqlite:///{tmp_path / 'runs.db'}")
    mended: list[bool] = []

    @durable.agent("writer")
    def writer() -> Agent:
        if not mended:
            raise RuntimeError("the ink is missing")
        return Agent(model="anthropic:claude-sonnet-4-6", stream_fn=scripted(text("It is written.")))

    inner = app(lambda _: writer(), authorize=lambda *_: "ada", store=store_at(tmp_path), durable=durable)
    async with durable, mounted(inner) as base, browser() as opened, durable.worker(poll=0.05):
        await durable.submit("writer", "write", id="letter")
        page = await opened.new_page()
        await page.goto(f"{base}/runs/letter")
        await expect(page.get_by_role("main")).to_contain_text("the ink is missing", timeout=15_000)
        mended.append(True)
        await page.get_by_role("button", name="Retry run").click()
        await expect(page.get_by_role("log", name="Conversation")).to_contain_text("It is written.", timeout=15_000)
