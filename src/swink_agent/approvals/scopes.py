"""What the scope of a call says besides where it would run: whether it could be taken back.

Owns the field. Tools set it and carry it over to the check before they act, because it does not bind what was approved:
a call is not refused because a checkpoint can be kept by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

UNKEPT = "unkept"  # the field in which a tool says that no checkpoint can be kept now


def as_approved(scope: dict[str, Any], approved: Mapping[str, Any]) -> dict[str, Any]:
    """The scope of a call that is about to act, with what the approved one says about checkpoints."""
    return {**scope, UNKEPT: approved[UNKEPT]} if UNKEPT in approved else scope
