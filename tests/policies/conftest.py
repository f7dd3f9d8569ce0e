"""Contexts of policies, made by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from swink_agent import Cost, ModelSpec, PolicyContext, PreDispatchContext, Usage

MODEL = ModelSpec("test", "model")


@pytest.fixture
def turn() -> Callable[..., PolicyContext]:
    """A `PolicyContext` with the given fields, and plain ones for the others."""

    def make(**fields: Any) -> PolicyContext:
        plain: dict[str, Any] = {
            "turn_index": 0,
            "messages": (),
            "usage": Usage(),
            "cost": Cost(),
            "state": {},
            "model": MODEL,
            "run_id": 1,
        }
        return PolicyContext(**(plain | fields))

    return make


@pytest.fixture
def asked(turn: Callable[..., PolicyContext]) -> Callable[..., PreDispatchContext]:
    """A `PreDispatchContext` for a call of the tool with the given arguments."""

    def make(name: str, /, **arguments: Any) -> PreDispatchContext:
        return PreDispatchContext(turn(), "call_1", name, arguments)

    return make
