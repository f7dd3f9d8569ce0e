"""`swink -p` in folders where commands and edits run unasked, where they do not, and the reasons shown."""

from __future__ import annotations

import json

import pytest

from swink_agent.sandbox import probe_backends
from swink_agent.testing import FakeProvider, FakeReply

from .conftest import Done, Swink, Terminal

FIX = (  # two replies: the calls of one run at once, and the second needs what the first writes
    FakeReply(calls=[("write_file", {"path": "a.py", "content": "x = 1\n"})]),
    FakeReply(calls=[("bash", {"command": "cp a.py b.py", "write": True})]),
    "Done.",
)


@pytest.fixture(scope="module", autouse=True)
def confined() -> None:
    if not any(report.works for report in probe_backends()):
        pytest.skip("no sandbox works on this machine")


@pytest.fixture
def swink(swink: Swink) -> Swink:
    """With a sandbox, which other tests of the program do without."""
    swink.confine()
    return swink


async def fix(swink: Swink, *arguments: str, **environ: str) -> Done:
    for name in ("a.py", "b.py"):
        (swink.folder / name).unlink(missing_ok=True)
    async with FakeProvider("anthropic", list(FIX)) as provider:
        swink.use(provider)
        return await swink("-p", "fix the failing test", "--output", "json", *arguments, environ=environ)


def made(swink: Swink) -> list[str]:
    return sorted(path.name for path in swink.folder.glob("*.py"))


def rejected(done: Done) -> list[str]:
    return [call["tool"] for call in json.loads(done.stdout)["rejected"]]


@pytest.mark.sweep
async def test_an_earlier_yes_lets_it_work_and_without_one_it_says_why_it_does_not(swink: Swink) -> None:
    unsaid = await fix(swink)
    assert (made(swink), rejected(unsaid)) == ([], ["write_file", "bash"])
    assert "note: approvals are smart: you have not yet allowed commands and edits to run unasked" in unsaid.stderr
    assert (await swink("config", "get", "approve")).stdout == "smart\n"

    assert (await swink("config", "work")).code == 0
    said = await fix(swink)
    assert (made(swink), rejected(said)) == (["a.py", "b.py"], [])
    assert "note: approvals are auto: commands and edits in this folder run unasked in the sandbox (" in said.stderr
    assert said.stderr.count("approvals are") == 1
    shown = json.loads((await swink("config", "show", "--json")).stdout)["approve"]
    assert shown["value"] == "auto"
    assert shown["source"].startswith("default: commands and edits in this folder run unasked")
    findings = json.loads((await swink("doctor", "--json")).stdout)
    assert [item["text"].split(":")[0] for item in findings if item["area"] == "approvals"] == ["approvals are auto"]
    undone = await swink("undo", "-y")
    assert (undone.code, made(swink)) == (0, []), undone

    assert (await swink("config", "work", "--list")).stdout == f"yes {swink.folder}\n"
    assert (await swink("config", "work", "--no")).code == 0
    refused = await fix(swink)
    assert (made(swink), rejected(refused)) == ([], ["write_file", "bash"])
    assert "you chose to be asked in this folder" in refused.stderr
    assert (await swink("config", "work", "--remove")).code == 0
    assert (await swink("config", "work", "--remove")).code == 2


@pytest.mark.parametrize("environ", [{}, {"SWINK_UNDO": "off"}], ids=["with checkpoints", "where none are wanted"])
async def test_the_flag_needs_no_yes(swink: Swink, environ: dict[str, str]) -> None:
    done = await fix(swink, "--approve", "auto", **environ)
    assert (made(swink), rejected(done)) == (["a.py", "b.py"], [])
    assert "approvals are" not in done.stderr


async def test_a_deny_rule_holds(swink: Swink) -> None:
    done = await fix(swink, "--approve", "auto", "--deny", "bash: cp")
    assert (made(swink), rejected(done)) == (["a.py"], ["bash"])


@pytest.mark.parametrize(
    ("environ", "why"),
    [
        ({"SWINK_UNDO": "off"}, "no checkpoints are kept (undo = false), so changes could not be taken back"),
        ({"SWINK_SANDBOX": "off"}, "nothing confines commands (sandbox = off)"),
        ({"SWINK_DATA_DIR": "/dev/null/data"}, "the folder for checkpoints, cannot be created"),
    ],
    ids=["no checkpoints", "no sandbox", "no place for checkpoints"],
)
async def test_a_yes_is_not_enough_where_something_is_missing(swink: Swink, environ: dict[str, str], why: str) -> None:
    await swink("config", "work")
    done = await fix(swink, "--no-session", **environ)
    assert (made(swink), rejected(done)) == ([], ["write_file", "bash"])
    assert "note: approvals are smart: " in done.stderr
    assert why in done.stderr


async def test_without_a_sandbox_the_flag_leaves_commands_to_be_asked_about(swink: Swink) -> None:
    done = await fix(swink, "--approve", "auto", "--sandbox", "off")
    assert (made(swink), rejected(done)) == (["a.py"], ["bash"])
    assert "approvals are auto: you are still asked about commands, because nothing confines" in done.stderr


async def test_a_project_may_only_be_stricter(swink: Swink) -> None:
    (swink.folder / ".swink").mkdir()
    for theirs, mine, makes in (("smart", None, []), ("auto", "smart", []), ("all", None, ["a.py", "b.py"])):
        (swink.folder / ".swink/config.toml").write_text(f'approve = "{theirs}"\n')
        await swink("config", "trust", "-y")
        await swink("config", "work")
        await fix(swink, **({"SWINK_APPROVE": mine} if mine else {}))
        assert made(swink) == makes, theirs
    (swink.folder / ".swink/config.toml").write_text('approve = "all"\n')
    await swink("config", "trust", "-y")
    await swink("config", "work", "--no")
    await fix(swink)
    assert made(swink) == [], "a project is not the user who agrees"


async def test_the_home_folder_is_never_worked_in_by_default(swink: Swink) -> None:
    swink.environ["HOME"] = str(swink.folder)
    await swink("config", "work")
    done = await fix(swink)
    assert (made(swink), rejected(done)) == ([], ["write_file", "bash"])
    assert "approvals are smart: this folder holds your home folder" in done.stderr


OPEN = FakeReply(
    calls=[("bash", {"command": "echo out", "access": {"network": ["example.org"]}, "reason": "to look there"})]
)


async def test_all_asks_about_access_at_a_terminal(swink: Swink, terminal: Terminal) -> None:
    async with FakeProvider("anthropic", [OPEN, "Done."]) as provider:
        swink.use(provider)
        await terminal.start("-p", "x", "--approve", "all")
        await terminal.expect("opens example.org for this command")
        await terminal.expect("Run it?")
        terminal.type("n")
        assert await terminal.finish() == 0
    assert "the user said no" in str(provider.bodies[1]["messages"])


async def test_all_names_the_access_that_was_refused_where_nobody_is_asked(swink: Swink) -> None:
    async with FakeProvider("anthropic", [OPEN, OPEN, "Done."]) as provider:
        swink.use(provider)
        done = await swink("-p", "x", "--approve", "all", "--output", "json")
    assert done.stderr.splitlines()[:2] == [
        "warning: bash echo out (it asks for example.org) was not approved: nobody can be asked here. To open a "
        "host or a folder to all commands: --allow-host, --add-dir",
        "warning: bash echo out (it asks for example.org) was not approved",
    ]
    first, second = json.loads(done.stdout)["rejected"]
    assert first == second
    assert first["arguments"]["access"] == {"network": ["example.org"]}
    assert "a person must allow access beyond the sandbox (example.org)" in first["reason"]
