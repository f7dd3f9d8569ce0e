"""`auto`: calls that can be undone run unasked, and a person is asked about the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from swink_agent import Agent, Approve, ModelSpec, ProposedCall, Reject, ToolResultMessage, extract_text
from swink_agent.approvals import ApprovalQuestion, Approvals, CallRules, CommandRules
from swink_agent.testing import call, scripted, text
from swink_agent.tools import CheckpointStore, standard_tools

FOLDER = "/home/ada/project"
CONFINED = {"folder": FOLDER, "sandbox": "1234", "backend": "bubblewrap"}
RULES = CommandRules.standard(search_path="/usr/bin:/bin")


class Person:
    def __init__(self, answer: str = "no") -> None:
        self.answer = answer
        self.asked: list[ApprovalQuestion] = []

    def __call__(self, question: ApprovalQuestion) -> str:
        self.asked.append(question)
        return self.answer


def bash(command: str = "make test", scope: dict[str, Any] = CONFINED, **more: Any) -> ProposedCall:
    return ProposedCall("1", "bash", {"command": command, **more}, scope)


def file(name: str, path: str, real: str | None = None, folder: str = FOLDER) -> ProposedCall:
    return ProposedCall("1", name, {"path": path}, {"folder": folder, "path": path if real is None else real})


def auto(person: Person | None = None, **options: Any) -> Approvals:
    return Approvals(person, mode="auto", rules=RULES, **options)


@pytest.mark.parametrize(
    "request_",
    [
        bash(),
        bash("rm -rf build && curl -s https://example.org > x"),
        bash("python - <<'EOF'\nprint(1)\nEOF"),
        bash("sleep 1; kill %1", {**CONFINED, "backend": "landlock"}),
        bash("open .", {**CONFINED, "backend": "sandbox-exec"}),
        bash(timeout=60),
        bash("npm start", background=True),
        bash("npm start", background=True, reason="to try it"),
        file("write_file", "src/a.py"),
        file("edit_file", "a b/ä.txt"),
        file("write_file", "linked/a.py", "real/a.py"),
        ProposedCall("1", "bash_output", {"id": "1"}),
        ProposedCall("1", "bash_stop", {"id": "1"}),
    ],
    ids=str,
)
@pytest.mark.table
async def test_calls_within_sandbox_or_folder_run_without_a_question(request_: ProposedCall) -> None:
    person = Person()
    assert await auto(person)(request_) == Approve()
    assert person.asked == []


@pytest.mark.parametrize(
    "request_",
    [
        bash(scope={"folder": FOLDER, "sandbox": "1234", "backend": "off"}),
        bash(scope={"folder": FOLDER, "sandbox": "1234"}),
        bash(scope={"folder": FOLDER, "backend": ""}),
        bash(scope={"folder": FOLDER, "backend": True}),
        bash(scope={"unknown": "OSError"}),
        bash(scope={}),
        bash("ls", access={"network": ["example.org"]}),
        bash("make", access=None),
        bash("make", other=1),
        ProposedCall("1", "bash", {}, CONFINED),
        file("write_file", "../a.py"),
        file("write_file", "a.py", "../other/a.py"),
        file("write_file", "a.py", "/etc/passwd"),
        file("write_file", "a.py", ""),
        file("edit_file", ".git/config"),
        file("edit_file", "x", ".swink/config.toml"),
        ProposedCall("1", "write_file", {"path": "a.py"}, {}),
        ProposedCall("1", "write_file", {"path": "a.py"}, {"folder": "", "path": "a.py"}),
        ProposedCall("1", "deploy", {}, CONFINED),
        ProposedCall("1", "task", {"prompt": "x"}),
        # A tool of an MCP server, which chose the name.
        ProposedCall("1", "bash_stop", {"id": "1"}, {"server": "x", "tool": "bash_stop", "definition": "1234"}),
    ],
    ids=str,
)
@pytest.mark.table
async def test_all_else_is_as_in_smart(request_: ProposedCall) -> None:
    person = Person()
    approve = auto(person)
    assert await approve(request_) == Reject("the user said no")
    smart = Person()
    await Approvals(smart, mode="smart", rules=RULES)(request_)
    assert [question.why for question in person.asked] == [question.why for question in smart.asked] != []
    assert [question.choices for question in person.asked] == [question.choices for question in smart.asked]
    assert isinstance(await auto()(request_), Reject), "unattended it is rejected"


async def test_an_exact_command_that_only_reads_needs_no_checkpoint() -> None:
    assert (await auto()(bash("ls -la"))).reads_only is True  # type: ignore[union-attr]
    assert (await auto()(bash("make"))).reads_only is False  # type: ignore[union-attr]


async def test_deny_rules_hold() -> None:
    calls = CallRules(FOLDER, deny=["bash: git push", "write_file: secret/**"])
    approve = Approvals(mode="auto", calls=calls)
    assert await approve(bash("git push origin main")) == Reject("the rule 'git push' denies it")
    assert await approve(bash("make && sudo make install")) == Reject("the rule 'sudo' denies it")
    assert await approve(file("write_file", "secret/key")) == Reject("the rule 'write_file: secret/**' denies it")
    assert await approve(bash("git pull")) == Approve()


async def test_trust_of_the_session_holds_too() -> None:
    person = Person("session_tool")
    approve = auto(person)
    unconfined = bash(scope={"folder": FOLDER, "backend": "off"})
    for _ in range(2):
        assert await approve(unconfined) == Approve()
    assert len(person.asked) == 1


async def test_where_no_checkpoint_can_be_kept_it_is_smart() -> None:
    person = Person("once")
    approve = auto(person)
    unkept = {**CONFINED, "unkept": True}
    for request in (bash(scope=unkept), ProposedCall("1", "write_file", {}, {**unkept, "path": "a"})):
        assert await approve(request) == Approve()
    assert ["no checkpoint can be kept" in question.why for question in person.asked] == [True, True]
    assert await approve(bash("ls", unkept)) == Approve(), "the rules allow it"
    assert len(person.asked) == 2
    assert isinstance(await auto()(bash(scope=unkept)), Reject)


async def test_trust_does_not_depend_on_checkpoints() -> None:
    person = Person("session_tool")
    approve = Approvals(person, mode="smart", rules=RULES)
    await approve(bash(scope={**CONFINED, "unkept": True}))
    assert await approve(bash("make other")) == Approve()
    assert len(person.asked) == 1


# -- with the tools ------------------------------------------------------------------------------------------


async def told(root: Path, store: CheckpointStore | None, person: Person, *script: Any) -> list[str]:
    tools = standard_tools(root, "off", checkpoints=store)
    agent = Agent(
        ModelSpec("test", "model"),
        tools=tools,
        stream_fn=scripted(*script, text("done")),
        approve=Approvals(person, mode="auto"),
    )
    result = await agent.prompt("go")
    return [extract_text(message.content) for message in result.messages if isinstance(message, ToolResultMessage)]


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def write(name: str) -> Any:
    return call("write_file", path=name, content="x\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


async def test_files_are_written_unasked_and_commands_without_a_sandbox_are_asked_about(root: Path) -> None:
    person = Person("once")
    await told(root, None, person, write("a"), call("bash", command="echo x > b"))
    assert [question.request.name for question in person.asked] == ["bash"]
    assert names(root) == ["a", "b"]


async def test_until_a_checkpoint_can_be_kept_it_asks_and_nothing_is_changed(root: Path, tmp_path: Path) -> None:
    (tmp_path / "store").write_text("in its way")

    class Mending(Person):
        def __call__(self, question: ApprovalQuestion) -> str:
            if len(self.asked) == 1:  # before the second answer, the store can be made
                (tmp_path / "store").unlink()
            return super().__call__(question)

    person = Mending("once")
    results = await told(root, CheckpointStore(tmp_path / "store/in"), person, write("a"), write("b"), write("c"))
    assert [question.request.arguments["path"] for question in person.asked] == ["a", "b"]
    assert "could be kept" in results[0]
    assert names(root) == ["b", "c"]


@pytest.mark.sweep
async def test_a_folder_with_too_many_files_is_worked_in_by_asking(root: Path, tmp_path: Path) -> None:
    for number in range(3):
        (root / str(number)).write_text("")
    person = Person("once")
    script = (call("bash", command="ls"), write("a"), call("bash", command="make"))
    results = await told(root, CheckpointStore(tmp_path / "store", most_files=2), person, *script)
    assert [question.request.name for question in person.asked] == ["write_file", "bash"]
    assert ["more than 2 files" in result for result in results] == [False, True, True]
