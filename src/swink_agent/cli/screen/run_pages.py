"""Durable runs as text: a list, one of them, the calls that wait, and the workers.

Keys, errors and arguments are text that we did not write: control characters are escaped.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from swink_agent.app.runs.telling import age
from swink_agent.approvals.display import safe_display
from swink_agent.rendering.amounts import dollars
from swink_agent.rendering.turns import local_moment

from .screen import table

if TYPE_CHECKING:
    from swink_agent.durable import FleetStats, RunInfo

_LONGEST_ARGUMENTS = 300


def runs_table(runs: Sequence[RunInfo]) -> str:
    rows = [["ID", "AGENT", "STATUS", "KEY", "AGE", "TOKENS", "COST", "WORKER", ""]]
    for info in runs:
        said = ", ".join(call.name for call in info.pending) if info.status == "waiting" else info.error
        cost = dollars(info.cost) if info.cost else "-"
        figures = [age(info.created), f"{info.tokens:,}", cost]
        rows.append([info.id, info.agent, info.status, info.key, *figures, info.worker, said.partition("\n")[0]])
    return table(rows, right=[4, 5, 6], whole=[0, 2])


def run_rows(info: RunInfo, store: str = "") -> list[str]:
    """The facts about one run. `store` is the same as for `pending_rows`."""
    facts = [
        ("agent", info.agent),
        ("status", info.status),
        ("created", f"{local_moment(info.created, '%Y-%m-%d %H:%M:%S')}, {age(info.created)}"),
        ("updated", f"{local_moment(info.updated, '%Y-%m-%d %H:%M:%S')}, {age(info.updated)}"),
        ("key", info.key),
        ("priority", str(info.priority)),
        ("worker", info.worker),
        ("attempts", str(info.attempts)),
        ("records", str(info.position)),
        ("tokens", f"{info.tokens:,}"),
        ("cost", dollars(info.cost)),
        ("metadata", json.dumps(info.metadata, ensure_ascii=False) if info.metadata else ""),
        ("error", info.error),
    ]
    rows = [f"{name:<9} {safe_display(value, None)}" for name, value in facts if value]
    return [safe_display(info.id, None), *rows, *pending_rows(info, store)]


def pending_rows(info: RunInfo, store: str = "") -> list[str]:
    """The calls that wait, each with the command to type. `store` is the option for the store, if it needs one.

    The command includes the position, because models may give later calls the same ids.
    """
    rows: list[str] = []
    for call in info.pending:
        shown = json.dumps(call.arguments, ensure_ascii=False)[:_LONGEST_ARGUMENTS]
        rows.append(safe_display(f"waits: {call.name} {shown}{f' ({call.reason})' if call.reason else ''}", None))
        where = "" if call.position is None else f" --at {call.position}"
        ways = "--result TEXT" if call.kind == "external" else "--approve | --reject REASON"
        command = f"swink runs answer {info.id} {shlex.quote(call.call_id)} {ways}{where}{store}"
        rows.append(safe_display(f"  {command}", None))
    return rows


def fleet_rows(stats: FleetStats) -> list[str]:
    counts = [
        f"{getattr(stats, status):,} {status}"
        for status in ("queued", "running", "waiting", "done", "failed", "cancelled")
    ]
    rows = [", ".join(counts), f"oldest queued: {stats.lag:.1f} s" if stats.queued else "nothing is queued"]
    if not stats.workers:
        return [*rows, "no worker is running: swink worker MODULE:NAME starts one"]
    cells = [["WORKER", "HOST", "PID", "RUNS", "SEEN", "AGENTS"]]
    cells += [
        [one.id, one.host, str(one.pid), f"{one.running}/{one.slots}", age(one.seen), ", ".join(one.agents)]
        for one in stats.workers
    ]
    return [*rows, *table(cells, right=[2, 3], whole=[0]).split("\n")]
