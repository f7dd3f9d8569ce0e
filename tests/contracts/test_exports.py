"""The public names are a promise, so a change of them is a change of this list."""

from __future__ import annotations

import importlib
from pathlib import Path

LIST = Path(__file__).with_name("exports.txt")
MODULES = (
    "swink_agent",
    "swink_agent.adapters",
    "swink_agent.adapters.kit",
    "swink_agent.evals",
    "swink_agent.local",
    "swink_agent.memory",
    "swink_agent.policies",
    "swink_agent.sandbox",
    "swink_agent.testing",
    "swink_agent.testing.fakes.kit",
    "swink_agent.tools",
)


def exported() -> list[str]:
    return [f"{module}.{name}" for module in MODULES for name in sorted(importlib.import_module(module).__all__)]


def test_the_public_names_are_those_on_the_list() -> None:
    assert exported() == LIST.read_text().split(), f"if this is meant, write the new list to {LIST.name}"


def test_every_public_name_is_there() -> None:
    for entry in exported():
        module, _, name = entry.rpartition(".")
        assert hasattr(importlib.import_module(module), name), entry


def test_a_name_of_the_kit_has_one_home() -> None:
    from swink_agent import adapters, testing
    from swink_agent.adapters import kit
    from swink_agent.testing.fakes import kit as fakes_kit

    assert not set(kit.__all__) & set(adapters.__all__)
    assert not set(fakes_kit.__all__) & set(testing.__all__)
