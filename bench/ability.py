"""Measures what a model can do with the built-in tools: small tasks in separate folders, checked by their results.

python -m bench.ability                          every task of the first set on the default on-device model
python -m bench.ability --set reported           tasks that failed for users
python -m bench.ability --set fresh              tasks that no prompt was written for
python -m bench.ability --quick 10               ten of them, spread over all kinds
python -m bench.ability --model local:/path.gguf another model, of any provider
python -m bench.ability --only edit --verbose    tasks whose name or kind holds this, with every call shown
python -m bench.ability --store results          keeps the result after every task; a second run continues there

The tasks are evaluation cases, and the only metric is the check of the task. The agent is the one of
`swink -p PROMPT --approve all --max-turns 10 --timeout 300`. `swink eval report`, `compare` and `gate` show and compare
stored results. The test run does not include this: it takes minutes to an hour.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from swink_agent import AgentMessage, AssistantMessage, ToolResultMessage, UserMessage
from swink_agent.app.agent.models import named_model
from swink_agent.app.evals.evaluation import StandardAgents
from swink_agent.app.keys.credentials import Credentials
from swink_agent.app.settings.settings import load_settings
from swink_agent.core.cancel import CancellationToken
from swink_agent.evals import (
    Attempt,
    CaseResult,
    EvalCase,
    EvalRunner,
    EvalSet,
    EvalStore,
    Invocation,
    Progress,
    Score,
)
from swink_agent.local import DEFAULT_MODEL, LocalStreamFn

from .ability_fresh import FRESH_TASKS
from .ability_tasks import REPORTED, TASKS, Outcome, Task

SETS: dict[str, tuple[Task, ...]] = {
    "first": TASKS,
    "reported": REPORTED,
    "fresh": FRESH_TASKS,
    "all": (*TASKS, *REPORTED, *FRESH_TASKS),
}
RIGHT = "right"


def case_of(task: Task) -> EvalCase:
    """The task as a case; its check is a function, so it stays with the task."""
    return EvalCase(task.name, task.name, [task.prompt], setup=task.files, metadata={"kind": task.kind})


def set_of(tasks: Sequence[Task], name: str) -> EvalSet:
    """The set; a part of one has another id, so that it is not compared with the whole."""
    part = "" if len(tasks) == len(SETS[name]) else "-part"
    return EvalSet(f"ability-{name}{part}", f"Ability, {name} tasks", [case_of(task) for task in tasks])


def check_of(tasks: Sequence[Task]) -> Any:
    """The one evaluator: the check of the task that the case was made of."""
    checks = {task.name: task.check for task in tasks}

    def right(case: EvalCase, invocation: Invocation) -> Score:
        assert invocation.folder is not None
        is_answer = invocation.error is None and invocation.stopped_by is None
        outcome = Outcome(invocation.folder, invocation.response if is_answer else "")
        return Score(float(bool(checks[case.id](outcome))))

    return right


def is_right(attempt: Attempt) -> bool:
    """Whether the check held: also of a run that ended badly, after it had done what was asked."""
    score = attempt.scores.get(RIGHT)
    return score is not None and score.passed


def trace(messages: Sequence[AgentMessage]) -> list[str]:
    """What was called and what came back, a line each."""
    lines: list[str] = []
    for message in messages[1:]:
        if type(message) is AssistantMessage:
            lines += [f"{call.name} {json.dumps(call.arguments)[:200]}" for call in message.tool_calls]
            lines += [f"says {message.text[:200]!r}"] if message.text else []
            lines += [f"{message.stop_reason}: {message.error_message}"] if message.error_message else []
        elif type(message) is ToolResultMessage:
            text = "".join(getattr(block, "text", "") for block in message.content)
            lines.append(f"  {'error' if message.is_error else '->'} {text[:240]!r}")
        elif type(message) is UserMessage:
            lines.append(f"  is told {''.join(getattr(block, 'text', '') for block in message.content)!r}")
    return lines


def chosen(arguments: argparse.Namespace) -> list[Task]:
    tasks = [
        task
        for task in SETS[arguments.set]
        if not arguments.only or any(word in f"{task.kind} {task.name}" for word in arguments.only)
    ]
    if arguments.quick and arguments.quick < len(tasks):
        step = len(tasks) / arguments.quick
        tasks = [tasks[int(number * step)] for number in range(arguments.quick)]
    return tasks


class Speed:
    """Tokens and seconds of the model itself, taken from the usage and the clock of each reply."""

    def __init__(self) -> None:
        self.output = self.read = self.cached = 0
        self.writing = self.reading = 0.0

    def hear(self, finished: Any) -> None:
        self.output += finished.output_tokens
        self.read += finished.prompt_tokens - finished.cached_tokens
        self.cached += finished.cached_tokens
        self.writing += finished.output_seconds
        self.reading += finished.prompt_seconds


def kind_of(result: CaseResult) -> str:
    return "" if result.case is None else str(result.case.metadata.get("kind", ""))


def summary(results: Sequence[CaseResult], loads: Sequence[float], speed: Speed) -> str:
    attempts = [result.attempts[0] for result in results]
    lines: list[str] = []
    for kind in dict.fromkeys(kind_of(result) for result in results):
        of_kind = [result.attempts[0] for result in results if kind_of(result) == kind]
        right = sum(is_right(attempt) for attempt in of_kind)
        lines.append(f"{kind:<9} {right} of {len(of_kind)}  ({right / len(of_kind):.0%})")
    lines.append(f"all       {sum(is_right(attempt) for attempt in attempts)} of {len(attempts)}")
    seconds = sum(attempt.seconds for attempt in attempts)
    lines.append(f"time      {seconds:.0f} s, {seconds / len(attempts):.0f} s a task")
    if loads:
        lines.append(f"load      {min(loads):.1f} to {max(loads):.1f} on {os.cpu_count()} cores")
    if speed.writing and speed.reading:
        lines.append(
            f"speed     {speed.output / speed.writing:.1f} tokens/s written, "
            f"{speed.read / speed.reading:.1f} tokens/s read; "
            f"{speed.cached / max(1, speed.cached + speed.read):.0%} of the prompts came from the cache"
        )
    return "\n".join(lines)


class Shown:
    """Tells of each task when it is done, and keeps how busy the machine was then."""

    def __init__(self, is_verbose: bool) -> None:
        self._is_verbose = is_verbose
        self.loads: list[float] = []

    def begin(self, progress: Progress) -> None:
        if progress.resumed:
            print(f"{progress.resumed} tasks are done already", flush=True)

    def __call__(self, progress: Progress) -> None:
        result = progress.latest
        assert result is not None
        self.loads.append(os.getloadavg()[0])
        attempt = result.attempts[0]
        print(
            f"{progress.done:>2}/{progress.total} {'ok  ' if is_right(attempt) else 'FAIL'} {kind_of(result):<9} "
            f"{result.case_id:<18} {attempt.turns} turns {attempt.seconds:5.0f} s",
            flush=True,
        )
        if self._is_verbose or not is_right(attempt):
            lines = trace(attempt.invocation.messages) + ([f"ended: {attempt.error}"] if attempt.error else [])
            print("".join(f"       {line}\n" for line in lines), end="", flush=True)


async def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.ability", description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=f"local:{DEFAULT_MODEL}")
    parser.add_argument("--set", default="first", choices=list(SETS))
    parser.add_argument("--quick", type=int, default=0, metavar="N", help="only N tasks")
    parser.add_argument("--only", nargs="*", default=[], metavar="WORD", help="tasks whose kind or name holds a word")
    parser.add_argument("--sandbox", default="auto", choices=["auto", "off"])
    parser.add_argument("--timeout", type=float, default=300.0, metavar="SECONDS", help="for each task")
    parser.add_argument("--store", type=Path, default=None, metavar="FOLDER", help="keep the result here, and go on")
    parser.add_argument("--verbose", action="store_true", help="show every call, also where the task went well")
    arguments = parser.parse_args()
    flags = {"model": arguments.model, "max_turns": 10, "sandbox": arguments.sandbox}
    settings, model, speed = load_settings(flags=flags), named_model(arguments.model), Speed()
    stream_fn = None
    if model.provider == "local":  # as the standard agent makes it, with somebody who listens
        stream_fn = LocalStreamFn(model.model_id, cache_dir=settings.value("models_dir"), on_finished=speed.hear)
    tasks, shown = chosen(arguments), Shown(arguments.verbose)
    agents = StandardAgents(flags, Credentials(), stream_fn=stream_fn)
    store = None if arguments.store is None else EvalStore(arguments.store)
    try:
        if agents.prepare is not None:
            await asyncio.to_thread(agents.prepare, CancellationToken())
        runner = EvalRunner(agents, [check_of(tasks)], parallel=1, store=store, timeout=arguments.timeout)
        run = await runner.run(set_of(tasks, arguments.set), shown, resume=store is not None)
    finally:
        agents.close()
        if stream_fn is not None:
            stream_fn.close()
    print(summary(run.results, shown.loads, speed))
    if run.path:
        print(f"kept      {run.path}")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
