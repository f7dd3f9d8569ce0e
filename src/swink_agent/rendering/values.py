"""What an application put into a session (arguments, details, custom messages) as JSON that people can read.

Owns the way from any value to text, which never fails and never takes long: what JSON cannot say is shown as words.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from swink_agent.core.values.value import show

__all__ = ["pretty_json"]


def pretty_json(value: Any) -> str:
    """The value as indented JSON; one that is nested too deeply, or goes round in a circle, as a short description."""
    try:
        plain = msgspec.to_builtins(value, str_keys=True, enc_hook=show)
        return json.dumps(plain, indent=2, ensure_ascii=False, default=show)
    except (RecursionError, TypeError, ValueError, msgspec.MsgspecError):
        return show(value)
