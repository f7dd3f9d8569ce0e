"""A server with a scripted model in its own folder, and a client that knows its token."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from swink_agent.app.agent.opening import Opening, OpeningOptions
from swink_agent.memory import JsonlSessionStore
from swink_agent.testing import scripted
from swink_agent.web.access import Access
from swink_agent.web.serving import bound, hosts_of, served, standard_site
from swink_agent.web.site import Site

MODEL = "anthropic:claude-sonnet-4-6"
TOKEN = "a-token-for-tests-0123456789"


class Streamed:
    """A stream of events, read one by one."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.first: dict[str, str] = {}

    async def events(self) -> AsyncIterator[tuple[str, str, Any]]:
        """Id, name and data of each event."""
        fields: dict[str, str] = {}
        async for line in self.response.content:
            text = line.decode().rstrip("\n")
            if not text:
                if "data" in fields:
                    yield fields["id"], fields["event"], json.loads(fields["data"])
                elif fields:
                    self.first = fields
                fields = {}
            elif not text.startswith(":"):
                name, _, value = text.partition(": ")
                fields[name] = value

    async def until(self, *names: str, **wanted: Any) -> list[tuple[str, str, Any]]:
        """The events up to one of these names whose data has these values, that one included."""
        found: list[tuple[str, str, Any]] = []
        async with asyncio.timeout(60):
            async for event in self.events():
                found.append(event)
                if event[1] in names and all(event[2].get(key) == value for key, value in wanted.items()):
                    return found
        return found


class Client:
    """A program that has the token."""

    def __init__(self, site: Site, base: str, session: aiohttp.ClientSession) -> None:
        self.site = site
        self.base = base
        self.http = session
        self.headers = {"authorization": f"Bearer {TOKEN}"}

    @property
    def port(self) -> int:
        return self.site.access.port

    async def ask(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, Any]:
        """Status and JSON of an answer."""
        headers = {**self.headers, **more.pop("headers", {})}
        given = {} if body is None else {"json": body}
        async with self.http.request(
            method, f"{self.base}/api/v1/{path}", headers=headers, **given, **more
        ) as response:
            data = await response.read()
            kind = response.content_type
            return response.status, json.loads(data) if data and kind.endswith("json") else data

    async def new(self, **fields: Any) -> str:
        status, session = await self.ask("POST", "sessions", fields)
        assert status == 201, session
        return session["id"]

    @asynccontextmanager
    async def stream(self, session: str, after: Any = None, **headers: str) -> AsyncGenerator[Streamed]:
        query = {} if after is None else {"after": str(after)}
        async with self.http.get(
            f"{self.base}/api/v1/sessions/{session}/events",
            params=query,
            headers={**self.headers, **headers},
            timeout=aiohttp.ClientTimeout(total=None),
        ) as response:
            assert response.status == 200, await response.text()
            yield Streamed(response)

    async def say(self, session: str, text: str, **fields: Any) -> list[tuple[str, str, Any]]:
        """Sends a prompt and returns the events up to the end of its run."""
        status, accepted = await self.ask("POST", f"sessions/{session}/prompt", {"text": text, **fields})
        assert status == 202, accepted
        async with self.stream(session, accepted["position"]) as stream:
            return await stream.until("state", state="idle")


Start = Callable[..., Any]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.setenv("SWINK_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("SWINK_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-a-test-0123456789")
    for name in ("OPENAI_API_KEY", "GEMINI_API_KEY", "XAI_API_KEY", "MISTRAL_API_KEY", "SWINK_MODEL", "SWINK_APPROVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("swink_agent.app.keys.credentials.usable_keyring", lambda: None)
    return work


@asynccontextmanager
async def running(
    folder: Path, *replies: Any, hosts: tuple[str, ...] = (), origins: tuple[str, ...] = (), **flags: Any
) -> AsyncGenerator[Client]:
    """A server whose model gives these replies."""
    stream = replies[0] if len(replies) == 1 and callable(replies[0]) else scripted(*replies)
    opening = Opening(OpeningOptions(flags={"model": MODEL, "approve": "ask", **flags}, cwd=str(folder)))
    listening = bound("127.0.0.1", 0)
    port = listening.getsockname()[1]
    access = Access(token=TOKEN, hosts=hosts_of("127.0.0.1", hosts, port), origins=origins, port=port)
    site = standard_site(opening, access, stream_fn=stream)
    async with served(site, listening), aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
        yield Client(site, f"http://127.0.0.1:{port}", session)


def store_of(folder: Path) -> JsonlSessionStore:
    return JsonlSessionStore(folder.parent / "data" / "sessions")
