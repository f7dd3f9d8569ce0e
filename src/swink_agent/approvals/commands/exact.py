"""The few commands that need no question where no sandbox confines them, and what must hold for them.

Everything else is asked about there. Where a sandbox can let a command only read, nobody judges the command.
"""

from __future__ import annotations

import os
import re

from swink_agent.rendering.escaping import safe_display
from swink_agent.sandbox.kernel.mounts import is_in
from swink_agent.sandbox.repositories.git_config import is_harmless, read_settings

from .shell_words import is_builtin

EXACT = frozenset(
    tuple(command.split())
    for command in (
        *("pwd", "ls", "ls -a", "ls -l", "ls -la", "ls -al", "ls -lah", "whoami", "date", "uname -a"),
        *("git status", "git status -s", "git status --short", "git status -sb", "git branch"),
        *("git branch --show-current", "git log --oneline"),
    )
)

_NUMBER = r"(-n ?)?-?\d+"
_PASSES_ON = {
    **dict.fromkeys(("head", "tail"), re.compile(rf"({_NUMBER})?")),
    **dict.fromkeys(("cat", "uniq"), re.compile(r"(-[cdnu]+)?")),
    "wc": re.compile(r"(-[clmw]+)?"),
    "sort": re.compile(r"(-[bfhnruV]+)?"),
    "grep": re.compile(r"(-[EFcinovwx]+ )*[^- ][^ ]*"),
}
"""Programs that print a part of what is piped to them, by the words with which they read no file and write none."""

# Folders of programs that read a file in the current folder to decide what they run.
_REDIRECTING_FOLDERS = frozenset({"shims", ".volta"})
_LARGEST_INDEX = 64 * 1024 * 1024
_SUBMODULE = b"\x00\x00\xe0\x00"


def only_passes_on(words: tuple[str, ...]) -> bool:
    """Whether the command prints a part of its input and does nothing else."""
    known = _PASSES_ON.get(words[0])
    return known is not None and " " not in "".join(words) and known.fullmatch(" ".join(words[1:])) is not None


def exact_problem(words: tuple[str, ...], folder: str | None, search_path: str | None) -> str | None:
    """Why a command of `EXACT`, run in this folder, may do more than read, or `None`."""
    problem = _misplaced(words[0], folder, os.environ.get("PATH", os.defpath) if search_path is None else search_path)
    if problem is not None or words[0] != "git":
        return problem
    try:
        return _git_problem(os.path.realpath(os.getcwd() if folder is None else folder))
    except OSError as error:
        return f"the repository could not be checked: {error.strerror}"


def _misplaced(program: str, folder: str | None, search_path: str) -> str | None:
    """Why the program that this name would run may not be the system's own, or `None`."""
    if is_builtin(program):
        return None
    written = () if folder is None else (folder, os.path.realpath(folder))
    for place in search_path.split(os.pathsep):
        if not os.path.isabs(place):
            return f"PATH looks in {safe_display(place) or 'the current folder'}, where {program} may be anything"
        found = os.path.join(place, program)
        is_there = os.path.isfile(found) and os.access(found, os.X_OK)
        real = os.path.realpath(found)
        # A link into the folder may have no target yet.
        if (is_there and any(is_in(path, written) for path in (found, os.path.realpath(place), real))) or (
            is_in(real, written) and os.path.islink(found)
        ):
            return f"{program} is {safe_display(found, 200)}, in a folder that the model can write"
        if is_there:
            if not _REDIRECTING_FOLDERS.isdisjoint(found.split(os.sep)):
                return f"{program} is {safe_display(found, 200)}, which lets files of the folder choose what runs"
            return None
    return None


def _git_problem(folder: str) -> str | None:
    """Why git, run here, might start a program that the repository names, or `None`.

    Only an ordinary repository is known to start none: without submodules, worktrees and split indexes, and with
    settings that are all harmless. Settings of the user are trusted.
    """
    place = folder
    while not os.path.lexists(os.path.join(place, ".git")):
        if os.path.lexists(os.path.join(place, "HEAD")):
            return f"{safe_display(place, 80)} may itself be a repository"
        above = os.path.dirname(place)
        if above == place:
            return None  # git finds no repository
        place = above
    git = os.path.join(place, ".git")
    if os.path.islink(git) or not all(os.path.isdir(os.path.join(git, name)) for name in ("", "objects", "refs")):
        return "the repository is not an ordinary one"
    if not re.match(r"ref: refs/\w|[0-9a-f]{40}\s", _read(os.path.join(git, "HEAD"), 1024).decode("latin-1")):
        return "the repository is not an ordinary one"
    names = os.listdir(git)
    if not {"commondir", "config.worktree"}.isdisjoint(names) or any(name.startswith("sharedindex") for name in names):
        return "the repository is not an ordinary one"
    if os.path.lexists(os.path.join(git, "hooks", "post-index-change")):
        return "the repository has a hook, post-index-change, that it would run"
    if "index" in names and _SUBMODULE in _read(os.path.join(git, "index"), _LARGEST_INDEX):
        return "the repository may have submodules, whose settings are not checked"
    if "config" not in names:
        return None
    settings, is_whole = read_settings(
        _read(os.path.join(git, "config"), 256 * 1024).decode("utf-8", "surrogateescape")
    )
    if not is_whole:
        return "the repository's settings cannot be read"
    for setting in settings:
        runs = setting.section == "filter" or "signature" in (setting.value or "")
        if runs or not is_harmless(setting, lambda _: False):
            return (
                f"the repository's settings have {safe_display(str(setting), 60)}, with which git may do more than read"
            )
    return None


def _read(path: str, most: int) -> bytes:
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # opening a pipe would block
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(0, f"{os.path.basename(path)} is too large")
    return data
