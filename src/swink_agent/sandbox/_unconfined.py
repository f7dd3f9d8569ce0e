"""No walls, by the user's explicit choice: a clean environment, limits, and nothing left behind as far as possible.

Owns nothing but the choice; how it runs is in `_plain`.
"""

from __future__ import annotations

from ._plain import PlainSandbox

__all__ = ["UnconfinedSandbox"]


class UnconfinedSandbox(PlainSandbox):
    """Runs commands as they are. Reads, writes and the network are not held back by anything."""

    backend = "off"
