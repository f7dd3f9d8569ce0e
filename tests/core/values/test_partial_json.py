"""Incomplete JSON: what can be read of it so far."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from swink_agent.core.values.partial_json import PartialJson

VALUES = some.recursive(
    some.none()
    | some.booleans()
    | some.integers(-(2**53), 2**53)
    | some.floats(allow_nan=False, allow_infinity=False)
    | some.text(),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


def read(text: str) -> list[Any]:
    """What can be read after each character, where that is something else than before."""
    partial, found = PartialJson(), list[Any]()
    for character in text:
        if partial.feed(character):
            try:
                value = partial.value()
            except ValueError:
                continue
            if not found or value != found[-1]:
                found.append(value)
    return found


def test_strings_grow_and_other_values_come_whole() -> None:
    assert read('{"a": "xy", "b": [12, true, null]}') == [
        {},
        {"a": ""},
        {"a": "x"},
        {"a": "xy"},
        {"a": "xy", "b": []},
        {"a": "xy", "b": [12]},
        {"a": "xy", "b": [12, True]},
        {"a": "xy", "b": [12, True, None]},
    ]


@pytest.mark.parametrize("text", ["", " ", "12", "tru", '{"a', "nonsense", "]", "}{", "[},1]"])
def test_nothing_can_be_read_before_a_value_begins(text: str) -> None:
    partial = PartialJson()
    partial.feed(text)
    if text.startswith("{"):
        assert partial.value() == {}
    else:
        with pytest.raises(ValueError, match=r"."):
            partial.value()


@given(VALUES, some.booleans(), some.integers(1, 9))
def test_the_whole_text_gives_the_whole_value(value: Any, is_ascii: bool, size: int) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii, indent=size % 3 or None) + " "
    partial = PartialJson()
    for start in range(0, len(text), size):
        partial.feed(text[start : start + size])
    assert partial.value() == json.loads(text)


@given(VALUES, some.booleans())
def test_every_part_of_it_is_a_part_of_the_value(value: Any, is_ascii: bool) -> None:
    for part in read(json.dumps(value, ensure_ascii=is_ascii)):
        assert is_part(part, value)


@pytest.mark.parametrize(
    "value", ["x" * 200_000, ["a line"] * 20_000, {"all": "x" * 200_000}], ids=lambda value: type(value).__name__
)
def test_reading_a_long_value_as_it_grows_takes_linear_time(value: Any) -> None:
    text = json.dumps(value)
    partial, ends = PartialJson(), list[int]()
    for start in range(0, len(text), 8):
        if partial.feed(text[start : start + 8]):
            ends.append(start + 8)
    assert ends[-1] >= len(text)
    assert partial.value() == value
    assert sum(ends) < 150 * len(text)
    assert max(end - before for before, end in pairwise(ends)) < len(text) / 50
    assert sum(end <= 10_000 for end in ends) > 500  # each piece, before that costs anything


def is_part(part: Any, whole: Any) -> bool:
    if isinstance(whole, dict):
        names = list(whole)[: len(part)]
        return list(part) == names and all(is_part(part[name], whole[name]) for name in names)
    if isinstance(whole, list):
        return len(part) <= len(whole) and all(map(is_part, part, whole))
    return whole.startswith(part) if isinstance(whole, str) else part == whole
