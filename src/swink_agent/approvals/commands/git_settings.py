"""What git would run or read by itself in a folder, as its settings there say.

Owns the look at a repository before git is let loose on it unasked: the settings of the repository, of its worktree and
of its submodules hold nothing but what is known to start no program, no hook is there that reading would start, and the
repository is the folder's own. Settings in the home folder are the user's; only what they take from the folder counts.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator, Mapping

from ..display import safe_display
from .places import Place

__all__ = ["git_problem"]

_LONGEST_SETTINGS = 256 * 1024
_LARGEST_INDEX = 64 * 1024 * 1024
_MOST_REPOSITORIES = 64
_DEEPEST_INCLUDE = 5

# Settings that neither start a program nor read a file, whatever their value.
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
# Settings of the user that name a program; one in the folder may have come from the model.
_RUNS = re.compile(
    r"core\.(fsmonitor|hookspath|sshcommand|pager|editor)|diff\.external|diff\..*\.(textconv|command)"
    r"|filter\..*\.(clean|process|smudge)|gpg\.program|gpg\..*\.program"
)
# What git starts when it has looked at the files and notes down what it saw.
_HOOK = "post-index-change"

_SECTION = re.compile(r'\[[ \t]*([A-Za-z0-9.-]+)[ \t]*(?:"((?:[^"\\\n]|\\.)*)")?[ \t]*\]')
_NAME = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*(=)?")
_GITLINK = b"\x00\x00\xe0\x00"


class _Doubt(Exception):
    """Something of the repository that is not known to be harmless."""


def git_problem(place: Place, environment: Mapping[str, str], *, contents: bool) -> str | None:
    """Why git, run here, might start a program or show what is not of this folder; or `None`.

    `contents`: whether the command shows what is in files, and not only their names.
    """
    try:
        _check_own(place, environment)
        for folder in _parents(place.current):
            for repository in _repositories_in(place, folder):
                repository.check(contents=contents)
                if repository.is_whole():
                    return None
    except _Doubt as doubt:
        return str(doubt)
    except OSError as error:
        return f"the repository could not be looked at: {error.strerror}"
    return None


def _parents(folder: str) -> Iterator[str]:
    while True:
        yield folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return
        folder = parent


def _looks_bare(folder: str) -> bool:
    """Whether git may take the folder itself for a repository."""
    return os.path.lexists(os.path.join(folder, "HEAD")) and any(
        os.path.lexists(os.path.join(folder, name)) for name in ("objects", "commondir")
    )


def _repositories_in(place: Place, folder: str) -> Iterator[_Repository]:
    """What git may take for a repository here, in its order: what it does not, it passes over."""
    if os.path.lexists(os.path.join(folder, ".git")):
        yield _Repository(place, folder)
    if _looks_bare(folder):
        yield _Repository(place, folder, is_bare=True)


class _Repository:
    """One repository, by the folder in which git finds it."""

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
            raise _Doubt("it has more submodules than are looked at here")
        if contents and not self.place.holds(self.folder):
            raise _Doubt("the repository lies above the folder, and it would show files from there")
        self._check_objects()
        bases = [self.folder, self.place.current, self.settings]
        hooks = [os.path.join(self.common, "hooks")]
        found = [
            setting
            for folder in dict.fromkeys((self.settings, self.common))
            for file in ("config", "config.worktree")
            for setting in _settings(os.path.join(folder, file))
        ]
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

    def is_whole(self) -> bool:
        """Whether git surely takes it for a repository, and looks no further."""
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
        # Elsewhere only if the repository there says of itself that this is one of its worktrees or submodules.
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
            raise _Doubt("the objects of the repository lie elsewhere")

    def _check_setting(self, key: str, value: str) -> None:
        if key == "core.fsmonitor" and value.casefold() in _NO:
            return
        if key == "core.hookspath" and re.fullmatch(r"[\w./-]+", value):
            return
        if key == "extensions.objectformat" and value == "sha1":
            return
        if key in ("core.worktree", "blame.ignorerevsfile"):
            base = self.settings if key == "core.worktree" else self.folder
            if self.place.holds(os.path.realpath(os.path.join(base, value))):
                return
        if not _HARMLESS.fullmatch(key):
            raise _Doubt(
                f"the repository's settings have {safe_display(key, 60)}, with which git may do more than read"
            )


def _worktrees_of(settings: str) -> list[str]:
    """Which files the repository of these settings takes for the ones that lead to it."""
    back = os.path.join(settings, "gitdir")
    found = [_text(back).strip()] if os.path.isfile(back) else []
    for key, value in _settings(os.path.join(settings, "config")):
        if key == "core.worktree":
            found.append(os.path.join(value, ".git"))
    return [os.path.realpath(os.path.join(settings, path)) for path in found]


def _check_own(place: Place, environment: Mapping[str, str]) -> None:
    """What the user's own settings would run from the folder."""
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
            elif _RUNS.fullmatch(key) and _is_from_the_folder(re.sub(r"^~(?=/)", home, value), key, place):
                raise _Doubt(f"your own settings of git have {safe_display(key, 60)}, which names a file in the folder")


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


def _shown(path: str) -> str:
    return safe_display(path, 80)


def _text(path: str) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would keep us waiting
    with open(descriptor, "rb") as file:
        data = file.read(_LONGEST_SETTINGS + 1)
    if len(data) > _LONGEST_SETTINGS:
        raise _Doubt(f"{_shown(path)} is too long to be looked at")
    return data.decode("utf-8", "surrogateescape")


# -- the format of settings ----------------------------------------------------------------------------------


def _settings(path: str) -> list[tuple[str, str]]:
    """The settings of a file: names in lower case, but for what stands in quotes. None where there is no file."""
    if not os.path.lexists(path):
        return []
    try:
        text = _text(path).removeprefix("\ufeff").replace("\r\n", "\n")
    except FileNotFoundError:
        return []
    found: list[tuple[str, str]] = []
    section = ""
    position = 0
    while position < len(text):
        if text[position].isspace():
            position += 1
        elif text[position] in "#;":
            position = _end_of_line(text, position)
        elif text[position] == "[":
            match = _SECTION.match(text, position)
            if match is None:
                raise _Doubt(f"{_shown(path)} cannot be read")
            section, position = _section(match), match.end()
        else:
            match = _NAME.match(text, position)
            if match is None or not section:
                raise _Doubt(f"{_shown(path)} cannot be read")
            value, position = _value(text, match.end()) if match[2] else ("true", _end_of_line(text, match.end()))
            found.append((f"{section}.{match[1].lower()}", value))
    return found


def _section(match: re.Match[str]) -> str:
    name = match[1].lower()
    if match[2] is None:
        return name
    inner = re.sub(r"\\(.)", r"\1", match[2]).lower()
    return f"{name}.{inner}"


def _end_of_line(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end


def _value(text: str, position: int) -> tuple[str, int]:
    """The value that begins here, and where it ends: quotes, escapes, comments and lines that go on."""
    parts: list[str] = []
    is_quoted = False
    while position < len(text) and (character := text[position]) != "\n":
        position += 1
        if character == "\\":
            following = text[position : position + 1]
            position += 1
            if following != "\n":
                parts.append({"n": "\n", "t": "\t", "b": "\b"}.get(following, following))
        elif character == '"':
            is_quoted = not is_quoted
        elif character in "#;" and not is_quoted:
            position = _end_of_line(text, position)
        else:
            parts.append(character)
    return "".join(parts).strip(), position


# -- submodules ----------------------------------------------------------------------------------------------


def _submodules(settings: str) -> list[str]:
    """The folders of submodules, which git looks into with a git of their own."""
    path = os.path.join(settings, "index")
    if any(name.startswith("sharedindex.") for name in os.listdir(settings)):
        raise _Doubt("the repository's index is split, and not looked at")
    if not os.path.lexists(path):
        return []
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        data = file.read(_LARGEST_INDEX + 1)
    if len(data) > _LARGEST_INDEX:
        raise _Doubt("the repository's index is too large to be looked at")
    if _GITLINK not in data:
        return []
    if data[:4] != b"DIRC" or len(data) < 12 or struct.unpack(">I", data[4:8])[0] not in (2, 3):
        raise _Doubt("the repository's index is of a kind that is not looked at")
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
