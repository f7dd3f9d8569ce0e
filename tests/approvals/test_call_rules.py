"""Rules on calls as a person writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from swink_agent import Agent, ModelSpec, ProposedCall, ToolExecutionEnd, extract_text
from swink_agent.approvals import Approvals, CallRules
from swink_agent.testing import call, collect, scripted, text
from swink_agent.tools import standard_tools

MODEL = ModelSpec("test", "model")


async def results(root: Path, rules: CallRules, *calls: Any, mode: Any = "smart") -> list[str]:
    """The result of each call if there is no person to ask."""
    agent = Agent(
        MODEL,
        stream_fn=scripted(*calls, text("done")),
        tools=standard_tools(root, "off"),
        approve=Approvals(calls=rules, mode=mode),
        policies=[rules],
    )
    events = await collect(agent.prompt_stream("go"))
    return [extract_text(event.result.content) for event in events if isinstance(event, ToolExecutionEnd)]


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


async def test_files_that_a_rule_names_are_written_unasked_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "src" / "out").symlink_to(tmp_path / "docs", target_is_directory=True)
    paths = ["src/a.py", "src/deep/b.py", "./src/../src/c.py", str(tmp_path / "src" / "d.py"), "e.py"]
    paths += ["src/out/f.py", "docs/g.md", "docs/deep/h.md", "src.py"]
    rules = CallRules(tmp_path, allow=["write_file: src/**", "write_file: docs/*.md"])
    for path in paths:
        await results(tmp_path, rules, call("write_file", path=path, content="x"))
    assert files_in(tmp_path) == ["docs/g.md", "src/a.py", "src/c.py", "src/d.py", "src/deep/b.py"]


async def test_a_tool_alone_is_allowed_whatever_it_does(tmp_path: Path) -> None:
    rules = CallRules(tmp_path, allow=["write_file", "bash: touch *"])
    await results(tmp_path, rules, call("write_file", path="a/b.txt", content="x"), call("bash", command="touch c d"))
    assert (tmp_path / "a" / "b.txt").exists()
    assert (tmp_path / "d").exists()
    (refused,) = await results(tmp_path, rules, call("bash", command="touch e; rm d"))
    assert "no one can answer" in refused
    assert (tmp_path / "d").exists()


@pytest.mark.parametrize("mode", ["smart", "all"])
async def test_denied_calls_run_in_no_mode_and_with_no_person(tmp_path: Path, mode: str) -> None:
    (tmp_path / ".env").write_text("secret")
    (tmp_path / "link").symlink_to(".env")
    (tmp_path / "b.txt").write_text("fine")
    rules = CallRules(tmp_path, allow=["bash"], deny=["read_file: .env*", "bash: rm", "write_file"])
    denied = [
        call("read_file", path=".env"),
        call("read_file", path="sub/../.ENV.local"),
        call("read_file", path=str(tmp_path / "link")),
        call("bash", command="true && rm b.txt"),
        call("bash", command="xargs rm"),
        call("write_file", path="new.txt", content="x"),
    ]
    texts = await results(tmp_path, rules, *denied, mode=mode)
    assert len(texts) == len(denied)
    assert all("denies it" in said for said in texts), texts
    assert files_in(tmp_path) == [".env", "b.txt", "link"]
    (read,) = await results(tmp_path, rules, call("read_file", path="b.txt"), mode=mode)
    assert "fine" in read
    assert rules.denied_tools == {"write_file"}


@pytest.mark.table
@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ("", "names no tool"),
        ("pytest *", "names no tool"),
        ("hammer: nails", r"names no tool \(there are bash, read_file\)"),
        ("bash:", "has no pattern after its colon"),
        ("bash: pytest; id", "the operator ;"),
        ("bash: *", "the program is not named"),
        ("bash: A=b x", "the assignment"),
        ("read_file: ../x", r"has \.\. in its path"),
        ("mcp__*", r"names no tool of an MCP server: mcp__SERVER__TOOL, or mcp__SERVER__\*"),
        ("mcp__git__l*", "names no tool of an MCP server"),
        ("mcp__*__log", "names no tool of an MCP server"),
        ("mcp__git__log__*", "names no tool of an MCP server"),
        ("mcp__fs__read: src/**", "has a pattern, but the meaning of an MCP tool's arguments is not known"),
        ("mcp__fs__*: src/**", "has a pattern"),
        ("read_*", "names no tool"),
    ],
)
def test_a_rule_that_says_nothing_is_refused_with_the_grammar(rule: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        CallRules("/", tools=["bash", "read_file"], allow=[rule])
    if "=" not in rule:  # what cannot be allowed can be denied
        with pytest.raises(ValueError, match="rule"):
            CallRules("/", tools=["bash", "read_file"], deny=[rule])


def test_a_star_behind_the_name_of_an_mcp_server_is_all_of_its_tools(tmp_path: Path) -> None:
    rules = CallRules(tmp_path, tools=["bash"], allow=["mcp__git__*"], deny=["mcp__web__*", "mcp__git__push"])
    verdicts = {
        name: decision and decision.verdict
        for name in ("mcp__git__log", "mcp__git__push", "mcp__web__get", "mcp__git2__log", "mcp__web", "bash")
        for decision in [rules.decide(ProposedCall("1", name, {}))]
    }
    assert verdicts == {
        "mcp__git__log": "allow",
        "mcp__git__push": "deny",
        "mcp__web__get": "deny",
        "mcp__git2__log": None,
        "mcp__web": None,
        "bash": None,
    }
    denied = [name for name in ("mcp__git__log", "mcp__git__push", "mcp__web__get", "bash") if rules.denies_tool(name)]
    assert denied == ["mcp__git__push", "mcp__web__get"]


def test_a_server_with_a_similar_name_is_not_allowed_with_another(tmp_path: Path) -> None:
    rules = CallRules(tmp_path, allow=["mcp__git__*"])
    name = "mcp__git___push"  # of the server git, or of the server git_
    assert rules.decide(ProposedCall("1", name, {}, {"server": "git_", "tool": "push", "definition": "1234"})) is None
    decision = rules.decide(ProposedCall("1", name, {}, {"server": "git", "tool": "_push", "definition": "1234"}))
    assert decision is not None
    assert decision.verdict == "allow"


@pytest.mark.parametrize("name", ["write_file", "bash", "web_fetch", "query"])
def test_a_rule_for_another_tool_does_not_allow_a_servers_tool_of_that_name(name: str) -> None:
    call = ProposedCall("1", name, {}, scope={"server": "far", "tool": name, "definition": "1234"})
    own = ProposedCall("1", name, {}, scope={"folder": "/", "server": "db1"})
    assert CallRules("/", allow=[name]).decide(call) is None
    assert CallRules("/", allow=[f"mcp__other__{name}", "mcp__other__*"]).decide(call) is None
    for rules, request in (
        (CallRules("/", allow=[name]), own),
        (CallRules("/", allow=[f"mcp__far__{name}"]), call),
        (CallRules("/", allow=["mcp__far__*"]), call),
    ):
        decision = rules.decide(request)
        assert decision is not None
        assert decision.verdict == "allow"
    denied = CallRules("/", allow=["mcp__far__*"], deny=[name]).decide(call)
    assert denied is not None
    assert denied.verdict == "deny"


def test_a_host_is_not_allowed_to_a_tool_of_an_mcp_server_that_is_called_web_fetch(tmp_path: Path) -> None:
    rules = CallRules(tmp_path, allow=["web_fetch: example.org"], deny=["web_fetch: evil.org"])
    scope = {"server": "far", "tool": "web_fetch", "definition": "1234"}
    assert rules.decide(ProposedCall("1", "web_fetch", {"url": "http://example.org/"}, scope)) is None
    denied = rules.decide(ProposedCall("2", "web_fetch", {"url": "http://evil.org/"}, scope))
    assert denied is not None
    assert denied.verdict == "deny"


def test_a_denied_tool_stays_denied_when_its_server_is_allowed_without_a_prefix() -> None:
    rules = CallRules("/", allow="mcp__git__*", deny="mcp__git__push")
    for name, verdict in [("push", "deny"), ("log", "allow")]:
        decision = rules.decide(ProposedCall("1", name, {}, {"server": "git", "tool": name, "definition": "1234"}))
        assert decision is not None
        assert decision.verdict == verdict


def test_a_tool_named_like_the_full_name_of_another_servers_is_not_allowed() -> None:
    # The server far offers a tool of this name, and its tools have no prefix.
    call = ProposedCall("1", "mcp__git__push", {}, {"server": "far", "tool": "mcp__git__push", "definition": "1234"})
    assert CallRules("/", allow=["mcp__git__push"]).decide(call) is None
    cut = ProposedCall("1", "mcp__git__push_1", {}, {"server": "git", "tool": "push!", "definition": "1234"})
    decision = CallRules("/", allow=["mcp__git__push_1"]).decide(cut)
    assert decision is not None, "the name by which the agent knows it, which is not its true name"
    assert decision.verdict == "allow"


def test_a_call_that_no_rule_is_about_is_left_to_others(tmp_path: Path) -> None:
    rules = CallRules(tmp_path, allow=["write_file: src/**"], deny=["read_file: x"])
    scope = {"folder": str(tmp_path), "path": "other/a.txt"}
    assert rules.decide(ProposedCall("1", "write_file", {"path": "other/a.txt"}, scope)) is None
    assert rules.decide(ProposedCall("1", "edit_file", {"path": "src/a.txt"}, scope)) is None
    assert rules.decide(ProposedCall("1", "write_file", {"path": "src/a.txt"}, {})) is None, "not resolved"
