"""The report as one HTML page: a summary, figures over time, and a page for each case.

Owns the frame and the overview. `case_page` has the cases, `charts` the graphics, `rendering.frame` the head with the
policy that forbids scripts. The page has none: the browser shows the case whose anchor is in the address, and the style
sheet folds and filters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from html import escape
from importlib.resources import files
from statistics import fmean

from swink_agent.evals.types import CaseResult, EvalRun, RunInfo, Score
from swink_agent.rendering.amounts import dollars
from swink_agent.rendering.characters import one_line
from swink_agent.rendering.frame import bar as top_bar
from swink_agent.rendering.frame import head, scrolled_table
from swink_agent.rendering.turns import moment

from .case_page import case_html, kind_of, mark, place_of
from .charts import Point, bar, over_time, ring
from .words import (
    case_name,
    duration,
    headline,
    number,
    outcome,
    reasons,
    run_facts,
    share,
    tag_rows,
    title_of,
)

_MOST_RUNS = 60
_MOST_IN_STRIP = 12


def html_report(run: EvalRun, history: Sequence[EvalRun | RunInfo] = ()) -> str:
    runs = _in_order(run, history)
    out = [head(f"{title_of(run)}: {headline(run)}", skip="report", style=report_style()), top_bar(has_contents=True)]
    out.append(f'<div class="page">\n{_contents(run)}<main id="report">\n')
    _overview(run, runs, out)
    for index, result in enumerate(run.results):
        case_html(index, len(run.results), result, out)
    out.append("</main>\n</div>\n</body>\n</html>\n")
    return "".join(out)


@lru_cache(maxsize=1)
def report_style() -> str:
    return files(__package__ or __name__).joinpath("report.css").read_text(encoding="utf-8")


def _in_order(run: EvalRun, history: Sequence[EvalRun | RunInfo]) -> list[EvalRun | RunInfo]:
    """The runs of the set that have figures, oldest first, including this one."""
    has_figures = [other for other in history if other.is_complete and other.summary is not None]
    others = {other.id: other for other in has_figures if other.set_id == run.set_id}
    others[run.id] = run
    return sorted(others.values(), key=lambda other: (other.created, other.id))[-_MOST_RUNS:]


# -- navigation ----------------------------------------------------------------------------------------------


def _contents(run: EvalRun) -> str:
    lines = [
        f'<li class="{kind_of(outcome(result))}"><a href="#{place_of(index)}">{mark(outcome(result))}'
        f"<bdi>{escape(case_name(result) or one_line(result.case_id, 90))}</bdi></a></li>\n"
        for index, result in enumerate(run.results)
    ]
    return (
        '<nav class="contents" aria-label="Cases"><h2>Cases</h2>\n'
        f'<ol>\n<li><a class="to-overview" href="#overview">Overview</a></li>\n{"".join(lines)}</ol></nav>\n'
    )


# -- the overview --------------------------------------------------------------------------------------------


def _overview(run: EvalRun, runs: Sequence[EvalRun | RunInfo], out: list[str]) -> None:
    summary = run.summary
    rows = "".join(
        [f"<div><dt>{name}</dt><dd><bdi>{escape(value)}</bdi></dd></div>\n" for name, value in run_facts(run)]
    )
    kind = "good" if run.is_complete and summary.total and summary.passed == summary.total else "bad"
    out.append(
        f'<section class="overview" id="overview" aria-label="Overview">\n<header class="session">\n'
        f'<h1 dir="auto">{escape(title_of(run))}</h1>\n'
        f'<div class="verdict {kind}">{ring(summary.pass_rate)}<p><strong>{escape(headline(run))}</strong></p></div>\n'
        f"<dl>\n{rows}</dl>\n</header>\n"
    )
    _over_time(run, runs, out)
    _by_metric(run, out)
    _by_tag(run, out)
    _cases(run, runs, out)
    out.append("</section>\n")


def _over_time(run: EvalRun, runs: Sequence[EvalRun | RunInfo], out: list[str]) -> None:
    figures = [(other, found) for other in runs if (found := other.summary) is not None]
    if len(figures) < 2:
        return

    def chart(title: str, name: str, words: Callable[[float], str], top: float | None = None) -> str:
        points = [
            Point(value := float(getattr(one, name)), f"{moment(other.created)}: {words(value)}", other.id == run.id)
            for other, one in figures
        ]
        return over_time(title, points, words, top=top)

    out.append(
        f'<section class="over-time"><h2>Over time</h2><p class="quiet">{len(figures)} runs</p>\n<div class="charts">\n'
    )
    out.append(chart("Pass rate", "pass_rate", share, top=1.0))
    if any(summary.cost for _, summary in figures):
        out.append(chart("Cost", "cost", dollars))
    out.append(chart("Duration", "seconds", duration))
    out.append("</div></section>\n")


def _by_metric(run: EvalRun, out: list[str]) -> None:
    found: dict[str, list[Score]] = {}
    for result in run.results:
        for attempt in result.attempts:
            for name, score in attempt.scores.items():
                found.setdefault(name, []).append(score)
    if not found:
        return
    rows = "".join([_metric(name, scores) for name, scores in sorted(found.items())])
    head_row = '<th>Metric</th><th>Mean</th><th class="right"></th><th class="right">Passed</th>'
    table = scrolled_table("metrics", head_row, rows)
    out.append(f'<section class="metrics"><h2>By metric</h2>\n{table}</section>\n')


def _by_tag(run: EvalRun, out: list[str]) -> None:
    rows = "".join(
        [
            f'<tr><td><bdi>{escape(tag)}</bdi></td><td class="right">{escape(passed)}</td>'
            f'<td class="right">{escape(rate)}</td><td class="right">{escape(cost)}</td></tr>\n'
            for tag, passed, rate, cost in tag_rows(run.summary)
        ]
    )
    if rows:
        heads = [f'<th class="right">{name}</th>' for name in ("Passed", "Pass rate", "Cost")]
        table = scrolled_table("tags", f"<th>Tag</th>{''.join(heads)}", rows)
        out.append(f'<section class="metrics"><h2>By tag</h2>\n{table}</section>\n')


def _metric(name: str, scores: Sequence[Score]) -> str:
    mean = fmean([score.value for score in scores])
    passed = sum(score.passed for score in scores)
    kind = "passed" if passed == len(scores) else "failed"
    return (
        f'<tr class="{kind}"><td><bdi>{escape(one_line(name, 60))}</bdi></td><td>{bar(mean)}</td>'
        f'<td class="right">{number(mean)}</td><td class="right">{passed} of {len(scores)}</td></tr>\n'
    )


def _cases(run: EvalRun, runs: Sequence[EvalRun | RunInfo], out: list[str]) -> None:
    whole = [other for other in runs if isinstance(other, EvalRun)][-_MOST_IN_STRIP:]
    before = [{result.case_id: outcome(result) for result in other.results} for other in whole]
    has_strip = len(whole) > 1
    rows = "".join([_row(index, result, before if has_strip else []) for index, result in enumerate(run.results)])
    strip = "<th>History</th>" if has_strip else ""
    choices = "".join(
        f'<label><input type="radio" name="cases" id="cases-{name.lower()}"{" checked" if name == "All" else ""}>'
        f"<span>{name}</span></label>"
        for name in ("All", "Failed")
    )
    head_row = (
        f'<th>Case</th>{strip}<th class="right">Score</th><th class="right less">Turns</th>'
        '<th class="right less">Time</th><th class="right">Cost</th>'
    )
    out.append(
        f'<section class="cases"><h2>Cases</h2><fieldset class="theme"><legend>Cases</legend>{choices}</fieldset>\n'
        f"{scrolled_table('cases', head_row, rows)}</section>\n"
    )


def _row(index: int, result: CaseResult, before: Sequence[dict[str, str]]) -> str:
    why = next((f"{what}: {why}" for attempt in result.attempts for what, why in reasons(attempt)), "")
    reason = f'<div class="reason" dir="auto">{escape(one_line(why, 220))}</div>' if why else ""
    name, word = case_name(result), outcome(result)
    under = f'<div class="quiet"><code><bdi>{escape(one_line(result.case_id, 90))}</bdi></code></div>' if name else ""
    strip = f"<td>{_strip([run.get(result.case_id) for run in before])}</td>" if before else ""
    return (
        f'<tr class="{kind_of(word)}"><td><div class="what">{mark(word)}<div><a href="#{place_of(index)}">'
        f"<bdi>{escape(name or one_line(result.case_id, 90))}</bdi></a>{under}{reason}</div></div></td>{strip}"
        f'<td class="right">{number(result.mean)}</td>'
        f'<td class="right less">{sum(attempt.turns for attempt in result.attempts)}</td>'
        f'<td class="right less">{duration(result.seconds)}</td><td class="right">{dollars(result.cost)}</td></tr>\n'
    )


def _strip(outcomes: Sequence[str | None]) -> str:
    """The outcomes of a case in the last runs, newest at the right; a gap if it was not run or not measured."""
    kinds = [word if word in ("passed", "failed") else "missing" for word in outcomes]
    squares = "".join([f'<span class="{kind}"></span>' for kind in kinds])
    told = f"{kinds.count('passed')} of the last {len(kinds)} runs passed"
    return f'<span class="strip" title="{told}">{squares}</span>'
