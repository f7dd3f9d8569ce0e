"""Enums whose members users give as strings; the error for any other string names them all and the most similar."""

from __future__ import annotations

from enum import StrEnum


class Choice(StrEnum):
    """An enum of strings. The second name of a member is a string of it too. Raises `ValueError` for any other."""

    @classmethod
    def _missing_(cls, value: object) -> Choice | None:
        others = {name.lower(): member for name, member in cls.__members__.items() if name != member.name}
        if isinstance(value, str) and value in others:
            return others[value]
        from ..texts.likeness import close_names  # on use: nearly every choice is right

        choices = [*[member.value for member in cls], *others]
        near = close_names(value.lower(), choices) if isinstance(value, str) else []
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{value!r} is not a valid {cls.__name__}: use one of {', '.join(map(repr, choices))}{meant}")
