"""Sessions over HTTP without a run, errors as problem documents, and the document of the API."""

from __future__ import annotations

import json
import re
from io import BytesIO
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from swink_agent import Agent, Redactor
from swink_agent.core.types import AssistantMessage, ModelSpec, Text, UserMessage
from swink_agent.testing import scripted, text
from swink_agent.web.openapi import document
from swink_agent.web.routes.table import ROUTES

from .conftest import MODEL, running, store_of


def talked(folder: Path, count: int, title: str = "") -> str:
    """A session with so many messages."""
    messages: list[Any] = []
    for number in range(count):
        if number % 2 == 0:
            messages.append(UserMessage([Text(f"question {number}")]))
        else:
            messages.append(AssistantMessage([Text(f"answer {number}")], "anthropic", "claude-sonnet-4-6"))
    store = store_of(folder)
    with store.create(folder, title=title) as session:
        agent = Agent(model=ModelSpec("anthropic", "claude-sonnet-4-6"), stream_fn=_none, messages=messages)
        session.attach(agent)
        session.detach()
    return session.id


def _none(*_: Any) -> Any:
    raise AssertionError("no model is asked")


async def test_sessions_are_listed_in_pages_newest_first(folder: Path) -> None:
    ids = [talked(folder, 2, f"number {number}") for number in range(5)]
    async with running(folder, text("x")) as client:
        _, first = await client.ask("GET", "sessions?limit=2")
        assert [session["id"] for session in first["sessions"]] == ids[:-3:-1]
        _, second = await client.ask("GET", f"sessions?limit=2&before={first['next']}")
        _, third = await client.ask("GET", f"sessions?limit=2&before={second['next']}")
        assert [one["id"] for one in [*second["sessions"], *third["sessions"]]] == ids[2::-1]
        assert third["next"] is None
        assert (await client.ask("GET", "sessions?before=20200101-000000-abcd"))[0] == 422
        _, everything = await client.ask("GET", "sessions")
        assert len(everything["sessions"]) == 5
        assert everything["sessions"][0]["messages"] == 2


async def test_messages_are_read_from_their_end(folder: Path) -> None:
    session = talked(folder, 120)
    async with running(folder, text("x")) as client:
        _, last = await client.ask("GET", f"sessions/{session}/messages")
        assert (last["first"], last["total"], len(last["messages"])) == (70, 120, 50)
        _, before = await client.ask("GET", f"sessions/{session}/messages?before=70&limit=30")
        assert (before["first"], len(before["messages"])) == (40, 30)
        assert before["messages"][-1]["content"][0]["text"] == "answer 69"
        _, none = await client.ask("GET", f"sessions/{session}/messages?before=0")
        assert (none["messages"], none["first"]) == ([], 0)


async def test_sessions_are_searched_renamed_forked_exported_and_deleted(folder: Path) -> None:
    session = talked(folder, 6, "the first")
    async with running(folder, text("x")) as client:
        _, found = await client.ask("GET", "search", params={"query": "answer 3"})
        assert [(hit["session"]["id"], hit["position"]) for hit in found["hits"]] == [(session, 3)]
        where = f"sessions/{session}"
        async with client.stream(session) as stream:
            status, renamed = await client.ask("PATCH", where, {"title": "another name"})
            assert (status, renamed["title"]) == (200, "another name")
            assert (await stream.until("renamed"))[-1][2]["title"] == "another name"
            status, forked = await client.ask("POST", f"{where}/fork", {"at": 2})
            assert (status, forked["parent"], forked["messages"]) == (201, session, 2)
            assert (await client.ask("POST", f"{where}/fork", {"at": 99}))[0] == 422
            status, whole = await client.ask("POST", f"{where}/fork")  # a body of which nothing is needed
            assert (status, (await client.ask("DELETE", f"sessions/{whole['id']}"))[0]) == (201, 204)
            async with client.http.get(
                f"{client.base}/api/v1/{where}/export", params={"format": "html"}, headers=client.headers
            ) as response:
                assert response.headers["content-disposition"].startswith("attachment; filename=")
                assert "answer 5" in await response.text()
            assert (await client.ask("GET", f"{where}/export?format=exe"))[0] == 422
            assert (await client.ask("DELETE", where))[0] == 204
            assert [name for _, name, _ in await stream.until("deleted")] == ["deleted"]
            assert [event async for event in stream.events()] == [], "the stream ends"
        status, problem = await client.ask("GET", where)
        assert (status, problem["code"]) == (404, "not_found")
        _, left = await client.ask("GET", "sessions")
        assert [one["id"] for one in left["sessions"]] == [forked["id"]]


async def test_a_session_that_was_recorded_in_clear_is_masked_for_readers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "hunter2-of-the-database"
    with store_of(folder).create(folder) as session:
        model = scripted(f"The password is {secret}.")
        agent = Agent(MODEL, stream_fn=model, redactor=Redactor(enabled=False))
        session.attach(agent)
        await agent.prompt(f"Is {secret} the password?")
    monkeypatch.setenv("DB_PASSWORD", secret)
    paths = ("", f"/{session.id}", f"/{session.id}/messages")
    async with running(folder) as client:
        told = [str(await client.ask("GET", f"sessions{path}")) for path in paths]
        told.append(str(await client.ask("GET", "search?query=password")))
        for path in ("/", f"/sessions/{session.id}", "/parts/sessions?query=password"):
            async with client.http.get(f"{client.base}{path}", headers=client.headers) as answer:
                told.append(await answer.text())
    assert secret in session.path.read_text()
    assert [
        place for place, text in zip((*paths, "search", "home", "page", "found"), told, strict=True) if secret in text
    ] == []
    assert all("[redacted:DB_PASSWORD" in text for text in told)


async def test_the_beginning_of_an_id_is_not_an_id(folder: Path) -> None:
    session = talked(folder, 2)
    talked(folder, 2)
    async with running(folder, text("x")) as client:
        for part in (session[:-1], session[:8]):  # of one, and of both
            for path in ("", "/messages", "/events", "/export"):
                assert (await client.ask("GET", f"sessions/{part}{path}"))[0] == 404
            assert (await client.ask("POST", f"sessions/{part}/prompt", {"text": "hi"}))[0] == 404
            assert (await client.ask("DELETE", f"sessions/{part}"))[0] == 404
        assert (await client.ask("GET", f"sessions/{session}"))[0] == 200


async def test_a_new_session_says_where_it_is(folder: Path) -> None:
    async with (
        running(folder, text("x")) as client,
        client.http.post(f"{client.base}/api/v1/sessions", json={"title": "new"}, headers=client.headers) as response,
    ):
        made = await response.json()
        assert response.status == 201
        assert response.headers["location"] == f"/api/v1/sessions/{made['id']}"
    assert (made["title"], made["state"], made["questions"], made["queue"]) == ("new", "idle", [], [])
    assert (made["plan"], made["fill"]) == (False, 0.0)


WRONG: list[tuple[str, str, dict[str, Any], int, str]] = [
    ("POST", "sessions", {"data": b"{", "headers": {"content-type": "application/json"}}, 400, "not_json"),
    ("POST", "sessions", {"data": b"\xff", "headers": {"content-type": "application/json"}}, 400, "not_json"),
    ("POST", "sessions", {"data": b"{}", "headers": {"content-type": "text/plain"}}, 415, "media_type"),
    ("POST", "sessions", {"data": b"a=1", "headers": {"content-type": "application/x-www-form-urlencoded"}}, 415, ""),
    ("POST", "sessions", {"json": {"titel": "x"}}, 422, "invalid"),
    ("POST", "sessions", {"json": {"title": 3}}, 422, "invalid"),
    ("POST", "sessions", {"json": []}, 422, "invalid"),
    ("POST", "sessions", {"data": BytesIO(b"x" * (1024 * 1024 + 1))}, 413, "too_large"),
    ("GET", "nothing", {}, 404, "not_found"),
    ("GET", "sessions/../../etc/passwd", {}, 404, "not_found"),
    ("GET", "sessions/..%2f..%2fetc%2fpasswd", {}, 404, "not_found"),
    ("GET", "sessions/none", {}, 404, "not_found"),
    ("GET", "sessions?limit=0", {}, 422, "invalid"),
    ("GET", "sessions?limit=501", {}, 422, "invalid"),
    ("GET", "sessions?limit=x", {}, 422, "invalid"),
    ("GET", "sessions?unknown=1", {}, 422, "invalid"),
    ("POST", "sessions/none/prompt", {"json": {"text": "x"}}, 404, "not_found"),
    ("PUT", "sessions", {"json": {}}, 405, "method"),
    ("DELETE", "info", {}, 405, "method"),
    ("GET", "runs", {}, 501, "no_durable"),
    ("POST", "runs", {"json": {"agent": "a", "prompt": "b"}}, 501, "no_durable"),
    ("POST", "runs/some/answers", {"json": {}}, 501, "no_durable"),
    ("GET", "evals/none", {}, 404, "not_found"),
    ("GET", "evals/%2fetc%2fpasswd", {}, 404, "not_found"),
    ("GET", "evals/compare?before=a", {}, 422, "invalid"),
]


async def test_every_error_is_a_problem_document(folder: Path) -> None:
    async with running(folder, text("x")) as client:
        for method, path, given, status, code in WRONG:
            headers = {**client.headers, **given.get("headers", {})}
            more = {key: value for key, value in given.items() if key != "headers"}
            async with client.http.request(method, f"{client.base}/api/v1/{path}", headers=headers, **more) as response:
                problem = json.loads(await response.read())
                assert response.status == status, (method, path, problem)
                assert response.content_type == "application/problem+json"
                assert set(problem) == {"type", "title", "status", "detail", "code"}
                assert problem["status"] == status
                assert code in problem["code"]
                assert "limit=501" not in path or "500" in problem["detail"]
                assert ("allow" in response.headers) == (status == 405)


async def test_a_body_without_end_is_refused(folder: Path) -> None:
    async def endless() -> Any:
        for _ in range(40):
            yield b"x" * 1024 * 1024

    async with running(folder, text("x")) as client:
        session = await client.new()
        for path, kind in (("prompt", "application/json"), ("uploads", "image/png")):
            status, problem = await client.ask(
                "POST", f"sessions/{session}/{path}", data=endless(), headers={"content-type": kind}
            )
            assert (status, problem["code"]) == (413, "too_large")


# -- the document ----------------------------------------------------------------------------------------------------


async def test_the_document_is_served(folder: Path) -> None:
    async with running(folder, text("x")) as client:
        status, served = await client.ask("GET", "openapi.json")
    assert status == 200
    assert served == json.loads(json.dumps(document(ROUTES)))


def test_every_route_is_in_the_document() -> None:
    told = {(method.upper(), path) for path, item in document(ROUTES)["paths"].items() for method in item}
    assert told == {(route.method, f"/{route.path}") for route in ROUTES}
    operations = [operation for item in document(ROUTES)["paths"].values() for operation in item.values()]
    ids = [operation["operationId"] for operation in operations]
    assert len(set(ids)) == len(ids)


def test_the_document_is_well_formed() -> None:
    found = document(ROUTES)
    assert found["openapi"].startswith("3.1.")
    schemas = found["components"]["schemas"]
    for name, schema in schemas.items():
        jsonschema_rs.meta.validate(schema)
        assert re.fullmatch(r"[A-Za-z0-9._-]+", name)
    for reference in re.findall(r'"\$ref": "([^"]+)"', json.dumps(found)):
        assert reference.removeprefix("#/components/schemas/") in schemas
    for path, item in found["paths"].items():
        for operation in item.values():
            parameters = operation.get("parameters", [])
            in_path = {one["name"] for one in parameters if one["in"] == "path"}
            assert in_path == set(re.findall(r"\{(\w+)\}", path))
            assert {one["name"] for one in parameters if one["in"] == "path" and one["required"]} == in_path
            assert len(operation["responses"]) == 2
            assert all("description" in response for response in operation["responses"].values())


async def test_answers_are_as_the_document_says(folder: Path) -> None:
    session = talked(folder, 4)
    found = document(ROUTES)
    async with running(folder, text("x")) as client:
        for path, real in (
            ("/info", "info"),
            ("/models", "models"),
            ("/sessions", "sessions"),
            ("/search", "search?query=answer"),
            ("/sessions/{session}", f"sessions/{session}"),
            ("/sessions/{session}/messages", f"sessions/{session}/messages"),
            ("/evals", "evals"),
        ):
            status, answer = await client.ask("GET", real)
            assert status == 200
            schema = found["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
            whole = {**schema, "components": found["components"]}
            jsonschema_rs.validator_for(whole).validate(answer)


def test_a_change_is_never_asked_for_by_get() -> None:
    for route in ROUTES:
        assert (route.method == "GET") == (route.body is None and not route.raw and route.status != 204), route.path
