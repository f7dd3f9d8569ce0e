"""How often `auto` asks about commands as a strong coding model writes them, and how often `smart` would."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

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


def call(record: Measured, folder: Path) -> ProposedCall:
    """The call as a model makes it that asks for what the command needs, in the scope that the tool makes of it."""
    scope: dict[str, object] = {"folder": str(folder), **SCOPE}
    arguments: dict[str, object] = {"command": record.command}
    if record.needs in ("net", "out"):
        access = {"network" if record.needs == "net" else "write": [record.what]}
        arguments |= {"access": access, "reason": "it is not here"}
        scope |= {"access": access, "walls": "1234", "sandbox": f"wider {access}"}
    elif record.needs == "writes":
        arguments["write"] = True
    else:
        scope["reads_only"] = True
    return ProposedCall("1", "bash", arguments, scope)


@pytest.mark.table
@pytest.mark.parametrize("record", COMMANDS, ids=lambda record: record.command[:40])
async def test_in_the_sandbox_a_command_runs_unasked_unless_it_is_denied(record: Measured, tmp_path: Path) -> None:
    person = Person()
    request = ProposedCall("1", "bash", {"command": record.command}, {"folder": str(tmp_path), **SCOPE})
    answer = await Approvals(person, mode="auto", rules=RULES)(request)
    assert person.asked == []
    assert isinstance(answer, Reject) if record.needs == "deny" else answer == Approve()


@pytest.mark.parametrize(("mode", "questions"), [("auto", 5), ("smart", 58)])
async def test_so_many_of_them_lead_to_a_question(mode: Any, questions: int, tmp_path: Path) -> None:
    """One session: what needs the network or another folder asks for it, and a person trusts it for the session."""
    assert len({record.command for record in COMMANDS}) == len(COMMANDS) == 123
    person = Person("session_access")
    approve = Approvals(person, mode=mode, rules=RULES)
    for record in COMMANDS:
        await approve(call(record, tmp_path))
    assert len(person.asked) == questions, [question.why for question in person.asked]
    assert sum(question.access is not None for question in person.asked) == 5
