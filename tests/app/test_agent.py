"""The standard agent: what it can do, what it cannot, and what it never reveals."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from swink_agent import DelegateEvent, MessageEnd, ModelSpec, PreDispatchContext, Skip, ToolExecutionEnd, extract_text
from swink_agent.app.agent.standard import AgentOptions, StandardAgent, standard_agent
from swink_agent.app.errors import ExitCode, NoModel, UsageProblem
from swink_agent.app.keys.credentials import Credentials
from swink_agent.app.runs.headless import HeadlessRun, Outcome
from swink_agent.app.runs.undo import open_checkpoints
from swink_agent.app.settings.settings import load_settings
from swink_agent.app.trust.trust import TrustStore, find_project
from swink_agent.approvals import ApprovalQuestion
from swink_agent.core.waits import WorkerThreads
from swink_agent.testing import call, scripted, text

KEY = "key-of-the-standard-agent-" + "7" * 8
MODEL = ModelSpec("anthropic", "claude-sonnet-4-6")


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "config"
    folder.mkdir()
    monkeypatch.setenv("SWINK_CONFIG_DIR", str(folder))
    monkeypatch.setenv("SWINK_DATA_DIR", str(tmp_path / "data"))
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.txt").write_text("hello\n")
    return folder


def made(root: Path, *replies: Any, environ: dict[str, str] | None = None, **chosen: Any) -> StandardAgent:
    options = {name: chosen.pop(name) for name in ("ask", "project", "policies") if name in chosen}
    model = chosen.pop("model_spec", MODEL)
    stream_fn = chosen.pop("stream_fn", scripted(*replies) if replies else None)
    return standard_agent(
        AgentOptions(
            settings=load_settings(path=Path("/no/such"), environ={}, flags=chosen),
            credentials=Credentials(root.parent / "keys.json", environ=environ or {}),
            folder=root,
            model=model,
            stream_fn=stream_fn,
            **options,
        )
    )


async def run(agent: StandardAgent) -> tuple[Outcome, list[str]]:
    """The outcome, and the text of each result."""
    results: list[str] = []

    def watch(event: object) -> None:
        if isinstance(event, ToolExecutionEnd):
            results.append(extract_text(event.result.content))

    with agent, agent.agent.subscribe(watch):
        return await HeadlessRun(agent.agent).run("go"), results


async def test_it_has_the_built_in_tools_in_its_folder(root: Path) -> None:
    agent = made(root, call("read_file", path="a.txt"), text("Done."))
    names = [tool.name for tool in agent.agent.tools]
    of_bash = ["bash", "bash_output", "bash_stop"]
    assert sorted(names) == [*of_bash, "edit_file", "list_dir", "read_file", "search", "task", "todo", "write_file"]
    outcome, results = await run(agent)
    assert outcome.text == "Done."
    assert "hello" in results[0]


async def test_tools_for_background_commands_are_offered_only_while_there_is_one(root: Path) -> None:
    stop = call("bash_stop", id="b1")
    stream = scripted(call("bash", command="sleep 600", background=True), stop, text("Done."))
    agent = made(root, approve="all", sandbox="off", stream_fn=stream)
    _, results = await run(agent)
    assert results[1].startswith("[no new output]\n[b1: stopped")
    offered = [{tool.name for tool in request.context.tools} for request in stream.requests]
    assert [{"bash_output", "bash_stop"} & names for names in offered] == [set(), {"bash_output", "bash_stop"}, set()]


@pytest.mark.parametrize(
    "wanted", [call("bash", command="printf hi > b.txt"), call("write_file", path="b.txt", content="hi")]
)
async def test_one_approved_call_takes_at_most_three_thread_hops(
    root: Path, wanted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hops: list[str] = []
    is_counted = False
    hop, to_thread = WorkerThreads.run, asyncio.to_thread

    def counted_hop(threads: WorkerThreads, function: Any) -> Any:
        if is_counted:
            hops.append(repr(function))
        return hop(threads, function)

    def counted_to_thread(function: Any, *rest: Any, **named: Any) -> Any:
        if is_counted:
            hops.append(repr(function))
        return to_thread(function, *rest, **named)

    async def yes(question: ApprovalQuestion) -> str:
        asked.append(question)
        return "once"

    asked: list[ApprovalQuestion] = []
    agent = made(root, wanted, "Done.", approve="ask", sandbox="off", ask=yes)

    def watch(event: object) -> None:
        nonlocal is_counted
        if isinstance(event, MessageEnd):
            is_counted = bool(event.message.tool_calls)
        elif isinstance(event, ToolExecutionEnd):
            is_counted = False

    monkeypatch.setattr(WorkerThreads, "run", counted_hop)
    monkeypatch.setattr(asyncio, "to_thread", counted_to_thread)
    with agent.agent.subscribe(watch):
        await run(agent)
    assert (root / "b.txt").read_text() == "hi"
    assert len(asked) == 1
    assert 1 <= len(hops) <= 3, hops


async def test_a_task_goes_to_an_agent_that_only_reads(root: Path) -> None:
    agent = made(
        root,
        call("task", prompt="Read a.txt."),
        [call("read_file", path="a.txt"), call("write_file", path="b.txt", content="x"), call("task", prompt="more")],
        text("It says hello."),
        text("Done."),
    )
    model: Any = agent.agent.config.stream_fn
    inner: list[ToolExecutionEnd] = []

    def watch(event: object) -> None:
        if isinstance(event, DelegateEvent) and isinstance(event.event, ToolExecutionEnd):
            inner.append(event.event)

    with agent.agent.subscribe(watch):
        outcome, results = await run(agent)
    assert (outcome.text, results) == ("Done.", ["It says hello."])
    assert sorted([end.outcome for end in inner]) == ["ran", "unknown_tool", "unknown_tool"]
    assert not (root / "b.txt").exists()
    assert [tool.name for tool in model.requests[1].context.tools] == ["read_file", "list_dir", "search"]
    assert [extract_text(message.content) for message in model.requests[1].messages] == ["Read a.txt."]


async def test_a_task_obeys_the_rules_and_the_limits_of_the_run(root: Path) -> None:
    (root / "secret.txt").write_text("no\n")
    agent = made(
        root, call("task", prompt="Read."), call("read_file", path="secret.txt"), "x", "y", deny="read_file: secret.txt"
    )
    inner: list[ToolExecutionEnd] = []

    def watch(event: object) -> None:
        if isinstance(event, DelegateEvent) and isinstance(event.event, ToolExecutionEnd):
            inner.append(event.event)

    with agent.agent.subscribe(watch):
        await run(agent)
    assert [end.is_error for end in inner] == [True]


async def test_a_task_obeys_the_policies_that_the_agent_is_given(root: Path) -> None:
    class NoSecrets:
        name = "no secrets"

        def pre_dispatch(self, ctx: PreDispatchContext) -> Skip | None:
            return Skip("not that file") if "secret" in str(ctx.arguments.get("path", "")) else None

    (root / "secret.txt").write_text("TOP SECRET\n")
    reading = call("read_file", path="secret.txt")
    agent = made(root, reading, call("task", prompt="Read."), reading, "x", "y", policies=(NoSecrets(),))
    ends: list[ToolExecutionEnd] = []

    def watch(event: object) -> None:
        inner = event.event if isinstance(event, DelegateEvent) else event
        if isinstance(inner, ToolExecutionEnd) and inner.name == "read_file":
            ends.append(inner)

    with agent.agent.subscribe(watch):
        await run(agent)
    assert [end.outcome for end in ends] == ["skipped", "skipped"]
    assert "TOP SECRET" not in str([end.result for end in ends])


def test_a_task_can_be_switched_off(root: Path) -> None:
    def names(**chosen: Any) -> list[str]:
        return [tool.name for tool in made(root, "x", **chosen).agent.tools]

    assert "task" not in names(tools="bash,read_file")
    assert "task" not in names(tools="bash,task")  # nothing to read with
    assert "task" in names(tools="read_file,task")
    assert "task" not in names(deny="task")
    assert "task" not in names(model_spec=ModelSpec("local", "model"))  # it reads too slowly


def test_the_list_of_things_to_do_can_be_switched_off(root: Path) -> None:
    def names(**chosen: Any) -> list[str]:
        return [tool.name for tool in made(root, "x", **chosen).agent.tools]

    assert "todo" in names(tools="todo")
    assert "todo" not in names(tools="bash,read_file")
    assert "todo" not in names(deny="todo")
    assert "todo" not in names(model_spec=ModelSpec("local", "model"))  # its prompt is to be short


async def test_only_the_tools_that_were_chosen_are_there(root: Path) -> None:
    assert [tool.name for tool in made(root, "x", tools="list_dir").agent.tools] == ["list_dir"]
    assert made(root, "x", tools="none").agent.tools == ()


async def test_harmless_commands_run_unasked_and_others_do_not_without_anybody_to_ask(root: Path) -> None:
    changing = call("bash", command="touch b.txt", write=True)
    agent = made(root, call("bash", command="cat a.txt") + changing, text("Done."))
    _, results = await run(agent)
    assert any("hello" in result for result in results)
    assert any("no one can answer" in result for result in results)
    assert not (root / "b.txt").exists()


@pytest.mark.parametrize(("approve", "happens"), [("none", False), ("ask", False), ("smart", False), ("all", True)])
async def test_the_approver_decides(root: Path, approve: str, happens: bool) -> None:
    await run(made(root, call("bash", command="touch b.txt"), text("Done."), approve=approve))
    assert (root / "b.txt").exists() is happens


async def test_commands_stay_in_the_folder_and_off_the_network(root: Path) -> None:
    outside = root.parent / "outside.txt"
    command = f"touch '{outside}'; touch inside.txt; exec 3<>/dev/tcp/127.0.0.1/9 && echo reached"
    _, results = await run(made(root, call("bash", command=command), text("Done."), approve="all"))
    assert not outside.exists()
    assert (root / "inside.txt").exists()
    assert "reached" not in results[0]


async def test_allowed_hosts_are_for_every_command_and_those_do_not_read_the_home_folder(root: Path) -> None:
    with made(root, text("x"), allow_hosts=("PyPI.org",)) as agent:
        if agent.sandbox is None:
            pytest.skip("no sandbox works here")
        assert agent.sandbox.profile.hosts == ("pypi.org",)
        assert agent.sandbox.profile.read is not None
        assert str(Path.home()) not in agent.sandbox.profile.read
    with made(root, text("x"), allow_hosts=("pypi.org",), network=True) as agent:
        assert agent.sandbox is not None
        assert (agent.sandbox.profile.network, agent.sandbox.profile.hosts) == (True, ())


async def test_access_is_asked_about_and_hosts_can_be_kept_in_the_users_settings(root: Path, config: Path) -> None:
    asked: list[Any] = []

    def ask(question: Any) -> str:
        asked.append(question.choices)
        return "always"

    access = {"network": ["PyPI.org"]}
    calls = call("bash", command="true", access=access, reason="to install") + call("bash", command="id", access=access)
    _, results = await run(made(root, calls, text("Done."), approve="all", ask=ask))
    if "no sandbox works" in results[0]:
        pytest.skip(results[0])
    assert asked == [("once", "session_access", "always", "no")]
    assert (config / "config.toml").read_text() == 'allow_hosts = ["pypi.org"]\n'


async def test_unattended_access_is_rejected_and_named(root: Path) -> None:
    calls = call("bash", command="true", access={"network": ["pypi.org"]}, reason="to install")
    outcome, results = await run(made(root, calls, text("Done."), approve="all"))
    if "no sandbox works" in results[0]:
        pytest.skip(results[0])
    (rejected,) = outcome.rejected
    assert rejected.tool == "bash"
    assert "no one can answer a question here" in results[0]


@pytest.mark.parametrize("kind", ["read", "write"])
async def test_no_access_opens_what_is_this_program_s_own(root: Path, config: Path, kind: str) -> None:
    link = root.parent / "elsewhere"
    link.symlink_to(config)
    calls = call("bash", command="true", access={kind: [str(link)]})
    outcome, results = await run(made(root, calls, text("Done."), approve="all", ask=lambda _: "once"))
    assert "has files of this program" in results[0]
    assert outcome.rejected == ()


async def test_without_walls_only_when_the_user_says_so(root: Path) -> None:
    outside = root.parent / "outside.txt"
    calls = [call("bash", command=f"touch '{outside}'"), text("Done.")]
    await run(made(root, *calls, approve="all", sandbox="off"))
    assert outside.exists()


async def test_our_own_settings_and_keys_are_hidden_even_inside_the_folder(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = root / "mine"
    hidden.mkdir()
    (hidden / "keys.json").write_text("a canary")
    monkeypatch.setenv("SWINK_CONFIG_DIR", str(hidden))
    calls = call("bash", command="cat mine/keys.json") + call("read_file", path="mine/keys.json")
    _, results = await run(made(root, calls, text("Done."), approve="all"))
    assert len(results) == 2
    assert "a canary" not in str(results)


async def test_files_replaced_by_a_run_are_kept_and_hidden_even_inside_the_folder(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWINK_DATA_DIR", str(root / "data"))
    edit = call("edit_file", path="a.txt", edits=[{"old": "hello", "new": "bye"}])
    look = [
        call("bash", command="cat data/checkpoints/*"),
        call("search", pattern="hello"),
        call("list_dir", path="data"),
    ]
    _, results = await run(made(root, edit, look, text("Done."), approve="all"))
    assert len(results) == 4
    assert "hello" not in str(results[1:])
    store = open_checkpoints()
    kept = {item.path: item for item in store.plan(root, store.checkpoints(root)[-1])}
    assert store.content(root, kept["a.txt"].before or "") == b"hello\n"
    assert not [path for path in kept if path.startswith("data/checkpoints")]
    count = len(store.checkpoints(root))
    await run(made(root, call("bash", command="echo x > b"), text("Done."), approve="all", undo=False))
    assert len(store.checkpoints(root)) == count


async def test_a_folder_that_leaves_no_wall_is_refused() -> None:
    with pytest.raises(UsageProblem, match="is not a folder to work in"):
        made(Path("/"), "x")
    with pytest.raises(UsageProblem, match="is not a folder to work in"):
        made(Path("/no/such/folder"), "x")


@pytest.mark.skipif(sys.platform != "linux", reason="Linux has two back ends")
async def test_commands_run_in_the_back_end_that_was_chosen_or_not_at_all(root: Path) -> None:
    (root / "hooks").mkdir()
    (root / ".git").mkdir()
    (root / ".git/hooks").symlink_to("../hooks")  # bubblewrap cannot protect it
    agent = made(root, call("bash", command="touch b.txt"), text("Done."), approve="all", sandbox="bubblewrap")
    assert [warning.partition(":")[0] for warning in agent.warnings] == ["commands will be refused"]
    _, results = await run(agent)
    assert "no sandbox works" in results[0]
    assert not (root / "b.txt").exists()


async def test_where_no_sandbox_works_commands_are_refused_and_it_is_told(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from swink_agent.sandbox import SandboxUnavailable

    def unavailable(profile: object, **_: object) -> None:
        raise SandboxUnavailable("nothing works here")

    monkeypatch.setattr("swink_agent.sandbox.open.open_sandbox", unavailable)
    agent = made(root, call("bash", command="touch b.txt"), text("Done."), approve="all")
    assert agent.warnings == ("commands will be refused: nothing works here",)
    _, results = await run(agent)
    assert "nothing works here" in results[0]
    assert not (root / "b.txt").exists()


@pytest.mark.parametrize(
    ("model", "check_claims", "is_sent_back"),
    [
        ("local:qwen2.5-coder-1.5b", "auto", True),
        ("ollama:llama3.1:8b", "auto", True),
        ("ollama:qwen3-30b-a3b", "auto", False),
        ("anthropic:claude-sonnet-4-6", "auto", False),
        ("anthropic:claude-sonnet-4-6", "on", True),
        ("local:qwen2.5-coder-1.5b", "off", False),
    ],
)
async def test_a_small_model_that_claims_a_change_is_asked_for_it(
    root: Path, model: str, check_claims: str, is_sent_back: bool
) -> None:
    replies = [text("I have fixed a.txt."), call("write_file", path="b.txt", content="x"), text("b.txt was created.")]
    agent = made(root, *replies, check_claims=check_claims, approve="all", model_spec=ModelSpec.parse(model))
    with agent:
        outcome = await HeadlessRun(agent.agent).run("Fix a.txt.")
    assert (root / "b.txt").exists() is is_sent_back
    assert outcome.text == ("b.txt was created." if is_sent_back else "I have fixed a.txt.")


@pytest.mark.parametrize(("tools", "told"), [("none", 0), ("read_file", 0), ("read_file,edit_file", 1)])
async def test_only_what_the_tools_can_do_is_asked_for(root: Path, tools: str, told: int) -> None:
    claim = text("I have fixed a.txt.")
    agent = made(root, claim, claim, claim, tools=tools, check_claims="on")
    with agent:
        outcome = await HeadlessRun(agent.agent).run("Fix a.txt.")
    assert outcome.turns == 1 + told


async def test_limits_stop_it(root: Path) -> None:
    outcome, _ = await run(made(root, *[call("list_dir")] * 3, max_turns=2))
    assert outcome.exit_code == ExitCode.LIMIT
    assert outcome.turns <= 3


async def test_a_limit_of_cost_makes_replies_short_enough_to_be_affordable(root: Path) -> None:
    def most(**limits: Any) -> int | None:
        with made(root, "x", **limits) as agent:
            return agent.agent._config.stream_options.max_tokens  # pyright: ignore[reportPrivateUsage]

    assert most() is None
    assert most(max_cost=100.0) == 16_384
    assert most(max_cost=0.12) == 2_000
    assert most(max_cost=0.0001) == 1_024
    outcome, _ = await run(made(root, text("Affordable."), max_cost=0.12))
    assert outcome.text == "Affordable."


async def test_keys_reach_the_provider_and_nobody_else(root: Path) -> None:
    stream = scripted(call("write_file", path="b.txt", content="x"), text(f"{KEY} it is"))
    credentials = Credentials(root.parent / "keys.json", environ={})
    credentials.set("anthropic", KEY, "file")
    agent = standard_agent(
        AgentOptions(
            settings=load_settings(path=Path("/no/such"), environ={}, flags={"approve": "all"}),
            credentials=credentials,
            folder=root,
            model=MODEL,
            stream_fn=stream,
        )
    )
    await run(agent)
    assert {request.options.api_key for request in stream.requests} == {KEY}
    assert agent.redactor.redact(KEY).startswith("[redacted:anthropic:")
    assert KEY not in repr(agent) + repr(agent.agent)


async def test_a_trusted_projects_notes_are_in_the_prompt_and_an_untrusted_ones_are_not(root: Path) -> None:
    (root / "AGENTS.md").write_text("Always say please.\n")
    store = TrustStore(root.parent / "trusted.json")
    prompt = made(root, "x", project=find_project(root, store)).agent.system_prompt
    assert "say please" not in str(prompt)
    store.trust(root)
    prompt = made(root, "x", project=find_project(root, store)).agent.system_prompt
    assert str(prompt).endswith("The project's notes for agents:\nAlways say please.")


async def test_own_instructions_take_the_place_of_the_standard_ones(root: Path) -> None:
    prompt = str(made(root, "x", system="Speak Latin.").agent.system_prompt)
    assert prompt.startswith("Speak Latin.\n\nDate: ")
    assert prompt.endswith("a.txt")


def test_a_missing_key_is_told_before_anything_is_opened(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(NoModel, match="ANTHROPIC_API_KEY"):
        made(root)


def test_a_cost_limit_that_cannot_be_kept_is_told_before_anything_is_opened(root: Path) -> None:
    key = {"ANTHROPIC_API_KEY": KEY}
    with pytest.raises(UsageProblem, match="the price of anthropic:unknown-model is not known"):
        made(root, environ=key, model_spec=ModelSpec("anthropic", "unknown-model"), max_cost=1.0)
    assert not (root.parent / "data").exists()


def test_web_fetch_is_an_extra_tool_of_our_own(tmp_path: Path) -> None:
    from swink_agent.app.trust.extras import extra_tools, installed_extras

    assert "web_fetch" in [extra.name for extra in installed_extras("tool")]
    [found] = extra_tools(["web_fetch"], tmp_path, private=["127.0.0.1:8080"])
    assert found.name == "web_fetch"
    assert extra_tools(["web_fetch"], tmp_path, denied={"web_fetch"}) == []
    with pytest.raises(UsageProblem, match="web_private cannot be used"):
        extra_tools(["web_fetch"], tmp_path, private=["localhost"])


def test_web_fetch_without_its_extra_names_the_setting_and_the_install_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from swink_agent.app.trust.extras import extra_tools, installed_extras, lacks_packages

    (own,) = [extra for extra in installed_extras("tool") if extra.name == "web_fetch"]
    assert not lacks_packages(own)
    monkeypatch.setitem(sys.modules, "html_to_markdown", None)
    assert lacks_packages(own)
    with pytest.raises(UsageProblem, match=r"extra_tools names web_fetch, .* pip install 'swink-agent\[fetch\]'"):
        extra_tools(["web_fetch"], tmp_path)
