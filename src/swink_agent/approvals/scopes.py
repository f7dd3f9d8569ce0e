"""The field of a call's scope that reports whether the call could be taken back.

Tools set it. Before they act, they copy it from the approved scope and compare the rest: a call is not refused because
a checkpoint can be kept by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

UNKEPT = "unkept"  # the field is set if no checkpoint can be kept now


def as_approved(scope: dict[str, Any], approved: Mapping[str, Any]) -> dict[str, Any]:
    """The scope of a call that is about to act, with the `UNKEPT` field of the approved scope if it has one."""
    return {**scope, UNKEPT: approved[UNKEPT]} if UNKEPT in approved else scope
