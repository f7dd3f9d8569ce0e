"""Parts of pages that change: the list of sessions, and delegates beneath their calls."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from swink_agent import Agent
from swink_agent.core.events import CompactionReport, ContextCompacted
from swink_agent.core.types import Cost, Usage
from swink_agent.memory import JsonlSessionStore, SessionInfo
from swink_agent.testing import call, scripted, text
from swink_agent.web import app
from swink_agent.web.channels import SessionChannel
from swink_agent.web.pages.live_run import Live

from .conftest import Client, running


class Told:
    """What a page is told."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._lines = response.content

    async def until(self, name: str, **wanted: Any) -> tuple[list[str], Any]:
        """The names of the events up to the one of this name whose data has these values, and its data."""
        names: list[str] = []
        async with asyncio.timeout(60):
            async for line in self._lines:
                if not line.startswith(b"data: "):
                    continue
                event = json.loads(line[6:])
                names.append(event["event"])
                if event["event"] == name and all(text in str(event["data"].get(key)) for key, text in wanted.items()):
                    return names, event["data"]
        raise AssertionError(names)


@asynccontextmanager
async def told(http: aiohttp.ClientSession, url: str, **headers: str) -> AsyncIterator[Told]:
    async with http.get(url, headers=headers, timeout=aiohttp.ClientTimeout(total=None)) as response:
        assert response.status == 200, await response.text()
        yield Told(response)


def parts(client: Client, places: str) -> Any:
    return told(client.http, f"{client.base}/parts/events?sessions={places}", **client.headers)


@pytest.mark.sweep
async def test_the_list_of_sessions_changes_for_every_reader(folder: Path) -> None:
    model = (call("bash", command="echo hi"), text("Said hi."))
    async with running(folder, *model, sandbox="off") as client:
        async with parts(client, f"*:{client.site.listed.position}") as one:
            session = await client.new()
            _, row = await one.until("row", session=session)
            assert f'href="/sessions/{session}"' in row["html"]
            assert '<span class="badge idle" hidden>' in row["html"]
            await client.ask("POST", f"sessions/{session}/prompt", {"text": "Say <hi>"})
            await one.until("row", html='class="badge running">running<')
            _, row = await one.until("row", html="waiting")
            assert "Say &lt;hi&gt;" in row["html"], "its title is what was said first"
            _, described = await client.ask("GET", f"sessions/{session}")
            answer = {"question": described["questions"][0]["id"], "choice": "once"}
            await client.ask("POST", f"sessions/{session}/answers", answer)
            _, row = await one.until("row", html="badge idle")
            assert "4 messages" in row["html"]
            await client.ask("PATCH", f"sessions/{session}", {"title": "Greeting"})
            assert (await one.until("retitled"))[1] == {"session": session, "title": "Greeting"}
            _, forked = await client.ask("POST", f"sessions/{session}/fork", {})
            await one.until("row", session=forked["id"])
            assert (await client.ask("DELETE", f"sessions/{session}"))[0] == 204
            names, gone = await one.until("gone")
            assert gone == {"session": session}
            at = client.site.listed.position
        await client.new(title="Missed")
        async with parts(client, f"*:{at}") as again:
            names, row = await again.until("row")
            assert names == ["row"], "nothing twice"
            assert "Missed" in row["html"]
        async with parts(client, "*:1") as late:
            assert (await late.until("reset"))[0] == ["reset"]


async def test_the_list_tells_nobody_of_sessions_that_they_may_not_read(folder: Path, tmp_path: Path) -> None:
    owners: dict[str, str] = {}

    def authorize(request: web.Request, action: str, session: SessionInfo | None) -> str | None:
        user = request.headers["x-user"]
        return user if session is None or owners.get(session.id, user) == user else None

    made = app(
        lambda _: Agent("anthropic:claude-sonnet-4-6", stream_fn=scripted(text("x"))),
        authorize=authorize,
        store=JsonlSessionStore(tmp_path / "sessions"),
    )
    runner = web.AppRunner(made)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with (
            aiohttp.ClientSession() as http,
            told(http, f"{url}/parts/events?sessions=*:0", **{"x-user": "ada"}) as ada,
        ):
            await ada.until("reset")

            async def post(path: str, user: str, body: Any) -> Any:
                async with http.post(f"{url}/api/v1/{path}", json=body, headers={"x-user": user}) as response:
                    return await response.json()

            theirs = (await post("sessions", "bob", {"title": "Secret"}))["id"]
            owners[theirs] = "bob"
            several = f"{url}/parts/events?sessions={theirs}:1,*:0"
            async with told(http, several, **{"x-user": "ada"}) as both:
                assert (await both.until("reset"))[0] == ["reset"], "of the list alone"
            await post("sessions", "ada", {"title": "First"})
            await ada.until("row", html="First")
            await post(f"sessions/{theirs}/prompt", "bob", {"text": "hi"})
            async with http.patch(
                f"{url}/api/v1/sessions/{theirs}", json={"title": "Other"}, headers={"x-user": "bob"}
            ) as response:
                assert response.status == 200
            await post("sessions", "ada", {"title": "Mine"})
            names, row = await ada.until("row")
            assert names == ["row"]
            assert "Mine" in row["html"]
    finally:
        await runner.cleanup()


@pytest.mark.sweep
async def test_a_page_shows_beneath_its_call_what_a_delegate_does(folder: Path) -> None:
    (folder / "a.txt").write_text("forty-two\n")
    model = scripted(
        call("task", prompt="Read a.txt."),
        call("read_file", path="a.txt"),
        text("It says <42>."),
        text("Done."),
        usage=Usage(input=1000, total=1000),
        cost=Cost(total=0.01),
    )
    async with running(folder, model) as client:
        session = await client.new()
        async with client.http.get(f"{client.base}/sessions/{session}", headers=client.headers) as response:
            page = await response.text()
        position = page.partition('data-session="' + session + '" data-position="')[2].partition('"')[0]
        async with parts(client, f"{session}:{position}") as page_of:
            await client.ask("POST", f"sessions/{session}/prompt", {"text": "What does a.txt say?"})
            await page_of.until("put", html='<bdi class="used">0 calls · thinking</bdi>')
            await page_of.until("put", html='<bdi class="used">1 call · 1.0k tokens · $0.0100 · read_file a.txt</bdi>')
            await page_of.until("put", html='<bdi class="used">1 call · 1.0k tokens · $0.0100 · thinking</bdi>')
            _, ended = await page_of.until("put", html='<bdi class="used">1 call · 2.0k tokens · $0.0200</bdi>')
            assert '<details class="tool' in ended["html"]
            assert "open" not in ended["html"].partition(">")[0], "folded"
            _, ended = await page_of.until("put", html="It says &lt;42&gt;.")
            assert '<span class="badge">done</span> <strong><bdi>read_file</bdi></strong>' in ended["html"]
            assert '<bdi class="used">1 call · 2.0k tokens · $0.0200</bdi>' in ended["html"]
            await page_of.until("state", state="idle")


class RestartingStore(JsonlSessionStore):
    """An application's own store, whose database restarts while the server looks into it."""

    is_failing = False

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.has_failed = threading.Event()

    def list(self, *arguments: Any, **options: Any) -> Any:
        if self.is_failing:
            self.is_failing = False
            self.has_failed.set()
            raise RuntimeError("the database restarts")
        return super().list(*arguments, **options)


async def test_the_list_goes_on_after_any_failure_of_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swink_agent.web.site._LOOK", 0.05)
    store = RestartingStore(tmp_path / "sessions")
    made = app(
        lambda _: Agent("anthropic:claude-sonnet-4-6", stream_fn=scripted(text("x"))),
        authorize=lambda *_: "ada",
        store=store,
    )
    runner = web.AppRunner(made)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/parts/events?sessions=*:0"
        async with aiohttp.ClientSession() as http, told(http, url) as reader:
            await reader.until("reset")
            store.is_failing = True
            assert await asyncio.to_thread(store.has_failed.wait, 10)
            agent = Agent("anthropic:claude-sonnet-4-6", stream_fn=scripted(text("Hello.")))
            other = JsonlSessionStore(tmp_path / "sessions").create(title="Of another program")
            other.attach(agent)
            await agent.prompt("Hi")
            await other.aclose()
            await reader.until("row", html="Of another program")
    finally:
        await runner.cleanup()


async def test_a_page_mentions_messages_that_were_shortened() -> None:
    async def never(*_: Any) -> Any:
        raise AssertionError

    channel = SessionChannel("one", never)
    live = Live(channel)
    at = live.log.position
    report = CompactionReport(dropped_count=0, tokens_before=9000, tokens_after=4000, overflow=False)
    channel.on_event(ContextCompacted(report))
    (notice,) = live.log.events_after(at)
    assert b"long messages were shortened: about 9,000 tokens became 4,000" in notice.data
