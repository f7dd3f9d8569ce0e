"""The report on a grid, several runs of one set side by side: for a terminal, a pull request or a browser.

Owns the table of cases and variants, the figures of each variant, and its difference from the first. `document` and
`junit` have the other formats.
"""

from __future__ import annotations

from html import escape
from typing import NamedTuple

from msgspec.structs import replace

from swink_agent.evals.runs.comparing import compare
from swink_agent.evals.types import CaseResult, EvalGrid
from swink_agent.rendering.amounts import dollars
from swink_agent.rendering.characters import one_line
from swink_agent.rendering.frame import bar as top_bar
from swink_agent.rendering.frame import head, scrolled_table
from swink_agent.rendering.tame import escaped

from .case_page import case_html, place_of
from .markdown import MARKS, code_cell
from .page import report_style
from .words import case_name, difference_words, duration, number, outcome, pass_rate, title_of


class _Table(NamedTuple):
    title: str
    variants: list[str]
    results: list[tuple[str, list[CaseResult | None]]]  # each case, with its result in each variant
    figures: list[tuple[str, list[str]]]
    differences: list[str]


def _table(grid: EvalGrid) -> _Table:
    by_run = [{result.case_id: result for result in run.results} for run in grid.runs]
    results = [(case_id, [results.get(case_id) for results in by_run]) for case_id in grid.case_ids]
    summaries = [run.summary for run in grid.runs]
    figures = [
        ("Passed", [f"{one.passed} of {one.total}" for one in summaries]),
        ("Not measured", [str(one.not_measured) for one in summaries]),
        ("Pass rate", [pass_rate(one) for one in summaries]),
        ("Cost", [dollars(one.cost) for one in summaries]),
        ("Tokens", [f"{one.tokens:,}" for one in summaries]),
        ("Duration", [duration(one.seconds) for one in summaries]),
    ]
    tags = sorted({tag for one in summaries for tag in one.tags})
    for tag in tags:
        told = [pass_rate(one.tags[tag]) if tag in one.tags else "" for one in summaries]
        figures.append((f"Tag {one_line(tag, 60)}", told))
    if not any(one.not_measured for one in summaries):
        figures.pop(1)
    title = title_of(grid.runs[0]) if grid.runs else "unnamed"
    return _Table(title, [one_line(name, 60) for name in grid.variants], results, figures, _differences(grid))


def _differences(grid: EvalGrid) -> list[str]:
    """A sentence for each variant on how it differs from the first."""
    lines: list[str] = []
    for name, run in list(zip(grid.variants, grid.runs, strict=True))[1:]:
        found = compare(grid.runs[0], run)
        changes = f"{len(found.better)} better, {len(found.worse)} worse, {len(found.same)} the same"
        pair = f"{one_line(name, 60)} against {one_line(grid.variants[0], 60)}"
        lines.append(f"{pair}: {difference_words(found)}; {changes}")
    return lines


def console_grid(grid: EvalGrid) -> str:
    table = _table(grid)
    rows = [["", *table.variants]]
    for case_id, results in table.results:
        rows.append([one_line(case_id, 40), *[_words(result) for result in results]])
    rows.append([""] * (1 + len(table.variants)))
    rows += [[name.lower(), *values] for name, values in table.figures]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        ("  " + "  ".join([cell.ljust(width) for cell, width in zip(row, widths, strict=True)])).rstrip()
        for row in rows
    ]
    return "\n".join([table.title, "", *lines, "", *table.differences]).rstrip() + "\n"


def _words(result: CaseResult | None) -> str:
    if result is None:
        return "not run"
    word = outcome(result)
    return word if word == "not measured" else f"{word.upper() if word == 'failed' else word} {number(result.mean)}"


def markdown_grid(grid: EvalGrid) -> str:
    table = _table(grid)
    heads = " | ".join([escaped(name) for name in table.variants])
    rows = [f"| Case | {heads} |", f"|---|{'--:|' * len(table.variants)}"]
    for case_id, results in table.results:
        cells = ["" if one is None else f"{MARKS[outcome(one)]} {number(one.mean)}" for one in results]
        rows.append(f"| {code_cell(case_id)} | {' | '.join(cells)} |")
    for name, values in table.figures:
        rows.append(f"| **{escaped(name)}** | {' | '.join([escaped(value) for value in values])} |")
    parts = [f"# {escaped(table.title)}", "\n".join(rows)]
    if table.differences:
        parts.append("\n".join([f"- {escaped(line)}" for line in table.differences]))
    return "\n\n".join(parts) + "\n"


def html_grid(grid: EvalGrid) -> str:
    """One page: the table, whose cells link to what the agent did."""
    table = _table(grid)
    shown: list[CaseResult] = []
    rows: list[str] = []
    for case_id, results in table.results:
        cells: list[str] = []
        for variant, result in zip(table.variants, results, strict=True):
            if result is None:
                cells.append('<td class="right">not run</td>')
                continue
            place = place_of(len(shown))
            cells.append(f'<td class="right"><a href="#{place}">{escape(_words(result))}</a></td>')
            shown.append(replace(result, name=f"{case_name(result) or case_id} [{variant}]"))
        rows.append(f"<tr><td><bdi>{escape(one_line(case_id, 90))}</bdi></td>{''.join(cells)}</tr>\n")
    for name, values in table.figures:
        cells = [f'<td class="right">{escape(value)}</td>' for value in values]
        rows.append(f"<tr><th>{escape(name)}</th>{''.join(cells)}</tr>\n")
    heads = "".join([f'<th class="right"><bdi>{escape(name)}</bdi></th>' for name in table.variants])
    told = "".join([f"<p>{escape(line)}</p>\n" for line in table.differences])
    out = [head(f"{table.title}: {len(table.variants)} variants", skip="report", style=report_style())]
    out.append(top_bar(has_contents=False))
    out.append('<div class="page">\n<main id="report">\n')
    out.append(
        f'<section class="overview" id="overview" aria-label="Overview">\n<h1 dir="auto">{escape(table.title)}</h1>'
    )
    out.append(f"\n{scrolled_table('variants', f'<th>Case</th>{heads}', ''.join(rows))}\n{told}</section>\n")
    for index, result in enumerate(shown):
        case_html(index, len(shown), result, out)
    out.append("</main>\n</div>\n</body>\n</html>\n")
    return "".join(out)
