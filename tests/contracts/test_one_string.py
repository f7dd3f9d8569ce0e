"""Where several strings or paths are accepted, a single string is one item, never its letters."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from swink_agent import Agent, CommandRules, Redactor, SandboxProfile
from swink_agent.adapters.kit import ProviderDescription
from swink_agent.approvals import CallRules
from swink_agent.core.values.model_info import ModelInfo
from swink_agent.core.values.several import several_paths, several_texts
from swink_agent.evals import EvalCase, EvalSet
from swink_agent.memory import JsonlSessionStore
from swink_agent.policies import ClaimCheck, WorkspaceOnly
from swink_agent.sandbox import clean_environment, find_program, profile_with_access
from swink_agent.testing import FakeProvider, scripted
from swink_agent.tools import Workspace, standard_tools
from swink_agent.web import app

SECRET = "a-secret-string-here"
PACKAGES = (
    "swink_agent",
    *[
        f"swink_agent.{package}"
        for package in (
            *("approvals", "durable", "evals", "local", "mcp", "memory", "policies", "sandbox", "skills", "telemetry"),
            *("testing", "tools", "web"),
        )
    ],
)

_SEVERAL = re.compile(r"(Iterable|Sequence|Collection)\[str( \| os\.PathLike\[str\])?\]")


def test_a_redactor_takes_one_secret() -> None:
    redactor = Redactor(SECRET, environment={})
    assert len(redactor) == 1
    assert SECRET not in redactor.redact(f"it is {SECRET}.")
    assert Redactor(environment={"DB_PASSWORD": SECRET}, unmasked="DB_PASSWORD").redact(SECRET) == SECRET


@pytest.mark.parametrize("wrong", [[SECRET], None, SECRET.encode(), {"name": SECRET}])
def test_a_value_that_is_not_a_text_is_refused_without_being_shown(wrong: Any) -> None:
    redactor = Redactor(environment={})
    calls: list[Callable[[], object]] = [
        lambda: redactor.register(wrong),
        lambda: redactor.learn(wrong, "NAME"),
        lambda: Redactor([wrong], environment={}),
    ]
    if not isinstance(wrong, list):
        calls.append(lambda: Redactor(wrong, environment={}))
    for attempt in calls:
        with pytest.raises(TypeError) as raised:
            attempt()
        assert SECRET not in str(raised.value)
        assert type(wrong).__name__ in str(raised.value)


def test_command_rules_take_one_rule() -> None:
    assert CommandRules.standard(deny="ls").decide("ls").verdict == "deny"
    assert CommandRules(allow="rm").decide("rm x").verdict == "allow"
    assert CommandRules(allow="rm").decide("r").verdict == "ask"
    assert CommandRules(patterns="npm test").decide("npm test").verdict == "allow"


def test_call_rules_take_one_rule(tmp_path: Path) -> None:
    assert CallRules(tmp_path, deny="write_file").denied_tools == {"write_file"}
    with pytest.raises(ValueError, match="names no tool"):
        CallRules(tmp_path, deny="write_file", tools="read_file")


def test_the_other_classes_take_one_too(tmp_path: Path) -> None:
    assert ClaimCheck(changing="write", looking="read", commands="write").changing == ("write",)
    other = tmp_path / "other"
    other.mkdir()
    assert WorkspaceOnly(tmp_path / "here", also=str(other)).contains(str(other / "file"))
    assert not WorkspaceOnly(tmp_path / "here", also=str(other)).contains("/etc")
    assert {tool.name for tool in standard_tools(tmp_path, "off", also=str(other))} > {"bash", "read_file"}
    assert clean_environment({"NAME": "x", "N": "y"}, "NAME").get("NAME") == "x"
    program = other / "program"
    program.touch(mode=0o755)
    assert find_program("program", folders=str(other)) == str(program)
    assert find_program("program", folders=[str(other)], outside=str(other)) is None
    assert FakeProvider("anthropic", "hello").replies == ["hello"]
    assert Workspace(tmp_path, hidden="other").is_hidden(("other", "file"))
    assert Workspace(tmp_path, hidden=other).is_hidden(("other", "file"))
    assert Workspace(tmp_path, protected="kept").protected == ("kept",)


def test_one_folder_that_a_command_may_write_opens_that_folder_alone() -> None:
    here = SandboxProfile(write=("/srv/here",))
    opened = profile_with_access(here, write="/srv/there", read="/srv/more", hosts="example.org")
    assert (opened.write, opened.hosts) == (("/srv/here", "/srv/there"), ("example.org",))
    assert opened.read is not None
    assert opened.read[-1] == "/srv/more"


async def test_one_host_and_one_origin_of_an_application_are_accepted(tmp_path: Path) -> None:
    made = app(
        lambda context: Agent("scripted:x", stream_fn=scripted()),
        authorize=lambda request, action, session: "ada",
        store=JsonlSessionStore(tmp_path),
        hosts="agents.example.org",
        origins="https://example.org",
    )
    async with TestClient(TestServer(made)) as client:
        for host, origin, status in [
            ("agents.example.org", "https://example.org", 200),
            ("agents.example.org", "https://other.example.org", 403),
            ("a", "https://example.org", 421),
        ]:
            answer = await client.get("/health", headers={"host": host, "origin": origin})
            assert answer.status == status


def test_one_tag_chooses_the_cases_that_have_it() -> None:
    cases = [EvalCase(tag, tag, ["Hi."], tags=(tag,)) for tag in ("smoke", "slow")]
    every = EvalSet("set", "Set", cases)
    assert [case.id for case in every.tagged("smoke").cases] == ["smoke"]
    assert [case.id for case in every.tagged(not_tags="smoke").cases] == ["slow"]


def test_one_session_is_deleted_and_not_those_that_begin_with_its_letters(tmp_path: Path) -> None:
    assert list(JsonlSessionStore(tmp_path).delete_all("nothing")) == ["nothing"]


def test_one_string_for_a_field_that_is_a_tuple_is_refused() -> None:
    for field in ("write", "read", "hidden", "protected", "programs"):
        with pytest.raises(TypeError, match="a tuple of paths"):
            SandboxProfile(**{field: "one"})  # pyright: ignore[reportArgumentType]
    for field in ("key_variables", "url_variables", "credential_variables"):
        with pytest.raises(TypeError, match=field):
            ProviderDescription(name="p", make=lambda _: None, **{field: "ONE_KEY"})  # pyright: ignore
    model = ModelInfo("p", "m", "M", prefixes="gpt")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="prefixes"):
        ProviderDescription(name="p", make=lambda _: None, models=(model,))  # pyright: ignore


def test_an_item_that_is_not_a_string_is_refused_by_the_name_of_the_argument() -> None:
    for wrong in (None, 3, b"bytes", {"a": "b"}, [1]):
        for read in (several_texts, several_paths):
            with pytest.raises(TypeError, match=r"^here: an? \w+ is n"):
                read(wrong, "here")  # pyright: ignore[reportArgumentType, reportCallIssue]


def test_an_empty_text_is_not_a_path() -> None:
    assert several_paths([Path(), "a"], "here") == (".", "a")
    for wrong in ("", ["a", ""]):
        with pytest.raises(ValueError, match=r"^here: an empty text is not a path"):
            several_paths(wrong, "here")


def _parameters() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in dir(module):
            thing = getattr(module, name)
            owned = vars(thing).items() if inspect.isclass(thing) else ()
            public = [(f"{name}.{own}", getattr(thing, own)) for own, _ in owned if own == "__init__" or own[0] != "_"]
            for label, function in [(name, thing), *public]:
                if not (inspect.isfunction(function) or inspect.ismethod(function)):
                    continue
                for parameter in inspect.signature(function).parameters.values():
                    yield f"{label}({parameter.name})", str(parameter.annotation)


def test_every_public_function_that_takes_several_takes_one() -> None:
    taken = [(where, hint) for where, hint in _parameters() if _SEVERAL.match(hint.removeprefix("str | "))]
    assert len(taken) > 8
    assert {where for where, hint in taken if not hint.startswith("str | ")} == {
        "Sandbox.spawn(argv)",  # refuses a text, because it is not a list of words
        "Redactor.redact_texts(texts)",  # the pieces of one text, as they follow each other
    }
