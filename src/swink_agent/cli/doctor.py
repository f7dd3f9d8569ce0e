"""`swink doctor`: what works on this machine, and what to do about what does not."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
import msgspec

from swink_agent.app.doctor import Finding, examine

from .screen import plain_text, wants_colour

__all__ = ["doctor"]

_MARKS = {"ok": ("✓", "green"), "note": ("·", "yellow"), "problem": ("✗", "red")}


@click.command(
    epilog="""\b
Examples:
  swink doctor
  swink doctor --json | jq '.[] | select(.state == "problem")'"""
)
@click.option("--json", "as_json", is_flag=True, help="As a list of findings.")
def doctor(as_json: bool) -> int:
    """Tell what works on this machine, and what to do about the rest.

    The exit code is 1 if there is a problem: something that keeps the agent from working here.
    """
    findings = examine(Path.cwd())
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(findings), indent=2))
    else:
        for finding in findings:
            _show(finding, colours=wants_colour(sys.stdout))
    return int(any(finding.state == "problem" for finding in findings))


def _show(finding: Finding, *, colours: bool) -> None:
    mark, colour = _MARKS[finding.state]
    head, *rest = plain_text(finding.text).split("\n")
    click.echo(f"{click.style(mark, fg=colour)} {finding.area:<12} {head}", color=colours)
    for line in rest:
        click.echo(f"{'':<15}{line}", color=colours)
    if finding.remedy:
        click.echo(click.style(f"{'':<15}→ {plain_text(finding.remedy)}", dim=True), color=colours)
