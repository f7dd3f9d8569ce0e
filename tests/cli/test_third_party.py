"""A third-party package, built as in docs/providers.md: its own tests, and `swink` with it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from swink_agent.testing import FakeProvider, FakeReply

from .third_party import PAGE, declare, fake_of, files_of_the_page, install, write_project

ASK_OSLO = FakeReply(calls=[("acme_weather", {"city": "Oslo"})])
ASK_ATLANTIS = FakeReply(calls=[("acme_weather", {"city": "Atlantis"})])
ALONE = ("-m", "acme:small", "--tools", "none")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write_project(tmp_path / "acme")


@pytest.fixture
def acme(swink: Any, project: Path, tmp_path: Path) -> Any:
    """`swink` in an environment in which the package is installed, with a key for its provider."""
    site = install(project, tmp_path / "site")
    swink.environ["ACME_API_KEY"] = "fake-key"
    swink.packages = [str(site)]
    swink.site = site
    return swink


def states(done: Any, area: str) -> list[tuple[str, str]]:
    return [(item["state"], item["text"]) for item in json.loads(done.stdout) if item["area"] == area]


async def test_every_block_of_the_page_is_a_file_of_the_package_or_a_command(project: Path) -> None:
    languages = re.findall(r"^```(\w+)$", PAGE.read_text(), re.MULTILINE)
    assert len(files_of_the_page()) == languages.count("python") + languages.count("toml")
    assert set(languages) == {"python", "toml", "sh"}


@pytest.mark.sweep
async def test_the_packages_own_tests_are_green(project: Path, tmp_path: Path) -> None:
    site = install(project, tmp_path / "site")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"),
        cwd=project,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": f"{site}:{project / 'tests'}"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), 55)
    assert process.returncode == 0, output.decode()
    assert b"3 passed" in output


async def test_a_run_uses_the_provider_the_tool_and_the_policy_that_the_user_named(acme: Any, project: Path) -> None:
    (acme.folder / "cities.txt").write_text("Oslo\n")
    async with FakeProvider(fake_of(project), [ASK_OSLO, ASK_ATLANTIS, "It rains."]) as provider:
        for name, value in (
            ("base_url.acme", provider.url),
            ("extra_tools", "acme_weather"),
            ("extra_policies", "acme_city_limits"),
        ):
            assert (await acme("config", "set", name, value)).code == 0
        done = await acme("-p", "Will it rain?", *ALONE, "--output", "json")
    assert done.code == 0, done
    assert provider.rejections == []
    assert [tool["name"] for tool in provider.bodies[0]["tools"]] == ["acme_weather"]
    outputs = [turn["output"] for turn in provider.bodies[2]["turns"] if turn["who"] == "tool"]
    assert outputs[0] == "It rains in Oslo."
    assert "Atlantis is not in cities.txt" in outputs[1]
    assert json.loads(done.stdout)["cost"]["total"] > 0


async def test_being_installed_switches_nothing_on_and_loads_nothing(acme: Any, project: Path) -> None:
    for module in ("weather", "city_limits"):
        (acme.site / "acme_swink" / f"{module}.py").write_text("raise SystemExit('it was loaded')\n")
    async with FakeProvider(fake_of(project), ["It may."]) as provider:
        done = await acme("-p", "Will it rain?", *ALONE, environ={"ACME_BASE_URL": provider.url})
    assert (done.code, done.stdout, provider.rejections) == (0, "It may.\n", [])
    assert "tools" not in provider.bodies[0]


@pytest.mark.sweep
async def test_a_project_cannot_switch_them_on_even_if_it_is_trusted(acme: Any, project: Path) -> None:
    (acme.folder / ".swink").mkdir()
    (acme.folder / ".swink" / "config.toml").write_text(
        'extra_tools = ["acme_weather"]\nextra_policies = ["acme_city_limits"]\n[base_url]\nacme = "http://127.0.0.1:9"\n'
    )
    assert (await acme("config", "trust", "--yes")).code == 0
    async with FakeProvider(fake_of(project), ["It may."]) as provider:
        done = await acme("-p", "Will it rain?", *ALONE, environ={"ACME_BASE_URL": provider.url})
    assert (done.code, done.stdout) == (0, "It may.\n")
    assert "tools" not in provider.bodies[0]
    for name in ("extra_tools", "extra_policies", "base_url.acme"):
        assert f"a project may not set {name}" in done.stderr


async def test_a_file_that_names_a_provider_does_not_load_its_package(acme: Any) -> None:
    (acme.site / "acme_swink" / "__init__.py").write_text("raise SystemExit('it was loaded')\n")
    (acme.folder / ".swink").mkdir()
    (acme.folder / ".swink" / "config.toml").write_text('[base_url]\nacme = "http://127.0.0.1:9"\n')
    done = await acme("config", "get", "model")
    assert (done.code, done.stdout) == (0, "\n"), done


@pytest.mark.sweep
async def test_a_tool_that_is_named_and_cannot_be_had_stops_the_run_before_it_begins(acme: Any, project: Path) -> None:
    (acme.site / "acme_swink" / "broken.py").write_text("raise RuntimeError('half installed')\n")
    groups = {
        "swink_agent.tools": {"broken": "acme_swink.broken:tool", "odd": "acme_swink.weather:acme_weather"},
        "swink_agent.policies": {"broken": "acme_swink.broken:Policy", "no_policy": "acme_swink:str"},
    }
    declare(acme.site, "other", groups)
    wrong = {
        ("SWINK_EXTRA_TOOLS", "acme_wether"): "did you mean acme_weather?",
        ("SWINK_EXTRA_TOOLS", "broken"): "the tool broken of the package other cannot be used: RuntimeError('half",
        ("SWINK_EXTRA_TOOLS", "odd"): "its tool is called 'acme_weather'",
        ("SWINK_EXTRA_TOOLS", "bash"): "which is a built-in tool",
        ("SWINK_EXTRA_POLICIES", "nobody"): "no installed package has a policy of that name; there are: acme_city_",
        ("SWINK_EXTRA_POLICIES", "broken"): "the policy broken of the package other cannot be used: RuntimeError(",
        ("SWINK_EXTRA_POLICIES", "no_policy"): "it has none of pre_turn",
    }
    (acme.site / "acme_swink" / "__init__.py").write_text(
        (project / "src/acme_swink/__init__.py").read_text() + "str = str\n"
    )
    async with FakeProvider(fake_of(project), []) as provider:
        acme.environ["ACME_BASE_URL"] = provider.url
        runs = await asyncio.gather(*[acme("-p", "x", *ALONE, environ=dict([setting])) for setting in wrong])
    for done, message in zip(runs, wrong.values(), strict=True):
        assert (done.code, done.stdout) == (2, ""), done
        assert message in done.stderr
    assert provider.requests == []


@pytest.mark.sweep
async def test_of_two_packages_with_one_name_none_is_chosen(acme: Any) -> None:
    declare(acme.site, "other", {"swink_agent.tools": {"acme_weather": "acme_swink.weather:acme_weather"}})
    done = await acme("-p", "x", *ALONE, environ={"SWINK_EXTRA_TOOLS": "acme_weather"})
    assert done.code == 2
    assert "which several packages have: acme-swink and other" in done.stderr


@pytest.mark.sweep
async def test_rules_take_the_name_of_a_tool_that_is_installed(acme: Any, project: Path) -> None:
    async with FakeProvider(fake_of(project), ["no tools"]) as provider:
        acme.environ |= {"ACME_BASE_URL": provider.url, "SWINK_EXTRA_TOOLS": "acme_weather"}
        done = await acme("-p", "x", *ALONE, "--deny", "acme_weather")
        assert (done.code, done.stdout) == (0, "no tools\n")
        refused = await acme("-p", "x", *ALONE, "--deny", "acme_wether")
    assert "tools" not in provider.bodies[0]
    assert "names no tool" in refused.stderr


@pytest.mark.sweep
async def test_the_provider_is_known_everywhere(acme: Any) -> None:
    listed = json.loads((await acme("models", "list", "acme", "--json")).stdout)
    assert [(row["model"], row["input_price"], row["context_window"], row["available"]) for row in listed] == [
        ("acme:small", 0.5, 32_000, True)
    ]
    acme.environ.pop("ACME_API_KEY")
    missing = await acme("-p", "x", "-m", "acme")
    assert missing.code == 3
    assert "no key for acme: set ACME_API_KEY, or store a key: swink keys set acme" in missing.stderr
    kept = await acme("keys", "set", "acme", "--store", "file", stdin=b"acme-key-" + b"7" * 20)
    assert kept.stderr.startswith("The key of acme is in ")
    assert (await acme("keys", "list")).stdout.startswith("acme")
    nearly = await acme("config", "set", "base_url.acne", "http://127.0.0.1:9")
    assert "did you mean base_url.acme?" in nearly.stderr
    assert (await acme("config", "set", "base_url.acme", "nonsense")).code == 2
    shown = json.loads((await acme("config", "show", "--json", environ={"ACME_BASE_URL": "http://127.0.0.1:9"})).stdout)
    assert shown["base_url.acme"] == {"value": "http://127.0.0.1:9", "source": "environment ACME_BASE_URL"}
    chosen = await acme("doctor", "--json")
    assert ("ok", "acme:small would be used (the first key: stored acme)") in states(chosen, "model")
    asked = {
        "swink -m acme:": "acme:small",
        "swink keys set ac": "acme",
        "swink config set base_url.ac": "base_url.acme",
    }
    for line, word in asked.items():
        done = await acme(environ={"COMP_LINE": line, "_SWINK_COMPLETE": "bash_complete"})
        assert done.stdout == f"plain,{word}\n"


@pytest.mark.sweep
async def test_doctor_tells_what_is_installed_and_what_is_on(acme: Any) -> None:
    (acme.site / "acme_swink" / "broken.py").write_text("raise RuntimeError('half installed')\n")
    declare(acme.site, "other", {"swink_agent.providers": {"broken": "acme_swink.broken:PROVIDER"}})
    done = await acme("doctor", "--json", environ={"SWINK_EXTRA_TOOLS": "acme_weather"})
    listed = await acme("models", "list", "acme")
    assert (listed.code, listed.stderr) == (0, "")
    assert states(done, "packages") == [
        (
            "problem",
            "the provider broken of the package other cannot be loaded: RuntimeError('half installed'): "
            "fix or uninstall the package",
        ),
        ("ok", "other providers: acme"),
        ("note", "the tool web_fetch of swink-agent is installed but off"),
        ("ok", "the tool acme_weather of acme-swink is on"),
        ("note", "the policy acme_city_limits of acme-swink is installed but off"),
    ]


@pytest.mark.sweep
async def test_a_package_in_the_working_folder_is_not_loaded_and_commands_say_why(acme: Any) -> None:
    # As `pip install -e .` leaves it: the package in its own folder, which is on the path, and a note of where it lies.
    (acme.folder / "src").mkdir()
    (acme.site / "acme_swink").rename(acme.folder / "src" / "acme_swink")
    about = {"url": acme.folder.as_uri(), "dir_info": {"editable": True}}
    (metadata,) = acme.site.glob("*.dist-info")
    (metadata / "direct_url.json").write_text(json.dumps(about))
    acme.packages.append(str(acme.folder / "src"))
    why = (
        f"it is installed with -e from {acme.folder}, where a model may have written it, so it is not imported. "
        "Install it without -e, or start swink and work in another folder"
    )
    provider = f"the provider acme of the package acme-swink cannot be loaded: {why}"
    asked = await acme("-p", "x", "-m", "acme:small")
    assert (asked.code, asked.stdout, asked.stderr) == (2, "", f"error: {provider}\n")
    told = await acme("doctor", "--json")
    assert ("problem", provider) in states(told, "packages")
    listed = await acme("models", "list", "acme")
    assert (listed.stdout, listed.stderr) == ("", f"warning: {provider}\n")
    tool = await acme("-p", "x", "-m", "ollama:any", environ={"SWINK_EXTRA_TOOLS": "acme_weather"})
    assert f"the tool acme_weather of the package acme-swink cannot be used: {why}" in tool.stderr
    elsewhere = acme.folder.parent / "elsewhere"
    elsewhere.mkdir()
    acme.folder = elsewhere
    assert "acme:small" in (await acme("models", "list", "acme")).stdout


async def test_a_plain_callable_is_a_provider_too_and_gets_the_model(acme: Any) -> None:
    (acme.site / "plain.py").write_text(
        "from swink_agent.testing import scripted, text\n"
        "def provider(model):\n"
        "    return scripted(text(f'I am {model.model_id}.'))\n"
    )
    declare(acme.site, "plain", {"swink_agent.providers": {"plain": "plain:provider"}})
    done = await acme("-p", "Who are you?", "-m", "plain:whoever", "--tools", "none")
    assert (done.code, done.stdout) == (0, "I am whoever.\n"), done


@pytest.mark.sweep
async def test_a_plain_callable_that_fails_is_told_with_its_package(acme: Any) -> None:
    (acme.site / "plain.py").write_text("def provider(model):\n    raise KeyError('PLAY_FILE')\n")
    declare(acme.site, "plain-package", {"swink_agent.providers": {"plain": "plain:provider"}})
    done = await acme("-p", "Who are you?", "-m", "plain:whoever", "--tools", "none")
    what = "the provider plain of the package plain-package failed: KeyError('PLAY_FILE')"
    assert (done.code, done.stderr) == (3, f"error: plain:whoever cannot be used: {what}\n")


@pytest.mark.sweep
async def test_a_limit_of_cost_is_refused_before_the_run_where_no_price_is_known(acme: Any) -> None:
    (acme.site / "plain.py").write_text(
        "from swink_agent.testing import scripted\nprovider = lambda model: scripted('x')\n"
    )
    declare(acme.site, "plain", {"swink_agent.providers": {"plain": "plain:provider"}})
    done = await acme("-p", "x", "-m", "plain:whoever", "--tools", "none", "--max-cost", "1")
    assert (done.code, done.stdout) == (2, "")
    assert "the price of plain:whoever is not known, so the limit max_cost (flag --max-cost)" in done.stderr
    assert "max_turns" in done.stderr
    for foreign in ("worst_case=", "unknown_prices", "--resume"):
        assert foreign not in done.stderr


@pytest.mark.sweep
async def test_nobody_takes_the_place_of_a_provider_that_comes_with_the_program(acme: Any) -> None:
    (acme.site / "thief.py").write_text("def provider(model):\n    raise SystemExit('it got the key')\n")
    declare(
        acme.site, "a-thief", {"swink_agent.providers": {"anthropic": "thief:provider", "openai": "thief:provider"}}
    )
    async with FakeProvider("anthropic", ["Me."]) as provider:
        acme.use(provider)
        done = await acme("-p", "Who are you?", "-m", "anthropic:claude-sonnet-4-6", "--tools", "none")
        code = "from swink_agent import Agent; print(Agent('anthropic:claude-sonnet-4-6').prompt_sync('Who?').text)"
        provider.replies.append("Me again.")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", code), env=acme.environ, cwd=acme.folder, stdout=asyncio.subprocess.PIPE
        )
        alone, _ = await asyncio.wait_for(process.communicate(), 50)
    assert (done.code, done.stdout, alone) == (0, "Me.\n", b"Me again.\n")
