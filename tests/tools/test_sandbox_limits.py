"""The result of a failed command names the limit of the sandbox that it met, and no other result does."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from swink_agent import AgentToolResult, ToolContext, extract_text
from swink_agent.sandbox import Reached, SandboxProfile, SandboxUnavailable, open_sandbox
from swink_agent.sandbox.open import backend_names
from swink_agent.tools import BashTool
from swink_agent.tools._sandbox_limits import (
    NO_NETWORK,
    READ_ONLY_OUTSIDE,
    Asking,
    hosts_refused,
    limits_met,
    told_reached,
)

NETWORK = f"[sandbox: {NO_NETWORK}]"
# The interpreter itself: a virtual environment beneath /tmp is out of a command's sight.
PYTHON = Path(sys.executable).resolve()


@pytest.fixture
def places() -> Iterator[tuple[Path, Path]]:
    """A folder to work in and one beside it, not in /tmp, of which commands have one of their own."""
    with tempfile.TemporaryDirectory(prefix="swink-test-", dir="/var/tmp") as made:
        work, outside = Path(made, "work"), Path(made, "outside")
        work.mkdir()
        outside.mkdir()
        (outside / "file").write_text("as it was")
        yield work, outside


@pytest.fixture(params=backend_names())
def shell(request: pytest.FixtureRequest, places: tuple[Path, Path]) -> Iterator[BashTool]:
    try:
        sandbox = open_sandbox(SandboxProfile(write=(str(places[0]),)), backend=request.param)
    except SandboxUnavailable as error:
        pytest.skip(f"{request.param} does not work here: {error}")
    tool = BashTool(places[0], sandbox)
    yield tool
    tool.close()
    sandbox.close()


async def run(shell: BashTool, command: str) -> AgentToolResult:
    return await shell.execute({"command": command}, ToolContext())


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize(
    "command",
    [
        "echo x > {outside}/file",
        "touch {outside}/new",
        "mkdir {outside}/folder",
        "echo x > ../outside/new",
        "rm {outside}/file",
        "cp file {outside}/; false",
        f"{PYTHON} -c \"open('{{outside}}/file', 'w')\"",
    ],
)
async def test_a_write_outside_the_folder_is_told(shell: BashTool, places: tuple[Path, Path], command: str) -> None:
    (places[0] / "file").write_text("mine")
    result = await run(shell, command.format(outside=places[1]))
    assert result.is_error
    what = f"{places[1]} is not among the folders that may be written"
    ask = f'to ask for it: access={{"write": ["{places[1]}"]}} and a reason'
    assert extract_text(result.content).endswith(f"\n[sandbox: {what}; {ask}]"), extract_text(result.content)
    assert result.details["limits"] == [{"kind": "outside", "path": str(places[1])}]
    assert (places[1] / "file").read_text() == "as it was"


@pytest.mark.parametrize(("folder", "is_for_all"), [("/var/tmp", True), ("beside", False)])
def test_a_failed_temporary_file_is_answered_with_its_right_place(
    places: tuple[Path, Path], folder: str, is_for_all: bool
) -> None:
    """The user is not asked for a folder that the command does not need."""
    outside = os.path.realpath(folder) if is_for_all else str(places[1])
    said = f"bash: line 1: {outside}/a-new-file: Permission denied\n"
    (met,) = limits_met(said, SandboxProfile(write=(str(places[0]),)), str(places[0]), Asking({}, lambda _: True))
    assert met.access == {"write": [outside]}
    assert ("(temporary files go to $TMPDIR); to ask for it:" in str(met)) is is_for_all


async def test_a_host_that_cannot_be_reached_is_told(shell: BashTool) -> None:
    result = await run(shell, "bash -c 'exec 3<>/dev/tcp/192.0.2.1/80'; exit 7")
    assert extract_text(result.content).endswith(f"[exit code 7]\n{NETWORK}"), extract_text(result.content)
    result = await run(shell, "echo 'curl: (6) Could not resolve host: Example.org' >&2; exit 6")
    what = "example.org is not among the hosts that may be reached"
    ask = 'to ask for it: access={"network": ["example.org"]} and a reason'
    assert extract_text(result.content).endswith(f"\n[sandbox: {what}; {ask}]"), extract_text(result.content)
    assert result.details["limits"] == [{"kind": "network", "host": "example.org"}]
    # Silent: known by the exit code.
    for quiet in ("curl() { return 6; }; curl -s http://Example.org/x", "wget() { return 4; }; wget -q example.org"):
        result = await run(shell, quiet)
        assert extract_text(result.content).count("[sandbox:") == 1, extract_text(result.content)
    result = await run(shell, "curl() { return 6; }; curl -s http://example.org/x")
    assert "example.org:80 is not among the hosts" in extract_text(result.content)
    for other in ("curl() { return 6; }; curl -s x; exit 3", "echo http://example.org; exit 6"):
        assert "limits" not in (await run(shell, other)).details
    names = "import socket; socket.getaddrinfo('example.invalid', 80)"
    result = await run(shell, f'{PYTHON} -c "{names}"')
    assert extract_text(result.content).endswith(f"[exit code 1]\n{NETWORK}"), extract_text(result.content)


async def test_a_limit_before_a_pipe_is_told_although_the_command_succeeded(
    shell: BashTool, places: tuple[Path, Path]
) -> None:
    curl = "curl() { echo 'curl: (6) Could not resolve host: example.org' >&2; return 6; }; "
    result = await run(shell, f"{curl}curl -sS https://example.org/a | head -1")
    assert not result.is_error
    what = "example.org:443 is not among the hosts that may be reached"
    assert result.details["limits"] == [{"kind": "network", "host": "example.org"}]
    ask = 'to ask for it: access={"network": ["example.org"]} and a reason'
    assert extract_text(result.content).endswith(f"\n[sandbox: {what}; {ask}]"), extract_text(result.content)
    # Silent, and the next program fails or has nothing to say: the sandbox has no network, so nothing was fetched.
    for quiet in ("curl -s 'https://example.org/a?b=1&c' | cat", "curl -s https://example.org/a | grep x"):
        assert f"[sandbox: {what};" in extract_text((await run(shell, f"curl() {{ return 6; }}; {quiet}")).content)
    result = await run(shell, f"touch {places[1]}/new 2>&1 | tail -1")
    assert result.details["limits"] == [{"kind": "outside", "path": str(places[1])}]
    for other in (
        f"{curl}curl -sS http://127.0.0.1:8000/ >&2 2>/dev/null | cat; echo done",
        "curl() { return 7; }; curl -s http://127.0.0.1:8000/ | cat",
        "curl() { return 7; }; curl -s http://localhost:8000/ | grep x",
        "curl() { return 6; }; curl -s https://example.org/a | wc -l",  # it may be what the command is about
        "echo 'wget: unable to resolve host address' | cat",
        "echo 'the test of curl says: Could not resolve host: example.org' | cat",
    ):
        assert "limits" not in (await run(shell, other)).details, other


@pytest.mark.parametrize(
    ("command", "said", "is_told"),
    [
        ("git fetch 2>&1 | tail -2", "fatal: unable to access 'https://x.org/': Could not resolve host: x.org", True),
        ("pip install x 2>&1 | tail -1", "ERROR: [Errno -3] Temporary failure in name resolution", True),
        ("npm ci 2>&1 | tail -5", "npm error network getaddrinfo EAI_AGAIN registry.npmjs.org", True),
        ("npm ci || true", "npm error network getaddrinfo EAI_AGAIN registry.npmjs.org", True),
        ("python a.py 2>&1 | tail", "socket.gaierror: [Errno -2] Name or service not known", True),
        ("cat build.log | tail", "npm error network getaddrinfo EAI_AGAIN registry.npmjs.org", False),
        ("cat build.log | tail", "fatal: unable to access 'https://x.org/': Could not resolve host: x.org", False),
        ("npm ci", "npm error network getaddrinfo EAI_AGAIN registry.npmjs.org", False),  # it succeeded after all
        ("make 2>&1 | tail", "it could not resolve host names", False),
    ],
)
def test_error_texts_of_programs_before_a_pipe_are_recognized(
    places: tuple[Path, Path], command: str, said: str, is_told: bool
) -> None:
    profile = SandboxProfile(write=(str(places[0]),))
    met = limits_met(f"{said}\n", profile, str(places[0]), command=command, code=0)
    assert [limit.what for limit in met] == [NO_NETWORK] * is_told


async def test_commands_that_met_no_limit_are_not_annotated(shell: BashTool, places: tuple[Path, Path]) -> None:
    closed = places[0] / "closed"
    closed.write_text("x")
    closed.chmod(0)
    outside = places[1]
    for command in (
        f"touch {outside}/new; true",  # it went on, and succeeded
        f"echo 'touch: {outside}/new: Permission denied'",
        f"cat {closed}; echo x > {closed}; exit 1",
        "echo x > closed; exit 3",
        "ls /no/such/folder",
        "exit 1",
    ):
        result = await run(shell, command)
        assert "[sandbox:" not in extract_text(result.content), command
        assert "limits" not in result.details


async def test_a_command_without_a_sandbox_has_no_limit(places: tuple[Path, Path]) -> None:
    tool = BashTool(places[0], "off")
    result = await run(tool, f"echo 'touch: {places[1]}/new: Permission denied'; exit 1")
    assert extract_text(result.content).endswith("[exit code 1]")
    tool.close()


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize(
    ("said", "limits"),
    [
        ("curl: (6) Could not resolve host: example.org", [NO_NETWORK]),
        ("fatal: unable to access 'https://x/': Could not resolve host: x", [NO_NETWORK]),
        ("npm error code EAI_AGAIN", [NO_NETWORK]),
        ("ssh: connect to host 192.0.2.1 port 22: Network is unreachable", [NO_NETWORK]),
        ("curl: (7) Failed to connect to 192.0.2.1 port 80 after 0 ms: Couldn't connect to server", [NO_NETWORK]),
        ("curl: (7) Failed to connect to 127.0.0.1 port 8000: Connection refused", []),
        ("curl: (7) Failed to connect to localhost port 8000 after 0 ms: Couldn't connect to server", []),
        ("curl: (7) Failed to connect to ::1 port 8000 after 0 ms: Couldn't connect to server", []),
        ("npm error EACCES: permission denied, mkdir '{outside}/lib'", [READ_ONLY_OUTSIDE]),
        ("Error: EROFS: read-only file system, open '{outside}/a b'", [READ_ONLY_OUTSIDE]),
        ("OSError: [Errno 30] Read-only file system: '{outside}/x'", [READ_ONLY_OUTSIDE]),
        ("touch: cannot touch '{work}/x': Permission denied", []),
        ("git@host: Permission denied (publickey).", []),
        ("a build that talks of {outside}/x and fails", []),
    ],
)
def test_error_texts_of_programs_are_recognized(places: tuple[Path, Path], said: str, limits: list[str]) -> None:
    profile = SandboxProfile(write=(str(places[0]),))
    text = said.format(outside=places[1], work=places[0])
    assert [limit.what for limit in limits_met(f"building\n{text}\n", profile, str(places[0]))] == limits
    assert not any(limit.access for limit in limits_met(text, profile, str(places[0])))


@pytest.mark.table
@pytest.mark.parametrize(
    ("said", "host"),  # with the port that is told, if the message tells it
    [
        ("curl: (6) Could not resolve host: example.org", "example.org"),
        ("fatal: unable to access 'https://x.org/': Could not resolve host: x.org", "x.org:443"),
        ("ssh: Could not resolve hostname github.com: Temporary failure in name resolution", "github.com"),
        (
            "npm error request to https://registry.npmjs.org/left-pad failed, reason: EAI_AGAIN",
            "registry.npmjs.org:443",
        ),
        ("getaddrinfo ENOTFOUND registry.npmjs.org", "registry.npmjs.org"),
        ("dial tcp: lookup proxy.golang.org: no such host", "proxy.golang.org"),
        ("wget: unable to resolve host address \u2018example.org\u2019", "example.org"),
        ("HTTPSConnectionPool(host='pypi.org', port=443): Temporary failure in name resolution", "pypi.org"),
        ("error sending request for url (https://pypi.org:8443/simple): dns error", "pypi.org:8443"),
    ],
)
def test_the_host_that_was_meant_can_be_asked_for(places: tuple[Path, Path], said: str, host: str) -> None:
    profile = SandboxProfile(write=(str(places[0]),))
    (met,) = limits_met(said, profile, str(places[0]), Asking(can=lambda access: True))
    assert str(met) == (
        f"{host} is not among the hosts that may be reached; "
        f'to ask for it: access={{"network": ["{host.removesuffix(":443")}"]}} and a reason'
    )


def test_requests_seen_by_the_proxy_are_reported(places: tuple[Path, Path]) -> None:
    seen = (
        Reached("pypi.org", 443, True),
        Reached("example.org", 443, False, "is not among the hosts that may be reached"),
        Reached("::1", 8000, False, "is not among the hosts that may be reached"),
        Reached("inner.org", 80, False, "leads to 10.0.0.5, which is not public"),
        Reached("down.org", 443, True, "could not be reached: refused"),
    )
    assert told_reached(seen) == [
        "network: reached pypi.org:443",
        "network: down.org:443 could not be reached: refused",
    ]
    asking = Asking(can=lambda access: True)
    assert list(map(str, hosts_refused(seen, asking))) == [
        "example.org:443 is not among the hosts that may be reached; "
        'to ask for it: access={"network": ["example.org"]} and a reason',
        "[::1]:8000 is not among the hosts that may be reached; "
        'to ask for it: access={"network": ["[::1]:8000"]} and a reason',
        "inner.org:80 leads to 10.0.0.5, which is not public",
    ]
    had = Asking({"network": ["pypi.org"], "write": ["/opt"]}, lambda access: True)
    assert hosts_refused(seen, had)[0].access == {"network": ["pypi.org", "example.org"], "write": ["/opt"]}
    many = [Reached(f"h{n}.org", 443, False, "is not among the hosts that may be reached") for n in range(30)]
    assert str(hosts_refused(many)[-1]) == "22 more hosts may not be reached"
    profile = SandboxProfile(write=(str(places[0]),), hosts=("pypi.org",))
    (met,) = limits_met("Could not resolve host: example.org", profile, str(places[0]))
    assert str(met) == "the network can be reached only through the proxy in HTTPS_PROXY"
    assert limits_met("Could not resolve host: example.org", profile, str(places[0]), is_known=True) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_paths_that_the_user_may_not_write_are_not_the_sandboxs_doing(places: tuple[Path, Path]) -> None:
    profile = SandboxProfile(write=(str(places[0]),))
    assert limits_met("touch: cannot touch '/etc/x': Permission denied", profile, str(places[0])) == []


def test_a_file_that_only_this_command_does_not_find_can_be_asked_for(places: tuple[Path, Path]) -> None:
    """A command that reaches hosts does not see all that others do."""
    work, outside = places
    profile = SandboxProfile(write=(str(work),), hosts=("a.org",), read=("/usr",))
    had = Asking({"network": ["a.org"]}, lambda access: True)
    for line in (f"cat: {outside}/file: No such file or directory", f"cat: '{outside}/file': Permission denied"):
        (met,) = limits_met(line, profile, str(work), had)
    assert limits_met(f"cat: {outside}/missing: No such file or directory", profile, str(work), had) == []
    (met,) = limits_met(f"cat: {outside}/file: No such file or directory", profile, str(work), had)
    assert met.what == f"{outside} is not among the folders that may be read"
    assert met.access == {"network": ["a.org"], "read": [str(outside)]}
