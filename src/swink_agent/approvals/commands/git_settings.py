"""Checks what git would run or read by itself in a folder, before git runs there unasked.

The settings of the repository, its worktree and its submodules may contain only what is known to start no program, a
reading command must not start any hook, and a command that shows contents needs a repository in the folder. Settings
of the user and the system are trusted, except for programs that they take from the folder and passwords in addresses.
The sandbox's `git_config` parses settings.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterator, Mapping

from swink_agent.rendering.escaping import safe_display
from swink_agent.sandbox.repositories.git_config import read_settings

from .places import Place

_LONGEST_SETTINGS = 256 * 1024
_LARGEST_INDEX = 64 * 1024 * 1024
_MOST_REPOSITORIES = 64
_DEEPEST_INCLUDE = 5

# Settings that start no program and read no file, with any value.
_HARMLESS = re.compile(
    r"core\.(abbrev|autocrlf|bare|bigfilethreshold|checkstat|commentchar|compression|eol|filemode|filesreflocktimeout"
    r"|fscache|hidedotfiles|ignorecase|ignorestat|logallrefupdates|longpaths|loosecompression|maxtreedepth|multipackindex"
    r"|packedgitlimit|precomposeunicode|preloadindex|protecthfs|protectntfs|quotepath|repositoryformatversion|safecrlf"
    r"|sharedrepository|sparsecheckout|sparsecheckoutcone|splitindex|symlinks|trustctime|untrackedcache"
    r"|warnambiguousrefs|whitespace|usereplacerefs|commitgraph|packedrefstimeout|deltabasecachelimit)"
    r"|extensions\.(compatobjectformat|noop|preciousobjects|refstorage|relativeworktrees|worktreeconfig)"
    r"|remote\..*\.(url|pushurl|fetch|push|tagopt|prune|prunetags|mirror|skipdefaultupdate|skipfetchall"
    r"|gh-resolved|followremotehead)"
    r"|remote\.pushdefault"
    r"|branch\..*\.(remote|merge|rebase|pushremote|mergeoptions|description|base|gh-merge-base|vscode-merge-base"
    r"|github-pr-owner-number)"
    r"|branch\.(autosetupmerge|autosetuprebase|sort)"
    r"|submodule\..*\.(active|branch|fetchrecursesubmodules|ignore|shallow|url|update)"
    r"|submodule\.(active|fetchjobs)"
    r"|user\..*|author\..*|committer\..*|init\..*|advice\..*|color\..*|column\..*|alias\..*|gc\..*|fetch\..*|help\..*"
    r"|push\..*|pull\..*|rerere\..*|receive\..*|maintenance\..*|feature\..*|index\..*|pack\..*|status\..*|tag\..*"
    r"|commit\.(cleanup|gpgsign|status|verbose)|rebase\.(autosquash|autostash|updaterefs|stat)"
    r"|merge\.(ff|conflictstyle|renames|stat|log|branchdesc)|gpg\.format|log\.(date|decorate|abbrevcommit|follow)"
    r"|diff\.(algorithm|colormoved|colormovedws|context|indentheuristic|interhunkcontext|mnemonicprefix|noprefix"
    r"|relative|renamelimit|renames|statgraphwidth|suppressblankempty|wordregex|wserrorhighlight)"
    r"|diff\..*\.(binary|funcname|wordregex|xfuncname)"
    r"|lfs\.(repositoryformatversion|.*\.access|.*\.locksverify)|svn-remote\..*|gitflow\..*|vscode\..*|blame\.date"
)
_NO = frozenset({"", "0", "false", "no", "off"})
# A web address has a user name and password, or a token, before the @; an ssh address only a user name.
_WITH_PASSWORD = re.compile(r"(?<!ssh)://[^/\s@]*@|://[^/\s@:]*:[^/\s@]*@")
# Settings of the user that name a program. If it is in the folder, the model may have written it.
_RUNS = re.compile(
    r"core\.(fsmonitor|hookspath|sshcommand|pager|editor)|diff\.external|diff\..*\.(textconv|command)"
    r"|filter\..*\.(clean|process|smudge)|gpg\.program|gpg\..*\.program"
)
# Git runs this hook when it updates its index, which reading commands do too.
_HOOK = "post-index-change"

_GITLINK = b"\x00\x00\xe0\x00"


class _Doubt(Exception):
    """Something in the repository is not known to be harmless."""


def git_problem(
    place: Place,
    environment: Mapping[str, str],
    *,
    contents: bool,
    remotes: bool = False,
    misplaced: Callable[[str], str | None] = lambda program: None,
) -> str | None:
    """Why git, run here, might start a program or show something from outside of the folder, or `None`.

    `contents`: the command shows the content of files, not only names. `remotes`: it shows addresses of remotes, which
    may contain a password. `misplaced(program)` returns why a program is not the system's own, or `None`.
    """
    try:
        _check_own(place, environment, misplaced, remotes=remotes)
        for folder in _parents(place.current):
            for repository in _repositories_in(place, folder):
                repository.check(contents=contents)
                if remotes:
                    repository.check_remotes()
                if repository.is_whole():
                    return None
    except _Doubt as doubt:
        return str(doubt)
    except OSError as error:
        return f"the repository could not be checked: {error.strerror}"
    return None


def _parents(folder: str) -> Iterator[str]:
    while True:
        yield folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return
        folder = parent


def _repositories_in(place: Place, folder: str) -> Iterator[_Repository]:
    """The repositories that git may find here, in the order in which it looks."""

    def has(name: str) -> bool:
        return os.path.lexists(os.path.join(folder, name))

    if has(".git"):
        yield _Repository(place, folder)
    if has("HEAD") and (has("objects") or has("commondir")):
        yield _Repository(place, folder, is_bare=True)


class _Repository:
    """One repository, identified by the folder in which git finds it."""

    def __init__(self, place: Place, folder: str, seen: set[str] | None = None, *, is_bare: bool = False) -> None:
        self.place = place
        self.folder = folder
        self.seen: set[str] = set() if seen is None else seen
        self.settings = folder if is_bare else self._settings_folder()
        self.common = self._common_folder()

    def check(self, *, contents: bool) -> None:
        if self.settings in self.seen:
            return
        self.seen.add(self.settings)
        if len(self.seen) > _MOST_REPOSITORIES:
            raise _Doubt("it has more submodules than are checked here")
        if contents and not self.place.holds(self.folder):
            raise _Doubt("the repository is above the folder, and it would show files from there")
        self._check_objects()
        bases = [self.folder, self.place.current, self.settings]
        hooks = [os.path.join(self.common, "hooks")]
        found = self._found()
        for key, value in found:
            self._check_setting(key, value)
            if key == "core.worktree":
                bases.append(os.path.realpath(os.path.join(self.settings, value)))
        hooks += [os.path.join(base, value) for key, value in found if key == "core.hookspath" for base in bases]
        for folder in hooks:
            if os.path.lexists(os.path.join(folder, _HOOK)):
                raise _Doubt(f"the repository has a hook, {_HOOK}, that it would run")
        for path in _submodules(self.settings):
            for base in dict.fromkeys(bases):
                if os.path.lexists(os.path.join(base, path, ".git")):
                    _Repository(self.place, os.path.join(base, path), self.seen).check(contents=contents)

    def check_remotes(self) -> None:
        if any(_has_password(key, value) for key, value in self._found()):
            raise _Doubt("an address of a remote has a password in it")

    def _found(self) -> list[tuple[str, str]]:
        folders = dict.fromkeys((self.settings, self.common))
        files = [os.path.join(folder, file) for folder in folders for file in ("config", "config.worktree")]
        return [setting for file in files for setting in _settings(file)]

    def is_whole(self) -> bool:
        """Whether git certainly uses it as a repository and looks no further."""
        head = os.path.join(self.settings, "HEAD")
        if os.path.islink(head) or not os.path.isfile(head):
            return False
        is_valid = re.match(r"ref:[ \t]*refs/[\w]|[0-9a-f]{40}([0-9a-f]{24})?\s", _text(head)) is not None
        return is_valid and all(
            os.path.isdir(path) and os.access(path, os.X_OK)
            for path in (os.path.join(self.common, name) for name in ("objects", "refs"))
        )

    def _settings_folder(self) -> str:
        path = os.path.join(self.folder, ".git")
        if os.path.isdir(path):
            real = os.path.realpath(path)
            if os.path.islink(path) and not self.place.holds(real):
                raise _Doubt(f"{_shown(path)} is a link out of the folder")
            return real
        text = _text(path)
        if not text.startswith("gitdir:"):
            raise _Doubt(f"{_shown(path)} is not what git makes")
        real = os.path.realpath(os.path.join(self.folder, text[7:].strip()))
        if self.place.holds(real) or not self.place.holds(self.folder):
            return real
        # A repository elsewhere must name this folder as one of its worktrees or submodules.
        if os.path.realpath(path) not in _worktrees_of(real):
            raise _Doubt(f"{_shown(path)} leads to a repository out of the folder")
        return real

    def _common_folder(self) -> str:
        path = os.path.join(self.settings, "commondir")
        if not os.path.lexists(path):
            return self.settings
        return os.path.realpath(os.path.join(self.settings, _text(path).strip()))

    def _check_objects(self) -> None:
        home = os.path.realpath(self.common)
        objects = os.path.join(self.common, "objects")
        if os.path.lexists(os.path.join(objects, "info", "alternates")):
            raise _Doubt("the repository takes objects from another one")
        if os.path.lexists(objects) and os.path.dirname(os.path.realpath(objects)) != home:
            raise _Doubt("the objects of the repository are elsewhere")

    def _check_setting(self, key: str, value: str) -> None:
        if key == "core.fsmonitor" and value.casefold() in _NO:
            return
        if key == "core.hookspath" and re.fullmatch(r"[\w./-]+", value):
            return
        if key == "extensions.objectformat" and value == "sha1":
            return
        if key in ("branch.sort", "tag.sort") and "signature" in value:
            raise _Doubt(f"the repository's settings have {key}, with which git runs a program that checks signatures")
        if key in ("core.worktree", "blame.ignorerevsfile"):
            base = self.settings if key == "core.worktree" else self.folder
            if self.place.holds(os.path.realpath(os.path.join(base, value))):
                return
        if not _HARMLESS.fullmatch(key):
            raise _Doubt(
                f"the repository's settings have {safe_display(key, 60)}, with which git may do more than read"
            )


def _worktrees_of(settings: str) -> list[str]:
    """The `.git` files that the repository with these settings expects to lead to it."""
    back = os.path.join(settings, "gitdir")
    found = [_text(back).strip()] if os.path.isfile(back) else []
    for key, value in _settings(os.path.join(settings, "config")):
        if key == "core.worktree":
            found.append(os.path.join(value, ".git"))
    return [os.path.realpath(os.path.join(settings, path)) for path in found]


def _has_password(key: str, value: str) -> bool:
    """Whether the setting may add a password or a token to addresses that git shows."""
    if re.fullmatch(r"url\..*\.(push)?insteadof", key, re.DOTALL):
        return _WITH_PASSWORD.search(key) is not None
    return key.startswith("remote.") and _WITH_PASSWORD.search(value) is not None


def _check_own(
    place: Place, environment: Mapping[str, str], misplaced: Callable[[str], str | None], *, remotes: bool
) -> None:
    """Checks that the settings of the user and the system run nothing from the folder and show no password."""
    home = environment.get("HOME") or os.path.expanduser("~")
    further = environment.get("XDG_CONFIG_HOME")
    files = ["/etc/gitconfig", f"{home}/.gitconfig", f"{home}/.config/git/config"]
    pending = [(file, 0) for file in (*files, *([f"{further}/git/config"] if further else []))]
    while pending:
        file, depth = pending.pop()
        for key, value in _settings(file):
            if re.fullmatch(r"include(if\..*)?\.path", key, re.DOTALL) and depth < _DEEPEST_INCLUDE:
                path = re.sub(r"^~(?=/)", home, value)
                pending.append((os.path.join(os.path.dirname(file), path), depth + 1))
            elif remotes and _has_password(key, value):
                raise _Doubt("your own git settings put a password into addresses of remotes")
            elif _RUNS.fullmatch(key) and _is_from_the_folder(re.sub(r"^~(?=/)", home, value), key, place):
                raise _Doubt(f"your own git settings have {safe_display(key, 60)}, which names a file in the folder")
            elif _RUNS.fullmatch(key) and (name := _program_of(value)) and (problem := misplaced(name)) is not None:
                raise _Doubt(f"your own git settings have {safe_display(key, 60)}: {problem}")


def _is_from_the_folder(value: str, key: str, place: Place) -> bool:
    program = value.split()[0] if value.split() else ""
    if key == "core.hookspath":
        path = os.path.realpath(os.path.join(place.current, value))
        return any(os.path.lexists(os.path.join(base, value, _HOOK)) for base in _parents(place.current)) and (
            not os.path.isabs(value) or path.startswith(place.root + os.sep)
        )
    if "/" not in program:
        return False
    return not os.path.isabs(program) or os.path.realpath(program).startswith(place.root + os.sep)


def _program_of(value: str) -> str:
    """The name of the program that git would look for in `PATH`, or an empty text."""
    program = value.removeprefix("!").split()[0] if value.removeprefix("!").split() else ""
    return program if re.fullmatch(r"[\w.+-]+", program) else ""


def _shown(path: str) -> str:
    return safe_display(path, 80)


def _read(path: str, most: int) -> bytes:
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # opening a pipe would block
        return file.read(most)


def _text(path: str) -> str:
    data = _read(path, _LONGEST_SETTINGS + 1)
    if len(data) > _LONGEST_SETTINGS:
        raise _Doubt(f"{_shown(path)} is too long to be checked")
    return data.decode("utf-8", "surrogateescape")


def _settings(path: str) -> list[tuple[str, str]]:
    """The settings of a file, with names in lower case. A missing file has none."""
    if not os.path.lexists(path):
        return []
    try:
        settings, is_whole = read_settings(_text(path))
    except FileNotFoundError:
        return []
    if not is_whole:
        raise _Doubt(f"{_shown(path)} cannot be read")
    return [(str(setting).lower(), "true" if setting.value is None else setting.value) for setting in settings]


# -- submodules ----------------------------------------------------------------------------------------------


def _submodules(settings: str) -> list[str]:
    """The folders of submodules. Git starts another git in each of them."""
    path = os.path.join(settings, "index")
    if any(name.startswith("sharedindex.") for name in os.listdir(settings)):
        raise _Doubt("the repository's index is split and cannot be checked")
    if not os.path.lexists(path):
        return []
    data = _read(path, _LARGEST_INDEX + 1)
    if len(data) > _LARGEST_INDEX:
        raise _Doubt("the repository's index is too large to be checked")
    if _GITLINK not in data:
        return []
    if data[:4] != b"DIRC" or len(data) < 12 or struct.unpack(">I", data[4:8])[0] not in (2, 3):
        raise _Doubt("the repository's index is of a kind that cannot be checked")
    return list(_gitlinks(data))


def _gitlinks(data: bytes) -> Iterator[str]:
    (count,) = struct.unpack(">I", data[8:12])
    position = 12
    for _ in range(count):
        flags = data[position + 60 : position + 62]
        start = position + (64 if flags and flags[0] & 0x40 else 62)
        end = data.find(b"\0", start)
        if len(flags) < 2 or end < 0:
            raise _Doubt("the repository's index cannot be read")
        if data[position + 24 : position + 28] == _GITLINK:
            yield data[start:end].decode("utf-8", "surrogateescape")
        position += (end - position) // 8 * 8 + 8
