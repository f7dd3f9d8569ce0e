"""The question at the terminal, and which keys answer it."""

from __future__ import annotations

import asyncio
import io
import os
import pty
import termios
from collections.abc import Iterator
from typing import Any

import pytest

from swink_agent.approvals import Approvals
from swink_agent.cli.prompt.asking import TerminalAsk
from swink_agent.cli.screen.screen import Screen
from swink_agent.core.approval import Approve, ProposedCall, Reject


class Desk:
    """A person's side of a terminal, and the asking side."""

    def __init__(self) -> None:
        self.master, self.slave = pty.openpty()
        self.kept: list[str] = []
        ask = TerminalAsk.open(Screen(io.StringIO()), lambda text: text, self.keep, os.ttyname(self.slave))
        assert ask is not None
        self.ask = ask
        self.shown = ""
        self._seen = asyncio.Event()

    def keep(self, rule: str) -> str:
        self.kept.append(rule)
        return f"stored for this project: {rule}"

    def watch(self) -> None:
        asyncio.get_running_loop().add_reader(self.master, self._read)

    def _read(self) -> None:
        self.shown += os.read(self.master, 65536).decode()
        self._seen.set()

    async def until(self, text: str, count: int = 1) -> None:
        await self.until_either((text, count))

    async def until_either(self, *wanted: tuple[str, int]) -> None:
        """Waits until one of the texts has shown so many times."""
        while not any(self.shown.count(text) >= count for text, count in wanted):
            self._seen.clear()
            await self._seen.wait()

    def close(self) -> None:
        self.ask.close()
        for end in (self.master, self.slave):
            try:
                os.close(end)
            except OSError:
                pass


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.close()


def request(command: str) -> ProposedCall:
    return ProposedCall("call_1", "bash", {"command": command})


async def answered(desk: Desk, *keys: bytes, approvals: Approvals | None = None, command: str = "go build") -> Any:
    desk.watch()
    asking = asyncio.ensure_future((approvals or Approvals(desk.ask))(request(command)))
    offers = desk.shown.count("[v]iew all:")
    for key in keys:
        # Each is read alone, as a person types: one that is no answer has the keys offered again.
        offers += 1
        await desk.until_either(("[v]iew all:", offers), ("No, because: ", 1))
        os.write(desk.master, key)
    outcome = await asking
    asyncio.get_running_loop().remove_reader(desk.master)
    return outcome


@pytest.mark.parametrize(
    ("keys", "outcome"),
    [
        ([b"y"], Approve()),
        ([b"Y\n"], Approve()),
        ([b"1"], Approve()),
        ([b"4"], Reject("the user said no")),
        ([b"16", b"11", b"7", b"n"], Reject("the user said no")),
        ([b"n"], Reject("the user said no")),
        ([b"\x04"], Reject("the user said no")),
        ([b"\r", b" ", b"x", b"\x1b[A", b"y"], Approve()),
        ([b"yes, run all of it\n", b"n"], Reject("the user said no")),
        ([b"yyyyyy", b"n"], Reject("the user said no")),
        ([b"no, because it is late\n"], Reject("the user said no, because it is late")),
        ([b"NO: later\n"], Reject("the user said no, because later")),
        ([b"not now, yes\n", b"n"], Reject("the user said no")),
        ([b"b", b"of\x1b[31m that\n"], Reject("the user said no, because of [31m that")),
        ([b"b", b"\n"], Reject("the user said no")),
        ([b"b", b"\x04"], Reject("the user said no")),
    ],
)
async def test_a_single_key_is_an_answer_and_a_pasted_text_is_not(
    desk: Desk, keys: list[bytes], outcome: object
) -> None:
    before = termios.tcgetattr(desk.slave)
    assert await answered(desk, *keys) == outcome
    assert termios.tcgetattr(desk.slave) == before


async def test_a_key_pressed_while_the_call_is_being_shown_is_ignored(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("swink_agent.cli.prompt.asking._GRACE", 2.0)  # a busy machine takes its time to show a call
    desk.watch()
    asking = asyncio.ensure_future(Approvals(desk.ask)(request("go build")))
    await desk.until("│ go build")
    assert "[v]iew all:" not in desk.shown, "the keys are offered a moment later"
    os.write(desk.master, b"y")
    await desk.until("[v]iew all:")
    os.write(desk.master, b"n")
    assert await asking == Reject("the user said no")
    asyncio.get_running_loop().remove_reader(desk.master)


async def test_two_questions_stand_one_after_the_other(desk: Desk) -> None:
    desk.watch()
    approvals = Approvals(desk.ask)
    both = [asyncio.ensure_future(approvals(request(command))) for command in ("go build", "make all")]
    for count in (1, 2):
        await desk.until("[v]iew all:", count)
        assert desk.shown.count("◆ bash") == count
        os.write(desk.master, b"y")
    assert await asyncio.gather(*both) == [Approve(), Approve()]
    asyncio.get_running_loop().remove_reader(desk.master)


async def test_text_typed_meanwhile_waits_for_the_answer(desk: Desk) -> None:
    stream = io.StringIO()
    screen = Screen(stream, live=True, colours=False)
    ask = TerminalAsk.open(screen, str, desk.keep, os.ttyname(desk.slave))
    assert ask is not None
    desk.watch()
    asking = asyncio.ensure_future(Approvals(ask)(request("go build")))
    await desk.until("[v]iew all:")
    screen.line("a warning")
    screen.status("a status")
    assert stream.getvalue() == ""
    os.write(desk.master, b"n")
    await asking
    assert stream.getvalue() == "a warning\n"
    ask.close()
    asyncio.get_running_loop().remove_reader(desk.master)


async def test_a_prefix_is_trusted_and_commands_like_it_are_not_asked_about(desk: Desk) -> None:
    approvals = Approvals(desk.ask)
    assert await answered(desk, b"p", approvals=approvals) == Approve()
    assert "every command with this [p]refix: go build" in desk.shown
    assert await approvals(request("go build -v")) == Approve()
    assert await answered(desk, b"n", approvals=approvals, command="go build; rm -rf x") == Reject("the user said no")
    assert desk.shown.count("[p]refix") == 1, "there is no prefix to trust in a command with operators"


@pytest.mark.parametrize("key", [b"k", b"6"])
async def test_a_rule_is_kept_for_the_project_and_trusted_in_this_run(desk: Desk, key: bytes) -> None:
    approvals = Approvals(desk.ask)
    assert await answered(desk, key, approvals=approvals, command="git commit -m x") == Approve()
    desk.watch()
    await desk.until("· stored for this project: bash: git commit *")
    asyncio.get_running_loop().remove_reader(desk.master)
    assert "[k]ept: bash: git commit *\x1b[0m\r\n" in desk.shown  # the model's words end their row
    assert desk.kept == ["bash: git commit *"]
    assert await approvals(request("git commit -m y")) == Approve()


async def test_a_rule_that_would_cover_too_much_is_not_offered(desk: Desk) -> None:
    assert await answered(desk, b"k", b"6", b"n", command="go vet ./...") == Reject("the user said no")
    assert "[k]ept" not in desk.shown
    assert desk.kept == []


async def test_a_terminal_that_goes_away_is_a_no(desk: Desk) -> None:
    desk.watch()
    asking = asyncio.ensure_future(Approvals(desk.ask)(request("go build")))
    await desk.until("[v]iew all:")
    asyncio.get_running_loop().remove_reader(desk.master)
    os.close(desk.master)
    assert await asking == Reject("the user said no")


async def test_a_question_that_is_taken_back_leaves_the_terminal_as_it_was(desk: Desk) -> None:
    before = termios.tcgetattr(desk.slave)
    desk.watch()
    asking = asyncio.ensure_future(Approvals(desk.ask)(request("go build")))
    await desk.until("[v]iew all:")
    assert termios.tcgetattr(desk.slave) != before
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert termios.tcgetattr(desk.slave) == before
    asyncio.get_running_loop().remove_reader(desk.master)


def test_nobody_is_asked_without_a_terminal(tmp_path: Any) -> None:
    screen = Screen(io.StringIO())
    assert TerminalAsk.open(screen, str, str, str(tmp_path / "none")) is None
    (tmp_path / "file").write_text("")
    assert TerminalAsk.open(screen, str, str, str(tmp_path / "file")) is None


async def test_access_is_asked_about_with_keys_of_its_own(desk: Desk) -> None:
    kept: list[list[str]] = []
    wanted = {"network": ["pypi.org"]}
    scope = {"folder": "/work", "sandbox": "wider", "backend": "landlock", "walls": "usual", "access": wanted}
    arguments = {"command": "pip install x", "access": {"network": ["PYPI.org"]}, "reason": "to install it"}
    call = ProposedCall("call_1", "bash", arguments, scope)
    approvals = Approvals(desk.ask, mode="all", remember=kept.append)
    desk.watch()
    asking = asyncio.ensure_future(approvals(call))
    await desk.until("[v]iew all:")
    os.write(desk.master, b"a")
    assert await asking == Approve()
    asyncio.get_running_loop().remove_reader(desk.master)
    assert kept == [["pypi.org"]]
    assert "│! network: pypi.org" in desk.shown
    assert "! opens pypi.org for this command, or longer as you choose; it says: to" in desk.shown
    assert "PYPI" not in desk.shown
    assert await approvals(call) == Approve()
