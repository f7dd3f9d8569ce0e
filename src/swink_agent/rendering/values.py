"""Formats the values of a session (arguments, details, custom messages) as readable JSON.

Owns the conversion of any value to text. It never fails and never takes long: a value that JSON cannot express is
described in words.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from swink_agent.core.values.value import show


def pretty_json(value: Any) -> str:
    """Returns the value as indented JSON, or a short description if it is nested too deeply or contains itself."""
    try:
        plain = msgspec.to_builtins(value, str_keys=True, enc_hook=show)
        return json.dumps(plain, indent=2, ensure_ascii=False, default=show)
    except (RecursionError, TypeError, ValueError, msgspec.MsgspecError):
        return show(value)
