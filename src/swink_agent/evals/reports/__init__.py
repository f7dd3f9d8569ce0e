"""Reports on a run: for a terminal, a pull request, a program, a build server, or a browser.

Each is a function from a run to a string. It writes nothing, and reads only the trajectories of the run on disk.
`words` has the figures and words that all of them use. Importing this module loads none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

from swink_agent.evals.types import EvalGrid, EvalRun, RunInfo

__all__ = ["FORMATS", "ReportFormat", "report"]

ReportFormat: TypeAlias = Literal["console", "markdown", "json", "junit", "html"]
FORMATS: tuple[ReportFormat, ...] = get_args(ReportFormat)


def report(
    run: EvalRun | EvalGrid,
    format: ReportFormat = "console",  # noqa: A002
    *,
    history: Sequence[EvalRun | RunInfo] = (),
) -> str:
    """A report on a run, or on the runs of a grid side by side.

    `history` are other runs of the same set, in any order. The HTML page shows them over time; a whole `EvalRun` among
    them also shows the outcome of each case. Raises `ValueError` for an unknown format.
    """
    if format not in FORMATS:
        raise ValueError(f"{format!r} is not a format of reports; the formats are {', '.join(FORMATS)}")
    from .console import console_report
    from .document import json_grid, json_report
    from .grid import console_grid, html_grid, markdown_grid
    from .junit import junit_report
    from .markdown import markdown_report
    from .page import html_report

    if isinstance(run, EvalGrid):
        if format == "junit":
            return junit_report(*run.runs)
        grids = {"console": console_grid, "markdown": markdown_grid, "json": json_grid, "html": html_grid}
        return grids[format](run)
    if format == "html":
        return html_report(run, history)
    runs = {"console": console_report, "markdown": markdown_report, "json": json_report, "junit": junit_report}
    return runs[format](run)
