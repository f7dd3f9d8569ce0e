"""The page as a person uses it: pasted and dropped files, commands, notices, and how a session begins."""

from __future__ import annotations

import asyncio
import base64
import re
from pathlib import Path
from typing import Any

import pytest

from swink_agent import Agent
from swink_agent.app.trust.trust import TrustStore
from swink_agent.core.types import UserMessage
from swink_agent.testing import call, fail, scripted, text

from .browsing import OLD, Held, browsing, filled, marks
from .conftest import MODEL, running, store_of
from .test_live import PNG

playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed here")
expect = playwright.expect
pytestmark = marks
GIVEN = """([name, type, data, words, event]) => {
  const bytes = Uint8Array.from(atob(data), (each) => each.charCodeAt(0));
  const given = new DataTransfer();
  given.items.add(new File([bytes], name, { type }));
  if (words) given.items.add(words, "text/plain");
  const target = document.querySelector(event === "paste" ? "#message" : "main");
  const options = { bubbles: true, cancelable: true };
  const made = event === "paste"
    ? new ClipboardEvent(event, { ...options, clipboardData: given })
    : new DragEvent(event, { ...options, dataTransfer: given });
  return !target.dispatchEvent(made); // whether the page took it
}"""


async def test_files_are_pasted_and_dropped(folder: Path) -> None:
    data = base64.b64encode(PNG).decode()
    pdf = base64.b64encode(b"%PDF-1.4\n%%EOF\n").decode()
    async with running(folder, text("A dot and a report.")) as client:
        session = await client.new()
        async with browsing(client, f"/sessions/{session}") as page:
            attached = page.get_by_role("list", name="Attached files").get_by_role("listitem")
            assert not await page.evaluate(GIVEN, ["table.png", "image/png", data, "1\t2", "paste"])
            await expect(attached).to_have_count(0)  # a copied table is pasted as text
            assert await page.evaluate(GIVEN, ["image.png", "image/png", data, "", "paste"])
            await expect(attached).to_have_count(1)
            assert await page.evaluate(GIVEN, ["report.pdf", "application/pdf", pdf, "", "dragover"])
            await expect(attached).to_have_count(1)
            assert await page.evaluate(GIVEN, ["report.pdf", "application/pdf", pdf, "", "drop"])
            await expect(attached).to_have_count(2)
            await expect(page.get_by_role("textbox", name="Message")).to_be_focused()
            await page.keyboard.type("What are these?")
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("article").nth(0).locator("img")).to_be_visible()
            await expect(page.get_by_role("article").nth(1)).to_contain_text("A dot and a report.")
            await expect(attached).to_have_count(0)
        first = store_of(folder).load(session).messages[0]
        assert isinstance(first, UserMessage)
        assert [type(block).__name__ for block in first.content] == ["Text", "Image", "Document"]


async def test_commands_of_a_trusted_project_are_commands(folder: Path) -> None:
    (folder / ".swink" / "commands").mkdir(parents=True)
    (folder / ".swink" / "commands" / "tidy.md").write_text("Tidy up $ARGUMENTS, please.")
    await asyncio.to_thread(TrustStore().trust, folder)
    async with running(folder, text("Tidied.")) as client:
        session = await client.new()
        async with browsing(client, f"/sessions/{session}") as page:
            await page.get_by_role("textbox", name="Message").fill("/tidy the cellar")
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("article").nth(0)).to_contain_text("Tidy up the cellar, please.")
            await expect(page.get_by_role("article").nth(1)).to_contain_text("Tidied.")


async def test_texts_of_the_program_fit_a_browser(folder: Path) -> None:
    async with running(folder, text("x")) as client:
        session = await client.new()
        async with browsing(client, f"/sessions/{session}") as page:
            log = page.get_by_role("log", name="Conversation")
            await page.get_by_role("checkbox", name="Plan mode").check()
            await expect(log).to_contain_text("plan mode: nothing is changed until you leave it (/plan)")
            await page.get_by_role("textbox", name="Message").fill("/help")
            await page.keyboard.press("Enter")
            await expect(log).to_contain_text("/rewind")
            await expect(log).to_contain_text("Shift+Enter")
            for name in ("/key [", "/bindings", "/editor", "/quit", "Shift+Tab"):
                await expect(log).not_to_contain_text(name)
            fonts = [
                await page.locator(".notice").nth(number).evaluate("each => getComputedStyle(each).fontFamily")
                for number in (0, 1)
            ]
            assert ["mono" in font for font in fonts] == [False, True], "columns are aligned"
            await page.get_by_role("checkbox", name="Plan mode").uncheck()
            await expect(log).to_contain_text("execute mode: all tools are back")


async def test_a_new_session_knows_its_model_and_has_cost_nothing(folder: Path) -> None:
    async with running(folder, text("Fine.")) as client, browsing(client, timezone_id="Asia/Tokyo") as page:
        await page.get_by_role("button", name="New session").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Untitled")
        await expect(page.get_by_role("button", name="Actions for Untitled")).to_be_visible()
        await expect(page.get_by_label("Model", exact=True)).to_have_value(MODEL)
        await expect(page.get_by_role("status", name="Cost")).to_have_text("$0.00")
        without_key = page.get_by_label("Model", exact=True).locator("option[value^='openai:']").first
        await expect(without_key).to_have_text(re.compile(r"^openai:.* \(no key\)$"))
        await page.get_by_role("textbox", name="Message").fill("hi")
        await page.keyboard.press("Enter")
        time = page.get_by_role("article").nth(1).locator("time")
        await expect(time).to_have_attribute("title", re.compile("UTC$"))
        shown, meant = await time.inner_text(), await time.get_attribute("datetime")
        assert meant is not None
        assert f":{meant[14:16]}" in shown
        assert f" {int(meant[11:13]) % 12 or 12}:" not in shown, "nine hours from there"


async def test_a_fork_is_told_from_its_original_and_a_change_says_how_many_parts_it_has(folder: Path) -> None:
    (folder / "file.txt").write_text(OLD)
    edits = [{"old": "line 2\n", "new": "line two\n"}, {"old": "line 25\n", "new": "line twenty-five\n"}]
    edit = call("edit_file", path="file.txt", edits=edits)
    async with running(folder, call("read_file", path="file.txt"), edit, text("Done.")) as client:
        session = filled(folder, 2, "Apples")
        await client.ask("POST", f"sessions/{session}/fork", {})
        async with browsing(client, f"/sessions/{session}") as page:
            rows = page.get_by_role("list", name="Sessions").get_by_role("listitem")
            await expect(rows).to_have_count(2)
            await expect(rows.filter(has_text="fork")).to_have_count(1)
            await page.get_by_role("searchbox", name="Search sessions").fill("answer 0")
            await expect(rows.filter(has_text="fork")).to_have_count(1)
            await expect(rows).to_have_count(2)
            await page.get_by_role("textbox", name="Message").fill("change it")
            await page.keyboard.press("Enter")
            dialog = page.get_by_role("alertdialog", name="Allow edit_file?")
            await expect(dialog.get_by_role("checkbox", name="Change 1", exact=True)).to_be_checked()
            await expect(dialog.locator(".hunk").nth(0)).to_contain_text("of 2")
            await dialog.get_by_role("button", name="Yes", exact=True).click()
            await expect(page.get_by_role("article").last).to_contain_text("Done.")


def used_elsewhere(folder: Path, session: str) -> None:
    """What another program does with a session."""
    store = store_of(folder)
    with store.open(session) as opened:
        agent = Agent(model=MODEL, stream_fn=scripted("Said in a terminal."))
        opened.attach(agent)
        agent.prompt_sync("typed in a terminal")


async def test_changes_by_other_programs_show_without_a_reload(folder: Path) -> None:
    async with running(folder, text("Second."), text("Third.")) as client:
        session = filled(folder, 2, "Mine")
        async with browsing(client, f"/sessions/{session}") as page:
            links = page.get_by_role("list", name="Sessions").get_by_role("link")
            await expect(links).to_have_text(["Mine"])
            with store_of(folder).create(str(folder), title="Of a terminal") as other:
                pass
            await expect(links).to_have_text(["Of a terminal", "Mine"])
            await asyncio.to_thread(used_elsewhere, folder, other.id)
            await expect(page.get_by_role("listitem").filter(has_text="Of a terminal")).to_contain_text("2 messages")
            message, articles = page.get_by_role("textbox", name="Message"), page.get_by_role("article")
            await asyncio.to_thread(used_elsewhere, folder, session)
            for number, reply in ((1, "Second."), (2, "Third.")):
                await message.fill(f"again {number}")
                await page.keyboard.press("Enter")
                await expect(articles.last).to_contain_text(reply)
                await expect(articles).to_have_count(4 + 2 * number)  # what was typed in the terminal is there too
                await expect(articles.nth(2)).to_contain_text("typed in a terminal")
                await expect(message).to_have_value("")
            with store_of(folder).open(other.id):
                await links.nth(1).click()
                await message.fill("me too")
                await page.keyboard.press("Enter")
                await expect(page.get_by_role("alert")).to_contain_text("another program uses this session")
                await expect(message).to_have_value("me too")


async def test_a_choice_just_made_is_not_reverted_by_an_older_state(folder: Path) -> None:
    async with running(folder, text("x")) as client:
        session = await client.new()
        async with browsing(client, f"/sessions/{session}") as page:
            await expect(page.get_by_role("status", name="Connection")).to_have_text("connected")
            held = asyncio.Event()

            async def late(route: Any) -> None:
                await held.wait()
                await route.continue_()

            await page.route("**/api/v1/sessions/*", late)
            plan, thinking = page.get_by_role("checkbox", name="Plan mode"), page.get_by_label("Thinking", exact=True)
            await plan.check()  # on its way to the server, which has something else to tell meanwhile
            await client.ask("PATCH", f"sessions/{session}", {"thinking": "high"})
            await expect(thinking).to_have_value("high")
            await expect(plan).to_be_checked()
            held.set()
            await expect(plan).to_be_enabled()
            await page.wait_for_timeout(800)
            await expect(plan).to_be_checked()
            assert (await client.ask("GET", f"sessions/{session}"))[1]["plan"] is True


async def test_nothing_that_was_typed_is_lost_by_a_reload_or_a_stop(folder: Path) -> None:
    async with running(folder, Held("Working ", "on it.")) as client:
        session = await client.new()
        async with browsing(client, f"/sessions/{session}") as page:
            message, articles = page.get_by_role("textbox", name="Message"), page.get_by_role("article")
            await message.fill("one")
            await message.press("Shift+Enter")
            await message.press_sequentially("two")
            await page.reload()
            await expect(message).to_have_value("one\ntwo")
            await message.press("Enter")
            await expect(articles.nth(1)).to_contain_text("Working")
            await message.press("Escape")
            await expect(page.get_by_role("status", name="Run")).to_have_text("idle")
            await expect(articles.last).to_contain_text("stopped")
            await message.fill("go")
            await page.keyboard.press("Enter")
            await expect(articles.nth(3)).to_contain_text("Working")
            for words, button in (("make it short", "Queue"), ("and funny", "Steer")):
                await message.fill(words)
                await page.get_by_role("button", name=button).click()
                await expect(page.get_by_role("list", name="Queued messages")).to_contain_text(words)
            await message.fill("half a sent")
            await page.get_by_role("button", name="Stop").click()
            await expect(page.get_by_role("status", name="Run")).to_have_text("idle")
            await expect(message).to_have_value(re.compile("^.*make it short.*half a sent$", re.DOTALL))
            await page.wait_for_timeout(300)
            value = await message.input_value()
            assert sorted(value.split("\n\n")) == ["and funny", "half a sent", "make it short"]


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_failure_is_said_in_the_reply_and_in_the_alert(folder: Path, is_late: bool) -> None:
    async with running(folder, fail("invalid_request", "the model is away")) as client:
        session = await client.new()
        async with browsing(client, f"/sessions/{session}") as page:
            failed, answered = asyncio.Event(), asyncio.Event()

            async def late(route: Any) -> None:  # the answer to the prompt comes when its run has failed already
                response = await route.fetch()
                await failed.wait()
                await route.fulfill(response=response)
                answered.set()

            if is_late:
                await page.route("**/prompt", late)
            await page.get_by_role("textbox", name="Message").fill("go")
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("alert")).to_contain_text("the model is away")
            await expect(page.get_by_role("article").last).to_contain_text("the model is away")
            await expect(page.get_by_role("log").get_by_text("the model is away")).to_have_count(1)
            if is_late:
                failed.set()
                await answered.wait()
                await page.wait_for_timeout(300)
            await expect(page.get_by_role("textbox", name="Message")).to_have_value("go")  # Enter tries again
