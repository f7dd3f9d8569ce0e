"""Sessions that belong to users: `owned_by`, metadata, and an agent for each run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from swink_agent import Agent
from swink_agent.memory import JsonlSessionStore, SessionInfo
from swink_agent.testing import scripted
from swink_agent.web import AgentContext, app, owned_by

from .test_embedding import ask, mounted, store_at


def login(request: web.Request) -> str | None:
    return request.headers.get("x-user") or None


async def finished(http: aiohttp.ClientSession, url: str, user: str) -> dict[str, Any]:
    for _ in range(500):
        status, found = await ask(http, "GET", url, user)
        assert status == 200
        if found["state"] == "idle":
            return found
        await asyncio.sleep(0.01)
    raise AssertionError("the run did not end")


def desk(store: JsonlSessionStore, made: list[AgentContext] | None = None, **options: Any) -> web.Application:
    async def make_agent(context: AgentContext) -> Agent[Any]:
        if made is not None:
            made.append(context)
        return Agent(scripted(lambda request: f"hello {context.user}"))

    return app(make_agent, authorize=owned_by(login, **options), store=store)


async def test_a_session_belongs_to_its_maker_and_others_see_nothing_of_it(tmp_path: Path) -> None:
    async with mounted(desk(store_at(tmp_path))) as url, aiohttp.ClientSession() as http:
        api = f"{url}/api/v1/sessions"
        status, made = await ask(http, "POST", api, "ann", json={"title": "Ann's", "metadata": {"team": "north"}})
        assert (status, made["metadata"]) == (201, {"team": "north", "user": "ann"})
        own = f"{api}/{made['id']}"
        assert (await ask(http, "POST", f"{own}/prompt", "ann", json={"text": "secret word"}))[0] == 202
        await finished(http, own, "ann")
        unknown = (await ask(http, "GET", f"{api}/{'0' * len(made['id'])}", "bob"))[1]
        for method, path, body in (
            ("GET", "", None),
            ("GET", "/messages", None),
            ("GET", "/events", None),
            ("GET", "/export", None),
            ("PATCH", "", {"title": "mine"}),
            ("POST", "/prompt", {"text": "x"}),
            ("POST", "/steer", {"text": "x"}),
            ("POST", "/abort", {}),
            ("POST", "/fork", {}),
            ("POST", "/answers", {"question": "1", "choice": "yes"}),
            ("DELETE", "", None),
        ):
            status, refused = await ask(http, method, own + path, "bob", **({} if body is None else {"json": body}))
            assert (status, refused) == (404, unknown), (method, path)
        assert (await ask(http, "GET", f"{url}/api/v1/events?sessions={made['id']}", "bob"))[0] == 404
        assert (await ask(http, "GET", api, "bob"))[1]["sessions"] == []
        assert [one["id"] for one in (await ask(http, "GET", api, "ann"))[1]["sessions"]] == [made["id"]]
        assert (await ask(http, "GET", f"{url}/api/v1/search?query=secret", "bob"))[1]["hits"] == []
        assert len((await ask(http, "GET", f"{url}/api/v1/search?query=secret", "ann"))[1]["hits"]) == 1
        for path, user, is_there in (
            (f"/sessions/{made['id']}", "bob", False),
            ("/", "bob", False),
            ("/", "ann", True),
        ):
            async with http.get(url + path, headers={"x-user": user}) as response:
                assert response.status == (404 if path != "/" else 200)
                assert ("Ann&#x27;s" in (shown := await response.text()) or "Ann's" in shown) is is_there
        assert (await ask(http, "DELETE", own, "ann"))[0] == 204


async def test_nobody_and_clients_that_name_an_owner_are_refused(tmp_path: Path) -> None:
    async with mounted(desk(store_at(tmp_path))) as url, aiohttp.ClientSession() as http:
        api = f"{url}/api/v1/sessions"
        assert (await ask(http, "GET", api, ""))[0] == 401
        assert (await ask(http, "POST", api, "ann", json={"metadata": {"user": "bob"}}))[0] == 422


async def test_a_fork_belongs_to_the_same_user_and_a_session_without_an_owner_to_nobody(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    with store.create(title="of nobody") as session:
        nobodys = session.id
    async with mounted(desk(store)) as url, aiohttp.ClientSession() as http:
        api = f"{url}/api/v1/sessions"
        assert (await ask(http, "GET", f"{api}/{nobodys}", "ann"))[0] == 404
        made = (await ask(http, "POST", api, "ann", json={}))[1]
        assert (await ask(http, "POST", f"{api}/{made['id']}/prompt", "ann", json={"text": "hi"}))[0] == 202
        await finished(http, f"{api}/{made['id']}", "ann")
        forked = (await ask(http, "POST", f"{api}/{made['id']}/fork", "ann", json={}))[1]
        assert forked["metadata"] == {"user": "ann"}


async def test_only_operators_operate(tmp_path: Path) -> None:
    for operators, status in (((), 403), (("ann",), 501)):
        async with mounted(desk(store_at(tmp_path), operators=operators)) as url, aiohttp.ClientSession() as http:
            found = (await ask(http, "GET", f"{url}/api/v1/runs", "ann"))[0]
            assert found == status or (operators and found != 403)


async def test_each_run_has_an_agent_for_the_user_who_sent_it(tmp_path: Path) -> None:
    made: list[AgentContext] = []
    seen: list[SessionInfo | None] = []

    def authorize(request: web.Request, action: str, session: SessionInfo | None) -> str | None:
        seen.append(session)
        return request.headers.get("x-user")

    async def make_agent(context: AgentContext) -> Agent[Any]:
        made.append(context)
        return Agent(scripted(lambda request: f"hello {context.user}"))

    inner = app(make_agent, authorize=authorize, store=store_at(tmp_path))
    async with mounted(inner) as url, aiohttp.ClientSession() as http:
        api = f"{url}/api/v1/sessions"
        session = (await ask(http, "POST", api, "ann", json={"metadata": {"desk": 3}}))[1]
        own = f"{api}/{session['id']}"
        for user in ("ann", "bob", "bob"):
            assert (await ask(http, "POST", f"{own}/prompt", user, json={"text": "hi"}))[0] == 202
            await finished(http, own, user)
        assert (await ask(http, "POST", f"{own}/command", "cid", json={"line": "/compact"}))[0] == 202
        messages = (await ask(http, "GET", f"{own}/messages", "ann"))[1]["messages"]
    assert [context.user for context in made] == ["ann", "bob", "bob", "cid"]
    said = [block["text"] for message in messages for block in message["content"] if message["role"] == "assistant"]
    assert said == ["hello ann", "hello bob", "hello bob"]
    assert {one.metadata["desk"] for one in seen if one is not None} == {3}
    assert seen[0] is None


@pytest.mark.parametrize("wrong", [None, "ann", dict])
def test_a_login_that_is_not_a_function_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="login"):
        owned_by(wrong)
