"""The modes of `Approvals`: one name and one meaning each, for settings, commands, front ends and documents.

`approvals` implements them.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

ApprovalsMode: TypeAlias = Literal["none", "ask", "smart", "auto", "all"]

MODES: dict[ApprovalsMode, str] = {
    "none": "nothing that needs approval runs",
    "ask": "you are asked about every call that needs approval",
    "smart": "harmless calls run without a question; you are asked about others",
    "auto": "harmless calls, sandboxed commands and edits here run without a question; you are asked about others",
    "all": "you are asked only about access beyond the sandbox; deny rules and the sandbox still apply",
}
"""The modes and what they mean, from the strictest on."""
_EARLIER: dict[str, ApprovalsMode] = {"on": "ask", "off": "all"}


def mode_named(word: str) -> ApprovalsMode | None:
    """Returns the mode that a person names; `on` and `off` are accepted too."""
    wanted = _EARLIER.get(word.lower(), word.lower())
    return next((mode for mode in MODES if mode == wanted), None)
