"""The page in a browser, in one visit: the only such test that runs by default."""

from __future__ import annotations

from pathlib import Path

import pytest

from swink_agent.testing import call, text

from .browsing import browsing, quick_marks
from .conftest import running, store_of

playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed here")
expect = playwright.expect
pytestmark = quick_marks
BAD = "<script>window.pwned = 1</script><img src=x onerror='window.pwned = 1'>"


async def test_a_person_begins_a_session_answers_a_question_and_renames_it(folder: Path) -> None:
    async with running(
        folder, call("bash", command=f"echo '{BAD}'"), text(f"**Done.** {BAD}"), sandbox="off"
    ) as client:
        async with browsing(client) as page:
            await page.get_by_role("button", name="New session").click()
            await page.get_by_role("textbox", name="Message").fill("run it")
            await page.keyboard.press("Enter")
            dialog = page.get_by_role("alertdialog", name="Allow bash?")
            await expect(dialog).to_be_focused()
            await expect(dialog).to_contain_text("echo")
            await dialog.get_by_role("button", name="Yes", exact=True).click()
            reply = page.get_by_role("article").last
            await expect(reply.locator("strong")).to_have_text("Done.")
            await expect(page.get_by_role("status", name="Run")).to_have_text("idle")
            await page.get_by_role("button", name="Actions for run it").click()
            await page.get_by_role("menuitem", name="Rename").click()
            await page.get_by_role("textbox", name="Title").fill("Renamed")
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("heading", level=1)).to_have_text("Renamed")
            assert await page.evaluate("window.pwned") is None
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert [info.title for info in store_of(folder).list()] == ["Renamed"]
