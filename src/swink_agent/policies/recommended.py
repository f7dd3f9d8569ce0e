"""`recommended()`: the policies that most agents should have, in the order in which they work together."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import IO, Literal

from swink_agent.core.values import hints

__all__ = ["recommended"]


def recommended(
    root: str | os.PathLike[str],
    *,
    max_turns: int = 50,
    max_seconds: float | None = None,
    max_cost: float | None = None,
    max_tokens: int | None = None,
    unknown_prices: Literal["refuse", "allow"] = "refuse",
    prompt_guard: Literal["mark", "stop"] = "mark",
    pii: bool = False,
    audit: str | os.PathLike[str] | IO[str] | None = None,
    redactor: hints.Redactor | None = None,
    also: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
) -> list[hints.Policy]:
    """A fresh list for `Agent(policies=…)`.

    Always: `MaxTurns`, `WorkspaceOnly(root)`, `PromptGuard`, `LoopDetection`. If asked for: `AuditLog` (first, so that
    it sees what others refuse), `MaxDuration`, `PiiRedactor`, and `Budget` (last, so that it reserves nothing for a
    turn that another policy stops). `PiiRedactor` is not on by itself, because the model cannot edit what it may not
    see. `also` are folders besides `root` that calls may name.
    """
    from .loop_detection import LoopDetection
    from .max_turns import MaxTurns
    from .prompt_guard import PromptGuard
    from .workspace_only import WorkspaceOnly

    policies: list[hints.Policy] = []
    if audit is not None:
        from .audit import AuditLog

        policies.append(AuditLog(audit, redactor=redactor))
    policies.append(MaxTurns(max_turns))
    if max_seconds is not None:
        from .max_duration import MaxDuration

        policies.append(MaxDuration(max_seconds))
    policies += [WorkspaceOnly(root, also=also), PromptGuard(prompt_guard)]
    if pii:
        from .pii import PiiRedactor

        policies.append(PiiRedactor())
    policies.append(LoopDetection())
    if max_cost is not None or max_tokens is not None:
        from .budget import Budget

        policies.append(Budget(max_cost, max_tokens, unknown_prices=unknown_prices))
    return policies
