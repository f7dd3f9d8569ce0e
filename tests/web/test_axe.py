"""axe-core checks every page, at three widths and in both themes, and finds nothing serious."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from swink_agent import Agent, tool
from swink_agent.core.approval import Defer
from swink_agent.core.types import AssistantMessage, Base64Source, Image, Text, Thinking, ToolCall, ToolResultMessage
from swink_agent.core.types import UserMessage as User
from swink_agent.testing import call, scripted, text
from swink_agent.web import app

from .browsing import OLD, browser, browsing, filled, marks, stored
from .conftest import running, store_of
from .test_embedding import mounted, store_at
from .test_runs import evaluated

playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed here")
pytest.importorskip("axe_playwright_python", reason="axe-core is not installed here; the extra dev has it")
expect = playwright.expect
pytestmark = [*marks, pytest.mark.parametrize("scheme", ["light", "dark"])]
WIDTHS = (390, 1000, 2000)
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SAID = (
    "# Title\n\n> quoted\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\ndef f():  # why\n    return 'x' * 300\n```\n"
)
RUN = """async () => {
  const found = await axe.run(document, { resultTypes: ["violations"] });
  return found.violations.map(({ id, impact, nodes }) => [impact, id, nodes.map((node) => node.html.slice(0, 300))]);
}"""


async def looked_at(page: Any, what: str) -> None:
    """Fails for what axe-core calls serious or critical. It is evaluated, so the page's policy stays as it is."""
    if not await page.evaluate("typeof axe === 'object'"):
        await page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text())
    for width in WIDTHS:
        await page.set_viewport_size({"width": width, "height": 800})
        found = [each for each in await page.evaluate(RUN) if each[0] in ("serious", "critical")]
        assert found == [], f"{what} at {width} pixels"
        wide = await page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{what} at {width} pixels is {wide} wide"


async def unfold(page: Any) -> None:
    await page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")


async def test_axe_finds_nothing_serious_in_sessions(folder: Path, scheme: Any) -> None:
    (folder / "file.txt").write_text(OLD)
    edits = [{"old": "line 2\n", "new": "line two\n"}, {"old": "line 25\n", "new": "line twenty-five\n"}]
    replies = (call("read_file", path="file.txt"), call("edit_file", path="file.txt", edits=edits), text("Done."))
    calls = (ToolCall("a", "bash", {"command": "ls # comment"}), ToolCall("b", "read_file", {"path": "x"}))
    results = (ToolResultMessage("a", "-old\n+new"), ToolResultMessage("b", "no", True))
    picture = Image(Base64Source("image/png", PIXEL))
    async with running(folder, *replies) as client:
        session = stored(
            folder,
            "Colours",
            User([Text("hi"), picture]),
            AssistantMessage((Thinking("hm"), Text(SAID), *calls)),
            *results,
        )
        filled(folder, 120, "Long")
        async with browsing(client, color_scheme=scheme) as page:
            base = page.url
            await looked_at(page, "the list")
            await page.get_by_role("button", name="Actions for Colours").click()
            await looked_at(page, "a menu")
            await page.get_by_role("menuitem", name="Rename").click()
            await looked_at(page, "a dialog")
            await page.goto(f"{base}sessions/{session}")
            await expect(page.get_by_role("status", name="Connection")).to_have_text("connected")
            await unfold(page)
            await looked_at(page, "a session")
            await page.get_by_role("textbox", name="Message").fill("change it")
            await page.keyboard.press("Enter")
            dialog = page.get_by_role("alertdialog")
            await dialog.get_by_role("button", name="No, because").click()
            await unfold(page)
            await looked_at(page, "a run with a question")
            await page.get_by_role("button", name="Yes", exact=True).click()
            await expect(page.get_by_role("article").last).to_contain_text("Done.")
            await page.get_by_label("Attach files").set_input_files(
                {"name": "a.txt", "mimeType": "text/plain", "buffer": b"x"}
            )
            await page.get_by_role("textbox", name="Message").fill("x")
            await page.get_by_role("button", name="Send").click()
            await expect(page.get_by_role("alert")).not_to_be_empty()
            await looked_at(page, "an alert and an attachment")
            export = await page.context.new_page()
            await export.set_content(store_of(folder).export(session, "html"))
            await unfold(export)
            await looked_at(export, "an export")


async def test_axe_finds_nothing_serious_in_evaluations_and_errors(folder: Path, scheme: Any) -> None:
    before, after = await evaluated(folder, "Hello!", "What?"), await evaluated(folder, "Hello!", "Goodbye!")
    async with running(folder, text("x")) as client, browsing(client, color_scheme=scheme) as page:
        base = page.url
        await page.goto(f"{base}nothing/here")
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        shown = {
            "evals": "evaluations",
            f"evals/{before}": "an evaluation",
            f"evals/{before}/cases/bye": "a case",
            f"evals/compare?before={before}&after={after}": "a comparison",
            "evals/compare": "a comparison of nothing",
            "runs": "runs without a store",
            "runs/none": "no run",
            "sessions/none": "no session",
            "nothing/here": "nothing",
        }
        for path, what in shown.items():
            await page.goto(f"{base}{path}")
            await unfold(page)
            await looked_at(page, what)
        await page.goto(f"{client.base}/?token=wrong")
        await looked_at(page, "a wrong token")


async def test_axe_finds_nothing_serious_in_durable_runs(tmp_path: Path, scheme: Any) -> None:
    pytest.importorskip("dbos")
    from swink_agent.durable import Durable

    durable = Durable(f"sqlite:///{tmp_path / 'runs.db'}")

    @tool(requires_approval=True)
    async def pay(amount: int) -> str:
        """Pays."""
        return f"paid {amount}"

    @durable.agent("payer")
    def payer() -> Agent:
        stream = scripted(call("pay", amount=7), text("It is paid."))
        return Agent(model="anthropic:claude-sonnet-4-6", stream_fn=stream, tools=[pay], approve=lambda *_: Defer())

    inner = app(lambda _: payer(), authorize=lambda *_: "ada", store=store_at(tmp_path), durable=durable)
    async with durable, mounted(inner) as base, browser() as opened, durable.worker(poll=0.05):
        await durable.submit("payer", "pay", id="first")
        page = await (await opened.new_context(color_scheme=scheme)).new_page()
        await page.goto(f"{base}/runs/first")
        await expect(page.get_by_role("group", name="pay waits")).to_be_visible(timeout=15_000)
        await unfold(page)
        await looked_at(page, "a run that waits")
        await page.goto(f"{base}/runs")
        await looked_at(page, "runs")
