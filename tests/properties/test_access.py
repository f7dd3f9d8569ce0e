"""However access is spelled, and whatever changes while a person decides: no command runs with more than was shown."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent import Agent, ModelSpec
from swink_agent.approvals import ApprovalQuestion, Approvals
from swink_agent.sandbox import Sandbox, SandboxError, SandboxProfile
from swink_agent.sandbox.network.hosts import covers
from swink_agent.sandbox.profile import is_beneath
from swink_agent.testing import call, scripted, text
from swink_agent.tools import BashTool

MODEL = ModelSpec("test", "model")
FOLDERS = ("work", "work/sub", "a", "a/deep", "b", "home", "home/.aws", "home/.config/swink-agent", "home/open")
LINKS = ("one", "two", "a/three")


class Recorded(Sandbox):
    """Starts nothing, and records the profile with which it would have."""

    backend = "landlock"

    def __init__(self, profile: SandboxProfile, started: list[SandboxProfile]) -> None:
        super().__init__(profile)
        self._started = started

    async def spawn(self, *_: Any, **__: Any) -> Any:
        self._started.append(self.profile)
        raise SandboxError("recorded")

    def close(self) -> None:
        pass


names = st.sampled_from(["example.org", "EXAMPLE.org.", "*.example.org", "exämple.org", "10.0.0.1", "[::1]:80", "*"])
odd_names = st.sampled_from(
    ["http://a.org", "0x7f.1", "*.org", "a.org:0", "ex\u202eample.org", "a.org/x", "", "\ud800"]
)
steps = st.lists(st.sampled_from(["a", "b", "deep", "..", ".", "", *LINKS, "sub", "work"]), max_size=4)
paths = st.one_of(
    steps.map(lambda parts: "{base}/" + "/".join(parts)),
    steps.map("/".join),
    st.sampled_from(["~", "~/.aws", "~/open", "~root", "/", "{base}/home/.config/swink-agent", "{base}/home/open/.."]),
)
junk = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
several = st.lists(names | odd_names, max_size=3) | st.lists(names, min_size=1, max_size=3)
requests = st.one_of(
    st.fixed_dictionaries(
        {},
        optional={
            "network": st.just(True) | several | junk,
            "write": st.lists(paths, max_size=2) | junk,
            "read": st.lists(paths, max_size=2) | junk,
        },
    ),
    st.fixed_dictionaries({"write": st.lists(st.sampled_from(["../one", "{base}/two", "../b"]), min_size=1)}),
    st.fixed_dictionaries({"read": st.sampled_from([["~/.aws"], ["../one"]])}),
    st.fixed_dictionaries({"network": st.lists(names, min_size=1, max_size=2)}),
    junk,
)
links_only = st.fixed_dictionaries(
    {"write": st.sampled_from([["../one"], ["{base}/two/.", "../b"], ["../one", "../two"]])}
)
targets = st.sampled_from(["a", "b", "home/open"])
odd_targets = st.sampled_from([*FOLDERS, "missing", "one"])
answers = st.sampled_from(["once", "session_access", "always", "session_tool", "no"])


def turns(wanted: st.SearchStrategy[Any], leads: st.SearchStrategy[str]) -> st.SearchStrategy[list[Any]]:
    """Requests, where links lead when each is made and, while the person reads, afterwards, and the answers."""
    places = st.fixed_dictionaries(dict.fromkeys(LINKS, leads))
    return st.lists(st.tuples(wanted, places, places, answers), min_size=1, max_size=3)


@contextmanager
def world() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="swink-test-") as made:
        base = Path(made).resolve()
        for name in FOLDERS:
            (base / name).mkdir(parents=True, exist_ok=True)
        with mock.patch.dict(os.environ, {"HOME": str(base / "home")}):
            yield base


def link(base: Path, targets: dict[str, str]) -> None:
    for name, target in targets.items():
        (base / name).unlink(missing_ok=True)
        (base / name).symlink_to(base / target)


def filled(value: Any, base: Path) -> Any:
    if isinstance(value, str):
        return value.replace("{base}", str(base))
    if isinstance(value, list):
        return [filled(item, base) for item in value]
    return {key: filled(item, base) for key, item in value.items()} if isinstance(value, dict) else value


def is_within(profile: SandboxProfile, usual: SandboxProfile, shown: dict[str, Any]) -> bool:
    """Whether a command has at most the usual sandbox and what a person was shown."""
    hosts = shown["network"] if isinstance(shown.get("network"), list) else []
    opened = set(usual.hidden) - set(profile.hidden)
    return (
        (not profile.network or shown.get("network") is True)
        and (not profile.hosts or covers(hosts, profile.hosts))
        and all(any(is_beneath(path, top) for top in (*usual.write, *shown.get("write", []))) for path in profile.write)
        and all(os.path.realpath(path) in shown.get("read", []) for path in opened)
    )


@settings(max_examples=100)
@given(turns(requests, odd_targets), st.sampled_from(["smart", "all"]))
def test_no_spelling_of_access_opens_more_than_was_shown(calls: list[Any], mode: Any) -> None:
    _check(calls, mode)


@settings(max_examples=100)
@given(turns(links_only, targets))
@pytest.mark.sweep
def test_no_link_that_changes_meanwhile_opens_more_than_was_shown(calls: list[Any]) -> None:
    _check(calls, "all")


def _check(calls: list[tuple[Any, dict[str, str], dict[str, str], str]], mode: Any) -> None:
    with world() as base:
        usual = SandboxProfile(write=(str(base / "work"),))
        started: list[SandboxProfile] = []
        person = Person(base)
        tool = BashTool(base / "work", usual, open_sandbox=lambda profile: Recorded(profile, started))
        approve = Approvals(person, mode=mode, remember=lambda hosts: None)
        for request, before, person.later, person.answer in calls:
            link(base, before)
            count = len(started)
            script = scripted(call("bash", command="make", access=filled(request, base)), text("ok"))
            asyncio.run(Agent(MODEL, stream_fn=script, tools=[tool], approve=approve).prompt("go"))
            assert not person.not_shown
            for profile in started[count:]:
                assert any(is_within(profile, usual, access) for access in person.shown), (profile, person.shown)
        tool.close()


class Person:
    """Answers as prepared, and remembers what was shown. Meanwhile the links are changed."""

    def __init__(self, base: Path) -> None:
        self.later: dict[str, str] = {}
        self.answer = "no"
        self.shown: list[dict[str, Any]] = []
        self.not_shown: list[str] = []
        self._base = base

    def __call__(self, question: ApprovalQuestion) -> str:
        if question.access is None or self.answer == "no":
            return "no"
        self.not_shown += [line for line in _lines(question.access) if line not in question.display.split("\n")]
        self.shown.append(question.access)
        link(self._base, self.later)
        return self.answer


def _lines(access: dict[str, Any]) -> list[str]:
    """How each part of what opens is shown."""
    network = access.get("network")
    hosts = "the whole network of this machine, unfiltered" if network is True else ", ".join(network or [])
    folders = [f"! {kind}: {folder}" for kind in ("write", "read") for folder in access.get(kind, [])]
    return [f"! network: {hosts}", *folders] if hosts else folders
