"""The site has every page, and the generated reference has every setting, variable, option, error and public name.

Needs neither mkdocs nor the network. `.ci/run` builds the site itself, with `mkdocs build --strict`.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from .documents import ROOT
from .test_exports import exported

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
GENERATED = re.compile(r"<!-- generated: ([^>]+?) -->")


def load_script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reference = load_script("reference")


class Loader(yaml.SafeLoader):
    """Reads mkdocs.yml; a Python object in it, the function for anchors, is left out."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)
SITE = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)


def entries(nav: list[Any]) -> Iterator[str]:
    for item in nav:
        for value in item.values() if isinstance(item, dict) else [item]:
            if isinstance(value, str):
                yield value
            else:
                yield from entries(value)


def test_every_page_is_in_the_navigation_once() -> None:
    shown = list(entries(SITE["nav"]))
    added = re.search(r"^ADDED = (\{.*\})$", (ROOT / "scripts/site_hooks.py").read_text(encoding="utf-8"), re.MULTILINE)
    assert added is not None
    root_pages = yaml.safe_load(added[1])
    assert all((ROOT / name).is_file() for name in root_pages)
    assert sorted(shown) == sorted([*(page.relative_to(DOCS).as_posix() for page in PAGES), *root_pages.values()])


def test_the_navigation_has_the_five_sections() -> None:
    assert [next(iter(item)) for item in SITE["nav"]] == ["Start", "Tutorial", "Guides", "Reference", "Troubleshooting"]


def test_the_site_loads_nothing_from_elsewhere_and_names_no_address() -> None:
    assert SITE["theme"]["font"] is False
    assert not {"site_url", "repo_url", "edit_uri", "extra_javascript"} & SITE.keys()
    assert all((DOCS / name).is_file() for name in SITE["extra_css"])
    assert SITE["strict"] is True


@pytest.mark.table
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_a_page_reads_the_same_on_the_site_as_elsewhere(page: Path) -> None:
    """Python-Markdown wants an empty line in front of a list, and four spaces in front of what belongs to an item."""
    wrong: list[str] = []
    before, is_code = "", False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
            if re.match(r" {1,3}```", line):
                wrong.append(f"{number}: a block in a list is indented by four spaces")
        elif not is_code:
            is_item = re.match(r"(- |\* |\d+\. )", line)
            if is_item and before.strip() and not re.match(r"(- |\* |\d+\. | )", before):
                wrong.append(f"{number}: a list needs an empty line before it")
            if re.match(r" {1,3}(- |\* |\||\d+\. )", line):
                wrong.append(f"{number}: what belongs to an item is indented by four spaces")
        before = line
    assert not wrong


def page_of(request: str) -> Path | None:
    return next((page for page in PAGES if f"<!-- generated: {request} -->" in page.read_text(encoding="utf-8")), None)


def test_every_generated_part_is_on_a_page_and_every_page_asks_for_parts_that_exist() -> None:
    asked = [match for page in PAGES for match in GENERATED.findall(page.read_text(encoding="utf-8"))]
    assert len(asked) == len(set(asked))
    wanted = [*(name for name in reference.PARTS if name != "api"), *(f"api {name}" for name in reference.packages())]
    assert sorted(asked) == sorted(wanted)
    assert all(reference.generated(request) for request in asked)


def test_every_public_name_is_described_on_one_page() -> None:
    pages = "\n".join(reference.generated(f"api {package}") + "\n" for package in reference.packages())
    names: dict[str, str] = {}
    for package in reference.packages():
        names |= {f"{package}.{name}": full for name, full in reference.public_names(package).items()}
    assert {full for full in names.values() if pages.count(f"::: {full}\n") != 1} == set()
    assert {name for name in exported() if not name.startswith("swink_agent.memory.export.")} <= names.keys()


def test_every_setting_is_in_the_reference_with_its_variable() -> None:
    from swink_agent.app.settings.definitions import DEFINITIONS

    settings, variables = reference.generated("settings"), reference.generated("setting-variables")
    assert {definition.kind for definition in DEFINITIONS if not definition.choices} <= reference.VALUES.keys()
    assert "| `true`, `false` |" in settings
    for definition in DEFINITIONS:
        assert f"| `{definition.name}` |" in settings
        assert f"`{definition.variable}`" in variables


def test_every_table_of_a_settings_file_is_in_the_reference_with_its_keys() -> None:
    from swink_agent.app.settings.hook_tables import HOOK_KEYS
    from swink_agent.app.settings.key_bindings import ACTIONS
    from swink_agent.app.settings.mcp_servers import SERVER_KEYS

    page = (DOCS / "reference/settings.md").read_text(encoding="utf-8")
    for request, names in {
        "hook-settings": HOOK_KEYS,
        "server-settings": SERVER_KEYS,
        "key-settings": [action.name for action in ACTIONS],
    }.items():
        assert f"<!-- generated: {request} -->" in page
        assert re.findall(r"^\| `(\w+)` \|", reference.generated(request), re.MULTILINE) == list(names)


def test_every_variable_of_ours_in_the_code_is_in_the_reference() -> None:
    page = (DOCS / "reference/environment.md").read_text(encoding="utf-8")
    page = GENERATED.sub(lambda match: reference.generated(match[1]), page)
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    named = set(re.findall(r"[\"'](SWINK_[A-Z_]*[A-Z])[\"'=]", source))
    assert "SWINK_CONFIG_DIR" in named
    assert {name for name in named if f"`{name}`" not in page} == set()


def test_every_command_and_option_is_in_the_reference() -> None:
    page = reference.generated("command-line")
    for ctx in reference.commands():
        assert f"# {ctx.command_path}\n" in page
        for line in (ctx.command.epilog or "").replace("\b", "").splitlines():
            assert line in page
        for option in ctx.command.get_params(ctx):
            if option.param_type_name == "option" and not getattr(option, "hidden", False):
                assert option.opts[-1] in page


def test_every_public_exception_is_in_the_reference() -> None:
    page = reference.generated("errors")
    found = reference.exceptions()
    assert {"swink_agent.AuthError", "swink_agent.memory.SessionInUse"} <= found.keys()
    assert all(f"`{name}`" in page for name in found)
    assert "`_" not in page, "a base class without a page"
