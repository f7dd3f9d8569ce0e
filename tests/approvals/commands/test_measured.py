"""How often `auto` asks about commands as a strong coding model writes them, and how often `smart` would."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from swink_agent import Approve, ProposedCall, Reject
from swink_agent.approvals import ApprovalQuestion, Approvals, CommandRules

RULES = CommandRules.standard(search_path="/usr/bin:/bin")
SCOPE = {"sandbox": "1234", "backend": "landlock"}


class Measured(NamedTuple):
    needs: str
    what: str
    command: str


def _read() -> list[Measured]:
    text = Path(__file__).with_name("measured.txt").read_text(encoding="utf-8")
    records: list[Measured] = []
    for part in text.split("\n%% ")[1:]:
        head, _, command = part.partition("\n")
        needs, _, what = head.partition(" ")
        records.append(Measured(needs, what, command.removesuffix("\n")))
    return records


COMMANDS = _read()


class Person:
    def __init__(self, answer: str = "no") -> None:
        self.answer = answer
        self.asked: list[ApprovalQuestion] = []

    def __call__(self, question: ApprovalQuestion) -> str:
        self.asked.append(question)
        return self.answer


async def decided(mode: str, record: Measured, folder: Path) -> tuple[object, bool]:
    """The answer to the call, and whether a person was asked."""
    person = Person()
    approve = Approvals(person, mode=mode, rules=RULES)  # type: ignore[arg-type]
    request = ProposedCall("1", "bash", {"command": record.command}, {"folder": str(folder), **SCOPE})
    return await approve(request), bool(person.asked)


@pytest.mark.table
@pytest.mark.parametrize("record", COMMANDS, ids=lambda record: record.command[:40])
async def test_in_the_sandbox_a_command_runs_unasked_unless_it_is_denied(record: Measured, tmp_path: Path) -> None:
    answer, was_asked = await decided("auto", record, tmp_path)
    assert not was_asked
    assert isinstance(answer, Reject) if record.needs == "deny" else answer == Approve()


async def test_at_most_six_in_a_hundred_lead_to_a_question(tmp_path: Path) -> None:
    """One session: what needs the network or another folder asks for it, and a person trusts it for the session."""
    person = Person("session_access")
    approve = Approvals(person, mode="auto", rules=RULES)
    for record in COMMANDS:
        scope: dict[str, object] = {"folder": str(tmp_path), **SCOPE}
        arguments: dict[str, object] = {"command": record.command}
        if record.needs in ("net", "out"):
            access = {"network" if record.needs == "net" else "write": [record.what]}
            arguments |= {"access": access, "reason": "it is not here"}
            scope |= {"access": access, "walls": "1234", "sandbox": f"wider {access}"}
        await approve(ProposedCall("1", "bash", arguments, scope))
    assert len(COMMANDS) >= 120
    assert len({record.command for record in COMMANDS}) == len(COMMANDS)
    assert 0 < len(person.asked) <= 0.06 * len(COMMANDS), [question.why for question in person.asked]
    assert all(question.access for question in person.asked)
    in_smart = [record for record in COMMANDS if (await decided("smart", record, tmp_path))[1]]
    assert len(in_smart) > 0.7 * len(COMMANDS), "this is what `auto` is for"
