"""How a session looks, what a run does, and who may send requests: tested in a browser."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from swink_agent.core.types import (
    AssistantMessage,
    Base64Source,
    Cost,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from swink_agent.testing import call, scripted, text

from .browsing import Held, browsing, filled, marks, stored
from .conftest import running
from .test_live import PNG

playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed here")
expect = playwright.expect
pytestmark = marks
SAID = (
    "# Plan\n\n- **first**\n- `second`\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\ndef f():\n    return 1\n```\n"
    "[a page](https://example.org/x)"
)


async def test_a_session_is_read_with_all_its_parts(folder: Path) -> None:
    calls = (ToolCall("a", "edit_file", {"path": "x.txt", "old": "one", "new": "two"}), ToolCall("b", "bash", {}))
    diff = {"path": "x.txt", "old": "one\n", "new": "two\n"}
    picture = Image(Base64Source("image/png", base64.b64encode(PNG).decode()))
    messages = (
        UserMessage([Text("Look at this."), picture]),
        AssistantMessage((Thinking("I wonder about it."), Text(SAID), *calls)),
        ToolResultMessage("a", "Edited x.txt.", details=diff),
        ToolResultMessage("b", "it broke", True),
        AssistantMessage((Text("Done."),)),
    )
    async with running(folder, text("x")) as client:
        session = stored(folder, "Parts", *messages)
        async with browsing(client, f"/sessions/{session}") as page:
            asked, reply = page.get_by_role("article").nth(0), page.get_by_role("article").nth(1)
            assert await asked.locator("img").evaluate("each => each.complete && each.naturalWidth") == 1
            await expect(reply.get_by_role("heading", name="Plan")).to_be_visible()
            await expect(reply.get_by_role("listitem")).to_have_text(["first", "second"])
            await expect(reply.get_by_role("cell", name="2")).to_be_visible()
            await expect(reply.locator("pre code")).to_contain_text(["def f():"])
            assert await reply.locator("pre code span").count() > 1, "code is coloured"
            await expect(reply.get_by_role("link", name="a page")).to_have_attribute("href", "https://example.org/x")
            thought = page.get_by_text("I wonder about it.", exact=True).last
            folded = page.locator("details").filter(has_text="Thinking")
            assert not await folded.evaluate("each => each.open")
            await folded.locator("summary").click()
            await expect(thought).to_be_visible()
            edited, broken = page.locator("details.tool").nth(0), page.locator("details.tool").nth(1)
            await expect(edited.locator("> summary")).to_contain_text("edit_file")
            await expect(edited.locator("> summary")).to_contain_text("done")
            await expect(broken.locator("> summary")).to_contain_text("failed")
            await expect(page.get_by_text("Edited x.txt.")).not_to_be_visible()
            await edited.locator("> summary").click()
            await expect(page.get_by_text("Edited x.txt.")).to_be_visible()
            await expect(edited.locator(".ins")).to_contain_text("two")
            await expect(edited.locator(".del")).to_contain_text("one")


async def test_a_call_shows_its_output_as_it_comes_and_what_the_run_costs(folder: Path) -> None:
    command = "echo first-line; while [ ! -e go ]; do sleep 0.05; done; echo second-line"
    usage, cost = Usage(input=60_000, output=1000), Cost(input=0.5, output=0.25, total=0.75)
    model = scripted(call("bash", command=command), text("Ran."), usage=usage, cost=cost)
    async with running(folder, model, sandbox="off", approve="all") as client:
        session = await client.new()
        async with browsing(client, f"/sessions/{session}") as page:
            await page.get_by_role("textbox", name="Message").fill("run it")
            await page.keyboard.press("Enter")
            tool = page.locator("details.tool")
            await expect(tool.locator("> summary")).to_contain_text("running")
            await tool.locator("> summary").click()
            await expect(tool).to_contain_text("first-line")
            await expect(tool.locator("pre").last).not_to_contain_text("second-line")
            await expect(page.get_by_role("status", name="Cost")).to_have_text("$0.75")
            (folder / "go").touch()
            await expect(tool.locator("> summary")).to_contain_text("done")
            await expect(tool.get_by_text("first-line\nsecond-line")).to_be_visible()
            assert await tool.evaluate("each => each.open"), "what was unfolded stays so"
            await expect(page.get_by_role("status", name="Cost")).to_have_text(re.compile(r"^\$1\.50"))
            assert float(await page.get_by_role("meter", name="Context").get_attribute("value") or 0) > 0
            await expect(page.get_by_role("status", name="Run")).to_have_text("idle")


async def test_steering_and_follow_ups_enter_the_conversation(folder: Path) -> None:
    held = Held("Working ", "on it.")
    rest = scripted(text("Another way, then."), text("And the follow-up."))
    asked: list[int] = []

    def model(*given: Any) -> Any:
        asked.append(1)
        return held(*given) if len(asked) == 1 else rest(*given)

    async with running(folder, model) as client:
        session = await client.new()
        async with browsing(client, f"/sessions/{session}") as page:
            message = page.get_by_role("textbox", name="Message")
            await message.fill("go")
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("article").nth(1)).to_contain_text("Working")
            await expect(page.get_by_role("button", name="Send", exact=True)).not_to_be_visible()
            await message.fill("a follow-up")
            await page.get_by_role("button", name="Queue").click()
            await expect(message).to_have_value("")
            await message.fill("another way")
            await page.keyboard.press("Enter")  # steers
            queued = page.get_by_role("list", name="Queued messages")
            await expect(queued.get_by_role("listitem")).to_have_count(2)
            held.go.set()
            articles = page.get_by_role("article")
            await expect(articles).to_have_count(6)
            texts = [re.sub(r"\s+", " ", each) for each in await articles.all_inner_texts()]
            wanted = ("go", "Working on it.", "another way", "Another way, then.", "a follow-up", "And the follow-up.")
            assert all(words in shown for words, shown in zip(wanted, texts, strict=True)), texts
            await expect(queued).to_have_count(0)
            await expect(page.get_by_role("status", name="Run")).to_have_text("idle")


async def test_a_plan_is_offered_and_carried_out(folder: Path) -> None:
    async with running(folder, text("1. Bake the bread."), text("Baked.")) as client:
        session = await client.new()
        async with browsing(client, f"/sessions/{session}") as page:
            await page.get_by_role("checkbox", name="Plan mode").check()
            await expect(page.get_by_role("checkbox", name="Plan mode")).to_be_enabled()
            await page.get_by_role("textbox", name="Message").fill("bread, please")
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("article").nth(1)).to_contain_text("Bake the bread.")
            await expect(page.get_by_role("status", name="Run")).to_have_text("idle")
            await page.get_by_role("checkbox", name="Plan mode").uncheck()
            dialog = page.get_by_role("alertdialog", name="Carry out this plan?")
            await expect(dialog).to_be_focused()
            await dialog.get_by_role("button", name="carry the plan out").click()
            await expect(page.get_by_role("article").last).to_contain_text("Baked.")
            await expect(page.get_by_role("checkbox", name="Plan mode")).not_to_be_checked()


async def test_a_session_is_rewound_and_compacted(folder: Path) -> None:
    replies = [text("One."), text("Two."), text("Three."), text("A summary.")]
    async with running(folder, *replies) as client:
        session = await client.new()
        await client.say(session, "first")
        await client.say(session, "second")
        async with browsing(client, f"/sessions/{session}") as page:
            message, articles = page.get_by_role("textbox", name="Message"), page.get_by_role("article")
            await expect(articles).to_have_count(4)
            await message.fill("/rewind")
            await page.keyboard.press("Enter")
            dialog = page.get_by_role("alertdialog", name="Back to before which message?")
            await dialog.get_by_role("button", name="second").click()
            await expect(articles).to_have_count(2)
            await expect(message).to_have_value("second")  # to be written anew
            await message.fill("third")
            await page.keyboard.press("Enter")
            await expect(articles).to_have_count(4)
            await expect(articles.last).to_contain_text("Three.")
            await message.fill("/compact")
            await page.keyboard.press("Enter")
            await expect(page.locator(".notice, [role=alert]:not(:empty)").first).to_be_visible()
            await expect(page.get_by_role("status", name="Run")).to_have_text("idle")


async def test_always_is_kept_for_the_session(folder: Path) -> None:
    touch = [call("bash", command=f"touch made-{number}") for number in (1, 2)]
    async with running(folder, *touch, text("Done."), sandbox="off", approve="smart") as client:
        session = await client.new()
        async with browsing(client, f"/sessions/{session}") as page:
            await page.get_by_role("textbox", name="Message").fill("make them")
            await page.keyboard.press("Enter")
            dialog = page.get_by_role("alertdialog", name="Allow bash?")
            await expect(dialog).to_contain_text("touch made-1")
            await dialog.get_by_role("button", name=re.compile("^Always.*touch")).first.click()
            await expect(page.get_by_role("article").last).to_contain_text("Done.")
            assert (folder / "made-1").exists()
            assert (folder / "made-2").exists()
            await expect(dialog).to_have_count(0)


async def test_everything_is_done_by_keyboard_alone(folder: Path) -> None:
    async with running(folder, call("bash", command="echo typed"), text("Done."), sandbox="off") as client:
        filled(folder, 2, "Apples")
        async with browsing(client) as page:

            async def to(name: str, *, back: bool = False) -> None:
                """Presses Tab until an element of this name has the focus."""
                for _ in range(80):
                    await page.keyboard.press("Shift+Tab" if back else "Tab")
                    focused = page.locator(":focus")
                    words = await focused.evaluate("each => each.ariaLabel || each.textContent") if focused else ""
                    if name in words:
                        return
                raise AssertionError(f"{name} cannot be reached")

            await to("Actions for Apples")
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("menuitem", name="Rename")).to_be_focused()
            await page.keyboard.press("ArrowUp")
            await expect(page.get_by_role("menuitem", name="Delete")).to_be_focused()
            await page.keyboard.press("Escape")
            await expect(page.get_by_role("button", name="Actions for Apples")).to_be_focused()
            await page.keyboard.press("Enter")
            await page.keyboard.press("Enter")
            await page.keyboard.type("Pears")
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("button", name="Actions for Pears")).to_be_focused()
            await to("New session", back=True)
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("textbox", name="Message")).to_be_focused()
            await page.keyboard.type("run it")
            await page.keyboard.press("Enter")
            dialog = page.get_by_role("alertdialog", name="Allow bash?")
            await expect(dialog).to_be_focused()
            await page.keyboard.type("lost keys\n ")
            await expect(dialog).to_be_visible()
            await to("Yes")
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("article").last).to_contain_text("Done.")
            await expect(page.get_by_role("textbox", name="Message")).to_be_focused()
            await to("bash", back=True)
            await page.keyboard.press("Enter")
            await expect(page.locator("details.tool")).to_have_attribute("open", "")
            for width in (390, 1000, 2000):
                await page.set_viewport_size({"width": width, "height": 800})
                seen: set[str] = set()
                for _ in range(60):
                    await page.keyboard.press("Tab")
                    seen.add(await page.evaluate("document.activeElement.id || document.activeElement.className"))
                assert {"files", "model", "thinking", "plan", "send", "log"} <= seen


async def test_no_page_is_wider_than_its_window(folder: Path) -> None:
    long = "a-very-long-word-" * 60
    async with running(folder, call("bash", command=long), text("Done."), sandbox="off") as client:
        said = AssistantMessage((Text(f"{long}\n\n```\n{long}\n```\n\n|{'a|' * 40}\n|{'-|' * 40}\n"),))
        session = stored(folder, long, UserMessage(long), said)
        async with browsing(client) as page:

            async def fits(what: str) -> None:
                for width in (390, 2000):
                    await page.set_viewport_size({"width": width, "height": 800})
                    assert await page.evaluate("document.documentElement.scrollWidth") <= width, (what, width)

            for path in ("/", "/runs", "/evals", "/nothing", f"/sessions/{session}"):
                await page.goto(f"{client.base}{client.site.access.prefix}{path}")
                await fits(path)
            await page.get_by_role("textbox", name="Message").fill("go")
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("button", name="Yes", exact=True)).to_be_visible()
            await fits("a question")
            for width in (390, 2000):
                await page.set_viewport_size({"width": width, "height": 800})
                for name in ("Yes", "No", "No, because", "Stop", "Steer", "Queue"):
                    await expect(page.get_by_role("button", name=name, exact=True)).to_be_in_viewport()


async def test_a_session_that_is_deleted_elsewhere_says_so(folder: Path) -> None:
    async with running(folder, text("x")) as client:
        session = filled(folder, 2, "Apples")
        async with browsing(client, f"/sessions/{session}") as page:
            await expect(page.get_by_role("status", name="Connection")).to_have_text("connected")
            await client.ask("DELETE", f"sessions/{session}")
            await expect(page.get_by_role("alert")).to_contain_text("This session was deleted.")
            await expect(page.get_by_role("list", name="Sessions").get_by_role("link")).to_have_count(0)


@asynccontextmanager
async def another_site(html: str) -> AsyncGenerator[tuple[str, list[Any]]]:
    """A server of somebody else on this machine, and the headers of what it is asked."""
    seen: list[Any] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(dict(request.headers))
        return web.Response(text=html, content_type="text/html")

    other = web.Application()
    other.router.add_get("/{rest:.*}", answer)
    runner = web.AppRunner(other)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", seen
    finally:
        await runner.cleanup()


TRIES = """async ([base, session]) => {
  const tried = {};
  const json = { "content-type": "application/json" };
  for (const [name, path, options] of [
    ["read", "sessions", {}],
    ["create", "sessions", { method: "POST", headers: json, body: "{}" }],
    ["form", "sessions", { method: "POST", mode: "no-cors", body: "{}" }],
    ["prompt", `sessions/${session}/prompt`, { method: "POST", mode: "no-cors", body: '{"text": "hi"}' }],
    ["delete", `sessions/${session}`, { method: "DELETE" }],
  ]) {
    try {
      const response = await fetch(`${base}/api/v1/${path}`, { credentials: "include", ...options });
      tried[name] = response.type === "opaque" ? "opaque" : await response.text();
    } catch { tried[name] = "refused"; }
  }
  const frame = document.createElement("iframe");
  frame.src = `${base}/`;
  document.body.append(frame);
  await new Promise((resolve) => { frame.onload = resolve; });
  try { tried.frame = frame.contentDocument.body.innerText; } catch { tried.frame = "refused"; }
  const script = document.createElement("script");
  script.src = `${base}/static/page.js`;
  document.body.append(script);
  tried.script = await new Promise((resolve) => {
    script.onload = () => resolve("ran");
    script.onerror = () => resolve("refused");
  });
  return tried;
}"""


async def test_other_sites_in_the_same_browser_get_nothing(folder: Path) -> None:
    async with running(folder, text("x")) as client, another_site("<p>not yours</p>") as (other, seen):
        session = filled(folder, 2, "Apples")
        keyed = f"{client.base}{client.site.access.prefix}"
        async with browsing(client) as page:
            assert [each["name"] for each in await page.context.cookies()] == [f"swink_{client.port}"]
            stranger = await page.context.new_page()
            for path in ("/", "/sessions/x", "/api/v1/sessions"):
                await stranger.goto(f"{other}{path}")
            assert len(seen) >= 3
            assert not [headers for headers in seen if "Cookie" in headers], "the cookie is for one path"
            for base in (client.base, keyed):  # also if somebody should know the key
                tried = await stranger.evaluate(TRIES, [base, session])
                assert tried == dict.fromkeys(tried, "refused")
            assert [info["id"] for info in (await client.ask("GET", "sessions"))[1]["sessions"]] == [session]
            assert (await client.ask("GET", f"sessions/{session}"))[1]["messages"] == 2
            await stranger.goto(f"{other}/")
            await stranger.evaluate("base => { location.href = base }", f"{client.base}/")
            await expect(stranger.get_by_role("heading")).to_have_text("Unauthorized")


async def test_a_hostile_call_and_file_stay_in_their_boxes(folder: Path) -> None:
    bad = "</pre></section><script>window.pwned=1</script><img src=x onerror=window.pwned=1>"
    (folder / "file.txt").write_text(f"one\n{bad}\n" + "line\n" * 20 + "two\n")
    edits = [{"old": "one\n", "new": f"{bad}\n"}, {"old": "two\n", "new": f"\u202e{bad}\n"}]
    calls = [call("read_file", path="file.txt"), call("edit_file", path="file.txt", edits=edits)]
    async with running(folder, *calls, text(bad), sandbox="off") as client:
        session = await client.new(title=bad)
        async with browsing(client, f"/sessions/{session}") as page:
            await page.get_by_role("textbox", name="Message").fill("go")
            await page.keyboard.press("Enter")
            dialog = page.get_by_role("alertdialog", name="Allow edit_file?")
            await expect(dialog).to_contain_text("<script>")
            await expect(page.get_by_role("alertdialog")).to_have_count(1)
            await expect(page.get_by_role("button", name="Yes", exact=True)).to_have_count(1)
            await page.get_by_role("searchbox", name="Search sessions").fill("script")
            await expect(page.get_by_role("list", name="Sessions").get_by_role("link")).to_have_count(1)
            await dialog.get_by_role("button", name="No, because").click()
            await dialog.get_by_role("textbox", name="Reason").fill(bad)
            await dialog.get_by_role("button", name="Send reason").click()
            await expect(page.get_by_role("status", name="Run")).to_have_text("idle")
            await page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
            assert await page.evaluate("window.pwned") is None
            assert await page.locator("main script, main img, [onerror]").count() == 0
            assert await page.evaluate("document.body.innerText.includes('\\u202e')") is False
