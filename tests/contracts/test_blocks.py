"""Runs every block of code in the documents, or checks it with the part of the program that would read it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from swink_agent.app.settings.settings import parse_file
from swink_agent.cli.root import swink
from swink_agent.evals import load_set
from swink_agent.testing.fakes import FakeProvider, FakeReply

from .documents import BLOCKS, DOCUMENTS, ROOT, Block, ShellCommand, blocks_of, commands_of, files_of, name_of

PICTURES = {"", "text"}
"""Languages of blocks that are only shown: diagrams and pictures of a screen."""
MEANT_TO_BE_WRONG = {"swink sesions", "swink -p sesions", "swink chat", "swink tui", "--token"}
"""Typing mistakes that a page quotes, words that mean the terminal UI, and an option of another program."""
MOST_BLOCKS_NOT_RUN = 0
EVERYWHERE_KNOWN = {"cat", "cd", "curl", "export", "git", "mkdir", "mkdocs", "uv"}
"""Programs of others, and of the shell, that a page may use."""
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

# Runs files as cells of a notebook: in IPython's own shell, in an event loop that runs from cell to cell.
NOTEBOOK = """
import asyncio, sys
from pathlib import Path
from IPython.core.interactiveshell import InteractiveShell

async def main():
    shell = InteractiveShell.instance()
    for path in map(Path, sys.argv[1:]):
        cell = path.read_text(encoding="utf-8")
        done = await shell.run_cell_async(cell, transformed_cell=shell.transform_cell(cell))
        done.raise_error()

asyncio.run(main())
"""


def of(*languages: str, marker: str | None = None) -> list[Any]:
    """Returns the blocks in these languages as parameters, except those that are only shown."""
    chosen = [block for block in BLOCKS if block.language in languages and block.marker != "not run"]
    return [pytest.param(block, id=str(block)) for block in chosen if marker is None or block.marker == marker]


EVERYWHERE = {
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    "PYTHONWARNINGS": "error",
    "SSL_CERT_FILE": os.devnull,  # reading the machine's certificates is slow, and no block uses TLS
}


def laid_out(folder: Path, document: Path) -> dict[str, str]:
    """Writes the page's files, and returns the small environment for a program that runs next to them."""
    for name, content in files_of(document).items():
        (folder / name).write_text(content, encoding="utf-8")
    return {
        **EVERYWHERE,
        "HOME": str(folder),
        "PYTHONPATH": str(folder),
        "SWINK_CONFIG_DIR": str(folder / "config"),
        "SWINK_DATA_DIR": str(folder / "data"),
        "IPYTHONDIR": str(folder / "ipython"),
    }


def in_folder(folder: Path, document: Path, *command: str, typed: str = "", **variables: str) -> str:
    """Runs a command next to the page's files, and returns what it prints."""
    environ = laid_out(folder, document) | variables
    done = subprocess.run(
        command,
        input=typed,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=50,
        cwd=folder,
        env=environ,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def warm(warm_starts: Any) -> Iterator[Any]:
    with warm_starts(EVERYWHERE) as starts:
        yield starts


def test_every_block_has_a_known_language() -> None:
    known = {"python", "sh", "toml", "json", "yaml", *PICTURES}
    assert {str(block): block.language for block in BLOCKS if block.language not in known} == {}


def test_blocks_that_do_not_run_are_few_and_give_a_reason() -> None:
    shown = [block for block in BLOCKS if block.marker == "not run"]
    assert len(shown) <= MOST_BLOCKS_NOT_RUN
    assert all(block.argument for block in shown)


async def run_code(folder: Path, document: Path, code: str, warm: Any, *, typed: str = "", **variables: str) -> str:
    """Runs a program next to the page's files, and returns what it prints."""
    if warm is None:
        return await asyncio.to_thread(
            in_folder, folder, document, *(sys.executable, "-c", code), typed=typed, **variables
        )
    environ = laid_out(folder, document) | variables
    path = ["", environ["PYTHONPATH"]]
    status, stdout, stderr = await warm.run(code, [], folder, environ, stdin=typed.encode(), path=path)
    assert status == 0, (stdout + b"\n" + stderr).decode()
    return stdout.decode()


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("block", of("python", marker=""))
async def test_the_code_in_the_documents_runs(block: Block, tmp_path: Path, warm: Any) -> None:
    await run_code(tmp_path, block.document, block.code, warm)


@pytest.mark.parametrize("block", of("python", marker="model"))
async def test_programs_that_ask_a_real_model_run_against_a_strict_fake_of_its_provider(
    block: Block, tmp_path: Path, warm: Any
) -> None:
    wanted = json.loads(block.argument)
    assert wanted.keys() <= {"replies", "typed", "prints"}
    assert "anthropic:" in "".join([block.code, *files_of(block.document).values()])
    replies = [reply if isinstance(reply, str) else FakeReply(**reply) for reply in wanted["replies"]]
    async with FakeProvider("anthropic", replies) as fake:
        keys = {"ANTHROPIC_API_KEY": fake.key, "ANTHROPIC_BASE_URL": fake.url}
        printed = await run_code(tmp_path, block.document, block.code, warm, typed=wanted.get("typed", ""), **keys)
    assert not fake.rejections
    assert len(fake.requests) == len(replies)
    assert wanted.get("prints", "") in printed


@pytest.mark.parametrize("block", of("python", marker="file"))
async def test_a_file_that_a_document_shows_can_be_imported(block: Block, tmp_path: Path, warm: Any) -> None:
    await run_code(tmp_path, block.document, f"import {Path(block.argument).stem}", warm)


PACKAGES = sorted({block.document for block in BLOCKS if block.marker == "package"})


@pytest.mark.parametrize("document", PACKAGES, ids=name_of)
def test_a_package_that_a_page_builds_is_built_by_a_test(document: Path) -> None:
    for block in blocks_of(document):
        if block.marker == "package":
            compile(block.code, block.argument, "exec")
    tests = [test for test in ROOT.glob("tests/**/*.py") if test.parent != Path(__file__).parent]
    assert any(document.name in test.read_text(encoding="utf-8") for test in tests)


NOTEBOOKS = sorted({block.document for block in BLOCKS if block.marker == "cell"})


@pytest.mark.sweep  # only the extra `dev` has IPython, which is large for one page
@pytest.mark.parametrize("document", NOTEBOOKS, ids=name_of)
def test_the_cells_of_a_notebook_run_one_after_another(document: Path, tmp_path: Path) -> None:
    cells = [block for block in blocks_of(document) if block.marker == "cell"]
    paths = [tmp_path / f"cell-{block.line}.txt" for block in cells]
    for path, block in zip(paths, cells, strict=True):
        path.write_text(block.code, encoding="utf-8")
    in_folder(tmp_path, document, sys.executable, "-c", NOTEBOOK, *map(str, paths))


@pytest.mark.parametrize("block", of("toml"))
def test_settings_in_the_documents_are_settings(block: Block) -> None:
    values = tomllib.loads(block.code)
    if {"project", "build-system", "tool"} & values.keys():
        return  # the pyproject.toml of an example
    assert not parse_file(str(block), block.code.encode()).problems


@pytest.mark.parametrize("block", of("json"))
def test_json_in_the_documents_is_json(block: Block) -> None:
    rest = block.code.strip()
    while rest:  # one value, or several that follow each other
        _, end = json.JSONDecoder().raw_decode(rest)
        rest = rest[end:].strip()


@pytest.mark.parametrize("block", of("yaml"))
def test_yaml_in_the_documents_is_yaml_and_sets_of_cases_are_such(block: Block, tmp_path: Path) -> None:
    value = yaml.safe_load(block.code)
    if "cases" in value:
        path = tmp_path / "set.yaml"
        path.write_text(block.code, encoding="utf-8")
        assert load_set(path).cases


# -- shell -----------------------------------------------------------------------------------------------------


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("block", of("sh", marker="run"))
def test_shell_blocks_with_a_run_comment_run(block: Block, tmp_path: Path) -> None:
    in_folder(tmp_path, block.document, "bash", "-euo", "pipefail", "-c", block.code)


@pytest.mark.table
@pytest.mark.parametrize("block", of("sh"))
def test_bash_can_parse_the_shell_blocks(block: Block) -> None:
    done = subprocess.run(["bash", "-n"], input=block.code, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def parsed(words: tuple[str, ...]) -> click.Command:
    """Returns the command for these words, using the program's own parser. Raises `click.UsageError`."""
    command: click.Command = swink
    ctx = command.make_context("swink", list(words))
    while isinstance(command, click.Group) and (rest := [*ctx._protected_args, *ctx.args]):
        name, inner, rest = command.resolve_command(ctx, rest)
        assert inner is not None
        command, ctx = inner, inner.make_context(name, rest, parent=ctx)
    return command


def options_of(command: click.Command) -> set[str]:
    with_names = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    return with_names | {"-h", "--help"}


def named_options(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*|(?<![\w-])-[a-zA-Z]\b", text))


SHELL = [
    pytest.param(command, id=f"{block}-{number}")
    for block in BLOCKS
    if block.language == "sh"
    for number, command in enumerate(commands_of(block.code))
]


@pytest.mark.table
@pytest.mark.parametrize("command", SHELL)
def test_commands_in_shell_blocks_have_options_that_exist(command: ShellCommand) -> None:
    program, *words = command.words
    match Path(program).name, words:
        case "swink", _:
            taken = options_of(parsed(tuple(words)))
            assert named_options(command.comment) <= taken, f"{command.comment} names options that it has not"
        case ("pip", ["install", *_]):
            wanted = {extra for word in words for extra in re.findall(r"\[([\w,]+)\]$", word)}
            assert {name for names in wanted for name in names.split(",")} <= EXTRAS.keys()
        case "python" | "python3", ["-m", module, *_]:
            path = ROOT / module.replace(".", "/")
            assert module in {"venv", "pytest"} or path.exists() or path.with_suffix(".py").exists()
        case "bash", [script]:
            assert (ROOT / script).exists()
        case name, _:  # a program of the development environment, or a common one
            ours = Path(sys.executable).with_name(name)
            is_named = any(re.match(rf"{name}\b", requirement) for requirement in EXTRAS["dev"])
            assert ours.exists() or is_named or name in EVERYWHERE_KNOWN or shutil.which(name)


SPANS = [
    pytest.param(span, id=f"{name_of(document)}-{number}")
    for document in DOCUMENTS
    for number, span in enumerate(re.findall(r"(?<!`)`(swink [^`\n]*)`(?!`)", document.read_text(encoding="utf-8")))
]


@pytest.mark.table
@pytest.mark.parametrize("span", SPANS)
def test_commands_that_the_prose_names_exist(span: str) -> None:
    if span in MEANT_TO_BE_WRONG:
        return
    command: click.Command = swink
    for word in shlex.split(span)[1:]:
        if word.startswith("-") and word != "-":
            assert word.partition("=")[0] in options_of(command), f"{span}: there is no {word}"
        elif isinstance(command, click.Group) and re.fullmatch(r"[a-z]+", word):
            inner = command.get_command(click.Context(command), word)
            assert inner is not None, f"{span}: there is no {word}"
            command = inner


@cache
def all_options(command: click.Command = swink) -> set[str]:
    """Returns the options of a command and of all commands in it."""
    found = options_of(command)
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        inner = [command.get_command(ctx, name) for name in command.list_commands(ctx)]
        found = found.union(*[all_options(item) for item in inner if item is not None])
    return found


@pytest.mark.parametrize("page", ["approvals", "cli", "evals", "secrets", "settings", "tui"])
def test_options_that_the_pages_about_the_command_name_exist(page: str) -> None:
    text = (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")
    text = re.sub(r"^\| (`(fd|find|git)`.*)$", "", text, flags=re.MULTILINE)  # options with which these run programs
    named = set(re.findall(r"(?<!`)`(--?[a-zA-Z][\w-]*)[^`\n]*`(?!`)", text))
    assert not named - all_options() - MEANT_TO_BE_WRONG
