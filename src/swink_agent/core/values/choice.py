"""Enums that a user gives as strings.

Owns what is said of a string that is none of them: which there are, and which is most like it.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Choice"]


class Choice(StrEnum):
    """An enum whose members are found by their strings. `ValueError` for any other, which names them all."""

    @classmethod
    def _missing_(cls, value: object) -> Choice | None:
        from ..texts.likeness import close_names  # on use: nearly every choice is right

        choices = [member.value for member in cls]
        near = close_names(value.lower(), choices) if isinstance(value, str) else []
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{value!r} is no {cls.__name__}: it is one of {', '.join(map(repr, choices))}{meant}")
