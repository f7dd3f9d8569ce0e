"""Commands with access: requests refused without a question, and that no more opens than was shown."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentToolResult,
    Approve,
    ApproveWith,
    ModelSpec,
    ProposedCall,
    ToolContext,
    ToolError,
    ToolOutcome,
    extract_text,
)
from swink_agent.approvals import Approvals
from swink_agent.core.approval import ApprovalMode, Grant
from swink_agent.sandbox import (
    Sandbox,
    SandboxProfile,
    SandboxUnavailable,
    open_sandbox,
    open_unconfined,
)
from swink_agent.sandbox.names import PROTECTED_NAMES
from swink_agent.sandbox.open import backend_names
from swink_agent.testing import call, scripted, text
from swink_agent.tools import BashTool, CheckpointStore, standard_tools
from swink_agent.tools.access import Access, CommandAccess

MODEL = ModelSpec("test", "model")
PROGRAMS = Path(sys.executable).resolve().parent


class Places:
    """A home folder, a folder to work in and one beside it, not in /tmp, of which commands have one of their own."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.home, self.work, self.outside, self.other = (base / name for name in ("home", "work", "outside", "other"))
        for folder in (self.home, self.work, self.outside, self.other):
            folder.mkdir()
        for name in (".aws", ".ssh/inner", ".config/swink-agent", ".local/share/swink-agent", ".config/autostart"):
            (self.home / name).mkdir(parents=True)
        (self.home / ".aws/credentials").write_text("a credential")
        (self.outside / "file").write_text("as it was")


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Iterator[Places]:
    with tempfile.TemporaryDirectory(prefix="swink-test-", dir="/var/tmp") as made:
        found = Places(Path(made).resolve())
        monkeypatch.setenv("HOME", str(found.home))
        for name in ("SWINK_CONFIG_DIR", "SWINK_DATA_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
            monkeypatch.delenv(name, raising=False)
        yield found


@pytest.fixture
def linked(places: Places, monkeypatch: pytest.MonkeyPatch) -> Places:
    """The same with links to what cannot be asked for."""
    (places.work / "sub").mkdir()
    (places.home / ".config/swink-agent/deeper").mkdir()
    (places.base / "moved").mkdir()
    monkeypatch.setenv("SWINK_DATA_DIR", str(places.base / "moved"))
    for name, target in (
        ("to-home", places.home),
        ("to-sub", places.work / "sub"),
        ("to-own", places.home / ".config/swink-agent"),
        ("to-moved-own", places.base / "moved"),
    ):
        (places.base / name).symlink_to(target)
    return places


@pytest.fixture
def checked(places: Places) -> BashTool:
    """A tool whose sandbox is never opened: its arguments are checked before."""

    def fail(profile: SandboxProfile) -> Sandbox:
        raise AssertionError("opened")

    return BashTool(places.work, SandboxProfile(write=(str(places.work),)), open_sandbox=fail)


@pytest.fixture(params=backend_names())
def shell(request: pytest.FixtureRequest, places: Places) -> Iterator[BashTool]:
    try:
        sandbox = open_sandbox(SandboxProfile(write=(str(places.work),)), backend=request.param)
    except SandboxUnavailable as error:
        pytest.skip(f"{request.param} does not work here: {error}")
    tool = BashTool(places.work, sandbox)
    yield tool
    tool.close()
    sandbox.close()


@pytest.fixture
def usual(places: Places) -> Iterator[BashTool]:
    """A tool with the back end that is the first to work here."""
    tool = BashTool(places.work, SandboxProfile(write=(str(places.work),)))
    try:
        tool.approval_scope({"command": "true"})
    except ToolError as error:
        pytest.skip(str(error))
    yield tool
    tool.close()


def granted(tool: BashTool, arguments: dict[str, Any]) -> ToolContext:
    """The context of a call that was approved as it is."""
    return ToolContext(grant=Grant("bash", arguments, tool.approval_scope(arguments)))


async def run(tool: BashTool, command: str, access: Any) -> AgentToolResult:
    arguments = {"command": command, "access": access}
    return await tool.execute(arguments, granted(tool, arguments))


def said(result: AgentToolResult) -> str:
    return extract_text(result.content)


# -- refused before anybody is asked -------------------------------------------------------------------------


@pytest.mark.table
@pytest.mark.parametrize(
    ("access", "problem"),
    [
        (None, "access is an object"),
        ("example.org", "access is an object"),
        ([], "access is an object"),
        (["example.org"], "access is an object"),
        (True, "access is an object"),
        ({}, "access is an object"),
        ({"net": ["example.org"]}, "access has network, write, read and sandbox, and not net"),
        ({"network": ["a.org"], "\x1b[2J": 1}, "and not \\u{1b}[2J"),
        ({"network": []}, "network is a list of hosts"),
        ({"network": False}, "network is a list of hosts"),
        ({"network": None}, "network is a list of hosts"),
        ({"network": 1}, "network is a list of hosts"),
        ({"network": "example.org"}, "network is a list of hosts"),
        ({"network": ["a.org", 1]}, "network is a list of hosts"),
        ({"network": ["https://example.org"]}, "is not a host that can be allowed"),
        ({"network": ["example.org/path"]}, "is not a host that can be allowed"),
        ({"network": ["user@example.org"]}, "is not a host that can be allowed"),
        ({"network": ["*.org"]}, "at least two labels"),
        ({"network": ["a*.org"]}, "is not a host that can be allowed"),
        ({"network": ["a.org:0"]}, "is not a host that can be allowed"),
        ({"network": ["a b.org"]}, "is not a host that can be allowed"),
        ({"network": [""]}, "is not a host that can be allowed"),
        ({"network": ["\ud800.org"]}, "access"),
        ({"network": [f"h{n}.org" for n in range(21)]}, "names 21 at once: ask for at most 20"),
        ({"write": []}, "write is a list of folders"),
        ({"write": "/opt"}, "write is a list of folders"),
        ({"write": {"/opt": 1}}, "write is a list of folders"),
        ({"write": ["/"]}, "the whole machine"),
        ({"write": ["/../"]}, "the whole machine"),
        ({"write": ["//"]}, "the whole machine"),
        ({"read": ["/proc/self/root"]}, "the whole machine"),
        ({"read": ["//proc/self/root{home}/.config/swink-agent"]}, "has files of this program"),
        ({"read": ["/"]}, "the whole machine"),
        ({"write": ["~"]}, "holds the whole home folder"),
        ({"write": ["{home}/.."]}, "holds the whole home folder"),
        ({"read": ["{base}/to-home"]}, "holds the whole home folder"),
        ({"write": ["."]}, "can be used by every command"),
        ({"write": ["sub"]}, "can be used by every command"),
        ({"write": ["{base}/to-sub"]}, "can be used by every command"),
        ({"read": ["{work}/sub"]}, "can be used by every command"),
        ({"write": ["{base}/missing"]}, "is not a folder that exists"),
        ({"write": ["{outside}/file"]}, "is not a folder that exists"),
        ({"write": ["a\0b"]}, "is not a path"),
        ({"write": [""]}, "is not a path"),
        ({"write": ["/proc"]}, "is the kernel's"),
        ({"read": ["/sys/kernel"]}, "is the kernel's"),
        ({"read": ["~/.config/swink-agent"]}, "has files of this program"),
        ({"write": ["~/.local/share/swink-agent"]}, "has files of this program"),
        ({"read": ["~/.config"]}, "has files of this program"),
        ({"write": ["{base}/to-own"]}, "has files of this program"),
        ({"read": ["{base}/to-own/deeper"]}, "has files of this program"),
        ({"read": ["{base}/to-moved-own"]}, "has files of this program"),
        ({"write": ["~/.aws"]}, "is hidden from commands"),
        ({"write": ["~/.ssh/inner"]}, "is hidden from commands"),
        ({"write": ["~/.config/autostart"]}, "runs at login"),
        ({"read": ["~/.ssh/inner"]}, "hidden as a whole"),
        ({"read": ["{outside}"]}, "can be read by every command"),
        ({"write": ["{outside}"] * 21}, "names 21 at once"),
    ],
)
def test_these_accesses_need_no_question(linked: Places, checked: BashTool, access: Any, problem: str) -> None:
    places = linked
    with pytest.raises(ToolError) as raised:
        checked.approval_scope({"command": "true", "access": _filled(access, places)})
    assert problem in str(raised.value)


def _filled(access: Any, places: Places) -> Any:
    if not isinstance(access, dict):
        return access
    names = {"home": places.home, "base": places.base, "work": places.work, "outside": places.outside}
    return {
        key: [item.format(**names) if isinstance(item, str) else item for item in value]
        if isinstance(value, list)
        else value
        for key, value in access.items()
    }


@pytest.mark.table
@pytest.mark.parametrize(
    "folder",
    [
        *(
            "other/.git/hooks",
            "other/.git/objects",
            "other/.git/modules/sub/hooks",
            "other/.vscode",
            "other/sub/.idea/x",
        ),
        *("other/scripts", "bare/hooks", "other/deploy"),
        *("home/.vim/plugin", "home/.oh-my-zsh/custom", "home/.nvm", "home/.config/i3", "tools/bin"),
    ],
)
@pytest.mark.sweep
def test_read_only_paths_of_a_folder_cannot_be_asked_for_by_themselves(places: Places, folder: str) -> None:
    for name in (folder, "other/.git/modules/sub", "other/.husky", "other/scripts/more", "bare/objects", "bare/refs"):
        (places.base / name).mkdir(parents=True, exist_ok=True)
    (places.base / "bare/HEAD").write_text("ref: refs/heads/main\n")
    config = "[core]\n\thooksPath = .husky\n[include]\n\tpath = ../scripts/more/config\n"
    (places.other / ".git/config").write_text(config)
    profile = SandboxProfile(
        write=(str(places.work),),
        protected=(*PROTECTED_NAMES, "deploy"),
        environment={"PATH": f"/usr/bin:{places.base}/tools/bin:relative"},
    )
    tool = BashTool(places.work, profile, open_sandbox=lambda _: open_unconfined(profile))
    arguments = {"command": "true", "access": {"write": [str(places.base / folder)]}}
    with pytest.raises(ToolError, match=r"read-only for commands|runs at login"):
        tool.approval_scope(arguments)
    for around in ("other", "other/.git", "other/.husky", "home/work", "bare", "other/src"):
        (places.base / around).mkdir(parents=True, exist_ok=True)
        assert tool.approval_scope({**arguments, "access": {"write": [str(places.base / around)]}})["access"]


async def test_trust_in_a_folder_does_not_open_the_hooks_in_it(places: Places, usual: BashTool) -> None:
    (places.other / ".git/hooks").mkdir(parents=True)
    script = scripted(
        call("bash", command="true", access={"write": [str(places.other)]}),
        call("bash", command=f"touch {places.other}/fine", access={"write": [str(places.other)]}),
        call("bash", command=f"touch {places.other}/.git/hooks/x", access={"write": [f"{places.other}/.git/hooks"]}),
        text("done"),
    )
    approve = Approvals(lambda question: "session_access", mode="auto")
    await Agent(MODEL, tools=[usual], approve=approve, stream_fn=script).prompt("go")
    assert (places.other / "fine").exists()
    assert list((places.other / ".git/hooks").iterdir()) == []


def test_paths_hidden_by_the_application_stay_closed(places: Places) -> None:
    """Sessions, checkpoints and whatever else an application puts among the hidden paths."""
    hidden = (*SandboxProfile().hidden, str(places.other))
    tool = BashTool(places.work, SandboxProfile(write=(str(places.work),), hidden=hidden))
    for kind in ("read", "write"):
        with pytest.raises(ToolError, match="has files of this program or files that it hides"):
            tool.approval_scope({"command": "true", "access": {kind: [str(places.other)]}})


def test_without_a_sandbox_there_is_nothing_to_ask_for(places: Places) -> None:
    tool = BashTool(places.work, "off")
    assert "access" not in tool.parameters_schema["properties"]
    with pytest.raises(ToolError, match="without a sandbox"):
        tool.approval_scope({"command": "true", "access": {"network": ["example.org"]}})


def test_access_that_every_command_has_is_not_asked_for(places: Places) -> None:
    write = (str(places.work), str(places.other))
    tool = BashTool(places.work, SandboxProfile(write=write, hosts=("*.example.org",)))
    for access in ({"network": ["a.example.org"]}, {"write": [str(places.other)]}):
        with pytest.raises(ToolError, match="every command here"):
            tool.approval_scope({"command": "true", "access": access})
    open_tool = BashTool(places.work, SandboxProfile(write=write, network=True))
    for network in (True, ["a.org"]):
        with pytest.raises(ToolError, match="whole network here"):
            open_tool.approval_scope({"command": "true", "access": {"network": network}})


@pytest.mark.parametrize("reason", ["x" * 501, 5, None, ["because"]])
def test_a_reason_is_a_short_text(checked: BashTool, reason: Any) -> None:
    with pytest.raises(ToolError, match="reason"):
        checked.approval_scope({"command": "true", "access": {"network": ["a.org"]}, "reason": reason})


async def test_a_refused_request_is_an_error_result_and_nobody_is_asked(usual: BashTool) -> None:
    asked: list[ProposedCall] = []

    def approve(request: ProposedCall) -> Approve:
        asked.append(request)
        return Approve()

    script = scripted(call("bash", command="true", access={"network": ["http://a.org"]}), text("ok"))
    agent = Agent(MODEL, stream_fn=script, tools=[usual], approve=approve)
    result = await agent.prompt("go")
    (outcome,) = [message for message in result.messages if message.role == "tool_result"]
    assert outcome.is_error
    assert outcome.outcome == ToolOutcome.FAILED
    assert asked == []


# -- what opens ----------------------------------------------------------------------------------------------


def test_the_scope_has_the_normal_form_and_both_fingerprints(places: Places, usual: BashTool) -> None:
    (places.base / "link").symlink_to(places.outside)
    access = {"network": ["EXAMPLE.org.", "example.ORG", "*.PyPI.org:8443"], "write": ["../link", str(places.outside)]}
    plain = usual.approval_scope({"command": "true"})
    assert set(plain) == {"folder", "sandbox", "backend", "reads_only"}
    scope = usual.approval_scope({"command": "true", "access": access})
    assert scope["access"] == {"network": ["example.org", "*.pypi.org:8443"], "write": [str(places.outside)]}
    assert scope["walls"] == plain["sandbox"]
    assert scope["sandbox"] != plain["sandbox"]
    assert (scope["folder"], scope["backend"]) == (plain["folder"], plain["backend"])
    assert usual.approval_scope({"command": "true", "access": access}) == scope


def test_asking_opens_nothing(places: Places, usual: BashTool) -> None:
    before = os.stat(places.outside).st_mtime_ns
    usual.approval_scope({"command": "true", "access": {"write": [str(places.outside)]}})
    assert os.stat(places.outside).st_mtime_ns == before


async def test_a_folder_to_write_is_written_and_no_other(places: Places, shell: BashTool) -> None:
    access = {"write": [str(places.outside)]}
    result = await run(shell, f"echo new > {places.outside}/made; echo x > {places.other}/made", access)
    assert (places.outside / "made").read_text() == "new\n"
    assert not (places.other / "made").exists()
    assert f'access={{"write": ["{places.outside}", "{places.other}"]}}' in said(result)
    result = await shell.execute({"command": f"echo x > {places.outside}/more"}, ToolContext())
    assert result.is_error
    assert sorted(os.listdir(places.outside)) == ["file", "made"]


async def test_a_folder_that_was_made_anew_is_written_too(places: Places, shell: BashTool) -> None:
    for name in ("first", "second"):
        result = await run(shell, f"touch {places.other}/{name}", {"write": [str(places.other)]})
        assert not result.is_error, said(result)
        assert (places.other / name).exists()
        shutil.rmtree(places.other)
        places.other.mkdir()


async def test_a_hidden_folder_that_is_named_can_be_read_by_that_command(places: Places, shell: BashTool) -> None:
    file = places.home / ".aws/credentials"
    assert "a credential" not in said(await shell.execute({"command": f"cat {file}"}, ToolContext()))
    assert said(await run(shell, f"cat {file}", {"read": ["~/.aws"]})) == "a credential"
    assert "a credential" not in said(await shell.execute({"command": f"cat {file}"}, ToolContext()))


@asynccontextmanager
async def serving() -> AsyncGenerator[Callable[[str, int], Any]]:
    """Connects to a server of the test, whatever the address."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n")
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    async with listening:
        yield lambda address, wanted: asyncio.open_connection("127.0.0.1", port)


async def _public(host: str, port: int) -> list[str]:
    return ["93.184.215.14"]


@pytest.mark.parametrize("backend", backend_names())
async def test_hosts_that_were_asked_for_are_reached_and_told_and_no_other(
    backend: str, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A command with hosts reads the programs that PATH names, and no others.
    monkeypatch.setenv("PATH", f"{PROGRAMS}:{os.environ['PATH']}")
    async with serving() as connect:
        await _reach(backend, places, connect)


async def _reach(backend: str, places: Places, connect: Callable[[str, int], Any]) -> None:
    profile = SandboxProfile(write=(str(places.work),))
    try:
        base = open_sandbox(profile, backend=backend, resolve=_public, connect=connect)
    except SandboxUnavailable as error:
        pytest.skip(f"{backend} does not work here: {error}")
    tool = BashTool(places.work, base)
    fetch = "import sys, urllib.request as r\nfor h in sys.argv[1:]: print(r.urlopen(h).read().decode())"
    (places.work / "fetch.py").write_text(fetch)
    try:
        result = await run(tool, "python3 fetch.py http://Example.org/ 2>&1", {"network": ["example.org"]})
        if "not run" in said(result):
            pytest.skip(said(result))
        assert said(result) == "hello\n\n[network: reached example.org:80]", said(result)
        assert result.details["reached"] == [["example.org", 80, True]]
        result = await run(tool, "python3 fetch.py http://evil.org/ 2>/dev/null", {"network": ["example.org"]})
        what = "evil.org:80 is not among the hosts that may be reached"
        ask = 'access={"network": ["example.org", "evil.org"]} and a reason'
        assert said(result) == f"[exit code 1]\n[sandbox: {what}; to ask for it: {ask}]"
        assert result.details["reached"] == [["evil.org", 80, False]]
        assert result.details["limits"] == [{"kind": "network", "host": "evil.org"}]
        plain = await tool.execute({"command": "python3 fetch.py http://example.org/"}, ToolContext())
        assert plain.is_error
        assert "reached" not in plain.details
    finally:
        tool.close()
        base.close()


# -- bound to what was shown ---------------------------------------------------------------------------------


async def test_access_is_not_given_without_an_approval(places: Places, usual: BashTool) -> None:
    arguments = {"command": f"echo x > {places.outside}/file", "access": {"write": [str(places.outside)]}}
    result = await usual.execute(arguments, ToolContext())
    assert said(result) == "the command was not run: its access was not approved; leave access out"
    agent = Agent(
        MODEL,
        stream_fn=scripted(call("bash", **arguments), text("ok")),
        tools=[usual],
        approval_mode=ApprovalMode.BYPASSED,
    )
    await agent.prompt("go")
    assert (places.outside / "file").read_text() == "as it was"


async def test_a_link_that_leads_elsewhere_after_the_answer_does_not_widen_it(places: Places, usual: BashTool) -> None:
    link = places.base / "link"
    link.symlink_to(places.outside)
    arguments = {"command": f"echo x > {places.other}/made", "access": {"write": [str(link)]}}
    context = granted(usual, arguments)
    link.unlink()
    link.symlink_to(places.other)
    result = await usual.execute(arguments, context)
    assert "is not what was approved" in said(result)
    assert os.listdir(places.other) == []


async def test_a_folder_that_becomes_a_link_after_its_sandbox_was_opened_is_refused(
    places: Places, usual: BashTool
) -> None:
    access = {"write": [str(places.outside)]}
    arguments = {"command": f"echo x > {places.outside}/made", "access": access}
    context = granted(usual, arguments)
    assert not (await usual.execute(arguments, context)).is_error
    (places.outside).rename(places.base / "moved")
    (places.outside).symlink_to(places.other)
    assert "is not what was approved" in said(await usual.execute(arguments, context))
    assert os.listdir(places.other) == []


async def test_no_other_access_runs_with_what_was_approved(places: Places, usual: BashTool) -> None:
    approved = {"command": f"echo x > {places.other}/made", "access": {"write": [str(places.outside)]}}
    context = granted(usual, approved)
    plain = {"command": approved["command"]}
    for arguments in (
        {**plain, "access": {"write": [str(places.other)]}},
        {**plain, "access": {"write": [str(places.outside), str(places.other)]}},
        {**plain, "access": {"network": True}},
        plain,
    ):
        assert "is not what was approved" in said(await usual.execute(arguments, context))
    for arguments, scope in ((approved, usual.approval_scope(plain)), (approved, {})):
        grant = ToolContext(grant=Grant("bash", arguments, scope))
        assert "is not what was approved" in said(await usual.execute(arguments, grant))
    assert os.listdir(places.other) == []


@pytest.mark.parametrize("is_added", [False, True])
async def test_an_answer_cannot_change_the_access(places: Places, usual: BashTool, is_added: bool) -> None:
    before = {} if is_added else {"access": {"write": [str(places.outside)]}}
    command = f"echo x > {places.other}/made"

    def widen(request: ProposedCall) -> ApproveWith:
        return ApproveWith({"command": command, "access": {"write": [str(places.other)]}})

    script = scripted(call("bash", command=command, **before), text("ok"))
    result = await Agent(MODEL, stream_fn=script, tools=[usual], approve=widen).prompt("go")
    (outcome,) = [message for message in result.messages if message.role == "tool_result"]
    assert outcome.outcome == ToolOutcome.REJECTED
    assert "the answer changed the access that was asked about" in extract_text(outcome.content)
    assert os.listdir(places.other) == []


async def test_a_whole_run_asks_once_for_the_session(places: Places, usual: BashTool) -> None:
    asked: list[Any] = []

    def ask(question: Any) -> str:
        asked.append((question.access, question.reason, question.choices))
        return "session_access"

    access = {"write": [str(places.outside)]}
    script = scripted(
        call("bash", command=f"echo 1 >> {places.outside}/a", access=access, reason="to install"),
        call("bash", command=f"echo 2 >> {places.outside}/a", access=access),
        text("ok"),
    )
    await Agent(MODEL, stream_fn=script, tools=[usual], approve=Approvals(ask, mode="all")).prompt("go")
    assert asked == [(access, "to install", ("once", "session_access", "no"))]
    assert (places.outside / "a").read_text() == "1\n2\n"


async def test_unattended_it_is_rejected(places: Places, usual: BashTool) -> None:
    script = scripted(call("bash", command="true", access={"write": [str(places.outside)]}), text("ok"))
    result = await Agent(MODEL, stream_fn=script, tools=[usual], approve=Approvals(mode="all")).prompt("go")
    (outcome,) = [message for message in result.messages if message.role == "tool_result"]
    assert outcome.outcome == ToolOutcome.REJECTED
    assert "no one can answer a question here" in extract_text(outcome.content)


# -- the sandboxes -------------------------------------------------------------------------------------------


class CountedSandbox(Sandbox):
    """A sandbox that starts nothing and knows whether it is open."""

    backend = "landlock"

    def __init__(self, profile: SandboxProfile, opened: list[CountedSandbox]) -> None:
        super().__init__(profile)
        self.is_open = True
        opened.append(self)

    async def spawn(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        self.is_open = False


@pytest.fixture
def counted(places: Places) -> tuple[CommandAccess, CountedSandbox, list[CountedSandbox]]:
    opened: list[CountedSandbox] = []
    profile = SandboxProfile(write=(str(places.work),))
    base = CountedSandbox(profile, [])
    opener: Callable[[SandboxProfile], Sandbox] = lambda wider: CountedSandbox(wider, opened)  # noqa: E731
    return CommandAccess(str(places.work), profile, is_confined=True, open_sandbox=opener), base, opened


def test_a_sandbox_is_opened_once_for_each_access_and_at_most_eight_are_kept(
    counted: tuple[CommandAccess, CountedSandbox, list[CountedSandbox]],
) -> None:
    access, base, opened = counted
    wanted = [Access(hosts=(f"h{number}.org",)) for number in range(10)]
    for one in wanted[:8]:
        access.hold(one, base).release()
    held = access.hold(wanted[0], base)
    assert len(opened) == 8
    access.hold(wanted[8], base).release()  # the oldest that is not used goes
    assert [sandbox.is_open for sandbox in opened] == [True, False, *[True] * 7]
    assert held.sandbox is opened[0]
    holds = [access.hold(one, base) for one in wanted[2:9]]
    with pytest.raises(Exception, match="8 different kinds of access run at once"):
        access.hold(wanted[9], base)
    holds.pop().release()
    access.hold(wanted[9], base)
    access.close()
    assert not any(sandbox.is_open for sandbox in opened)
    with pytest.raises(Exception, match="the tool was closed"):
        access.hold(wanted[0], base)
    assert not any(sandbox.is_open for sandbox in opened)


def test_another_back_end_than_the_usual_one_is_not_used(
    counted: tuple[CommandAccess, CountedSandbox, list[CountedSandbox]],
) -> None:
    access, base, opened = counted
    base.backend = "bubblewrap"
    with pytest.raises(Exception, match="a sandbox of bubblewrap is needed"):
        access.hold(Access(hosts=("a.org",)), base)
    assert [sandbox.is_open for sandbox in opened] == [False]


# -- taking it back ------------------------------------------------------------------------------------------


async def test_files_written_outside_can_be_restored(places: Places) -> None:
    store = CheckpointStore(places.base / "checkpoints")
    profile = SandboxProfile(write=(str(places.work),), hidden=(*SandboxProfile().hidden, str(store.folder)))
    shell = next(tool for tool in standard_tools(places.work, profile, checkpoints=store) if tool.name == "bash")
    assert isinstance(shell, BashTool)
    try:
        shell.approval_scope({"command": "true"})
    except ToolError as error:
        pytest.skip(str(error))
    result = await run(shell, f"echo changed > {places.outside}/file", {"write": [str(places.outside)]})
    assert not result.is_error, said(result)
    with pytest.raises(ToolError, match="or files that it hides"):
        shell.approval_scope({"command": "true", "access": {"read": [str(store.folder)]}})
    shell.close()
    taken = store.checkpoints(places.outside)
    plan = store.plan(places.outside, taken[-1])
    store.rewind(places.outside, plan)
    assert (places.outside / "file").read_text() == "as it was"


async def test_a_background_command_has_its_access_until_it_ends(places: Places, usual: BashTool) -> None:
    arguments = {
        "command": f"echo up > {places.outside}/up; echo done; sleep 600",
        "background": True,
        "access": {"write": [str(places.outside)]},
    }
    result = await usual.execute(arguments, granted(usual, arguments))
    assert not result.is_error, said(result)
    (task,) = usual.tasks.running
    async with asyncio.timeout(30):
        while task.last_line != "done":  # noqa: ASYNC110 - nothing else tells
            await asyncio.sleep(0.01)
    task.stop()
    assert await asyncio.to_thread(task.over.wait, 30)
    assert (places.outside / "up").read_text() == "up\n"
    refused = await usual.execute(arguments, ToolContext())
    assert "its access was not approved" in said(refused)
    assert not usual.tasks.running


@pytest.mark.parametrize("kind", ["write", "read"])
def test_a_folder_that_is_a_link_when_the_profile_is_made_opens_nothing(places: Places, kind: str) -> None:
    """It was none when the request was made normal."""
    profile = SandboxProfile(write=(str(places.work),))
    access = CommandAccess(str(places.work), profile, is_confined=True, open_sandbox=None)
    link = places.base / "link"
    link.symlink_to(places.home / ".aws" if kind == "read" else places.other)
    with pytest.raises(ToolError, match="became a link meanwhile"):
        access.profile(Access(**{kind: (str(link),)}))


# -- without a sandbox -----------------------------------------------------------------------------------------

LEAVING = {"access": {"sandbox": False}, "reason": "to see it"}


async def test_a_command_without_the_sandbox_runs_with_a_grant_alone_and_says_so(
    places: Places, usual: BashTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent.sock")
    arguments = {"command": f"echo $SSH_AUTH_SOCK > {places.outside}/made; cat {places.outside}/made", **LEAVING}
    refused = await usual.execute(arguments, ToolContext())
    assert "its access was not approved" in said(refused)
    assert not (places.outside / "made").exists()
    result = await usual.execute(arguments, granted(usual, arguments))
    assert said(result) == "/run/agent.sock\n[it ran without the sandbox]"
    assert result.details["sandbox"] == "off"
    plain = {"command": "echo $SSH_AUTH_SOCK"}
    assert said(await usual.execute(plain, granted(usual, plain))) == "\n"


def test_the_scope_of_a_command_without_the_sandbox_names_both(usual: BashTool) -> None:
    plain, scope = usual.approval_scope({"command": "true"}), usual.approval_scope({"command": "true", **LEAVING})
    assert scope["access"] == {"sandbox": False}
    assert scope["walls"] == plain["sandbox"] != scope["sandbox"]
    assert "reads_only" not in scope


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"access": {"sandbox": False}}, "needs a reason"),
        ({"access": {"sandbox": False}, "reason": "  "}, "needs a reason"),
        ({"access": {"sandbox": True}, "reason": "x"}, "alone"),
        ({"access": {"sandbox": 0}, "reason": "x"}, "alone"),
        ({"access": {"sandbox": False, "network": ["example.org"]}, "reason": "x"}, "alone"),
    ],
)
def test_a_wrong_way_to_leave_the_sandbox_is_refused_before_a_question(
    usual: BashTool, arguments: dict[str, Any], why: str
) -> None:
    with pytest.raises(ToolError, match=why):
        usual.approval_scope({"command": "true", **arguments})


def test_without_a_sandbox_there_is_none_to_leave(places: Places) -> None:
    tool = BashTool(places.work, "off")
    with pytest.raises(ToolError, match="commands run without a sandbox here"):
        tool.approval_scope({"command": "true", **LEAVING})
    tool.close()


@pytest.mark.parametrize(
    "message",
    [
        "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
        "error: gpg failed to sign the data",
        "Could not open a connection to your authentication agent.",
        "Failed to connect to bus: No such file or directory",
        "avrdude: can't open device /dev/ttyUSB0: No such file or directory",
    ],
)
async def test_a_command_that_lacks_a_socket_or_a_device_is_told_that_it_may_ask(usual: BashTool, message: str) -> None:
    arguments = {"command": f'echo "{message}" >&2; exit 1', "write": True}
    result = await usual.execute(arguments, granted(usual, arguments))
    assert 'to ask for it: access={"sandbox": false} and a reason]' in said(result)
    arguments = {"command": f'echo "{message}"', "write": True}
    assert "sandbox" not in said(await usual.execute(arguments, granted(usual, arguments)))


# -- names that programs run by themselves -----------------------------------------------------------------------


async def test_a_protected_name_that_was_asked_for_is_written_and_stays_and_no_other(
    places: Places, shell: BashTool
) -> None:
    await asyncio.to_thread(subprocess.run, ["git", "init", "-q", str(places.work)], check=True)
    (places.work / ".idea").mkdir()
    (places.work / ".git/hooks").mkdir(exist_ok=True)
    make = "mkdir -p .vscode && echo 1 > .vscode/tasks.json; echo 1 > .idea/x; echo '#!/bin/sh' > .git/hooks/pre-commit"
    asked = {"write": [".vscode/tasks.json", ".git/hooks"]}
    scope = shell.approval_scope({"command": make, "access": asked})
    assert scope["access"] == {"write": [f"{places.work}/.vscode", f"{places.work}/.git/hooks"]}
    result = await run(shell, f"{make}; chmod +x .git/hooks/pre-commit; true", asked)
    assert (places.work / ".vscode/tasks.json").read_text() == "1\n", said(result)
    assert (places.work / ".git/hooks/pre-commit").exists(), said(result)
    assert list((places.work / ".idea").iterdir()) == []
    assert "left_behind" not in result.details
    result = await shell.execute({"command": "echo 2 > .vscode/tasks.json"}, ToolContext())
    assert (places.work / ".vscode/tasks.json").read_text() == "1\n", said(result)


@pytest.mark.parametrize("name", [".swink", ".swink/config.toml", "sub/.swink"])
def test_settings_of_this_program_are_refused_before_a_question(places: Places, usual: BashTool, name: str) -> None:
    with pytest.raises(ToolError, match="settings of this program"):
        usual.approval_scope({"command": "true", "access": {"write": [name]}})


@pytest.mark.parametrize("name", ["src", ".claude", ".envrc", ".git/objects"])
def test_folders_that_commands_can_write_anyway_are_not_asked_for(places: Places, usual: BashTool, name: str) -> None:
    (places.work / name).mkdir(parents=True)
    with pytest.raises(ToolError, match="every command here"):
        usual.approval_scope({"command": "true", "access": {"write": [name]}})
