"""What a model can do with the built-in tools: small tasks, each in a folder of its own, checked by what came of it.

python -m bench.ability                          every task on the default on-device model
python -m bench.ability --quick 10               ten of them, spread over all kinds
python -m bench.ability --model local:/path.gguf another model; any provider's will do
python -m bench.ability --only edit --verbose    tasks whose name or kind holds this, with every call shown
python -m bench.ability --json out.json          the figures, for keeping

Not part of the test run: it takes minutes to an hour, by the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from swink_agent import Agent, AgentResult, ApprovalMode, AssistantMessage, ModelSpec, StreamOptions, ToolResultMessage
from swink_agent.app.prompt import standard_prompt
from swink_agent.local import DEFAULT_MODEL, LocalStreamFn
from swink_agent.tools import standard_tools

from .ability_tasks import TASKS, Outcome, Task

MOST_TURNS = 10


@dataclass(frozen=True)
class Score:
    """How one task went."""

    name: str
    kind: str
    is_right: bool
    turns: int
    seconds: float
    answer: str
    trace: tuple[str, ...]


class TurnLimit:
    """Ends a run that goes on and on."""

    def pre_turn(self, ctx: Any) -> Any:
        from swink_agent import Stop

        return Stop(f"{MOST_TURNS} turns") if ctx.turn_index >= MOST_TURNS else None


async def attempt(task: Task, model: ModelSpec, stream_fn: Any, sandbox: str, options: StreamOptions) -> Score:
    with tempfile.TemporaryDirectory(prefix="ability-") as name:
        folder = Path(name)
        for path, content in task.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(content)
        agent = Agent(
            model,
            system_prompt=standard_prompt(folder),
            tools=standard_tools(folder, sandbox=sandbox),
            stream_fn=stream_fn,
            stream_options=options,
            approval_mode=ApprovalMode.BYPASSED,
            policies=[TurnLimit()],
        )
        start = time.perf_counter()
        result = await agent.prompt(task.prompt)
        seconds = time.perf_counter() - start
        outcome = Outcome(folder, "" if result.error else result.text)
        turns = sum(type(message) is AssistantMessage for message in result.messages)
        return Score(task.name, task.kind, bool(task.check(outcome)), turns, seconds, result.text, trace(result))


def trace(result: AgentResult) -> tuple[str, ...]:
    """What was called and what came back, a line each."""
    lines: list[str] = []
    for message in result.messages:
        if type(message) is AssistantMessage:
            lines += [f"{call.name} {json.dumps(call.arguments)[:200]}" for call in message.tool_calls]
            lines += [f"says {message.text[:200]!r}"] if message.text else []
            lines += [f"{message.stop_reason}: {message.error_message}"] if message.error_message else []
        elif type(message) is ToolResultMessage:
            text = "".join(getattr(block, "text", "") for block in message.content)
            lines.append(f"  {'error' if message.is_error else '->'} {text[:160]!r}")
    return tuple(lines)


def chosen(arguments: argparse.Namespace) -> list[Task]:
    tasks = [
        task
        for task in TASKS
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


def summary(scores: Sequence[Score], speed: Speed) -> str:
    lines: list[str] = []
    for kind in dict.fromkeys(score.kind for score in scores):
        of_kind = [score for score in scores if score.kind == kind]
        right = sum(score.is_right for score in of_kind)
        lines.append(f"{kind:<9} {right} of {len(of_kind)}  ({right / len(of_kind):.0%})")
    seconds = sum(score.seconds for score in scores)
    lines.append(f"time      {seconds:.0f} s, {seconds / len(scores):.0f} s a task")
    if speed.writing and speed.reading:
        lines.append(
            f"speed     {speed.output / speed.writing:.1f} tokens/s written, "
            f"{speed.read / speed.reading:.1f} tokens/s read; "
            f"{speed.cached / max(1, speed.cached + speed.read):.0%} of the prompts came from the cache"
        )
    return "\n".join(lines)


async def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.ability", description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=f"local:{DEFAULT_MODEL}")
    parser.add_argument("--quick", type=int, default=0, metavar="N", help="only N tasks")
    parser.add_argument("--only", nargs="*", default=[], metavar="WORD", help="tasks whose kind or name holds a word")
    parser.add_argument("--sandbox", default="auto", choices=["auto", "off"])
    parser.add_argument("--temperature", type=float, default=None)
    parser.add_argument("--json", type=Path, default=None, metavar="FILE")
    parser.add_argument("--verbose", action="store_true", help="show every call, also where the task went well")
    arguments = parser.parse_args()
    model, speed = ModelSpec.parse(arguments.model), Speed()
    stream_fn = LocalStreamFn(on_finished=speed.hear) if model.provider == "local" else None
    options = StreamOptions(temperature=arguments.temperature)
    scores: list[Score] = []
    for task in chosen(arguments):
        score = await attempt(task, model, stream_fn, arguments.sandbox, options)
        scores.append(score)
        print(
            f"{'ok  ' if score.is_right else 'FAIL'} {score.kind:<9} {score.name:<18} "
            f"{score.turns} turns {score.seconds:5.0f} s",
            flush=True,
        )
        if arguments.verbose or not score.is_right:
            print("".join(f"       {line}\n" for line in score.trace), end="", flush=True)
    print(summary(scores, speed))
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(score) for score in scores], indent=1))
    if stream_fn is not None:
        stream_fn.close()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
