"""A run as a document: for a terminal, a pull request, a program, a build server, or a browser.

Each is a function from a run to a string; nothing is written, and nothing is read but trajectories that the run keeps
on disk. `words` has the figures and words that all of them use. Importing this module loads none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

from swink_agent.evals.types import EvalRun, RunInfo

__all__ = ["FORMATS", "ReportFormat", "report"]

ReportFormat: TypeAlias = Literal["console", "markdown", "json", "junit", "html"]
FORMATS: tuple[ReportFormat, ...] = get_args(ReportFormat)


def report(run: EvalRun, format: ReportFormat = "console", *, history: Sequence[EvalRun | RunInfo] = ()) -> str:  # noqa: A002
    """The run in one of the formats.

    `history` are other runs of the same set, in any order; the page draws them over time, and a whole run among them
    also shows how each case went. Raises `ValueError` for a format that there is not.
    """
    match format:
        case "console":
            from .console import console_report

            return console_report(run)
        case "markdown":
            from .markdown import markdown_report

            return markdown_report(run)
        case "json":
            from .document import json_report

            return json_report(run)
        case "junit":
            from .junit import junit_report

            return junit_report(run)
        case "html":
            from .page import html_report

            return html_report(run, history)
        case _:
            raise ValueError(f"there is no report of the format {format!r}; there are {', '.join(FORMATS)}")
