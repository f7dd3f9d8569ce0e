"""Commands in every back end reach the allowed hosts and nothing else."""

from __future__ import annotations

import asyncio
import importlib.util
import io
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from swink_agent.sandbox import (
    Reached,
    Sandbox,
    SandboxedProcess,
    SandboxError,
    SandboxProfile,
    SandboxUnavailable,
    open_sandbox,
    profile_with_access,
)
from swink_agent.sandbox.landlock.backend import LandlockSandbox
from swink_agent.sandbox.network import entering
from swink_agent.sandbox.network.reached import WaysOut
from swink_agent.sandbox.open import _check_by_trial

from ..conftest import temporary_parent, was_reached
from .world import Serve, World, world

WITHOUT = "landlock without namespaces"
NOT_AMONG = "is not among the hosts that may be reached"
PYTHON = os.path.realpath(sys.executable)

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


@pytest.fixture(params=["bubblewrap", "landlock", pytest.param(WITHOUT, marks=pytest.mark.sweep)])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Not beneath `/tmp`, which a sandbox may have for itself."""
    path = Path(temporary_parent(), f"swink-net-{os.getpid()}-{tmp_path.name}")
    path.mkdir()
    yield path
    shutil.rmtree(path, ignore_errors=True)


def opened(backend: str, there: World, folder: Path, *hosts: str, **more: object) -> Sandbox:
    profile = SandboxProfile(write=(str(folder),), hosts=hosts, **more)  # type: ignore[arg-type]
    if backend != WITHOUT:
        return open_sandbox(profile, backend=backend, resolve=there.resolve, connect=there.connect)
    sandbox = LandlockSandbox(profile, namespaces=False)
    sandbox.ways_out = WaysOut(there.resolve, there.connect)
    _check_by_trial(sandbox)
    return sandbox


@asynccontextmanager
async def reaching(
    backend: str, folder: Path, *hosts: str, serve: Serve | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[World, Sandbox]]:
    async with world(serve, tls=tls) as there:
        with opened(backend, there, folder, *hosts) as sandbox:
            yield there, sandbox


async def run(sandbox: Sandbox, script: str, **environment: str) -> tuple[int, str, SandboxedProcess]:
    async with asyncio.timeout(60):
        process = await sandbox.spawn(
            ["/bin/bash", "-c", script],
            cwd=sandbox.profile.write[0],
            environment={"PY": f"{PYTHON} -I -S", "HOME": sandbox.profile.write[0], **environment},
        )
        try:
            reading = asyncio.ensure_future(process.output.read())
            code = await process.wait()
            process.kill()
            return code, (await reading).decode("utf-8", "replace"), process
        finally:
            process.kill()


FETCH = """
import sys, urllib.error, urllib.request
for address in sys.argv[1:]:
    try:
        print(urllib.request.urlopen(address, timeout=20).read().decode())
    except urllib.error.HTTPError as error:
        print(error.code, error.read().decode().strip())
    except OSError as error:
        print(error)
"""


async def test_hosts_and_the_server_of_a_background_command_are_reached_from_one_command(
    backend: str, folder: Path
) -> None:
    if backend == WITHOUT:
        pytest.skip("commands have no servers here")
    (folder / "fetch.py").write_text(FETCH)
    (folder / "own").write_text("from the background")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    serve = (
        f'exec $PY -u -c \'import http.server as h; s = h.HTTPServer(("127.0.0.1", {port}), h.SimpleHTTPRequestHandler)'
    )
    async with reaching(backend, folder, "example.org") as (_, sandbox):
        server = await sandbox.spawn(
            ["/bin/bash", "-c", f"{serve}; print(1); s.serve_forever()'"],
            cwd=str(folder),
            environment={"PY": f"{PYTHON} -I"},
            background=True,
        )
        assert await asyncio.wait_for(server.output.readline(), 30) == b"1\n"
        addresses = f"http://example.org/page http://127.0.0.1:{port}/own http://evil.test/"
        code, output, process = await run(sandbox, f"$PY fetch.py {addresses}")
        server.kill()
        await server.wait()
    assert code == 0
    page, own, refused = output.splitlines()
    assert own == "from the background"
    assert page.startswith("hello")
    assert refused.startswith("403 ")
    assert [(each.host, each.allowed) for each in process.reached] == [("example.org", True), ("evil.test", False)]


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock", WITHOUT])
async def test_allowed_hosts_answer_and_what_was_reached_is_told(backend: str, folder: Path) -> None:
    (folder / "fetch.py").write_text(FETCH)
    async with reaching(backend, folder, "example.org") as (there, sandbox):
        addresses = "http://example.org/page http://evil.test/ https://evil.test/"
        code, output, process = await run(sandbox, f"env; $PY fetch.py {addresses}")
        assert code == 0
        _, _, other = await run(sandbox, "true")
    variables = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
    address = variables["HTTP_PROXY"]
    assert address.startswith("http://")
    assert address.rpartition("@")[2].removeprefix("http://").startswith("127.0.0.1:")
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        assert variables[name] == variables[name.lower()] == address
    assert variables["NO_PROXY"] == variables["no_proxy"] == "localhost,127.0.0.1,::1"
    assert variables["NODE_USE_ENV_PROXY"] == "1"
    assert output.splitlines()[-3:-1] == ["hello", f"403 swink sandbox: evil.test:80 {NOT_AMONG}"]
    assert "403" in output.splitlines()[-1]
    assert there.resolved == [("example.org", 80)]
    assert [heard.split(b"\r\n")[0] for heard in there.heard] == [b"GET /page HTTP/1.1"]
    assert process.reached == (
        Reached("example.org", 80, True, ""),
        Reached("evil.test", 80, False, NOT_AMONG),
        Reached("evil.test", 443, False, NOT_AMONG),
    )
    assert other.reached == ()


OUT = """
import os, socket
port, datagrams = int(os.environ["TCP"]), int(os.environ["UDP"])
proxy = int(os.environ["HTTP_PROXY"].rpartition(":")[2])
def fast(kind, flag=0x20000000):
    s = socket.socket()
    if kind == "sendto": s.sendto(b"x", flag, ("127.0.0.1", port))
    else: s.sendmsg([b"x"], [], flag, ("127.0.0.1", port))
def deferred():
    s = socket.socket(); s.setsockopt(6, 30, 1); s.connect(("127.0.0.1", port)); s.send(b"x")
def again():
    s = socket.create_connection(("127.0.0.1", proxy)); s.connect(("127.0.0.1", port))
def dissolved():
    import ctypes
    s = socket.create_connection(("127.0.0.1", proxy))
    ctypes.CDLL(None).connect(s.fileno(), (ctypes.c_char * 16)(), 16)
    s.sendto(b"x", 0x20000000, ("127.0.0.1", port))
def udp(): socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", datagrams))
def udp6(): socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b"x", ("::ffff:127.0.0.1", datagrams))
def tcp6(): socket.create_connection(("::1", port), 2)
def mapped(): socket.socket(socket.AF_INET6).connect(("::ffff:127.0.0.1", port))
def other(): socket.socket(proto=262).connect(("127.0.0.1", port))
def direct(): socket.create_connection(("127.0.0.1", port), 2)
def anywhere(): socket.create_connection(("93.184.216.34", 80), 2)
def wide(): socket.socket().connect(("0.0.0.0", port))
def raw(): socket.socket(type=socket.SOCK_RAW, proto=1).sendto(b"x", ("127.0.0.1", 0))
ways = [direct, lambda: fast("sendto"), lambda: fast("sendmsg"), deferred, again, dissolved, udp, udp6, tcp6, mapped]
for way in [*ways, other, anywhere, wide, raw]:
    try: way()
    except OSError as error: pass
print("done")
"""


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock", WITHOUT])
async def test_nothing_else_answers(backend: str, folder: Path) -> None:
    (folder / "out.py").write_text(OUT)
    tcp = socket.create_server(("127.0.0.1", 0))
    udp = socket.socket(type=socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    with tcp, udp:
        tcp.setblocking(False)
        udp.setblocking(False)
        async with reaching(backend, folder, "example.org") as (there, sandbox):
            ports = {"TCP": str(tcp.getsockname()[1]), "UDP": str(udp.getsockname()[1])}
            _, output, process = await run(sandbox, "$PY out.py", **ports)
        assert output.endswith("done\n")
        assert not was_reached(tcp)
        assert not was_reached(udp)
    assert there.connected == []
    assert process.reached == ()


async def test_metadata_and_private_addresses_are_refused_by_name_and_number(backend: str, folder: Path) -> None:
    (folder / "fetch.py").write_text(FETCH)
    async with reaching(backend, folder, "*") as (there, sandbox):
        there.names.update({"inner.test": ["192.168.1.1"], "metadata.test": ["169.254.169.254"]})
        addresses = (
            "http://169.254.169.254/latest http://metadata.test http://inner.test http://2852039166/ http://[::1]/"
        )
        _, output, _ = await run(sandbox, f"unset NO_PROXY no_proxy; $PY fetch.py {addresses} http://public.test/")
    assert [line[:3] for line in output.splitlines()] == ["403"] * 5 + ["hel"]
    assert there.connected == [("93.184.216.34", 80)]


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
async def test_own_servers_answer_without_the_proxy(backend: str, folder: Path) -> None:
    (folder / "fetch.py").write_text(FETCH)
    script = """
    $PY - <<'X' &
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"own")
    def log_message(self, *more): pass
server = http.server.HTTPServer(("127.0.0.1", 8123), Handler)
open("ready", "w").close()
server.handle_request()
X
    while [ ! -e ready ]; do sleep 0.02; done
    $PY fetch.py http://127.0.0.1:8123/ http://example.org/
    """
    async with reaching(backend, folder, "example.org") as (_, sandbox):
        if isinstance(sandbox, LandlockSandbox) and not sandbox.has_loopback:
            pytest.skip("this machine allows no network namespaces")
        _, output, process = await run(sandbox, script)
    assert output.split() == ["own", "hello"]
    assert [entry.host for entry in process.reached] == ["example.org"]


async def test_with_hosts_the_home_folder_is_out_of_sight(
    backend: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, home = folder / "work", folder / "home"
    for name in ("documents", ".cargo/registry"):
        (home / name).mkdir(parents=True)
        (home / name / "file").write_text(f"{name}\n")
    work.mkdir()
    (work / "fetch.py").write_text(FETCH)
    monkeypatch.setenv("HOME", str(home))
    async with world() as there:
        profile = SandboxProfile(write=(str(work),), read=None)
        python = (os.path.dirname(os.path.dirname(PYTHON)),)  # it may be in the real home folder
        wider = profile_with_access(profile, hosts=("example.org",), read=python)
        with opened(backend, there, work, *wider.hosts, read=wider.read) as sandbox:
            script = "cat $AT/documents/file; cat $AT/.cargo/registry/file; $PY fetch.py http://example.org/"
            _, output, _ = await run(sandbox, script, AT=str(home))
    assert output.splitlines()[1:] == [".cargo/registry", "hello"]
    assert "documents\n" not in output


@needs_curl
async def test_curl_and_redirects(backend: str, folder: Path) -> None:
    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        target = b"http://allowed.test/" if head.startswith(b"GET /good") else b"http://evil.test/"
        if b"Host: allowed.test" in head:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\narrived\n")
        else:
            writer.write(b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " + target + b"\r\n\r\n")

    async with reaching(backend, folder, "example.org", "allowed.test", serve=redirect) as (there, sandbox):
        _, output, process = await run(sandbox, "for at in good bad; do curl -sSL http://example.org/$at; done")
    assert output.splitlines() == ["arrived", f"swink sandbox: evil.test:80 {NOT_AMONG}"]
    assert [name for name, _ in there.resolved] == ["example.org", "allowed.test", "example.org"]
    assert [(entry.host, entry.allowed) for entry in process.reached] == [
        *(("example.org", True), ("allowed.test", True)),
        ("evil.test", False),
    ]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate and its key, in one file that everybody may read."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    path = tmp_path_factory.mktemp("tls") / "pem"
    names = "subjectAltName=DNS:example.org,DNS:other.test"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=example.org"]
    arguments = ["-addext", names, "-keyout", f"{path}.key", "-out", str(path)]
    subprocess.run([*made, *arguments], check=True, capture_output=True)
    return path


@needs_curl
async def test_tls_is_end_to_end_and_must_name_the_host(backend: str, folder: Path, certificate: Path) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, f"{certificate}.key")
    shutil.copy(certificate, folder / "pem")
    trust = dict.fromkeys(("SSL_CERT_FILE", "CURL_CA_BUNDLE"), str(folder / "pem"))
    async with reaching(backend, folder, "example.org", "other.test", tls=tls) as (there, sandbox):
        code, output, process = await run(sandbox, "curl -sS https://example.org/secret", **trust)
        assert (code, output) == (0, "hello")
        code, _, wrong = await run(
            sandbox, "curl -sS --connect-to other.test:443:example.org:443 https://other.test/", **trust
        )
        assert code != 0
    assert [heard.split(b"\r\n")[0] for heard in there.heard] == [b"GET /secret HTTP/1.1"]
    assert process.reached == (Reached("example.org", 443, True),)
    assert wrong.reached == (
        Reached("example.org", 443, True),
        Reached("example.org", 443, False, "was closed: TLS inside the connection names other.test"),
    )


def files_of(root: Path) -> Serve:
    """Serves the files of a folder."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        path = root / head.split(b" ")[1].decode().partition("?")[0].lstrip("/")
        if path.is_dir():
            path /= "index.html"
        if path.is_file():
            content = path.read_bytes()
            kind = "text/html" if path.suffix == ".html" else "application/octet-stream"
            kind = "application/json" if path.suffix == ".json" else kind
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n\r\n".encode())
            writer.write(content)
        else:
            writer.write(b"HTTP/1.1 404 Not found\r\nContent-Length: 0\r\n\r\n")

    return serve


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
async def test_git_clones_from_an_allowed_host(backend: str, folder: Path, tmp_path: Path) -> None:
    def git(*words: str) -> None:
        names = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
        subprocess.run(
            ["git", *names, *words], cwd=tmp_path, check=True, env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        )

    git("init", "-q", "-b", "main", "--template=", "source")
    (tmp_path / "source/file").write_text("content\n")
    git("-C", "source", "add", "file")
    git("-C", "source", "commit", "-q", "-m", "first")
    git("clone", "-q", "--bare", "--template=", "source", "served.git")
    git("-C", "served.git", "update-server-info")
    async with reaching(backend, folder, "*.example.org", serve=files_of(tmp_path)) as (_, sandbox):
        script = "git clone -q http://git.example.org/served.git copy && cat copy/file; git ls-remote http://git.test/x"
        _, output, process = await run(sandbox, script, GIT_TERMINAL_PROMPT="0")
    assert output.startswith("content\n")
    assert "403" in output
    assert [(entry.host, entry.allowed) for entry in process.reached] == [
        ("git.example.org", True),
        ("git.test", False),
    ]


def wheel(folder: Path) -> None:
    """A package of one line, and the page of an index that names it."""
    with zipfile.ZipFile(folder / "tiny-1.0-py3-none-any.whl", "w") as file:
        file.writestr("tiny.py", "said = 'tiny is here'\n")
        file.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        file.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("tiny-1.0.dist-info/RECORD", "tiny.py,,\ntiny-1.0.dist-info/RECORD,,\n")
    name = "tiny-1.0-py3-none-any.whl"
    page = f'<a href="http://files.test/{name}">{name}</a>'
    (folder / "simple/tiny").mkdir(parents=True)
    (folder / "simple/tiny/index.html").write_text(f"<!DOCTYPE html><html><body>{page}</body></html>")


@pytest.mark.sweep
async def test_pip_installs_from_allowed_hosts(backend: str, folder: Path, tmp_path: Path) -> None:
    if importlib.util.find_spec("pip") is None:
        pytest.skip("pip is not installed")
    if sys.prefix.startswith("/tmp/"):
        pytest.skip("the environment lies beneath /tmp, of which commands have one of their own")
    wheel(tmp_path)
    install = (
        f"{sys.executable} -m pip install -q --no-cache-dir --disable-pip-version-check --retries 0 "
        "--trusted-host index.test --trusted-host files.test -i http://index.test/simple --target here tiny"
    )
    async with reaching(backend, folder, "index.test", "files.test", serve=files_of(tmp_path)) as (_, sandbox):
        _, output, process = await run(sandbox, f"{install} && cat here/tiny.py")
    assert "tiny is here" in output
    assert {(entry.host, entry.allowed) for entry in process.reached} == {("index.test", True), ("files.test", True)}


@pytest.mark.sweep
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
async def test_npm_installs_from_an_allowed_host(backend: str, folder: Path, tmp_path: Path) -> None:
    package = {"name": "tiny", "version": "1.0.0"}
    archive = "tiny-1.0.0.tgz"
    with tarfile.open(tmp_path / archive, "w:gz") as file:
        for name, text in (("package.json", json.dumps(package)), ("index.js", "module.exports = 'tiny is here'\n")):
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(text)
            file.addfile(entry, io.BytesIO(text.encode()))
    version = {**package, "dist": {"tarball": f"http://registry.test/{archive}"}}
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny/index.html").write_text(
        json.dumps({"name": "tiny", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}})
    )
    (folder / "package.json").write_text(json.dumps({"name": "app", "version": "1.0.0"}))
    async with reaching(backend, folder, "registry.test", serve=files_of(tmp_path)) as (_, sandbox):
        options = "--registry=http://registry.test/ --no-audit --no-fund --fetch-retries=0"
        _, output, process = await run(
            sandbox, f"npm install tiny {options} && node -e 'console.log(require(\"tiny\"))'; rm -rf node_modules"
        )
    assert "tiny is here" in output
    assert {(entry.host, entry.allowed) for entry in process.reached} == {("registry.test", True)}


async def test_connections_end_with_the_command(backend: str, folder: Path) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        begun.set()
        try:
            while True:
                writer.write(b"x" * 65536)
                await writer.drain()
                await asyncio.sleep(0)
        except OSError:
            ended.set()

    (folder / "fetch.py").write_text(FETCH)
    async with reaching(backend, folder, "example.org", serve=endless) as (_, sandbox):
        process = await sandbox.spawn([PYTHON, "-I", "-S", "fetch.py", "http://example.org/"], cwd=str(folder))
        async with asyncio.timeout(30):
            await begun.wait()
            process.kill()
            await process.wait()
            await ended.wait()


async def test_commands_at_once_and_one_after_another(backend: str, folder: Path) -> None:
    (folder / "fetch.py").write_text(FETCH)
    async with reaching(backend, folder, "example.org") as (there, sandbox):
        scripts = [f"$PY fetch.py http://example.org/{number} http://h{number}.test/" for number in range(3)]
        ran = await asyncio.gather(*(run(sandbox, script) for script in scripts))
        assert all(output.startswith("hello\n403") for _, output, _ in ran)
        if backend == "bubblewrap":  # each has its own network
            told = [tuple(entry.host for entry in process.reached) for _, _, process in ran]
            assert told == [("example.org", f"h{number}.test") for number in range(3)]
        else:
            assert all({"example.org", f"h{at}.test"} <= {e.host for e in ran[at][2].reached} for at in range(3))
    assert len(there.heard) == 3


async def test_a_proxy_is_not_mentioned_without_hosts(backend: str, folder: Path) -> None:
    if backend == WITHOUT:
        pytest.skip("the same")
    with open_sandbox(SandboxProfile(write=(str(folder),)), backend=backend) as sandbox:
        _, output, process = await run(sandbox, "env")
    assert "_proxy=" not in output.lower()
    assert process.reached == ()


@pytest.mark.bubblewrap
async def test_without_its_helper_a_command_is_refused(folder: Path) -> None:
    there = World()
    with opened("bubblewrap", there, folder, "example.org") as sandbox:
        helper = sandbox._helper  # type: ignore[attr-defined]
        helper._process.kill()
        helper._process.wait()
        with pytest.raises(SandboxError, match="network cannot be entered"):
            await run(sandbox, "touch ran")
        assert not (folder / "ran").exists()


@pytest.mark.bubblewrap
@pytest.mark.sweep
def test_where_hosts_cannot_be_reached_by_name_the_back_end_is_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*more: object) -> socket.socket:
        raise PermissionError(1, "Operation not permitted")

    async def elsewhere(*more: object) -> socket.socket:
        return socket.create_server(("127.0.0.1", 0))

    profile = SandboxProfile(write=(str(folder),), hosts=("example.org",))
    for listen, why in ((fails, "network cannot be entered"), (elsewhere, "does not reach the proxy")):
        monkeypatch.setattr(entering.NamespaceHelper, "listen", listen)
        with pytest.raises(SandboxUnavailable, match=why):
            open_sandbox(profile, backend="bubblewrap")
    with open_sandbox(profile) as sandbox:
        assert sandbox.backend == "landlock"
        assert [report.name for report in sandbox.passed_over] == ["bubblewrap"]
    with open_sandbox(SandboxProfile(write=(str(folder),)), backend="bubblewrap"):
        pass  # without hosts, it is


@pytest.mark.bubblewrap
async def test_a_command_that_is_given_up_while_its_proxy_is_made_does_not_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = asyncio.Event()

    async def never(*more: object) -> socket.socket:
        waiting.set()
        return await asyncio.get_running_loop().create_future()

    with opened("bubblewrap", World(), folder, "example.org") as sandbox:
        monkeypatch.setattr(entering.NamespaceHelper, "listen", never)
        running = asyncio.ensure_future(run(sandbox, "touch ran"))
        await waiting.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert not (folder / "ran").exists()


async def test_another_program_of_the_machine_needs_the_token(folder: Path) -> None:
    async with world() as there:
        with opened(WITHOUT, there, folder, "example.org") as sandbox:
            process = await sandbox.spawn(["/bin/bash", "-c", "echo $HTTP_PROXY; sleep 60"], cwd=str(folder))
            port = int((await process.output.readline()).decode().strip().rpartition(":")[2])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET http://example.org/ HTTP/1.1\r\n\r\n")
            assert (await reader.readline()).split()[1] == b"407"
            writer.close()
            process.kill()
            await process.wait()
    assert there.resolved == []
