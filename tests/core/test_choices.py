"""Choices that are given as strings: the error for an unknown one."""

from __future__ import annotations

from enum import Enum

import msgspec
import pytest

from swink_agent import Agent, ApprovalMode, ErrorKind, ModelSpec, StopReason, ThinkingLevel, ToolOutcome
from swink_agent.approvals import ApprovalChoice
from swink_agent.evals import TrajectoryMatch
from swink_agent.testing import fail, scripted

GIVEN = (ApprovalChoice, ApprovalMode, ErrorKind, StopReason, ThinkingLevel, ToolOutcome, TrajectoryMatch)


@pytest.mark.table
@pytest.mark.parametrize("kind", GIVEN, ids=lambda kind: kind.__name__)
def test_a_string_that_is_none_of_them_hears_which_there_are(kind: type[Enum]) -> None:
    with pytest.raises(ValueError, match=f"'nonsense' is not a valid {kind.__name__}: use one of ") as raised:
        kind("nonsense")
    assert all(repr(member.value) in str(raised.value) for member in kind)
    assert "did you mean" not in str(raised.value)


def test_the_most_alike_is_named() -> None:
    with pytest.raises(ValueError, match=r"; did you mean 'throttled'\?$"):
        fail("Throtled")
    with pytest.raises(ValueError, match=r"; did you mean 'bypassed'\?$"):
        Agent("test:model", stream_fn=scripted(), approval_mode="bypass")


def test_names_that_are_known_elsewhere_hear_of_ours() -> None:
    with pytest.raises(ValueError, match="'rate_limit' is not a valid ErrorKind: use one of 'throttled', 'network'"):
        fail("rate_limit")
    with pytest.raises(
        ValueError,
        match=r"^'always' is not a valid ApprovalMode: use one of 'enabled', 'smart', 'bypassed', 'where_required'$",
    ):
        Agent("test:model", stream_fn=scripted(), approval_mode="always")
    assert ApprovalMode("where_required") is ApprovalMode.SMART
    with pytest.raises(ValueError, match=r"; did you mean 'where_required'\?$"):
        ApprovalMode("required")


def test_a_model_is_checked_for_its_thinking_level() -> None:
    assert ModelSpec("test", "model", "high").thinking_level is ThinkingLevel.HIGH  # pyright: ignore
    with pytest.raises(ValueError, match=r"'hihg' is not a valid ThinkingLevel: .* did you mean 'high'"):
        ModelSpec("test", "model", "hihg")  # pyright: ignore[reportArgumentType]


def test_invalid_values_from_a_file_raise_invalid_value_only() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'"nonsense"', type=ErrorKind)
    assert msgspec.json.decode(b'"network"', type=ErrorKind) is ErrorKind.NETWORK
