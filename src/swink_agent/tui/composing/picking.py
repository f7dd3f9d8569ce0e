"""Things to pick one of, and which of them fit what is typed.

Owns an item and the order of what is found. Drawing and keys are in `widgets.picker`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .fuzzy import fitting

__all__ = ["PickItem", "matching"]


class PickItem(NamedTuple):
    """A thing to pick: what stands for it, how it is listed, and a few words about it."""

    key: str
    label: str
    detail: str = ""


def matching(items: Sequence[PickItem], typed: str) -> list[PickItem]:
    """The items that fit: those with every word in them, in their own order; if there are none, those with its letters
    in that order, the nearest first."""
    words = typed.casefold().split()
    if not words:
        return list(items)
    texts = [f"{item.label} {item.detail}".replace("\n", " ").casefold() for item in items]
    found = [item for item, text in zip(items, texts, strict=True) if all(word in text for word in words)]
    if found:
        return found
    by_label: dict[str, PickItem] = {}
    for item in items:
        by_label.setdefault(item.label.replace("\n", " "), item)
    return [by_label[label] for label in fitting(list(by_label), typed, 200)]
