"""`swink eval`: runs sets of cases, shows and compares results, and checks them against a gate.

Running is in `eval_run`, the rest in `swink_agent.evals` and `app`.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from swink_agent.app.errors import ApplicationError, ExitCode, UsageProblem
from swink_agent.app.runs.telling import number_of
from swink_agent.rendering.amounts import dollars
from swink_agent.rendering.cells import laid_out
from swink_agent.rendering.escaping import safe_text

from ..process.groups import Number, offered, picks, takes
from ..root import options_of_prompt
from ..screen.screen import Palette, say_json, table, wants_colour, width_of, write_answer

if TYPE_CHECKING:
    from swink_agent.evals import EvalGrid, EvalRun, EvalStore

FORMATS = ("console", "markdown", "json", "junit", "html")  # the names in evals.reports, which is not loaded for this
_ENDINGS = {".html": "html", ".htm": "html", ".md": "markdown", ".json": "json", ".xml": "junit"}
_TIME = re.compile(r"(\d+(?:\.\d+)?) ?(s|m|min|h)?")
_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}


class CannotRun(ApplicationError):
    """The command could not run. Exit code 1 means that it ran, and a case or a check failed."""

    exit_code = ExitCode.NO_MODEL


@contextmanager
def _problems() -> Generator[None]:
    """Turns an error in a set or a result into one line and an exit code."""
    from swink_agent.evals import EvalSetError, EvalStoreError, NotMeasured

    try:
        yield
    except EvalSetError as error:
        raise UsageProblem(str(error)) from error
    except (EvalStoreError, NotMeasured) as error:
        raise CannotRun(str(error)) from error


_store = takes("--store FOLDER", "Where results are kept. Default: in the user's data folder.", "folders")


def _opened(store: str | None) -> EvalStore:
    from swink_agent.app.evals.evaluation import results_folder
    from swink_agent.evals import EvalStore

    if store is not None and (not store or (Path(store).exists() and not Path(store).is_dir())):
        raise UsageProblem(f"{store or 'an empty text'} is not a folder (--store)")
    return EvalStore(Path(store) if store else results_folder())


def _as_recorded(store: EvalStore, result: str) -> EvalRun:
    """Loads a result. Raises `EvalStoreError` if it was changed after it was recorded."""
    from swink_agent.evals import AuditTrail, EvalStoreError

    run = store.load(result)
    problems = AuditTrail.verify(run)
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise EvalStoreError(
            f"is damaged: {problems[0]}{more}; swink eval verify shows all problems. Run the cases again, or use an "
            "undamaged copy",
            path=run.path,
        )
    return run


_judge = takes("--judge PROVIDER:MODEL", "The model that judges by rubrics.", "models")
_judge_script = takes("--judge-script FILE", "A script with the judge's answer, instead of a model.", "files")
_verdict = picks(
    "--verdict", "all any majority mean", "How many of the repeats must pass. Default: the set's choice, else all."
)


def _side_by_side(store: EvalStore, results: tuple[str, ...]) -> EvalRun | EvalGrid:
    """The named results, and all results of a grid whose id is named."""
    from swink_agent.evals import EvalGrid, EvalStoreError

    runs: list[EvalRun] = []
    for result in results:
        try:
            grid = None if Path(result).is_file() else store.load_grid(result)
        except EvalStoreError:
            grid = None
        if grid is not None and any(one.id.startswith(result) and one.grid != grid.id for one in store.list()):
            grid = None  # the beginning is ambiguous, and the error lists the results
        runs += [_as_recorded(store, result)] if grid is None else [_as_recorded(store, run.path) for run in grid.runs]
    return runs[0] if len(runs) == 1 else EvalGrid(runs[0].grid or runs[0].id, tuple(runs))


@click.group(
    "eval",
    epilog="""\b
Examples:
  swink eval run cases.yaml --script replies.yaml       no key needed
  swink eval run cases.yaml --model anthropic --repeat 3
  swink eval report 20260131-2359 --format html -o report.html
  swink eval compare 20260130-1200 20260131-2359
  swink eval gate 20260131-2359 --min-pass-rate 0.9 --no-regression main.json

\b
RESULT is a file or the beginning of an id. Exit codes: 0 passed, 1 failed,
2 wrong usage, 3 could not run, 130 interrupted.""",
)
def eval_group() -> None:
    """Run cases on an agent; score, compare and gate the results."""


# -- running -------------------------------------------------------------------------------------------------


@options_of_prompt("thinking", "temperature", "max_tokens", "tools", "sandbox", "network", "max_turns")
@eval_group.command("run")
@click.argument("path", metavar="SET", shell_complete=offered("files"))
@takes(
    "--agent [NAME=]MODULE:FUNCTION",
    "Your own factory, which makes an agent from (case, folder). Several run side by side.",
    multiple=True,
)
@takes("--evaluator MODULE:FUNCTION", "An additional evaluator of your own. Repeatable.", multiple=True)
@takes(
    "-m --model PROVIDER:MODEL",
    "The model; several run side by side. Default: the settings, else the first key, else local.",
    "models",
    multiple=True,
)
@_judge
@_judge_script
@takes("--script FILE", "A script with replies for each case, instead of a model.", "files")
@takes("--replay FOLDER", "Recorded sessions instead of a model.", "folders")
@takes("--parallel N", "The most attempts at once. Default: 4.", type=Number(1), default=4)
@takes("--repeat K", "The number of attempts at each case. Default: 1.", type=Number(1), default=1)
@_verdict
@takes(
    "--retries N",
    "How often an attempt is repeated after an error of the provider. Default: 2.",
    type=Number(0),
    default=2,
)
@_store
@click.option("--resume", is_flag=True, help="Continue the newest run of this set that was interrupted.")
@takes("--only WORD", "Only cases with this in their id or name; the result is not stored.", multiple=True)
@takes("--tag TAG", "Only cases with this tag. Repeatable.", multiple=True)
@takes("--not-tag TAG", "No cases with this tag. Repeatable.", multiple=True)
@takes("--timeout SECONDS", "Limit of each attempt.", type=Number(0, is_open=True, is_whole=False), default=1800.0)
@click.option("--format", "format_name", type=click.Choice(FORMATS), default="console", help="Of the report on stdout.")
@click.option("-q", "--quiet", is_flag=True, help="Print only errors on stderr.")
def run_command(**options: Any) -> int:
    """Run a set of cases, and store the result.

    Each case has its own folder, and the standard agent works in it with its built-in tools, confined to the folder.
    You are not asked about calls. The report goes to stdout, the progress to stderr. Ctrl+C ends it cleanly, and
    --resume continues. The exit code is 1 if a case failed.
    """
    from .eval_run import run_set

    if not options["path"]:
        raise UsageProblem("an empty text names no file with cases")
    _opened(options["store"])
    with _problems():
        return run_set(options)


@eval_group.command("score", short_help="Score a result again, without running it.")
@click.argument("result", metavar="RESULT", shell_complete=offered("results"))
@takes("--set set_path SET", "A set with the current expectations.", "files")
@takes("--evaluator MODULE:FUNCTION", "An additional evaluator of your own. Repeatable.", multiple=True)
@_judge
@_judge_script
@_verdict
@_store
@click.option("--format", "format_name", type=click.Choice(FORMATS), default="console", help="Of the report on stdout.")
def score_command(result: str, store: str | None, **options: Any) -> int:
    """Score a result again, and store that as a new result that names the old one.

    Nothing is run, and only the judge's model is asked. The scores of files stay, because the folders are deleted, and
    so do those of rubrics if no judge is given. The exit code is 1 if a case fails.
    """
    from .eval_run import score_result

    with _problems():
        opened = _opened(store)
        return score_result(opened, _as_recorded(opened, result), options)


# -- looking -------------------------------------------------------------------------------------------------


@eval_group.command("list")
@takes("--set set_id ID", "Only results of this set.")
@_store
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects.")
def list_results(set_id: str | None, store: str | None, as_json: bool) -> None:
    """List results, the newest first."""
    infos = _opened(store).list(set_id)
    if as_json:
        say_json(infos)
        return
    if not infos:
        click.echo("There are no results here.", err=True)
        return
    rows = [("ID", "SET", "PASSED", "COST", "DURATION", "VARIANT")]
    for info in infos:
        summary = info.summary
        if summary is None:
            rows.append((info.id, info.set_id, "interrupted", "", "", info.variant))
        else:
            figures = (f"{summary.passed} of {summary.total}", dollars(summary.cost), f"{summary.seconds:.1f} s")
            rows.append((info.id, info.set_id, *figures, info.variant))
    if not any(row[-1] for row in rows[1:]):
        rows = [row[:-1] for row in rows]
    click.echo(table(rows, right=(2, 3, 4), whole=(0,)))


@eval_group.command("report", short_help="Show a result, in five formats.")
@click.argument("results", metavar="RESULT...", nargs=-1, required=True, shell_complete=offered("results"))
@click.option("--format", "format_name", type=click.Choice(FORMATS), help="Default: by the ending of FILE, or console.")
@takes("-o --output FILE", "The file to write. Default: stdout.", "files")
@_store
def report_command(results: tuple[str, ...], format_name: str | None, output: str | None, store: str | None) -> None:
    """Show a result: for a terminal, a pull request (markdown), a program (json), a build server (junit), or as one
    page with a summary, figures over time and what the agent did in each case (html).

    Several results, or the id of a grid, are shown side by side.
    """
    from swink_agent.app.evals.evaluation import other_runs
    from swink_agent.evals import EvalGrid, report

    chosen: Any = format_name or _ENDINGS.get(Path(output).suffix.lower() if output else "", "console")
    with _problems():
        opened = _opened(store)
        told = _side_by_side(opened, results)
        others = other_runs(opened, told) if chosen == "html" and not isinstance(told, EvalGrid) else ()
        text = report(told, chosen, history=others)
    if output is None:
        write_answer(text)
        return
    from swink_agent.app.settings.paths import write_whole

    try:
        write_whole(Path(output), text.encode("utf-8", "replace"), mode=0o644)
    except OSError as error:
        raise CannotRun(f"{output} cannot be written: {error.strerror or error} (-o)") from error


@eval_group.command("compare", short_help="Show which cases got better or worse, and whether that is noise.")
@click.argument("before", metavar="BEFORE", shell_complete=offered("results"))
@click.argument("after", metavar="AFTER", shell_complete=offered("results"))
@_judge
@_judge_script
@_store
@click.option("--json", "as_json", is_flag=True, help="Print one object.")
def compare_command(
    before: str, after: str, store: str | None, as_json: bool, judge: str | None, judge_script: str | None
) -> None:
    """Show which cases got better or worse, and whether the difference is more than noise.

    With --judge, a model also decides which of the two answers to each case is better, asked in both orders."""
    from swink_agent.evals import compare
    from swink_agent.evals.reports.words import difference_words

    from .eval_run import preferred

    with _problems():
        opened = _opened(store)
        runs = _as_recorded(opened, before), _as_recorded(opened, after)
        found = compare(*runs)
        preference = preferred(*runs, judge, judge_script)
    if as_json:
        told = msgspec.to_builtins(found)
        if preference is not None:
            told["judge"] = {**msgspec.to_builtins(preference), "win_rate": preference.win_rate}
        say_json(told)
        return
    palette = Palette(wants_colour(sys.stdout))
    broken, fixed = set(found.broken), set(found.fixed)
    for case_id in found.worse:
        _row(palette.style("worse ", "red"), f"{case_id}{' (passed before)' if case_id in broken else ''}")
    for case_id in found.better:
        _row(palette.style("better", "green"), f"{case_id}{' (failed before)' if case_id in fixed else ''}")
    for word, ids in (("gone  ", found.only_before), ("new   ", found.only_after)):
        for case_id in ids:
            _row(word, case_id)
    click.echo(f"{len(found.better)} better, {len(found.worse)} worse, {len(found.same)} the same")
    click.echo(difference_words(found, f"{'case' if found.cases == 1 else 'cases'} of both"))
    if preference is not None:
        for pair in preference.pairs:
            _row(f"{pair.winner:6}", f"{pair.case_id}: {pair.reason}")
        told = f"{preference.after} for after, {preference.before} for before, {preference.ties} ties"
        if preference.pairs:
            click.echo(f"judge: {told}; after wins {preference.win_rate:.0%} ({dollars(preference.cost)})")
        else:
            click.echo(f"judge: no case could be judged ({dollars(preference.cost)})")
        if preference.not_judged:
            _row("not judged (in one result alone, or no answer that can be read):", ", ".join(preference.not_judged))


def _row(word: str, text: str) -> None:
    rows = laid_out(safe_text(text), "", "  ┆ ", width_of(sys.stdout))
    click.echo(f"{word}  {rows[0]}")
    for row in rows[1:]:
        click.echo(row)


# -- deciding ------------------------------------------------------------------------------------------------


def _seconds(ctx: click.Context, option: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    found = _TIME.fullmatch(value.strip())
    if found is None:
        raise click.BadParameter(f"{value!r} is not a time: write 90, 90s, 5m or 1h", ctx, option)
    return float(found[1]) * _SECONDS[found[2] or ""]


@eval_group.command("gate", short_help="Pass or fail a result.")
@click.argument("result", metavar="RESULT", shell_complete=offered("results"))
@takes("--min-pass-rate PART", "The least share of cases that pass, from 0 to 1.", type=Number(0, 1, is_whole=False))
@takes(
    "--min-pass-rate-low PART",
    "The least share of cases that pass with 95 % confidence: the lower end of the interval.",
    type=Number(0, 1, is_whole=False),
)
@takes(
    "--max-not-measured N",
    "The most cases without a verdict because the provider failed. Default: 0.",
    type=Number(0),
    default=0,
)
@takes("--max-cost USD", "Cost limit in US dollars.", type=Number(0, is_whole=False))
@takes("--max-duration max_seconds TIME", "Time limit: 90, 90s, 5m, 1h.", callback=_seconds)
@takes(
    "--no-regression baseline RESULT",
    "No case that passed there fails here, and scores are not lower by more than noise.",
    "results",
)
@_store
@click.pass_context
def gate_command(ctx: click.Context, result: str, baseline: str | None, store: str | None, **limits: Any) -> int:
    """Pass or fail a result. Exit code 0: passed, 1: failed, 2: wrong usage, 3: could not run.

    Every failed check is named on its own line.
    """
    from swink_agent.evals import Gate

    if baseline is None and all(limit is None for name, limit in limits.items() if name != "max_not_measured"):
        ctx.fail(
            "Nothing to check: give --min-pass-rate, --min-pass-rate-low, --max-cost, --max-duration "
            "or --no-regression."
        )
    with _problems():
        opened = _opened(store)
        run = _as_recorded(opened, result)
        before = None if baseline is None else _as_recorded(opened, baseline)
        gate = Gate(baseline=before, **limits)
    verdict = gate.check(run)
    palette = Palette(wants_colour(sys.stdout))
    if verdict.passed:
        told = f"{run.summary.passed} of {number_of(run.summary.total, 'case')} passed"
        click.echo(f"{palette.style('passed', 'green')}: {told}")
        return int(ExitCode.DONE)
    for violation in verdict.violations:
        _row(palette.style("failed", "red"), violation)
    return int(ExitCode.FAILED)


@eval_group.command("verify", short_help="Check that a result is unchanged since it was recorded.")
@click.argument("result", metavar="RESULT", shell_complete=offered("results"))
@_store
def verify_command(result: str, store: str | None) -> int:
    """Check, by the hashes over its turns, that a result is unchanged since it was recorded. Exit code 1 if not."""
    from swink_agent.evals import AuditTrail

    with _problems():
        run = _opened(store).load(result)
        problems = AuditTrail.verify(run)
    for problem in problems:
        _row(Palette(wants_colour(sys.stdout)).style("damaged", "red"), problem)
    if problems:
        return int(ExitCode.FAILED)
    attempts = sum(len(one.attempts) for one in run.results)
    click.echo(f"It is unchanged: {number_of(attempts, 'attempt')}, every turn.")
    return int(ExitCode.DONE)


# -- writing sets --------------------------------------------------------------------------------------------


@eval_group.command("add", short_help="Make a case from a recorded session.")
@click.argument("session", metavar="SESSION", shell_complete=offered("sessions"))
@takes("--to path FILE", "Add the case to this set, or create the set.", "files")
@takes("--id case_id ID", "The id of the case. Default: made from the session's title.")
@takes("--recording FOLDER", "Keep a copy of the session here, for swink eval run --replay FOLDER.", "folders")
def add_command(session: str, path: str | None, case_id: str | None, recording: str | None) -> None:
    """Make a case from a recorded session: with its messages, its calls, and its files as far as they are known.

    Without --to the case is printed. Look at it before you rely on it: it expects what the agent did, not what it
    should have done.
    """
    from swink_agent.app.evals.recorded_cases import case_of
    from swink_agent.app.evals.written_cases import add_case, case_text
    from swink_agent.app.runs.sessions import open_store, session_problems
    from swink_agent.app.settings.settings import load_settings

    with session_problems():
        loaded = open_store(load_settings()).load(session)
    with _problems():
        case = case_of(loaded, case_id)
        if path is None:
            write_answer(case_text(case))
        else:
            add_case(case, Path(path))
    if recording is not None:
        Path(recording).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(loaded.path, Path(recording) / loaded.path.name)
    if path is not None:
        _row("added", f"{case.id} to {path}")


@eval_group.command("schema", short_help="Print the JSON Schema of a set.")
def schema_command() -> None:
    """Print the JSON Schema of a set, for editors that complete and check."""
    from swink_agent.evals import case_schema

    say_json(case_schema())
