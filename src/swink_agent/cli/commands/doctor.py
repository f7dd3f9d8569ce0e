"""`swink doctor`: shows what works on this machine, and how to fix the rest."""

from __future__ import annotations

import sys

import click

from swink_agent.app.doctor import Finding, examine
from swink_agent.app.trust.foreign_code import import_nothing_from_here
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.rendering.cells import laid_out
from swink_agent.rendering.escaping import safe_text

from ..screen.screen import say_json, wants_colour, width_of

_MARKS = {"ok": ("✓", "green"), "note": ("·", "yellow"), "problem": ("✗", "red")}


@click.command(
    epilog="""\b
Examples:
  swink doctor
  swink doctor --json | jq '.[] | select(.state == "problem")'"""
)
@click.option("--json", "as_json", is_flag=True, help="Print a list of findings.")
def doctor(as_json: bool) -> int:
    """Check what works on this machine, and how to fix the rest.

    The exit code is 1 if a problem prevents the agent from working here.
    """
    import_nothing_from_here()
    findings = Redactor().redact_value(examine())  # a finding may quote an address, or an error that quotes one
    if as_json:
        say_json(findings)
    else:
        for finding in findings:
            _show(finding, width_of(sys.stdout), colours=wants_colour(sys.stdout))
    return int(any(finding.state == "problem" for finding in findings))


def _show(finding: Finding, width: int | None, *, colours: bool) -> None:
    """Prints a finding. Every row begins with our mark, so that quoted text cannot look like another finding."""
    mark, colour = _MARKS[finding.state]
    indent = " " * (13 if width is None or width >= 50 else 2)
    rows = laid_out(safe_text(finding.text), f"{mark} {finding.area:<12} ", f"{indent}┆ ", width)
    click.echo(click.style(mark, fg=colour) + rows[0].removeprefix(mark), color=colours)
    for row in rows[1:]:
        click.echo(row, color=colours)
    if finding.remedy:
        for row in laid_out(safe_text(finding.remedy), f"{indent}→ ", f"{indent}┆ ", width):
            click.echo(click.style(row, dim=True), color=colours)
