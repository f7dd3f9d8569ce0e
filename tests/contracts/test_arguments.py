"""Wrong arguments are refused in words, at once: each error names the argument, or the class, and not our own code.

The rows are made from the signatures of the public classes and functions of a package. One that is not in `MADE` fails
the first test.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from swink_agent import Agent
from swink_agent.policies import SavedConversation
from swink_agent.skills import Skill
from swink_agent.telemetry import Instrumentation, TelemetryExport
from swink_agent.testing import scripted

PACKAGES = ("policies", "skills", "telemetry")

AGENT = Agent("test:model", stream_fn=scripted())

MADE: dict[str, dict[str, Any]] = {
    "policies.AllowList": {"tools": ["look"]},
    "policies.AuditLog": {"file": "audit.log"},
    "policies.Budget": {"max_cost": 1.0},
    "policies.Checkpoint": {"path": "saved.json"},
    "policies.ContentFilter": {"words": ["word"]},
    "policies.DenyList": {"tools": ["look"]},
    "policies.LoopDetection": {},
    "policies.MaxDuration": {"seconds": 1.0},
    "policies.MaxTurns": {"turns": 1},
    "policies.PiiRedactor": {},
    "policies.PromptGuard": {},
    "policies.SameModel": {},
    "policies.WorkspaceOnly": {"root": "."},
    "policies.recommended": {"root": "."},
    "skills.SkillTool": {"skills": []},
    "skills.find_skills": {"place": "."},
    "skills.read_skill": {"folder": "."},
    "skills.skills_prompt": {"skills": []},
    "telemetry.instrument": {"agent": AGENT},
    "telemetry.start_export": {},
}
"""The least that makes each of them."""

GIVEN = {SavedConversation, Skill, Instrumentation, TelemetryExport}
"""Results of the package: nobody else makes them."""

PASSED_ON = {"max_turns": "MaxTurns", "max_seconds": "MaxDuration", "prompt_guard": "PromptGuard", "audit": "AuditLog"}
"""Parameters of `recommended` that the error calls as the policy does that gets them."""

NOT_CHECKED = {
    "policies.recommended(redactor)",  # only an audit log uses it, and checks it
    "policies.recommended(unknown_prices)",  # only a budget uses it, and checks it
}


class Odd:
    """Fits no parameter."""


def public(package: str) -> Iterator[tuple[str, Any]]:
    """The classes and functions that are defined in the package and called by its users."""
    module = importlib.import_module(f"swink_agent.{package}")
    for name in dir(module):
        thing = getattr(module, name)
        is_made = inspect.isclass(thing) and not issubclass(thing, BaseException)
        if (is_made or inspect.isfunction(thing)) and thing.__module__.startswith(f"swink_agent.{package}."):
            yield f"{package}.{name}", thing


THINGS = {name: thing for package in PACKAGES for name, thing in public(package)}
ROWS = [
    (name, parameter)
    for name in MADE
    for parameter in inspect.signature(THINGS[name]).parameters
    if f"{name}({parameter})" not in NOT_CHECKED
]


def test_every_public_class_and_function_has_a_row() -> None:
    assert {name for name, thing in THINGS.items() if thing not in GIVEN} == MADE.keys()


@pytest.mark.table
@pytest.mark.parametrize(("name", "parameter"), ROWS)
def test_an_argument_of_the_wrong_kind_is_named(name: str, parameter: str) -> None:
    with pytest.raises((TypeError, ValueError)) as raised:
        THINGS[name](**{**MADE[name], parameter: Odd()})
    assert PASSED_ON.get(parameter, parameter) in str(raised.value)
    assert "Odd" in str(raised.value)


@pytest.mark.table
@pytest.mark.parametrize("name", MADE)
def test_an_argument_with_nearly_the_right_name_is_refused(name: str) -> None:
    first = next(iter(inspect.signature(THINGS[name]).parameters))
    with pytest.raises(TypeError, match=f"{first}s"):
        THINGS[name](**MADE[name], **{f"{first}s": 1})


NAN = float("nan")
WRONG: list[tuple[str, dict[str, Any], str]] = [
    (
        "policies.AllowList",
        {"arguments": {"bash": {"command": "("}}},
        r"AllowList: '\(' for bash.command is not a regu",
    ),
    ("policies.AllowList", {"tools": [""]}, "AllowList"),
    ("policies.Budget", {"max_cost": None}, r"^Budget\(\) limits nothing"),
    ("policies.Budget", {"max_cost": -1.0}, "^Budget: max_cost is -1.0; give a number that is not negative"),
    ("policies.Budget", {"max_cost": NAN}, "^Budget: max_cost is nan"),
    ("policies.Budget", {"max_tokens": -1}, "^Budget: max_tokens is -1"),
    ("policies.Budget", {"max_output": -1}, "^Budget: max_output is -1"),
    ("policies.Budget", {"unknown_prices": "guess"}, "must be 'refuse' or 'allow'"),
    ("policies.Checkpoint", {"every": 0}, "^Checkpoint: every must be at least 1, not 0"),
    ("policies.ContentFilter", {"words": ()}, r"^ContentFilter\(\) searches for nothing"),
    ("policies.ContentFilter", {"words": [""]}, "^ContentFilter: a word is empty"),
    ("policies.ContentFilter", {"words": ["\u200b"]}, "^ContentFilter: a word is empty"),
    ("policies.ContentFilter", {"patterns": "("}, "^ContentFilter: .* is not a regular expression"),
    ("policies.ContentFilter", {"action": "shout"}, "must be 'stop' or 'redact'"),
    ("policies.DenyList", {"arguments": {"bash": "("}}, "^DenyList: .* is not a regular expression"),
    ("policies.DenyList", {"tools": [""]}, r"^DenyList\(tools=…\): "),
    ("policies.LoopDetection", {"repeats": 1}, "^LoopDetection: repeats is 1; a repetition takes at least 2"),
    ("policies.LoopDetection", {"action": "shout"}, "must be 'nudge', 'skip' or 'stop'"),
    ("policies.MaxDuration", {"seconds": 0}, "give more than 0 seconds"),
    ("policies.MaxDuration", {"seconds": -1.0}, "give more than 0 seconds"),
    ("policies.MaxDuration", {"seconds": NAN}, "give more than 0 seconds"),
    ("policies.MaxTurns", {"turns": 0}, "^MaxTurns: turns must be at least 1, not 0"),
    ("policies.PiiRedactor", {"kinds": ["name"]}, "'name' is not a kind; the kinds are email"),
    ("policies.PromptGuard", {"action": "ask"}, "must be 'mark' or 'stop'"),
    ("policies.PromptGuard", {"patterns": {"mine": "("}}, r"^PromptGuard: '\(' for 'mine' is not a regular expression"),
    ("telemetry.instrument", {"agent": Agent}, "^agent must be an Agent, not the class Agent"),
    ("telemetry.instrument", {"agent": "support"}, "^agent must be an Agent, not a str$"),
    ("telemetry.instrument", {"content": "false"}, "^content must be True or False, not a str$"),
    ("telemetry.instrument", {"name": 3}, "^name must be a string, not an int$"),
    ("telemetry.instrument", {"tracer_provider": "otlp"}, "^tracer_provider must be a provider with get_tracer"),
    ("telemetry.instrument", {"meter_provider": 3}, "^meter_provider must be a provider with get_meter"),
]
"""Values of the right kind that make no sense, and mistakes that are easily made, with what the error says."""


@pytest.mark.table
@pytest.mark.parametrize(("name", "arguments", "words"), WRONG)
def test_a_wrong_value_is_refused_with_the_reason(name: str, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        THINGS[name](**{**MADE[name], **arguments})
