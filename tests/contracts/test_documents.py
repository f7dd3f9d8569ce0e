"""The documents tell the truth: their examples run, their links lead somewhere, their commands are one line each."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "bench/README.md"])
EXAMPLES = sorted(ROOT.glob("examples/*.py"))


def blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", document.read_text(), re.MULTILINE | re.DOTALL)


def run(*arguments: str) -> str:
    command = [sys.executable, "-I", "-W", "error", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


CODE = [
    pytest.param(code, id=f"{document.name}-{number}")
    for document in DOCUMENTS
    for number, code in enumerate(blocks(document, "python"))
]


@pytest.mark.parametrize("code", CODE)
def test_the_code_in_the_documents_runs(code: str) -> None:
    run("-c", code)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_runs_and_has_something_to_say(example: Path) -> None:
    assert run(str(example)).strip()


def test_the_smallest_agent_in_the_readme_answers() -> None:
    assert run("-c", blocks(ROOT / "README.md", "python")[0]) == "2 + 3 is 5.\n"


def test_the_readmes_first_two_shell_blocks_are_the_two_commands() -> None:
    first, second = blocks(ROOT / "README.md", "sh")[:2]
    assert first.count("\n") == second.count("\n") == 1
    assert "swink -p" in first
    assert "tui" in first, "whoever tries it first has the terminal UI too"
    assert "pytest" in second


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text()):
        assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_every_module_is_on_the_readmes_map() -> None:
    text = (ROOT / "README.md").read_text()
    modules = [*ROOT.glob("src/swink_agent/core/[a-z]*.py"), *ROOT.glob("src/swink_agent/adapters/[a-z_]*.py")]
    for module in modules:
        if module.name == "__init__.py":
            continue
        assert module.name in text, f"{module.name} is not on the map"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_test_that_a_document_names_exists(document: Path) -> None:
    for target in re.findall(r"`(tests/[\w/]*(?:\.py)?)`", document.read_text()):
        assert (ROOT / target).exists(), f"{document.name} names {target}"
