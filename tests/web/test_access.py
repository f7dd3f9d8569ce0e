"""Who may send requests: host, origin, token and cookie, in this order; and the headers of every answer."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import shutil
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from swink_agent.app.agent.opening import Opening, OpeningOptions
from swink_agent.app.errors import UsageProblem
from swink_agent.web.access import Access
from swink_agent.web.serving import bound, served, standard_site, tls_context

from .conftest import MODEL, TOKEN, Client, running


async def raw(client: Client, request: str) -> str:
    """The answer to bytes as they are."""
    reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
    writer.write(request.replace("\n", "\r\n").encode(errors="surrogateescape"))
    async with asyncio.timeout(60):
        head = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    return head.decode()


async def head(client: Client, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str]]:
    """Status and headers of an answer, without following it anywhere."""
    async with client.http.request(
        method,
        f"{client.base}{path}",
        headers={key.replace("_", "-"): value for key, value in headers.items()},
        allow_redirects=False,
    ) as response:
        await response.read()
        return response.status, {key.lower(): value for key, value in response.headers.items()}


BEARER = f"Bearer {TOKEN}"


async def test_names_of_this_machine_are_taken_and_others_are_not(folder: Path) -> None:
    async with running(folder, hosts=("proxy.example", "other.example:8443")) as client:
        port = client.port
        for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}", "proxy.example", "proxy.example:9",
                     "other.example:8443", f"LOCALHOST:{port}"):  # fmt: skip
            assert (await head(client, "/api/v1/info", authorization=BEARER, host=host))[0] == 200, host
        for host in ("127.0.0.1", "localhost", "localhost:1", f"evil.example:{port}", "other.example", "a@localhost",
                     f"localhost.:{port}", "[::1", f"127.0.0.1:{port}/x", f"127.0.0.1.evil.org:{port}",
                     f"127.0.0.1:0{port}"):  # fmt: skip
            assert (await head(client, "/api/v1/info", authorization=BEARER, host=host))[0] == 421, host
        assert "421" in (await raw(client, "GET /api/v1/info HTTP/1.0\n\n")).splitlines()[0]


async def test_pages_of_other_sites_send_nothing(folder: Path) -> None:
    async with running(folder, origins=("https://board.example",)) as client:
        own = f"http://127.0.0.1:{client.port}"
        ask = "/api/v1/info"
        assert (await head(client, ask, authorization=BEARER, origin=own))[0] == 200
        assert (await head(client, ask, authorization=BEARER, origin="https://board.example"))[0] == 200
        for origin in ("null", "https://evil.example", "http://127.0.0.1:1", f"http://localhost:{client.port}"):
            assert (await head(client, ask, authorization=BEARER, origin=origin))[0] == 403, origin
        for site in ("cross-site", "same-site"):
            assert (await head(client, ask, authorization=BEARER, sec_fetch_site=site))[0] == 403
            navigation = {"sec_fetch_site": site, "sec_fetch_mode": "navigate"}
            assert (await head(client, f"/?token={TOKEN}", **navigation))[0] == 303
            assert (await head(client, f"/?token={TOKEN}", "POST", **navigation))[0] == 403
        assert (await head(client, ask, authorization=BEARER, sec_fetch_site="same-origin"))[0] == 200


async def test_other_sites_read_nothing_unless_they_are_allowed(folder: Path) -> None:
    async with running(folder, origins=("https://board.example",)) as client:
        preflight = {"origin": "https://board.example", "access_control_request_method": "POST"}
        status, headers = await head(client, "/api/v1/sessions", "OPTIONS", **preflight)
        assert (status, headers["access-control-allow-origin"]) == (204, "https://board.example")
        preflight["origin"] = "https://evil.example"
        assert (await head(client, "/api/v1/sessions", "OPTIONS", **preflight))[0] == 403
    async with running(folder) as client:
        _, headers = await head(client, "/api/v1/info", authorization=BEARER, origin=client.base)
        assert not [name for name in headers if name.startswith("access-control")]


async def test_without_the_token_there_is_only_health(folder: Path) -> None:
    async with running(folder) as client:
        assert (await head(client, "/health"))[0] == 200
        assert (await head(client, "/health", host="evil.example"))[0] == 421
        assert (await head(client, "/health", origin="https://evil.example"))[0] == 403
        for path in ("/", "/api/v1/info", "/sessions/x", "/static/x.css", "/nothing", "/api/v1/nothing", "/agui"):
            status, headers = await head(client, path)
            assert status == 401, path
            assert "set-cookie" not in headers
        assert (await head(client, f"/api/v1/info?token={TOKEN}"))[0] == 401
        assert (await head(client, "/api/v1/info", authorization="Bearer wrong"))[0] == 401
        assert (await head(client, "/api/v1/info", "POST", authorization=BEARER))[0] == 405
        assert (await head(client, "/?token=wrong"))[0] == 401
        for path in ("/", "/nothing"):
            async with client.http.get(f"{client.base}{path}") as response:
                assert response.content_type == "text/html"
                assert "swink web" in await response.text()
        for path in ("/agui", "/api/v1/info"):
            async with client.http.get(f"{client.base}{path}") as response:
                assert response.content_type == "application/problem+json"


async def test_the_address_with_the_token_leads_to_a_cookie_for_one_path(folder: Path) -> None:
    async with running(folder) as client:
        status, headers = await head(client, f"/sessions/abc?token={TOKEN}")
        assert status == 303
        place = headers["location"]
        key = place.split("/")[1]
        assert place == f"/{key}/sessions/abc"
        assert len(key) >= 22
        name, _, rest = headers["set-cookie"].partition("=")
        value, *parts = [part.strip() for part in rest.split(";")]
        assert name == f"swink_{client.port}"
        assert TOKEN not in value
        assert {part.lower() for part in parts} == {"httponly", "samesite=strict", f"path=/{key}".lower()}
        cookie = f"{name}={value}"
        assert (await head(client, f"/{key}/api/v1/info", cookie=cookie))[0] == 200
        assert (await head(client, "/api/v1/info", cookie=cookie))[0] == 401
        status, headers = await head(client, f"/{key}", cookie=cookie)
        assert (status, headers["location"]) == (303, f"/{key}/")
        assert (await head(client, f"/{key}/api/v1/info", cookie=f"{name}=x"))[0] == 401
        damaged = f"GET /{key}/api/v1/info HTTP/1.1\nHost: 127.0.0.1:{client.port}\nCookie: {name}=\udcff\n\n"
        assert (await raw(client, damaged)).split()[1] == "401"
        made = {"cookie": cookie, "content_type": "application/json"}
        assert (await head(client, f"/{key}/api/v1/sessions", "POST", **made))[0] == 403
        async with client.http.post(
            f"{client.base}/{key}/api/v1/sessions",
            json={},
            headers={"cookie": cookie, "origin": client.base},
        ) as response:
            assert response.status == 201
            assert response.headers["location"].startswith(f"/{key}/api/v1/sessions/")


async def test_no_address_leads_elsewhere(folder: Path) -> None:
    async with running(folder) as client:
        for path in ("//evil.example", "///evil.example", "/\\evil.example", "//evil.example/sessions/x"):
            answer = await raw(client, f"GET {path}?token={TOKEN} HTTP/1.1\nHost: 127.0.0.1:{client.port}\n\n")
            assert "location:" not in answer.lower()
            assert answer.split()[1] in ("400", "401", "404")


async def test_the_address_behind_the_token_is_led_to_as_it_is_written(folder: Path) -> None:
    async with running(folder) as client:
        for path in ("/sessions/a%3Fb", "/sessions/a%0D%0AX-Evil:%201", "/sessions/%5C%5Cevil", "/sessions/%C3%A9"):
            answer = await raw(client, f"GET {path}?token={TOKEN} HTTP/1.1\nHost: 127.0.0.1:{client.port}\n\n")
            lines = [line for line in answer.splitlines() if line.lower().startswith(("location:", "x-evil"))]
            assert len(lines) == 1, answer
            assert lines[0].endswith(path), answer
        asked = f"GET /evals/compare?before=a%26b&token={TOKEN}&after=c HTTP/1.1\nHost: 127.0.0.1:{client.port}\n\n"
        answer = await raw(client, asked)
        assert any(line.endswith("/evals/compare?before=a%26b&after=c") for line in answer.splitlines()), answer


async def test_every_answer_says_what_a_page_may_do(folder: Path) -> None:
    async with running(folder) as client:
        for path, more in (("/health", {}), ("/", {}), ("/api/v1/info", {"authorization": BEARER}), ("/x", {})):
            _, headers = await head(client, path, **more)
            policy = headers["content-security-policy"]
            assert policy.startswith("default-src 'none'")
            assert "unsafe-" not in policy
            assert "base-uri 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "img-src 'self' data:" in policy
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"
            assert headers["cache-control"] == "no-store"


async def test_requests_that_cannot_be_read_are_one_line_in_the_log(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(folder) as client:
        for request in ("GET / HTTP/9.9\n\n", "\x00\x01\n\n", "GET /%ZZ HTTP/1.1\nHost: x\nContent-Length: a\n\n"):
            answer = await raw(client, request)
            assert answer.split()[1] == "400"
        assert (await head(client, "/api/v1/info", authorization=BEARER))[0] == 200
    assert "Traceback" not in caplog.text


async def test_a_client_without_cookies_uses_the_token_alone(folder: Path) -> None:
    async with running(folder) as client, aiohttp.ClientSession() as other:
        async with other.get(f"{client.base}/api/v1/info", headers={"authorization": BEARER.upper()}) as response:
            assert response.status == 401, "the token is compared as it is"
        async with other.get(f"{client.base}/api/v1/info", headers={"authorization": f"bearer {TOKEN}"}) as response:
            info = await response.json()
    assert set(info) == {"version", "folder", "model"}
    assert info["folder"] == str(folder)


async def tls_files(folder: Path, name: str = "") -> tuple[str, str]:
    """A certificate of its own, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("it needs openssl, which is not installed")
    cert, key = str(folder / f"{name}cert.pem"), str(folder / f"{name}key.pem")
    made = await asyncio.create_subprocess_exec(
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
        *("-keyout", key, "-out", cert),
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert await made.wait() == 0
    return cert, key


@pytest.mark.sweep
async def test_tls_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    cert, key = await tls_files(tmp_path)
    _, other = await tls_files(tmp_path, "other-")
    (tmp_path / "text").write_text("not PEM")
    text, none = str(tmp_path / "text"), str(tmp_path / "none")
    for one, two, words in (
        (cert, other, f"{other} is not the key of the certificate in {cert}"),
        (text, key, f"{text} is not a certificate"),
        (cert, text, f"{text} is not a key"),
        (none, key, f"{none} cannot be read"),
        (cert, none, f"{none} cannot be read"),
        (cert, str(tmp_path), f"{tmp_path} cannot be read"),
    ):
        with pytest.raises(UsageProblem, match=f"^the TLS files cannot be used: {re.escape(words)}"):
            tls_context(one, two)
    tls_context(cert, key)


@pytest.mark.sweep
async def test_with_tls_the_cookie_stays_encrypted(folder: Path, tmp_path: Path) -> None:
    cert, key = await tls_files(tmp_path)
    opening = Opening(OpeningOptions(flags={"model": MODEL}, cwd=str(folder)))
    listening = bound("127.0.0.1", 0)
    port = listening.getsockname()[1]
    site = standard_site(opening, Access(token=TOKEN, port=port))
    async with served(site, listening, tls_context(cert, key)), aiohttp.ClientSession() as http:
        async with http.get(f"https://127.0.0.1:{port}/?token={TOKEN}", ssl=False, allow_redirects=False) as response:
            assert response.status == 303
            assert "secure" in response.headers["set-cookie"].lower()
        origin = {"authorization": BEARER, "origin": f"https://127.0.0.1:{port}"}
        async with http.get(f"https://127.0.0.1:{port}/api/v1/info", ssl=False, headers=origin) as response:
            assert response.status == 200


async def test_requests_that_are_not_http_get_a_problem_document_with_every_header(folder: Path) -> None:
    async with running(folder, "x") as client:
        for sent in (
            b"nonsense\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: \0\r\n\r\n",
            b"GET / HTTP/1.1\r\na" + b"b" * 70_000,
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
            writer.write(sent)
            answer = await asyncio.wait_for(reader.read(), 10)
            writer.close()
            head, _, body = answer.partition(b"\r\n\r\n")
            lines = head.decode().lower().split("\r\n")
            assert lines[0].endswith("400 bad request"), lines
            assert "content-type: application/problem+json" in lines
            assert any(line.startswith("content-security-policy: default-src 'none'") for line in lines)
            assert {
                "x-content-type-options: nosniff",
                "referrer-policy: no-referrer",
                "cache-control: no-store",
            } <= set(lines)
            document = json.loads(body)
            assert (document["status"], document["code"]) == (400, "not_http")
            assert "nonsense" not in document["detail"], "what was sent is not repeated"


async def test_a_connection_that_asks_nothing_is_closed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swink_agent.web.serving.FIRST_REQUEST", 0.3)
    async with running(folder, "x") as client:
        silent = await asyncio.open_connection("127.0.0.1", client.port)
        slow = await asyncio.open_connection("127.0.0.1", client.port)
        slow[1].write(b"GET /health HTTP/1.1\r\nHost: ")
        used = await asyncio.open_connection("127.0.0.1", client.port)
        used[1].write(f"GET /health HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\n\r\n".encode())
        async with asyncio.timeout(60):
            for reader, _ in (silent, slow):
                assert await reader.read() == b""
        used[1].write(f"GET /health HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\nConnection: close\r\n\r\n".encode())
        assert (await used[0].read()).count(b"200 OK") == 2
        for _, writer in (silent, slow, used):
            writer.close()


async def test_other_static_files_do_not_exist(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running(folder, "x") as client:
        for name in ("a" * 5000, "..%2fserver.py", "%00", ".", "markup.py"):
            address = URL(f"{client.base}/static/{name}", encoded=True)
            async with client.http.get(address, headers=client.headers) as response:
                assert response.status == 404, name
    assert not caplog.records


async def test_no_log_and_no_repr_has_the_token_or_the_key_of_the_pages(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with running(folder) as client:
        access, port = client.site.access, client.port

        def fails(*_: Any, **__: Any) -> Any:
            raise RuntimeError(f"{TOKEN} {access.key}")

        client.site.histories.load = fails
        page, key = f"/sessions/x?token={TOKEN}", access.key
        for path, headers in (
            (f"/?token={TOKEN}", {}),
            (f"/?token={TOKEN}x", {}),
            (f"/{TOKEN}", {}),
            (f"/nothing?token={TOKEN}", {}),
            (f"/{key}/", {}),
            (f"/{key}/api/v1/info?token={TOKEN}", {}),
            (f"/api/v1/info?token={TOKEN}", {}),
            (page, {"host": "evil.example"}),
            (page, {"origin": "https://evil.example"}),
            (f"/{key}/sessions/x", {"cookie": f"swink_{port}={access._cookie}"}),
            ("/api/v1/sessions/x", client.headers),
        ):
            url = URL(f"{client.base}{path}", encoded=True)
            async with client.http.get(url, headers=headers, allow_redirects=False) as response:
                await response.read()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET /?token={TOKEN} HTTP/9.9\r\nHost: x\r\nX y: {TOKEN}\r\n\r\n".encode())
        await asyncio.wait_for(reader.read(), 20)
        writer.close()
    told = "\n".join([logging.Formatter().format(record) for record in caplog.records])
    assert "refused GET" in told
    assert "a request failed in the server itself" in told
    for secret in (TOKEN, access.key, access._cookie):
        assert secret not in told
        assert secret not in repr(access)


async def test_a_code_lets_one_browser_in_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(folder) as client:
        access = client.site.access
        first, code = access.new_code(), access.new_code()
        for given in (first, f"{code}x", ""):
            assert (await head(client, f"/?code={given}"))[0] == 401
        assert (await head(client, f"/api/v1/info?code={code}"))[0] == 401, "pages alone take it"
        status, headers = await head(client, f"/sessions/x?a=1&code={code}", **{"sec-fetch-site": "cross-site"})
        assert status == 403, "a page of another site may only navigate"
        navigates = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
        status, headers = await head(client, f"/sessions/x?a=1&code={code}", **navigates)
        assert (status, headers["refresh"]) == (200, f"0; url={access.prefix}/sessions/x?a=1")
        assert f"swink_{client.port}={access._cookie}; HttpOnly; Path={access.prefix}; SameSite=Strict" in str(headers)
        assert (await head(client, f"/?code={code}"))[0] == 401
        monkeypatch.setattr("swink_agent.web.access.CODE_SECONDS", 0.0)
        assert not access.takes_code(access.new_code()), "it is too late"
