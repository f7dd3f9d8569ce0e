"""Runs an evaluation from end to end: cases, a factory, your own evaluator, a store, and the failures.

The model is scripted, so that this runs without a key; one of its replies is wrong on purpose.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from swink_agent import Agent, AgentTool, tool
from swink_agent.evals import (
    AuditTrail,
    BudgetGuard,
    EvalCase,
    EvalRunner,
    EvalSet,
    EvalStore,
    EvaluatorRegistry,
    Invocation,
    Progress,
    Score,
)
from swink_agent.testing import call, scripted

CASES = EvalSet(
    "notes",
    "Notes",
    [
        EvalCase(
            "writes",
            "Writes a note",
            ["Note that the milk is out."],
            expected_trajectory={"match": "exact", "calls": [{"name": "note", "arguments": {"text": "milk is out"}}]},
            expected_files=[{"path": "notes.txt", "regex": "milk"}],
            budget={"turns": 2},
        ),
        EvalCase(
            "adds",
            "Keeps the notes that are there",
            ["Note that the bread is out."],
            setup={"notes.txt": "milk is out\n"},
            expected_files=[{"path": "notes.txt", "content": "milk is out\nbread is out\n"}],
            budget={"turns": 2},
        ),
    ],
)

REPLIES = {
    "writes": [call("note", text="milk is out"), "Noted."],
    "adds": [call("note", text="bread is out"), call("note", text="bread is out"), "Noted, twice to be sure."],
}


def note_tool(folder: Path) -> AgentTool:
    """Returns a tool that writes notes in the folder of the case."""

    @tool
    def note(text: str) -> str:
        """Writes a note down."""
        with (folder / "notes.txt").open("a") as file:
            file.write(text + "\n")
        return "written"

    return note


def make_agent(case: EvalCase, folder: Path) -> Agent:
    guard = [] if case.budget is None else [BudgetGuard(turns=2 * (case.budget.turns or 1))]
    return Agent("any:model", stream_fn=scripted(*REPLIES[case.id]), tools=[note_tool(folder)], policies=guard)


def is_brief(_case: EvalCase, invocation: Invocation) -> Score:
    words = len(invocation.response.split())
    return Score(1.0 if words < 10 else 0.0, reason=f"{words} words")


def show(progress: Progress) -> None:
    print(f"{progress.done}/{progress.total}: {progress.passed} passed, {progress.failed} failed")


async def main() -> None:
    evaluators = EvaluatorRegistry.standard()
    evaluators.register(is_brief)
    with tempfile.TemporaryDirectory() as folder:
        run = await EvalRunner(make_agent, evaluators, store=EvalStore(folder)).run(CASES, show)
        for result in run.results:
            print(f"{'passed' if result.passed else 'FAILED'}  {result.case_id}")
            for name, score in result.scores.items():
                print(f"    {name}: {score.value:g} ({score.reason})")
        print("audit:", AuditTrail.verify(run) or "equals the record")


asyncio.run(main())
