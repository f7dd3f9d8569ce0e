"""Sample runs for reports: an ordinary one, earlier ones of its set, and ones with hostile text in every field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from swink_agent import (
    AssistantMessage,
    Cost,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from swink_agent.core.types import AgentMessage, ToolOutcome
from swink_agent.evals import (
    Attempt,
    CaseResult,
    EvalCase,
    EvalRun,
    Invocation,
    RunInfo,
    Score,
    Summary,
    ToolCallRecord,
    Versions,
)

NOON = 1_763_200_000_000
DAY = 86_400_000
MODEL = "anthropic:claude-sonnet-4-6"


def conversation(
    prompt: str, reply: str, *, tool: str = "read_file", result: str = "port = 8443\n"
) -> list[AgentMessage]:
    call = ToolCall("call_1", tool, {"path": "settings.toml"})
    said = {
        "provider": "anthropic",
        "model_id": "claude-sonnet-4-6",
        "usage": Usage(900, 60),
        "cost": Cost(0.002, 0.001),
    }
    return [
        UserMessage(prompt, timestamp=NOON),
        AssistantMessage(
            [Thinking("The port is in the settings."), Text("I will look."), call],
            stop_reason=StopReason.TOOL_USE,
            timestamp=NOON + 1000,
            **said,
        ),
        ToolResultMessage("call_1", tool, result, outcome=ToolOutcome.RAN, timestamp=NOON + 2000),
        AssistantMessage(reply, timestamp=NOON + 3000, **said),
    ]


def attempt(
    scores: Mapping[str, Score],
    *,
    number: int = 1,
    error: str | None = None,
    messages: Sequence[AgentMessage] = (),
    response: str = "The port is **8443**.",
    seconds: float = 2.4,
    cost: float = 0.006,
    case: EvalCase | None = None,
) -> Attempt:
    calls = [ToolCallRecord("read_file", {"path": "settings.toml"}, "port = 8443\n", 0.01)] if messages else []
    return Attempt(
        number,
        dict(scores),
        error=error,
        usage=Usage(1800, 120, total=1920),
        cost=Cost(total=cost),
        turns=2,
        calls=len(calls),
        seconds=seconds,
        started=NOON,
        versions=Versions(MODEL, "ab12", {"read_file": "cd34"}, "0.1.0"),
        trajectory=Invocation(messages, 2, calls, response, Usage(1800, 120, total=1920), Cost(total=cost), seconds),
        case=case,
    )


def case(case_id: str, name: str) -> EvalCase:
    return EvalCase(
        case_id,
        name,
        ["Which port does settings.toml set?"],
        expected_trajectory={"calls": [{"name": "read_file", "arguments": {"path": "settings.toml"}}]},
        expected_response={"contains": "8443"},
        budget={"turns": 3},
        setup={"settings.toml": "port = 8443\n"},
    )


def result(case_id: str, name: str, *passes: bool, seconds: float = 2.4) -> CaseResult:
    """A case with an attempt for each of these outcomes."""
    attempts: list[Attempt] = []
    for number, passed in enumerate(passes, 1):
        scores = {
            "trajectory": Score(1.0, reason="every expected call was made"),
            "response": Score(1.0 if passed else 0.0, reason="" if passed else "the reply does not contain '8443'"),
            "budget": Score(1.0),
        }
        reply = (
            "The port is **8443**." if passed else "I could not find it. Is there a file:\n\n```toml\nport = 80\n```"
        )
        said = conversation("Which port does settings.toml set?", reply)
        attempts.append(
            attempt(scores, number=number, messages=said, response=reply, seconds=seconds, case=case(case_id, name))
        )
    return CaseResult(case_id, tuple(attempts), name)


def run_of(
    *results: CaseResult, run_id: str = "20251115-120000-000-aaaaaa", at: int = NOON, seconds: float = 7.5
) -> EvalRun:
    return EvalRun(
        run_id,
        "settings",
        results,
        Summary.of(results, seconds),
        set_name="Questions about settings",
        created=at,
        cases=len(results),
        repeat=max([len(one.attempts) for one in results], default=1),
    )


def ordinary() -> EvalRun:
    broken = attempt({}, error="the model refused the request: overloaded", seconds=0.4, case=case("broken", "Breaks"))
    names = [
        "Reads the port",
        "Finds a file by its content",
        "Writes a file",
        "Renames a function everywhere",
        "Counts",
    ]
    some = [result(f"case-{number}", name, True, True, seconds=1.1 * number) for number, name in enumerate(names, 1)]
    return run_of(
        *some,
        result("flaky", "Answers at the second try", True, False),
        CaseResult("broken", (broken,), "Breaks"),
        run_id="20251115-120000-000-ffffff",
        seconds=31.7,
    )


def history() -> list[EvalRun | RunInfo]:
    """Earlier runs, of which the oldest are known by their summaries alone."""
    made: list[EvalRun | RunInfo] = []
    last = ordinary()
    for number in range(1, 9):
        failing = number % 4
        results = [
            result(one.case_id, one.name, *([index >= failing] * 2), seconds=2.0 + number / 3)
            for index, one in enumerate(last.results)
        ]
        earlier = run_of(*results, run_id=f"20251{number:03}", at=NOON - number * DAY, seconds=24.0 + 3 * failing)
        summary = earlier.summary
        info = RunInfo(earlier.id, earlier.set_id, earlier.set_name, earlier.created, summary, len(results))
        made.append(earlier if number < 5 else info)
    return made


def infected(evil: str) -> EvalRun:
    """A run with this text in every field that a case, a model or a tool fills."""
    said = conversation(evil, evil, tool=evil[:60] or "x", result=evil)
    hostile = attempt(
        {evil: Score(0.25, 0.5, reason=evil), "response": Score(0.0, reason=evil)},
        error=evil,
        messages=said,
        response=evil,
        case=EvalCase("c", evil, [evil], system_prompt=evil, metadata={"key": evil}) if evil.strip() else None,
    )
    result = CaseResult(evil, (hostile,), evil)
    return EvalRun(evil, evil, (result,), Summary.of((result,), 1.0), set_name=evil, created=NOON, cases=1)
