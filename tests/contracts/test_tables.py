"""Tables in the guides have every name that the code has: fields, actions, commands, outcomes."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

from swink_agent import AgentResult, ErrorKind, RunRecord, ToolOutcome
from swink_agent.adapters.kit import ProviderDescription
from swink_agent.app.errors import ExitCode
from swink_agent.app.runs.headless import Outcome
from swink_agent.app.runs.output import summary
from swink_agent.app.settings.key_bindings import ACTIONS
from swink_agent.app.settings.mcp_servers import SERVER_KEYS
from swink_agent.app.talk.commands import COMMANDS
from swink_agent.core.record import CallRecord, TurnRecord
from swink_agent.evals import EvalCase
from swink_agent.memory import SessionInfo

from .documents import ROOT


def named_in(page: str, heading: str) -> set[str]:
    """Returns the names between backticks in a table of a page, after the first occurrence of `heading`."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    _, found, rest = text.partition(heading)
    assert found, f"{page} has no table with {heading}"
    table = rest.strip("\n").partition("\n\n")[0]
    return {name for span in re.findall(r"`([^`]+)`", table) for name in re.findall(r"[#/]?[\w.]+", span)}


RECORD = {name for name, member in vars(RunRecord).items() if isinstance(member, property)}
TABLES: list[tuple[str, str, Iterable[str]]] = [
    ("agent.md", "| Field of an `AgentResult` |", set(AgentResult.__struct_fields__) | {"text", "total_usage"}),
    (
        "events.md",
        "| a record (`RunRecord`) |",
        RECORD.union(TurnRecord.__struct_fields__, CallRecord.__struct_fields__),
    ),
    ("sessions.md", "| Field of a `SessionInfo` |", SessionInfo.__struct_fields__),
    ("loop.md", "| `ErrorKind` | What it means |", [kind.value for kind in ErrorKind]),
    ("loop.md", "| Outcome | |", [outcome.value for outcome in ToolOutcome]),
    ("providers.md", "| Field | |", ProviderDescription.__struct_fields__),
    ("evals.md", "| Field | |", EvalCase.__struct_fields__),
    ("cli.md", "| Field | |", summary(Outcome(exit_code=ExitCode.DONE)).keys()),
    ("mcp.md", "| Key | |", SERVER_KEYS),
    ("tui.md", "| Action | Usual keys | |", [action.name for action in ACTIONS]),
    ("tui.md", "## Commands\n", [command.name for command in COMMANDS]),
]


@pytest.mark.table
@pytest.mark.parametrize(("page", "heading", "names"), TABLES)
def test_a_table_has_every_name(page: str, heading: str, names: Iterable[str]) -> None:
    assert sorted(set(names) - named_in(page, heading)) == []
