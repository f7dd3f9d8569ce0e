"""`swink eval`: run sets of cases, look at results, compare them, and hold them against a gate.

Owns the commands and their words. What they do is in `swink_agent.evals` and `app`; running is in `eval_run`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from swink_agent.app.errors import ApplicationError, ExitCode, UsageProblem
from swink_agent.rendering.cells import laid_out
from swink_agent.rendering.escaping import safe_text

from .lazy import offered
from .screen import Palette, wants_colour, width_of, write_answer
from .table import table

if TYPE_CHECKING:
    from swink_agent.evals import EvalRun, EvalStore

__all__ = ["eval_group"]

FORMATS = ("console", "markdown", "json", "junit", "html")  # those of evals.reports, which is not loaded for this
_ENDINGS = {".html": "html", ".htm": "html", ".md": "markdown", ".json": "json", ".xml": "junit"}
_TIME = re.compile(r"(\d+(?:\.\d+)?) ?(s|m|min|h)?")
_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}


class CannotRun(ApplicationError):
    """What was asked could not be done at all, as opposed to: it was done, and the answer is no."""

    exit_code = ExitCode.NO_MODEL


@contextmanager
def _problems() -> Generator[None]:
    """What is wrong with a set or a result, as the program tells it: one line and an exit code."""
    from swink_agent.evals import EvalSetError, EvalStoreError

    try:
        yield
    except EvalSetError as error:
        raise UsageProblem(str(error)) from error
    except EvalStoreError as error:
        raise CannotRun(str(error)) from error


_store = click.option(
    "--store",
    metavar="FOLDER",
    shell_complete=offered("folders"),
    help="Where results are kept. Default: in the user's data folder.",
)


def _opened(store: str | None) -> EvalStore:
    from swink_agent.app.evaluation import results_folder
    from swink_agent.evals import EvalStore

    return EvalStore(Path(store) if store else results_folder())


def _as_recorded(store: EvalStore, result: str) -> EvalRun:
    """A result that is what was recorded: nothing is told of, or decided by, one that was changed afterwards."""
    from swink_agent.evals import AuditTrail, EvalStoreError

    run = store.load(result)
    problems = AuditTrail.verify(run)
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise EvalStoreError(
            f"is damaged: {problems[0]}{more}; all of it: swink eval verify. Run the cases again, or take a copy as "
            "it was recorded",
            path=run.path,
        )
    return run


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
    """Run cases on an agent, score, compare, gate a release."""


# -- running -------------------------------------------------------------------------------------------------


@eval_group.command("run")
@click.argument("path", metavar="SET", shell_complete=offered("files"))
@click.option("--agent", metavar="MODULE:FUNCTION", help="Your own factory: (case, folder) to an agent.")
@click.option(
    "--evaluator", multiple=True, metavar="MODULE:FUNCTION", help="An evaluator of your own, besides. Repeatable."
)
@click.option(
    "-m",
    "--model",
    metavar="PROVIDER:MODEL",
    shell_complete=offered("models"),
    help="Which model. Default: settings, first key, else local.",
)
@click.option("--judge", metavar="PROVIDER:MODEL", shell_complete=offered("models"), help="Who judges by rubrics.")
@click.option(
    "--script", metavar="FILE", shell_complete=offered("files"), help="Replies in place of a model's, case by case."
)
@click.option(
    "--replay", metavar="FOLDER", shell_complete=offered("folders"), help="Recorded sessions in place of a model."
)
@click.option("--parallel", type=click.IntRange(min=1), default=4, metavar="N", help="So many at once. Default: 4.")
@click.option("--repeat", type=click.IntRange(min=1), default=1, metavar="K", help="Each case so often. Default: 1.")
@_store
@click.option("--resume", is_flag=True, help="Go on with the newest run of this set that was interrupted.")
@click.option("--only", multiple=True, metavar="WORD", help="Only cases with this in id or name; nothing is kept.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="For each attempt.")
@click.option("--thinking", type=click.Choice(["off", "minimal", "low", "medium", "high", "extra_high"]))
@click.option("--tools", metavar="NAMES", shell_complete=offered("tools"), help="Built-in tools. Default: all.")
@click.option(
    "--sandbox",
    type=click.Choice(["auto", "bubblewrap", "landlock", "sandbox-exec", "off"]),
    help="How commands are confined. off takes the walls away.",
)
@click.option("--network/--no-network", default=None, help="Whether commands may use the network. Default: not.")
@click.option("--max-turns", type=int, metavar="N", help="At most so many replies in a case. Default: 50.")
@click.option("--format", "format_name", type=click.Choice(FORMATS), default="console", help="Of the report on stdout.")
@click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors.")
def run_command(**options: Any) -> int:
    """Run a set of cases, and keep the result.

    Each case has a folder of its own, and the standard agent works in it: its built-in tools, confined to the folder,
    with nobody to ask. The report goes to stdout, how far it is to stderr. Ctrl+C ends it cleanly, and --resume goes
    on. The exit code is 1 if a case failed.
    """
    from .eval_run import run_set

    if options["timeout"] is None:
        options["timeout"] = 1800.0
    with _problems():
        return run_set(options)


# -- looking -------------------------------------------------------------------------------------------------


@eval_group.command("list")
@click.option("--set", "set_id", metavar="ID", help="Only results of this set.")
@_store
@click.option("--json", "as_json", is_flag=True, help="As a list of objects.")
def list_results(set_id: str | None, store: str | None, as_json: bool) -> None:
    """List results, the newest first."""
    infos = _opened(store).list(set_id)
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(infos), indent=2))
        return
    if not infos:
        click.echo("There are no results here.", err=True)
        return
    rows = [("ID", "SET", "PASSED", "COST", "DURATION")]
    for info in infos:
        summary = info.summary
        if summary is None:
            rows.append((info.id, info.set_id, "interrupted", "", ""))
        else:
            figures = (f"{summary.passed} of {summary.total}", f"${summary.cost:.4f}", f"{summary.seconds:.1f} s")
            rows.append((info.id, info.set_id, *figures))
    click.echo(table(rows, right=(2, 3, 4), whole=(0,)))


@eval_group.command("report", short_help="Tell of a result, in five formats.")
@click.argument("result", metavar="RESULT", shell_complete=offered("results"))
@click.option("--format", "format_name", type=click.Choice(FORMATS), help="Default: by the ending of FILE, or console.")
@click.option("-o", "--output", metavar="FILE", shell_complete=offered("files"), help="Write it here.")
@_store
def report_command(result: str, format_name: str | None, output: str | None, store: str | None) -> None:
    """Tell of a result: for a terminal, a pull request (markdown), a program (json), a build server (junit), or as one
    page with a summary, figures over time and what the agent did in each case (html)."""
    from swink_agent.app.evaluation import other_runs
    from swink_agent.evals import report

    chosen: Any = format_name or _ENDINGS.get(Path(output).suffix.lower() if output else "", "console")
    with _problems():
        opened = _opened(store)
        run = _as_recorded(opened, result)
        text = report(run, chosen, history=other_runs(opened, run) if chosen == "html" else ())
    if output is None:
        write_answer(text)
        return
    from swink_agent.app.paths import write_whole

    write_whole(Path(output), text.encode("utf-8", "replace"), mode=0o644)


@eval_group.command("compare", short_help="Say what got better or worse, and whether that is noise.")
@click.argument("before", metavar="BEFORE", shell_complete=offered("results"))
@click.argument("after", metavar="AFTER", shell_complete=offered("results"))
@_store
@click.option("--json", "as_json", is_flag=True, help="As an object.")
def compare_command(before: str, after: str, store: str | None, as_json: bool) -> None:
    """Say which cases got better or worse, and whether the difference is more than noise."""
    from swink_agent.evals import compare

    with _problems():
        opened = _opened(store)
        found = compare(_as_recorded(opened, before), _as_recorded(opened, after))
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(found), indent=2))
        return
    palette = Palette(wants_colour(sys.stdout))
    broken, fixed = set(found.broken), set(found.fixed)
    for case_id in found.worse:
        _row(palette.style("worse ", "red"), f"{case_id}{' (passed before)' if case_id in broken else ''}")
    for case_id in found.better:
        _row(palette.style("better", "green"), f"{case_id}{' (failed before)' if case_id in fixed else ''}")
    for case_id in found.only_before:
        _row("gone  ", case_id)
    for case_id in found.only_after:
        _row("new   ", case_id)
    interval = f"{found.difference:+.3f} ({found.low:+.3f} to {found.high:+.3f})"
    verdict = "more than noise" if found.is_significant else "no more than noise" if found.difference else "the same"
    cases = f"{found.cases} {'case' if found.cases == 1 else 'cases'} of both"
    click.echo(f"{len(found.better)} better, {len(found.worse)} worse, {len(found.same)} the same")
    click.echo(f"mean score {interval} over {cases}: {verdict}")


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
        raise click.BadParameter(f"{value!r} is no time: write 90, 90s, 5m or 1h", ctx, option)
    return float(found[1]) * _SECONDS[found[2] or ""]


@eval_group.command("gate", short_help="Pass or fail a result.")
@click.argument("result", metavar="RESULT", shell_complete=offered("results"))
@click.option("--min-pass-rate", type=click.FloatRange(0, 1), metavar="PART", help="So many cases pass, from 0 to 1.")
@click.option("--max-cost", type=click.FloatRange(min=0), metavar="USD", help="It cost at most so much.")
@click.option("--max-duration", metavar="TIME", callback=_seconds, help="It took at most so long: 90, 90s, 5m, 1h.")
@click.option(
    "--no-regression",
    "baseline",
    metavar="RESULT",
    shell_complete=offered("results"),
    help="No case that passed there fails here, and scores are not lower by more than noise.",
)
@_store
@click.pass_context
def gate_command(
    ctx: click.Context,
    result: str,
    min_pass_rate: float | None,
    max_cost: float | None,
    max_duration: float | None,
    baseline: str | None,
    store: str | None,
) -> int:
    """Pass or fail a result. Exit code 0: passed, 1: failed, 2: wrong usage, 3: could not run.

    All that is wrong is named, a line each.
    """
    from swink_agent.evals import Gate

    if min_pass_rate is max_cost is max_duration is baseline is None:
        ctx.fail("Nothing to check: give --min-pass-rate, --max-cost, --max-duration or --no-regression.")
    with _problems():
        opened = _opened(store)
        run = _as_recorded(opened, result)
        before = None if baseline is None else _as_recorded(opened, baseline)
        gate = Gate(min_pass_rate, max_cost, max_duration, before)
    verdict = gate.check(run)
    palette = Palette(wants_colour(sys.stdout))
    if verdict.passed:
        cases = "case" if run.summary.total == 1 else "cases"
        told = f"{run.summary.passed} of {run.summary.total} {cases} passed"
        click.echo(f"{palette.style('passed', 'green')}: {told}")
        return int(ExitCode.DONE)
    for violation in verdict.violations:
        _row(palette.style("failed", "red"), violation)
    return int(ExitCode.FAILED)


@eval_group.command("verify", short_help="Check that a result is what was recorded.")
@click.argument("result", metavar="RESULT", shell_complete=offered("results"))
@_store
def verify_command(result: str, store: str | None) -> int:
    """Check that a result is what was recorded, by the hashes over its turns. Exit code 1 if it is not."""
    from swink_agent.evals import AuditTrail

    with _problems():
        run = _opened(store).load(result)
        problems = AuditTrail.verify(run)
    for problem in problems:
        _row(Palette(wants_colour(sys.stdout)).style("damaged", "red"), problem)
    if problems:
        return int(ExitCode.FAILED)
    attempts = sum(len(one.attempts) for one in run.results)
    click.echo(
        f"It is as it was recorded: {attempts} {'attempt' if attempts == 1 else 'attempts'}, every turn of them."
    )
    return int(ExitCode.DONE)


# -- writing sets --------------------------------------------------------------------------------------------


@eval_group.command("add", short_help="Make a case of a recorded session.")
@click.argument("session", metavar="SESSION", shell_complete=offered("sessions"))
@click.option("--to", "path", metavar="FILE", shell_complete=offered("files"), help="Add it to this set, or begin one.")
@click.option("--id", "case_id", metavar="ID", help="The id of the case. Default: made of what was asked.")
@click.option(
    "--recording",
    metavar="FOLDER",
    shell_complete=offered("folders"),
    help="Keep a copy of the session here, for swink eval run --replay FOLDER.",
)
def add_command(session: str, path: str | None, case_id: str | None, recording: str | None) -> None:
    """Make a case of a recorded session: the same messages, the calls that were made, the files that are known.

    Without --to it is printed. Look at it before you rely on it: it expects what the agent did, not what it should
    have done.
    """
    from swink_agent.app.recorded_cases import case_of
    from swink_agent.app.sessions import open_store, session_problems
    from swink_agent.app.settings import load_settings
    from swink_agent.app.written_cases import add_case, case_text

    with session_problems():
        loaded = open_store(load_settings()).load(session)
    with _problems():
        case = case_of(loaded, case_id)
        if path is None:
            write_answer(case_text(case))
        else:
            add_case(case, Path(path))
    if recording is not None:
        import shutil

        Path(recording).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(loaded.path, Path(recording) / loaded.path.name)
    if path is not None:
        _row("added", f"{case.id} to {path}")


@eval_group.command("schema", short_help="Print the JSON Schema of a set.")
def schema_command() -> None:
    """Print the JSON Schema of a set, for editors that complete and check."""
    from swink_agent.evals import case_schema

    click.echo(json.dumps(case_schema(), indent=2))
