"""What a model can do with the built-in tools: small tasks, each in a folder of its own, checked by what came of it.

python -m bench.ability                          every task of the first set on the default on-device model
python -m bench.ability --set reported           what went wrong for people with other tasks
python -m bench.ability --set fresh              tasks that nobody looks at while changing prompts
python -m bench.ability --quick 10               ten of them, spread over all kinds
python -m bench.ability --model local:/path.gguf another model; any provider's will do
python -m bench.ability --only edit --verbose    tasks whose name or kind holds this, with every call shown
python -m bench.ability --json out.json          the figures, kept after every task; a second run goes on behind them

Each task is given to the agent that `swink -p PROMPT --approve all --max-turns 10 --timeout 300` makes. Not part of the
test run: it takes minutes to an hour, by the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from swink_agent import AgentMessage, AssistantMessage, ToolResultMessage, UserMessage
from swink_agent.app.agent import AgentOptions, standard_agent
from swink_agent.app.credentials import Credentials
from swink_agent.app.headless import HeadlessRun
from swink_agent.app.models import named_model
from swink_agent.app.settings import Settings, load_settings
from swink_agent.local import DEFAULT_MODEL, LocalStreamFn

from .ability_fresh import FRESH_TASKS
from .ability_tasks import REPORTED, TASKS, Outcome, Task

SETS: dict[str, tuple[Task, ...]] = {
    "first": TASKS,
    "reported": REPORTED,
    "fresh": FRESH_TASKS,
    "all": (*TASKS, *REPORTED, *FRESH_TASKS),
}


@dataclass(frozen=True)
class Score:
    """How one task went. `load` is the machine's, when the task ended."""

    name: str
    kind: str
    is_right: bool
    turns: int
    seconds: float
    load: float
    answer: str
    trace: tuple[str, ...]


async def attempt(task: Task, settings: Settings, stream_fn: Any) -> Score:
    with tempfile.TemporaryDirectory(prefix="ability-") as name:
        folder = Path(name)
        for path, content in task.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(content)
        options = AgentOptions(settings=settings, credentials=Credentials(), folder=folder, stream_fn=stream_fn)
        with standard_agent(options) as made:
            run = HeadlessRun(made.agent, timeout=settings.value("timeout"), prepare=made.prepare)
            ended = await run.run(task.prompt)
            lines = trace(made.agent.messages)
        outcome = Outcome(folder, ended.text if ended.is_answer else "")
        lines += [f"ended: {ended.error}"] if ended.error else []
        return Score(
            name=task.name,
            kind=task.kind,
            is_right=bool(task.check(outcome)),
            turns=ended.turns,
            seconds=ended.seconds,
            load=os.getloadavg()[0],
            answer=ended.text,
            trace=tuple(lines),
        )


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


class Kept:
    """Scores in a file, written after each task, so that a run that was ended can be gone on with."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.scores: dict[str, Score] = {}
        if path is not None and path.exists():
            rows = [Score(**{**row, "trace": tuple(row["trace"])}) for row in json.loads(path.read_text())]
            self.scores = {score.name: score for score in rows}

    def add(self, score: Score) -> None:
        self.scores[score.name] = score
        if self._path is not None:
            unfinished = self._path.with_name(self._path.name + ".new")
            unfinished.write_text(json.dumps([asdict(each) for each in self.scores.values()], indent=1))
            os.replace(unfinished, self._path)


def summary(scores: Sequence[Score], speed: Speed) -> str:
    lines: list[str] = []
    for kind in dict.fromkeys(score.kind for score in scores):
        of_kind = [score for score in scores if score.kind == kind]
        right = sum(score.is_right for score in of_kind)
        lines.append(f"{kind:<9} {right} of {len(of_kind)}  ({right / len(of_kind):.0%})")
    lines.append(f"all       {sum(score.is_right for score in scores)} of {len(scores)}")
    seconds = sum(score.seconds for score in scores)
    loads = [score.load for score in scores]
    lines.append(f"time      {seconds:.0f} s, {seconds / len(scores):.0f} s a task")
    lines.append(f"load      {min(loads):.1f} to {max(loads):.1f} on {os.cpu_count()} cores")
    if speed.writing and speed.reading:
        lines.append(
            f"speed     {speed.output / speed.writing:.1f} tokens/s written, "
            f"{speed.read / speed.reading:.1f} tokens/s read; "
            f"{speed.cached / max(1, speed.cached + speed.read):.0%} of the prompts came from the cache"
        )
    return "\n".join(lines)


def show(score: Score, place: str, is_verbose: bool) -> None:
    print(
        f"{place} {'ok  ' if score.is_right else 'FAIL'} {score.kind:<9} {score.name:<18} "
        f"{score.turns} turns {score.seconds:5.0f} s",
        flush=True,
    )
    if is_verbose or not score.is_right:
        print("".join(f"       {line}\n" for line in score.trace), end="", flush=True)


async def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.ability", description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=f"local:{DEFAULT_MODEL}")
    parser.add_argument("--set", default="first", choices=list(SETS))
    parser.add_argument("--quick", type=int, default=0, metavar="N", help="only N tasks")
    parser.add_argument("--only", nargs="*", default=[], metavar="WORD", help="tasks whose kind or name holds a word")
    parser.add_argument("--sandbox", default="auto", choices=["auto", "off"])
    parser.add_argument("--timeout", type=float, default=300.0, metavar="SECONDS", help="for each task")
    parser.add_argument("--json", type=Path, default=None, metavar="FILE")
    parser.add_argument("--verbose", action="store_true", help="show every call, also where the task went well")
    arguments = parser.parse_args()
    flags = {
        "model": arguments.model,
        "approve": "all",
        "max_turns": 10,
        "timeout": arguments.timeout,
        "sandbox": arguments.sandbox,
    }
    settings, model, speed = load_settings(flags=flags), named_model(arguments.model), Speed()
    stream_fn = None
    if model.provider == "local":  # as the standard agent makes it, with somebody who listens
        stream_fn = LocalStreamFn(model.model_id, cache_dir=settings.value("models_dir"), on_finished=speed.hear)
    kept, tasks = Kept(arguments.json), chosen(arguments)
    for number, task in enumerate(tasks, 1):
        if task.name not in kept.scores:
            kept.add(await attempt(task, settings, stream_fn))
        show(kept.scores[task.name], f"{number:>2}/{len(tasks)}", arguments.verbose)
    print(summary([kept.scores[task.name] for task in tasks], speed))
    if stream_fn is not None:
        stream_fn.close()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
