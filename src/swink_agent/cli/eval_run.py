"""`swink eval run`: a set, an agent for each case, a result that is kept.

Owns the order of things: what can be wrong is found before a case is run, what was done is kept whatever happens. How
a case is run is in `swink_agent.evals`, the agents are made in `app.evaluation`.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from swink_agent.app.agent import redactor_for
from swink_agent.app.credentials import Credentials
from swink_agent.app.errors import ExitCode, UsageProblem
from swink_agent.app.evaluation import (
    OwnAgents,
    StandardAgents,
    StandInModel,
    evaluators_named,
    factory_named,
    judge_of,
    other_runs,
    results_folder,
)
from swink_agent.app.settings import load_settings
from swink_agent.core.cancel import CancellationToken
from swink_agent.core.errors import Aborted
from swink_agent.core.secrets.redaction import Redactor

from .eval_progress import ProgressLine
from .interrupts import interruptible, wakeable
from .reporter import Reporter
from .screen import Screen, write_answer

if TYPE_CHECKING:
    from swink_agent.evals import EvalRun, EvalSet, JudgeEvaluator

__all__ = ["run_set"]

_FLAGS = ("model", "thinking", "tools", "sandbox", "network", "max_turns")


def run_set(options: dict[str, Any]) -> int:
    """The whole of it, to an exit code. Raises `ApplicationError` and `EvalError` for what is wrong before the run."""
    return _Run(options).run()


class _Run:
    """One set on its way from the command line to a result."""

    def __init__(self, options: dict[str, Any]) -> None:
        from swink_agent.evals import load_set

        self._options = options
        self._set = _chosen(load_set(options["path"]), options["only"])
        self._is_kept = not options["only"]
        if options["resume"] and not self._is_kept:
            raise UsageProblem("--only tries a part and keeps nothing, so there is nothing to resume: leave one out")
        self._cancel = CancellationToken()
        self._screen = Screen(sys.stderr)
        self._stands_in = self._stand_in()
        self._agents: StandardAgents | OwnAgents = self._factory()
        self._evaluators = evaluators_named(options["evaluator"], Path.cwd(), self._judge())
        self._redactor = redactor_for(load_settings(), Credentials())
        """For agents of the project's own that have none: what is kept shall hold no key of theirs either."""
        self._store = Path(options["store"]) if options["store"] else results_folder()

    def run(self) -> int:
        progress = ProgressLine(self._screen, self._options["repeat"], is_quiet=self._options["quiet"])
        try:
            with interruptible(self._cancel.cancel, self._close, say=_say):
                run = asyncio.run(wakeable(self._run(progress)))
        except Aborted:
            return int(ExitCode.INTERRUPTED)
        finally:
            progress.stop()
            self._close()
        return self._finish(run)

    async def _run(self, progress: ProgressLine) -> EvalRun:
        from swink_agent.evals import EvalRunner, EvalStore

        prepare = getattr(self._agents, "prepare", None)
        if prepare is not None:
            await asyncio.to_thread(prepare, self._cancel)
        runner = EvalRunner(
            self._agents,
            self._evaluators,
            parallel=self._options["parallel"],
            repeat=self._options["repeat"],
            store=EvalStore(self._store) if self._is_kept else None,
            timeout=self._options["timeout"],
            redactor=self._redactor,
        )
        return await runner.run(self._set, progress, self._options["resume"], cancel=self._cancel)

    def _finish(self, run: EvalRun) -> int:
        """Tells how it went: the report to stdout, where it is kept to stderr."""
        from swink_agent.evals import EvalStore, report

        for warning in getattr(self._agents, "warnings", ()):
            self._screen.say("warning: ", warning, "yellow")
        format_name = self._options["format_name"]
        others = other_runs(EvalStore(self._store), run) if format_name == "html" and self._is_kept else ()
        write_answer(report(run, format_name, history=others))
        if self._is_kept and not self._options["quiet"]:
            self._screen.say("kept: ", f"{run.id} in {run.path}", "dim")
        if self._cancel.is_cancelled:
            if self._is_kept:
                self._screen.say("note: ", f"to go on with this: {self._resuming()}", "dim")
            return int(ExitCode.INTERRUPTED)
        is_good = run.is_complete and run.summary.total > 0 and run.summary.failed == 0
        return int(ExitCode.DONE if is_good else ExitCode.FAILED)

    def _resuming(self) -> str:
        """The command line that goes on, which is this one with a word more."""
        words = [word for word in sys.argv[1:] if word != "--resume"]
        return shlex.join(["swink", *words, "--resume"])

    # -- what is needed for it ---------------------------------------------------------------------------------

    def _factory(self) -> StandardAgents | OwnAgents:
        stand_in = self._stands_in
        name = self._options["agent"]
        if name is None:
            flags = {flag: self._options[flag] for flag in _FLAGS}
            state = _local_state(self._screen, is_quiet=self._options["quiet"])
            return StandardAgents(flags, Credentials(), stand_in=stand_in, on_local_state=state)
        ours = [flag for flag in _FLAGS if flag != "model" and self._options[flag] is not None]
        if ours:
            raise UsageProblem(f"--{ours[0].replace('_', '-')} is for the standard agent, and --agent names another")
        return OwnAgents(factory_named(name, Path.cwd()), model=self._options["model"], stand_in=stand_in)

    def _stand_in(self) -> StandInModel | None:
        from swink_agent.evals import load_script

        script, recordings = self._options["script"], self._options["replay"]
        if script is None and recordings is None:
            return None
        if recordings is not None and not Path(recordings).is_dir():
            raise UsageProblem(f"{recordings} is no folder with recorded sessions")
        return StandInModel(
            None if script is None else load_script(script), None if recordings is None else Path(recordings).absolute()
        )

    def _judge(self) -> JudgeEvaluator | None:
        """Who judges by the rubrics of cases: the model that is named, else the script, else the agent's own model.

        Raises `UsageProblem` if there is a rubric and nobody to judge by it.
        """
        case = next((case for case in self._set.cases if case.judge is not None), None)
        if case is None:
            return None
        named = self._options["judge"]
        if named is None and self._stands_in is None and isinstance(self._agents, StandardAgents):
            named = str(self._agents.model)
        if named is not None:
            return judge_of(named, Credentials())
        judge = None if self._stands_in is None else self._stands_in.judge
        if judge is None:
            where = "" if self._options["script"] is None else ", or judge: in the script"
            raise UsageProblem(f"the case {case.id!r} has a rubric and nobody judges by it: --judge MODEL{where}")
        return judge

    def _close(self) -> None:
        if isinstance(self._agents, StandardAgents):
            self._agents.close()


def _chosen(eval_set: EvalSet, words: tuple[str, ...]) -> EvalSet:
    """The cases whose id or name holds one of the words. Raises `UsageProblem` if there is none."""
    if not words:
        return eval_set
    cases = [case for case in eval_set.cases if any(word in f"{case.id} {case.name}" for word in words)]
    if not cases:
        raise UsageProblem(f"no case of {eval_set.id!r} has {' or '.join(map(repr, words))} in its id or name")
    return structs.replace(eval_set, cases=tuple(cases))


def _local_state(screen: Screen, *, is_quiet: bool) -> Callable[[Any], None]:
    """Tells of a model on this machine that is fetched or loaded, which may take minutes, and of nothing after that."""
    reporter = Reporter(screen, Redactor(), "quiet" if is_quiet else "normal")

    def hear(event: Any) -> None:
        if str(getattr(event.state, "value", event.state)) in ("fetching", "loading"):
            reporter.on_local_state(event)

    return hear


def _say(text: str) -> None:
    os.write(2, f"\r\x1b[K{text}\n".encode() if os.isatty(2) else f"{text}\n".encode())
