"""Measures what the local model reads until its first answer, and how long: without and with kept states.

python -m bench.local_start                      the default on-device model, which must be on this machine
python -m bench.local_start --prompt "Hello!"    another first prompt

The agent is the one that `swink -p` makes, in a folder with one file. The model's state is kept in a folder of this
run, so that the first start really has none. Tokens are the model's; seconds depend on the load of the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from swink_agent import AgentEvent, MessageUpdate
from swink_agent.app.agent.standard import AgentOptions, standard_agent
from swink_agent.app.keys.credentials import Credentials
from swink_agent.app.runs.headless import HeadlessRun
from swink_agent.app.settings.settings import load_settings
from swink_agent.local import DEFAULT_MODEL, LocalModelEvent, LocalStreamFn, ModelStore


class Watch:
    """The clock of one start: when the model was in memory, when it first wrote, and how much it read for that."""

    def __init__(self) -> None:
        self.begun = time.perf_counter()
        self.loaded = self.written = 0.0
        self.first: Any = None

    def on_state(self, event: LocalModelEvent) -> None:
        if event.state == "ready" and not self.loaded:
            self.loaded = time.perf_counter() - self.begun

    def on_finished(self, finished: Any) -> None:
        self.first = self.first or finished

    def on_event(self, event: AgentEvent) -> None:
        if isinstance(event, MessageUpdate) and not self.written:
            self.written = time.perf_counter() - self.begun


async def start(file: Path, states: Path, prompt: str, label: str) -> None:
    watch = Watch()
    with tempfile.TemporaryDirectory(prefix="start-") as name:
        (Path(name) / "notes.txt").write_text("one\ntwo\n")
        stream_fn = LocalStreamFn(str(file), cache_dir=states, on_state=watch.on_state, on_finished=watch.on_finished)
        options = AgentOptions(
            settings=load_settings(flags={"model": f"local:{file}", "approve": "all"}),
            credentials=Credentials(),
            folder=Path(name),
            stream_fn=stream_fn,
        )
        with standard_agent(options) as made, made.agent.subscribe(watch.on_event):
            outcome = await HeadlessRun(made.agent).run(prompt)
        seconds = time.perf_counter() - watch.begun
        stream_fn.close()
    print(
        f"{label:<7} tools {watch.first.cached_tokens} tokens of {watch.first.prompt_tokens}; "
        f"in memory after {watch.loaded:.1f} s, first word after {watch.written:.1f} s, "
        f"answer after {seconds:.1f} s ({outcome.turns} turns): {outcome.text[:60]!r}",
        flush=True,
    )


async def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.local_start", description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--prompt", default="How many lines does notes.txt have?")
    arguments = parser.parse_args()
    file = ModelStore().find(arguments.model)
    if file is None:
        print(f"{arguments.model} is not on this machine yet: swink models pull {arguments.model}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="states-") as states:
        await start(file, Path(states), arguments.prompt, "first")
        await start(file, Path(states), arguments.prompt, "second")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
