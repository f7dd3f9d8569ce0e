"""`swink skills`: lists the skills that the agent can read here, and why others are not used."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from swink_agent.app.agent.skills import known_skills
from swink_agent.app.errors import ExitCode
from swink_agent.app.trust.trust import TrustStore, find_project
from swink_agent.approvals.display import safe_display

from ..screen.screen import Screen, say_json, table


@click.command(
    epilog="""\b
Examples:
  swink skills                     the skills here, and why some are not used
  swink skills --json | jq .       the same for programs
  swink -p "…" --skill NAME        the text of a skill before the prompt""",
)
@click.option("--json", "as_json", is_flag=True, help="Print a list: name, description, path, source, problem.")
def skills(as_json: bool) -> int:
    """List the skills that the agent can read here.

    Your skills come first, then those of this project, if it is trusted. A skill is a folder with a SKILL.md: in
    skills/ of the configuration folder, in ~/.agents/skills, or in .swink/skills and .agents/skills of a project.
    """
    found = known_skills(find_project(Path.cwd(), TrustStore()))
    if as_json:
        names = ("name", "description", "path", "source", "problem")
        rows = [{name: getattr(skill, name) for name in names} for skill in found]
        say_json(rows)
        return ExitCode.DONE
    shown = [
        (skill.name, skill.source, f"not used: {skill.problem}" if skill.problem else skill.summary) for skill in found
    ]
    if not shown:
        Screen(sys.stderr).say("", "There are no skills here.")
        return ExitCode.DONE
    cells = [[safe_display(cell, 200) for cell in row] for row in shown]
    click.echo(table([["skill", "whose", "what it is for"], *cells]))
    return ExitCode.DONE
