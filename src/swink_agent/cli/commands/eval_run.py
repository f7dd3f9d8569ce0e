"""`swink eval run`: runs a set with an agent for each case, and stores the result.

Finds mistakes before a case is run, and stores finished work whatever happens. Running a case is in
`swink_agent.evals`, making the agents in `app.evals.evaluation`.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from swink_agent.app.agent.models import named_model
from swink_agent.app.agent.standard import redactor_for
from swink_agent.app.errors import ExitCode, UsageProblem
from swink_agent.app.evals import evaluation
from swink_agent.app.evals.evaluation import OwnAgents, StandardAgents, StandInModel
from swink_agent.app.keys.credentials import Credentials
from swink_agent.app.settings.settings import load_settings
from swink_agent.core.cancel import CancellationToken
from swink_agent.core.errors import Aborted
from swink_agent.core.secrets.redaction import Redactor

from ..process.interrupts import interruptible, wakeable
from ..prompt.reporter import Reporter
from ..screen.eval_progress import ProgressLine
from ..screen.screen import Screen, write_answer

if TYPE_CHECKING:
    from swink_agent.evals import EvalGrid, EvalRun, EvalSet, EvalStore, JudgeEvaluator, Preference

_FLAGS = ("model", "thinking", "temperature", "max_tokens", "tools", "sandbox", "network", "max_turns")


def run_set(options: dict[str, Any]) -> int:
    """Runs a set; returns the exit code. Raises `ApplicationError` and `EvalError` for problems before the run."""
    return _Run(options).run()


def score_result(store: EvalStore, run: EvalRun, options: dict[str, Any]) -> int:
    """Scores a result again, stores the new result and reports it. Raises the same errors as `run_set`."""
    from swink_agent.evals import load_set, report, rescore

    eval_set = None if options["set_path"] is None else load_set(options["set_path"])
    judge = _given_judge(options)
    evaluators = evaluation.evaluators_named(options["evaluator"], Path.cwd(), judge)
    redactor = redactor_for(load_settings(), Credentials())
    try:
        scoring = rescore(
            run, evaluators, eval_set=eval_set, store=store, verdict=options["verdict"], redactor=redactor
        )
        with Reporter(Screen(sys.stderr), redactor).hearing_log():
            scored = asyncio.run(scoring)
    except ValueError as error:
        raise UsageProblem(str(error)) from error
    write_answer(report(scored, options["format_name"]))
    Screen(sys.stderr).say("kept: ", f"{scored.id} in {scored.path}", "dim")
    return int(ExitCode.DONE if scored.summary.total == scored.summary.passed else ExitCode.FAILED)


def preferred(before: EvalRun, after: EvalRun, judge: str | None, judge_script: str | None) -> Preference | None:
    """Asks the judge which of two results is better; `None` without a judge. Raises `NotMeasured`."""
    from swink_agent.evals import PairwiseJudge, load_script
    from swink_agent.evals.scoring.pairwise import names_winner

    _refuse_two_judges(judge, judge_script)
    if judge_script is not None:
        script = load_script(judge_script)
        if not names_winner(script.judge or ""):
            raise UsageProblem(
                f"{judge_script}: a judge of two answers must name a winner: judge: {{winner: tie, reasoning: Fine.}}; "
                "the winner is first, second or tie"
            )
        asked = PairwiseJudge(evaluation.STAND_IN_MODEL, evaluation.scripted_judge_model(script))
    elif judge is not None:
        spec = named_model(judge, load_settings().aliases())
        asked = PairwiseJudge(spec, evaluation.judge_stream_fn(spec, Credentials()))
    else:
        return None
    with Reporter(Screen(sys.stderr), redactor_for(load_settings(), Credentials())).hearing_log():
        return asyncio.run(asked.compare(before, after))


def _refuse_two_judges(judge: str | None, judge_script: str | None) -> None:
    if judge is not None and judge_script is not None:
        raise UsageProblem("--judge and --judge-script are two judges: leave one out")


def _given_judge(options: dict[str, Any]) -> JudgeEvaluator | None:
    from swink_agent.evals import load_script

    named, script = options["judge"], options["judge_script"]
    _refuse_two_judges(named, script)
    if script is not None:
        return evaluation.scripted_judge(load_script(script))
    return None if named is None else evaluation.judge_of(named, Credentials())


class _Run:
    """One set, from the command line to a result, or to one result for each variant."""

    def __init__(self, options: dict[str, Any]) -> None:
        from swink_agent.evals import load_set

        self._options = options
        self._set = _chosen(load_set(options["path"]), options)
        self._is_kept = not options["only"]
        if options["resume"] and not self._is_kept:
            raise UsageProblem("with --only no result is stored, so there is nothing to resume: leave one out")
        self._cancel = CancellationToken()
        self._screen = Screen(sys.stderr)
        self._stands_in = self._stand_in()
        self._agents: dict[str, StandardAgents | OwnAgents] = {}
        try:
            self._agents |= self._factories()
            self._evaluators = evaluation.evaluators_named(options["evaluator"], Path.cwd(), self._judge())
        except BaseException:
            self._close()
            raise
        self._redactor = redactor_for(load_settings(), Credentials())
        """A redactor for the project's own agents without one, so that no result contains their keys."""
        self._store = Path(options["store"]) if options["store"] else evaluation.results_folder()

    def run(self) -> int:
        progress = ProgressLine(self._screen, self._options["repeat"], is_quiet=self._options["quiet"])
        try:
            loudness = "quiet" if self._options["quiet"] else "normal"
            reporter = Reporter(self._screen, self._redactor, loudness)
            with reporter.hearing_log(), interruptible(self._cancel.cancel, self._close, is_told=True):
                run = asyncio.run(wakeable(self._run(progress)))
        except Aborted:
            return int(ExitCode.INTERRUPTED)
        finally:
            progress.stop()
            self._close()
        return self._finish(run)

    async def _run(self, progress: ProgressLine) -> EvalRun | EvalGrid:
        from swink_agent.evals import EvalRunner, EvalStore

        for agents in self._agents.values():
            prepare = getattr(agents, "prepare", None)
            if prepare is not None:
                await asyncio.to_thread(prepare, self._cancel)
        is_grid = len(self._agents) > 1
        runner = EvalRunner(
            self._agents if is_grid else next(iter(self._agents.values())),
            self._evaluators,
            parallel=self._options["parallel"],
            repeat=self._options["repeat"],
            store=EvalStore(self._store) if self._is_kept else None,
            timeout=self._options["timeout"],
            redactor=self._redactor,
            verdict=self._options["verdict"],
            retries=self._options["retries"],
        )
        run = runner.run_grid if is_grid else runner.run
        return await run(self._set, progress, self._options["resume"], cancel=self._cancel)

    def _finish(self, run: EvalRun | EvalGrid) -> int:
        """Writes the report to stdout, and its place in the store to stderr."""
        from swink_agent.evals import EvalGrid, EvalStore, report

        warnings = dict.fromkeys(word for agents in self._agents.values() for word in getattr(agents, "warnings", ()))
        for warning in warnings:
            self._screen.say("warning: ", warning, "yellow")
        format_name = self._options["format_name"]
        runs = run.runs if isinstance(run, EvalGrid) else (run,)
        has_history = format_name == "html" and self._is_kept and not isinstance(run, EvalGrid)
        others = evaluation.other_runs(EvalStore(self._store), runs[0]) if has_history else ()
        if runs:
            write_answer(report(run, format_name, history=others))
        if self._is_kept and not self._options["quiet"]:
            if isinstance(run, EvalGrid):
                self._screen.say("grid: ", run.id, "dim")
            for one in runs:
                self._screen.say("kept: ", f"{one.id} in {one.path}", "dim")
        if self._cancel.is_cancelled:
            if self._is_kept:
                words = [word for word in sys.argv[1:] if word != "--resume"]
                again = shlex.join(["swink", *words, "--resume"])
                self._screen.say("note: ", f"to continue later: {again}", "dim")
            return int(ExitCode.INTERRUPTED)
        is_good = all(one.is_complete and one.summary.total and one.summary.passed == one.summary.total for one in runs)
        return int(ExitCode.DONE if is_good else ExitCode.FAILED)

    # -- parts of the run --------------------------------------------------------------------------------------

    def _factories(self) -> dict[str, StandardAgents | OwnAgents]:
        """The agents by variant: each agent with each named model."""
        models: tuple[str | None, ...] = self._options["model"] or (None,)
        agents = [evaluation.agent_named(text) for text in self._options["agent"]] or [("", None)]
        made: dict[str, StandardAgents | OwnAgents] = {}
        for agent, factory in agents:
            for model in models:
                several = [agent] * (len(agents) > 1) + [model or ""] * (len(models) > 1)
                name = " ".join(several)
                if name in made:
                    self._agents |= made
                    if len(agents) == 1:
                        raise UsageProblem(f"--model {model} is given twice")
                    raise UsageProblem(f"{name!r} is given twice: give each variant its own name, NAME=MODULE:FUNCTION")
                made[name] = self._factory(factory, model)
        return made

    def _factory(self, name: str | None, model: str | None) -> StandardAgents | OwnAgents:
        stand_in = self._stands_in
        if name is None:
            flags = {**{flag: self._options[flag] for flag in _FLAGS}, "model": model}
            state = _local_state(self._screen, is_quiet=self._options["quiet"])
            return StandardAgents(flags, Credentials(), stand_in=stand_in, on_local_state=state)
        ours = [flag for flag in _FLAGS if flag != "model" and self._options[flag] is not None]
        if ours:
            raise UsageProblem(f"--{ours[0].replace('_', '-')} is for the standard agent only: leave it or --agent out")
        return OwnAgents(evaluation.factory_named(name, Path.cwd()), model=model, stand_in=stand_in)

    def _stand_in(self) -> StandInModel | None:
        from swink_agent.evals import load_script

        script, recordings = self._options["script"], self._options["replay"]
        if script is None and recordings is None:
            return None
        if recordings is not None and not Path(recordings).is_dir():
            raise UsageProblem(f"{recordings} is not a folder with recorded sessions")
        return StandInModel(
            None if script is None else load_script(script), None if recordings is None else Path(recordings).absolute()
        )

    def _judge(self) -> JudgeEvaluator | None:
        """The judge for rubrics: from the command line, else the script, else the settings, else the agent's model.

        The settings and the agent's model count only without a stand-in, and the agent's model only if there is one
        agent, the standard one. Raises `UsageProblem` if there is a rubric and no judge.
        """
        given = _given_judge(self._options)
        case = next((case for case in self._set.cases if case.judge is not None), None)
        if given is not None or case is None:
            return given
        judge = None if self._stands_in is None else self._stands_in.judge
        if judge is not None:
            return judge
        named = load_settings().value("judge")
        if named and self._stands_in is None:
            return evaluation.judge_of(named, Credentials())
        first = next(iter(self._agents.values()))
        if self._stands_in is None and isinstance(first, StandardAgents) and len(self._agents) == 1:
            return evaluation.judge_of(str(first.model), Credentials())
        where = "" if self._options["script"] is None else ", or judge: in the script"
        told = f"the case {case.id!r} has a rubric, but there is no judge: --judge MODEL, --judge-script FILE{where}"
        raise UsageProblem(told)

    def _close(self) -> None:
        for agents in self._agents.values():
            if isinstance(agents, StandardAgents):
                agents.close()


def _chosen(eval_set: EvalSet, options: dict[str, Any]) -> EvalSet:
    """The cases selected by tags and words. Raises `UsageProblem` if no case is left."""
    words = options["only"]
    if options["tag"] or options["not_tag"]:
        try:
            eval_set = eval_set.tagged(options["tag"], options["not_tag"])
        except ValueError as error:
            raise UsageProblem(str(error)) from error
    if not words:
        return eval_set
    cases = [case for case in eval_set.cases if any(word in f"{case.id} {case.name}" for word in words)]
    if not cases:
        raise UsageProblem(f"no case of {eval_set.id!r} has {' or '.join(map(repr, words))} in its id or name")
    return structs.replace(eval_set, cases=tuple(cases))


def _local_state(screen: Screen, *, is_quiet: bool) -> Callable[[Any], None]:
    """Reports only the fetching and loading of a local model, which may take minutes."""
    reporter = Reporter(screen, Redactor(), "quiet" if is_quiet else "normal")

    def hear(event: Any) -> None:
        if str(getattr(event.state, "value", event.state)) in ("fetching", "loading"):
            reporter.on_local_state(event)

    return hear
