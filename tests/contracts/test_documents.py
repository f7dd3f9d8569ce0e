"""The examples run, every link and anchor in the documents exists, and every page can be reached from README."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import get_args

import pytest
from markdown_it import MarkdownIt

from swink_agent import AgentEvent

from .documents import DOCUMENTS, ROOT, blocks_of, name_of

EXAMPLES = sorted(ROOT.glob("examples/*.py"))


def run(*arguments: str) -> str:
    command = [sys.executable, "-I", "-W", "error", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_runs_and_prints_something(example: Path) -> None:
    assert run(str(example)).strip()


@pytest.mark.sweep
def test_the_example_of_approvals_continues_after_its_server_restarts() -> None:
    assert run(str(ROOT / "examples/web_approval.py")).splitlines() == [
        "waiting: 1 call",
        "True",
        "paid 20.00 back for order 17",
        "The customer has been told.",
        "409 for a second answer",
    ]


def blocks_of_the_readme(language: str) -> list[str]:
    return [block.code for block in blocks_of(ROOT / "README.md") if block.language == language]


FIRST_PAGES = ["README.md", "docs/index.md"]


@pytest.mark.parametrize("page", FIRST_PAGES)
def test_the_first_agent_asks_a_real_model_and_the_second_is_the_same_offline(page: str) -> None:
    first, second = [block for block in blocks_of(ROOT / page) if block.language == "python"][:2]
    assert first.marker == "model"
    assert 'Agent("anthropic:claude-' in first.code
    assert "scripted(" in second.code
    assert run("-c", second.code) == "2 + 3 is 5.\n"


def test_the_first_two_shell_blocks_of_the_readme_try_and_test_the_project() -> None:
    first, second = blocks_of_the_readme("sh")[:2]
    assert first.count("\n") == second.count("\n") == 1
    assert "swink -p" in first
    assert "tui" in first, "the first command also installs the terminal UI"
    assert "pytest" in second


def prose_of(document: Path) -> str:
    """Returns the document without its blocks of code, in which `Agent[Deps](…)` looks like a link."""
    return re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.table
@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_link_leads_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", prose_of(document)):
        assert (document.parent / target).exists(), f"{document.name} links to {target}"


def anchors_of(document: Path) -> set[str]:
    """Returns the anchors of the headings: small letters, dashes for spaces, no other punctuation."""
    tokens = MarkdownIt().parse(document.read_text(encoding="utf-8"))
    headings = [text.content for opening, text in pairwise(tokens) if opening.type == "heading_open"]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.table
@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_link_to_a_heading_leads_to_one(document: Path) -> None:
    for target, heading in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", prose_of(document)):
        page = document.parent / target if target else document
        assert heading in anchors_of(page), f"{name_of(document)} links to {target}#{heading}"


@pytest.mark.table
@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_test_that_a_document_names_exists(document: Path) -> None:
    for target in re.findall(r"`(tests/[\w/]*(?:\.py)?)`", document.read_text(encoding="utf-8")):
        assert (ROOT / target).exists(), f"{document.name} names {target}"


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen, rest = set[Path](), [ROOT / "README.md"]
    while rest:
        page = rest.pop()
        seen.add(page)
        links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
        found = {(page.parent / link).resolve() for link in links}
        rest += [link for link in found if link.suffix == ".md" and link not in seen]
    lost = [name_of(page) for page in DOCUMENTS if page not in seen]
    assert not lost, f"no link leads to {lost}"


def test_the_page_on_events_has_every_event_with_its_fields() -> None:
    page = (ROOT / "docs/events.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^\| `(\w+)` \|(.*?)\| ", page, re.MULTILINE))
    events = {event.__name__: event.__struct_fields__ for event in get_args(AgentEvent)}
    assert shown.keys() == events.keys()
    missing = [(name, field) for name, fields in events.items() for field in fields if f"`{field}`" not in shown[name]]
    assert not missing
