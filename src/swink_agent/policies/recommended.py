"""`recommended()`: the policies that most agents should have, in the right order."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import IO, Literal

from swink_agent.core.policy import Policy
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.values.checks import check_switch


def recommended(
    root: str | os.PathLike[str],
    *,
    max_turns: int | None = 50,
    max_seconds: float | None = None,
    max_cost: float | None = None,
    max_tokens: int | None = None,
    unknown_prices: Literal["refuse", "allow"] = "refuse",
    prompt_guard: Literal["mark", "stop"] = "mark",
    pii: bool = False,
    audit: str | os.PathLike[str] | IO[str] | None = None,
    redactor: Redactor | None = None,
    also: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
) -> list[Policy]:
    """Returns a new list for `Agent(policies=…)`.

    It contains `MaxTurns` unless `max_turns` is `None`, and always `WorkspaceOnly(root)`, `PromptGuard` and
    `LoopDetection`. On request, it also contains `AuditLog` (first, so that it sees calls that others refuse),
    `MaxDuration`, `PiiRedactor`, and `Budget` (last, so that it reserves nothing for a turn that another policy stops).
    `PiiRedactor` is off by default, because the model cannot edit text that it does not see. `also` are folders in
    addition to `root` that calls may name.
    """
    from .calls.workspace_only import WorkspaceOnly
    from .limits.loop_detection import LoopDetection
    from .limits.max_turns import MaxTurns
    from .texts.prompt_guard import PromptGuard

    check_switch("recommended: pii", pii)
    policies: list[Policy] = []
    if audit is not None:
        from .records.audit import AuditLog

        policies.append(AuditLog(audit, redactor=redactor))
    if max_turns is not None:
        policies.append(MaxTurns(max_turns))
    if max_seconds is not None:
        from .limits.max_duration import MaxDuration

        policies.append(MaxDuration(max_seconds))
    policies += [WorkspaceOnly(root, also=also), PromptGuard(prompt_guard)]
    if pii:
        from .texts.pii import PiiRedactor

        policies.append(PiiRedactor())
    policies.append(LoopDetection())
    if max_cost is not None or max_tokens is not None:
        from .limits.budget import Budget

        policies.append(Budget(max_cost, max_tokens, unknown_prices=unknown_prices))
    return policies
