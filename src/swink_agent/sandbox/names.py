"""The names in a project that programs run, or read as settings, by themselves.

One table for commands, file tools and requests for access. Each row comes from the documentation of its program.
`protected` finds what exists, and `repositories/leftovers` judges what a command made.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Literal

from swink_agent.core.values.value import Value


class Name(Value, frozen=True):
    """One name, and the program that runs it or reads it as settings.

    `name` is relative and counts at any depth; `*` matches within one part. `protected`: the program runs it without a
    question, as it comes or with a documented setting. What exists is read-only, and what a command makes is judged
    when it ends. `reported`: the program asks first, or its user starts it by name. It stays, and the result names it.
    """

    name: str
    program: str
    when: str
    treatment: Literal["protected", "reported"]


OWN_PROGRAM = "Swink Agent"
_MOST_FILES = 200
_ON_OPENING = "when the folder is opened"

NAMES: tuple[Name, ...] = (
    Name(".git/hooks", "git", "when git commits, merges, checks out or pushes", "protected"),
    Name(".git/config", "git", "with every command of git", "protected"),
    Name(".git/config.worktree", "git", "with every command of git", "protected"),
    Name(".git/commondir", "git", "with every command of git: it names the folder of the configuration", "protected"),
    Name(".hg/hgrc", "Mercurial", "with every command of Mercurial", "protected"),
    Name(".hg/sharedpath", "Mercurial", "with every command: it names the folder of the configuration", "protected"),
    Name(".jj/repo/config.toml", "Jujutsu", "with every command of Jujutsu", "protected"),
    Name(".vimrc", "Vim", "with the setting `exrc`, when Vim starts in the folder", "protected"),
    Name(".gvimrc", "Vim", "with the setting `exrc`, when Vim starts in the folder", "protected"),
    Name(".exrc", "Vim", "with the setting `exrc`, when Vim starts in the folder", "protected"),
    Name(".vscode", "VS Code", _ON_OPENING, "protected"),
    Name(".idea", "IntelliJ IDEA", _ON_OPENING, "protected"),
    Name(".swink", OWN_PROGRAM, "when it starts in the folder", "protected"),
    Name(".git/rebase-merge", "git", "when the user continues the rebase", "reported"),
    Name(".git/sequencer", "git", "when the user continues the cherry-pick or revert", "reported"),
    Name(".nvim.lua", "Neovim", "when the user trusts it", "reported"),
    Name(".nvimrc", "Neovim", "when the user trusts it", "reported"),
    Name(".lvimrc", "localvimrc for Vim", "when a file beneath is opened, after a question", "reported"),
    Name(".dir-locals.el", "Emacs", "when a file beneath is opened, after a question", "reported"),
    Name(".dir-locals-2.el", "Emacs", "when a file beneath is opened, after a question", "reported"),
    Name(".helix", "Helix", _ON_OPENING, "reported"),
    Name(".zed", "Zed", "when the user trusts the folder", "reported"),
    Name(".theia", "Theia", "when the user trusts the folder", "reported"),
    Name(".fleet", "Fleet", "when the user starts one of its tasks", "reported"),
    Name(".envrc", "direnv", "when the user allows it", "reported"),
    Name(".devcontainer", "dev containers", "when the user reopens the folder in a container", "reported"),
    Name(".devcontainer.json", "dev containers", "when the user reopens the folder in a container", "reported"),
    Name(".mcp.json", "other agents", "when they start in the folder, after a question", "reported"),
    Name(".claude/settings*.json", "Claude Code", "when it starts in the folder", "reported"),
    Name("opencode.json", "opencode", "when it starts in the folder", "reported"),
    Name("opencode.jsonc", "opencode", "when it starts in the folder", "reported"),
    Name(".opencode", "opencode", "when it starts in the folder", "reported"),
    Name(".aider.conf.yml", "Aider", "when it starts in the folder", "reported"),
    Name(".continue", "Continue", _ON_OPENING, "reported"),
    Name(".cursor", "Cursor", _ON_OPENING, "reported"),
    Name(".gemini", "Gemini CLI", "when it starts in the folder", "reported"),
    Name(".codex", "Codex", "when it starts in the folder", "reported"),
    Name(".vibe", "Mistral Vibe", "when it starts in the folder", "reported"),
    Name(".windsurf", "Windsurf", _ON_OPENING, "reported"),
    Name(".kiro", "Kiro", _ON_OPENING, "reported"),
)
"""Every name, the protected ones first."""

PROTECTED_NAMES: tuple[str, ...] = tuple(row.name for row in NAMES if row.treatment == "protected")

FIRST_PARTS = frozenset(row.name.casefold().partition("/")[0] for row in NAMES) - {".git"}
"""The names to look for in a folder. What is in a `.git` is judged by its content instead."""

HOME_DATA = (
    *(".cache", ".npm/_cacache", ".npm/_logs", ".pnpm-store", ".yarn/berry", ".bun/install/cache"),
    *(".cargo/registry", ".cargo/git", ".rustup/downloads", ".rustup/tmp", ".m2/repository", ".gradle/caches"),
    *(".ivy2/cache", ".nuget/packages", ".conda/pkgs", ".local/share/pnpm/store", ".local/share/Trash"),
)
"""Data in a home folder whose name begins with a dot: commands may write it where the home folder may be written."""

HOME_PROGRAMS = ("bin", ".local/bin", ".cargo/bin")
"""Folders in the home folder that `PATH` usually names. A write root may be inside them, but not one of them."""

LOGIN_FOLDERS = (
    *(".config/autostart", ".config/environment.d", ".config/plasma-workspace", ".config/systemd/user"),
    *(".local/share/systemd/user", ".local/share/dbus-1", ".local/share/applications", "Library/LaunchAgents"),
    *(".config/fish/conf.d", ".config/fish/functions", ".config/fish/completions", ".local/share/bash-completion"),
)
"""Folders in the home folder in which every file runs at login or by its name. A write root must not be in them."""

_ROWS = tuple((row, tuple(row.name.casefold().split("/"))) for row in NAMES)


def row_of(parts: Sequence[str]) -> Name | None:
    """The first row that names a path, or a folder that the path is in; `None` if programs leave it alone.

    `parts` are the names on the path. Upper and lower case do not differ, as on some disks.
    """
    folded = [part.casefold() for part in parts]
    for row, name in _ROWS:
        if any(_matches(folded[start : start + len(name)], name) for start in range(len(folded) - len(name) + 1)):
            return row
    return None


def place_of(parts: Sequence[str]) -> tuple[int, Name] | None:
    """How many of the parts lead to the first name that is protected, and its row; `None` if none is."""
    for count in range(1, len(parts) + 1):
        row = row_of(parts[:count])
        if row is not None and row.treatment == "protected":
            return count, row
    return None


def files_of(path: str) -> list[str]:
    """What the rows name in a path whose last part begins a row: it and the files in it, or those further in.

    Bounded. No link is followed: one on the way is what the row names.
    """
    first = os.path.basename(path).casefold()
    found: dict[str, None] = {}
    for _, name in _ROWS:
        if name[0] == first:
            found.update(dict.fromkeys(_expanded(path, name[1:])))
    return list(found)


def _expanded(path: str, rest: Sequence[str]) -> Iterator[str]:
    if not rest or os.path.islink(path):
        yield from islice(_with_files(path), _MOST_FILES)
        return
    for name in _listed(path):
        if fnmatch.fnmatchcase(name.casefold(), rest[0]):
            yield from _expanded(f"{path}/{name}", rest[1:])


def _with_files(path: str) -> Iterator[str]:
    yield path
    if not os.path.islink(path):
        for name in _listed(path):
            yield from _with_files(f"{path}/{name}")


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _matches(parts: Sequence[str], name: Sequence[str]) -> bool:
    return all(map(fnmatch.fnmatchcase, parts, name))
