"""Programs are started and looked up in one place, so that no file written by a command runs unconfined."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from grimp import build_graph

import swink_agent

SOURCE = Path(swink_agent.__file__).parent
STARTS = {
    "subprocess": {"Popen", "run", "call", "check_call", "check_output", "getoutput", "getstatusoutput"},
    "asyncio": {"create_subprocess_exec", "create_subprocess_shell"},
    "os": {"system", "popen", "fork", "forkpty", "posix_spawn", "posix_spawnp", "startfile"},
    "shutil": {"which"},
    "pty": {"spawn", "fork"},
    "multiprocessing": {"Process", "Pool", "get_context"},
    "webbrowser": {"open", "open_new", "open_new_tab", "get"},
}
ELSEWHERE = {
    "sandbox/starting.py": "the place for this",
    "sandbox/plain.py": "a command of the user's or the model's, in the sandbox of macOS or without one by choice",
    "sandbox/landlock/guardian.py": "the confined command itself, after it is confined",
    "sandbox/landlock/launcher.py": "a guardian, and a trial of namespaces: forks, not other programs",
    "sandbox/network/namespaces.py": "a fork of itself that enters a command's network, and starts nothing",
    "app/talk/shell.py": "`!command`, which a person typed, in that person's own shell and environment",
}


COMMAND_LINES = {
    "sandbox/starting.py": "what its callers give; a helper gets the numbers of descriptors",
    "sandbox/plain.py": "a command of the user's or the model's; the token of its proxy is in its variables",
    "sandbox/landlock/backend.py": "the numbers of descriptors; the command goes through a socket",
    "sandbox/network/entering.py": "the numbers of descriptors",
    "sandbox/bubblewrap/backend.py": "--version; a command's variables go through a descriptor (--args)",
    "sandbox/kernel/process_tree.py": "ps with fixed words",
    "app/agent/own_program.py": "the hook as the user configured it; its document is its input",
    "app/browser.py": "the name of a page that only the user can read",
    "evals/scoring/matching.py": "a fixed program; pattern and text are its input",
    "local/weights/sources.py": "pip and a fixed requirement",
    "local/worker/process.py": "a fixed program, the name of a socket and the number of our process",
    "tui/clipboard.py": "fixed words; the text is the input",
    "tui/composing/editor.py": "the user's editor and the name of a file",
}
"""The files that start programs by the functions for this, and why no secret is on those command lines, which every
user of the machine can read."""
WORDS = re.compile(
    r"\b(?:os *\. *(?:exec|spawn)|"
    + "|".join(
        rf"from +{module} +import|{module} *\. *(?:{'|'.join(sorted(names))})\b" for module, names in STARTS.items()
    )
    + ")"
)
"""Words in a file that may start a program. Parsing is slow, so files without them are not parsed."""


def test_no_other_file_starts_or_looks_up_a_program() -> None:
    texts = {str(path.relative_to(SOURCE)): path.read_text() for path in SOURCE.rglob("*.py")}
    assert {path for path, text in texts.items() if WORDS.search(text) and starts_in(text)} == set(ELSEWHERE)


def test_every_start_keeps_secrets_off_its_command_line() -> None:
    names = re.compile(r"(?<!def )\b(?:start_program|run_program|start_helper)\(")
    texts = {str(path.relative_to(SOURCE)): path.read_text() for path in SOURCE.rglob("*.py")}
    assert {path for path, text in texts.items() if names.search(text)} == set(COMMAND_LINES)


def starts_in(text: str) -> list[str]:
    """The calls in a file, by either way to import them, that start a program or look for one."""
    found: list[str] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module, name = node.value.id, node.attr
            if name in STARTS.get(module, ()) or (module == "os" and name.startswith(("exec", "spawn"))):
                found.append(f"{module}.{name}")
        elif isinstance(node, ast.ImportFrom) and node.module in STARTS:
            names = {alias.name for alias in node.names}
            found += [f"{node.module}.{name}" for name in names & STARTS[node.module]]
            found += [name for name in names if node.module == "os" and name.startswith(("exec", "spawn"))]
    # The class in an annotation starts nothing: `subprocess.Popen[bytes]`.
    typed = text.count("subprocess.Popen[bytes]")
    return [name for name in found if name != "subprocess.Popen"] + ["Popen"] * (
        found.count("subprocess.Popen") > typed
    )


# -- which folders' tests run a second time without optional programs ------------------------------------------------

OWN_INTERPRETER_ONLY = {"evals/scoring/matching.py": "matches patterns in a process of its own, with our own Python"}
NOT_A_PACKAGE = {"security": "tests what sandbox, approvals and tools allow"}


def test_only_folders_that_start_programs_run_without_the_optional_ones() -> None:
    said = re.search(r"^folders=\((.*)\)$", (SOURCE.parents[1] / ".ci/elsewhere").read_text(), re.MULTILINE)
    assert said is not None
    assert set(said[1].split()) == packages_that_start() | set(NOT_A_PACKAGE)


def packages_that_start() -> set[str]:
    """The packages with a module that starts or looks up a program, or imports one that does, in however many steps."""
    graph = build_graph("swink_agent", cache_dir=None)
    for everything in ("swink_agent", "swink_agent._exports"):  # loads on use what is asked for
        for importer in graph.find_modules_that_directly_import(everything):
            graph.remove_import(importer=importer, imported=everything)
    for path in OWN_INTERPRETER_ONLY:
        graph.remove_module(module_of(path))
    starts = {module_of(path) for path in ELSEWHERE} & graph.modules
    found = starts.union(*map(graph.find_downstream_modules, starts))
    packages = {name.split(".")[1] for name in found if name.count(".") > 1}
    return packages & {path.name for path in SOURCE.iterdir() if path.is_dir()}


def module_of(path: str) -> str:
    return "swink_agent." + path.removesuffix(".py").replace("/", ".")
