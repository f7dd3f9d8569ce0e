"""The same routes for an application's own agents, with its own rules on who may do what."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from swink_agent import Agent, tool
from swink_agent.approvals import Approvals
from swink_agent.memory import JsonlSessionStore
from swink_agent.testing import call, scripted, text
from swink_agent.web import AgentContext, app

from .conftest import Streamed


@asynccontextmanager
async def mounted(inner: web.Application, at: str = "") -> AsyncGenerator[str]:
    outer = inner
    if at:
        outer = web.Application()
        outer.add_subapp(at, inner)
    runner = web.AppRunner(outer, shutdown_timeout=0.5)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}{at}"
    finally:
        await runner.cleanup()


async def ask(http: aiohttp.ClientSession, method: str, url: str, user: str = "ada", **more: Any) -> tuple[int, Any]:
    async with http.request(method, url, headers={"x-user": user}, **more) as response:
        data = await response.read()
        return response.status, json.loads(data) if data else None


def by_header(request: web.Request, action: str, session: str | None) -> str | None:
    """Ada may do everything, Bob may read what is not Ada's, others nothing."""
    user = request.headers.get("x-user")
    if user == "ada" or (user == "bob" and action == "read"):
        return user
    return None


def store_at(tmp_path: Path) -> JsonlSessionStore:
    return JsonlSessionStore(tmp_path / "sessions")


@tool(requires_approval=True)
def pay(amount: int) -> str:
    """Pays.

    Args:
        amount: How much.
    """
    return f"paid {amount}"


@pytest.mark.parametrize("at", ["", "/agents"])
async def test_an_application_serves_its_own_agents(tmp_path: Path, at: str) -> None:
    made: list[AgentContext] = []

    async def make_agent(context: AgentContext) -> Agent:
        made.append(context)
        return Agent(
            model="anthropic:claude-sonnet-4-6",
            stream_fn=scripted(call("pay", amount=5), text("Paid.")),
            tools=[pay],
            approve=Approvals(context.ask, mode="ask"),
        )

    inner = app(make_agent, authorize=by_header, store=store_at(tmp_path))
    async with mounted(inner, at) as base, aiohttp.ClientSession() as http:
        api = f"{base}/api/v1"
        status, session = await ask(http, "POST", f"{api}/sessions", json={"title": "Payments"})
        assert status == 201
        where = f"{api}/sessions/{session['id']}"
        status, accepted = await ask(http, "POST", f"{where}/prompt", json={"text": "pay 5"})
        assert status == 202, accepted
        async with http.get(
            f"{where}/events", params={"after": str(accepted["position"])}, headers={"x-user": "bob"}
        ) as response:
            stream = Streamed(response)
            question = (await stream.until("question"))[-1][2]
            assert question["name"] == "pay"
            answer = {"question": question["id"], "choice": "once"}
            assert (await ask(http, "POST", f"{where}/answers", "bob", json=answer))[0] == 403
            assert (await ask(http, "POST", f"{where}/answers", json=answer))[0] == 200
            events = await stream.until("state", state="idle")
        assert [data["by"] for _, name, data in events if name == "answered"] == ["ada"]
        assert [(context.session, context.user) for context in made] == [(session["id"], "ada")]
        assert (await ask(http, "DELETE", where, "bob"))[0] == 403
        assert (await ask(http, "GET", where, "eve"))[0] == 403
        status, found = await ask(http, "GET", f"{where}/messages", "bob")
        assert found["messages"][-1]["content"][0]["text"] == "Paid."
        status, refused = await ask(http, "GET", f"{api}/sessions/none")
        assert (status, refused["code"]) == (404, "not_found")
        assert str(tmp_path) not in refused["detail"]
        assert (await ask(http, "GET", f"{api}/runs"))[0] == 501
        assert (await ask(http, "GET", f"{api}/evals"))[0] == 501


async def test_lists_have_what_may_be_read(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    ids = []
    for number in range(6):
        with store.create(title=f"s{number}") as session:
            ids.append(session.id)
    own = {ids[1], ids[4]}

    def authorize(request: web.Request, action: str, session: str | None) -> str | None:
        return "bob" if session is None or session in own else None

    inner = app(lambda _: Agent(model="a:b", stream_fn=scripted()), authorize=authorize, store=store)
    async with mounted(inner) as base, aiohttp.ClientSession() as http:
        _, first = await ask(http, "GET", f"{base}/api/v1/sessions?limit=1")
        assert [one["id"] for one in first["sessions"]] == [ids[4]]
        _, second = await ask(http, "GET", f"{base}/api/v1/sessions?limit=5&before={first['next']}")
        assert ([one["id"] for one in second["sessions"]], second["next"]) == ([ids[1]], None)
        assert (await ask(http, "GET", f"{base}/api/v1/sessions/{ids[0]}"))[0] == 403
        assert (await ask(http, "GET", f"{base}/api/v1/events?sessions={ids[1]}:0,{ids[0]}:0"))[0] == 403


async def test_a_search_goes_on_behind_what_may_not_be_read(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    ids: list[str] = []
    for _ in range(4):
        with store.create() as session:
            agent = Agent(model="anthropic:claude-sonnet-4-6", stream_fn=scripted("zebra"))
            session.attach(agent)
            await agent.prompt("a zebra")
            ids.append(session.id)

    def authorize(request: web.Request, action: str, session: str | None) -> str | None:
        return "bob" if session in (None, ids[0]) else None

    inner = app(lambda _: Agent(model="a:b", stream_fn=scripted()), authorize=authorize, store=store)
    async with mounted(inner) as base, aiohttp.ClientSession() as http:
        _, found = await ask(http, "GET", f"{base}/api/v1/search?query=zebra&limit=1")
        assert [hit["session"]["id"] for hit in found["hits"]] == ids[:1]


async def test_a_change_is_made_whole_or_not_at_all(tmp_path: Path) -> None:
    inner = app(
        lambda _: Agent(model="anthropic:claude-sonnet-4-6", stream_fn=scripted()),
        authorize=by_header,
        store=store_at(tmp_path),
    )
    async with mounted(inner) as base, aiohttp.ClientSession() as http:
        _, session = await ask(http, "POST", f"{base}/api/v1/sessions", json={"title": "before"})
        where = f"{base}/api/v1/sessions/{session['id']}"
        assert (await ask(http, "PATCH", where, json={"title": "after", "model": "nonsense"}))[0] == 422
        assert (await ask(http, "GET", where))[1]["title"] == "before"
        change = {"title": "after", "thinking": "high", "plan": True}
        status, changed = await ask(http, "PATCH", where, json=change)
        assert (status, {key: changed[key] for key in change}) == (200, change)


async def test_an_authorization_that_fails_is_a_no(tmp_path: Path) -> None:
    def broken(request: web.Request, action: str, session: str | None) -> str:
        raise RuntimeError("the directory is down")

    def sent_away(request: web.Request, action: str, session: str | None) -> str:
        raise web.HTTPFound("/login")

    for authorize, status in ((broken, 403), (sent_away, 302)):
        inner = app(lambda _: Agent(model="a:b", stream_fn=scripted()), authorize=authorize, store=store_at(tmp_path))
        async with (
            mounted(inner) as base,
            aiohttp.ClientSession() as http,
            http.get(f"{base}/api/v1/info", allow_redirects=False) as response,
        ):
            assert response.status == status


async def test_an_application_names_its_hosts(tmp_path: Path) -> None:
    inner = app(
        lambda _: Agent(model="a:b", stream_fn=scripted()),
        authorize=by_header,
        store=store_at(tmp_path),
        hosts=["agents.example"],
        origins=["https://board.example"],
        page=False,
    )
    async with mounted(inner) as base, aiohttp.ClientSession() as http:
        for host, status in (("agents.example", 200), ("evil.example", 421)):
            async with http.get(f"{base}/api/v1/info", headers={"host": host, "x-user": "ada"}) as response:
                assert response.status == status
        async with http.get(f"{base}/", headers={"x-user": "ada"}) as response:
            assert response.status == 404, "without pages"


def test_there_is_no_default_for_who_may_ask() -> None:
    with pytest.raises(TypeError, match="authorize"):
        app(lambda _: Agent(model="a:b", stream_fn=scripted()))  # pyright: ignore[reportCallIssue]


async def test_a_reader_that_left_makes_room_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swink_agent.web.streams._TICK", 60.0)
    inner = app(
        lambda _: Agent("anthropic:claude-sonnet-4-6", stream_fn=scripted()),
        authorize=by_header,
        store=store_at(tmp_path),
        max_readers=1,
    )
    async with mounted(inner) as base, aiohttp.ClientSession() as http:
        _, made = await ask(http, "POST", f"{base}/api/v1/sessions", json={})
        events = f"{base}/api/v1/sessions/{made['id']}/events"
        first = await http.get(events, headers={"x-user": "ada"})
        assert (await ask(http, "GET", events))[0] == 503
        first.close()
        async with asyncio.timeout(10):
            while (again := await http.get(events, headers={"x-user": "ada"})).status == 503:
                again.release()
        assert again.status == 200
        again.close()
