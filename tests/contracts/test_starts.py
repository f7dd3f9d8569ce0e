"""Programs are started and looked up in one place, so that no file written by a command runs unconfined."""

from __future__ import annotations

import ast
import re
from pathlib import Path

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
    "sandbox/_plain.py": "a command of the user's or the model's, in the sandbox of macOS or without one by choice",
    "sandbox/landlock/guardian.py": "the confined command itself, after it is confined",
    "sandbox/landlock/launcher.py": "a guardian, and a trial of namespaces: forks, not other programs",
    "sandbox/network/namespaces.py": "a fork of itself that enters a command's network, and starts nothing",
    "app/talk/shell.py": "`!command`, which a person typed, in that person's own shell and environment",
}


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
