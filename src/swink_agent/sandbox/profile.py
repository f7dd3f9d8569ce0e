"""What a child process may do: the walls as data, the same for every back end.

Owns `SandboxProfile`, the lists of what is hidden and protected unless said otherwise, and the environment of a child.
Does not own how a wall is built (the back ends) or what lies on the disk beneath a root (`_protected`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import ClassVar

import msgspec
from msgspec import field
from msgspec.structs import force_setattr

from swink_agent.core.values.several import several_texts
from swink_agent.core.values.value import Value

from ._hidden import default_hidden
from .programs import own_folders, own_names_in
from .repositories.enclosing import is_git_folder

__all__ = [
    "DEFAULT_ALLOW",
    "DEFAULT_PROTECTED",
    "HOME_PROTECTED",
    "ProcessLimits",
    "SandboxProfile",
    "clean_environment",
    "default_hidden",
    "protected_name",
]

DEFAULT_PROTECTED = (
    # What git runs by itself. `.git/commondir` and `config.worktree` would bring in another `config` and `hooks`.
    ".git/hooks",
    ".git/config",
    ".git/config.worktree",
    ".git/commondir",
    # Our own settings for this folder.
    ".swink",
    # Tasks and settings that an editor runs when the folder is opened. `.envrc` is not here: direnv asks again
    # whenever it changes.
    # What other editors read is put away after a command instead (`repositories/leftovers`).
    ".vscode",
    ".idea",
)
"""Read-only beneath every write root, existing or not."""

EDITOR_PROTECTED = (".exrc", ".nvimrc", ".nvim.lua", ".lvimrc", ".dir-locals.el", ".dir-locals-2.el", ".helix", ".zed")
"""What editors run of the folder that a file is opened in: not written by tools, and put away if a command makes it."""

HOME_PROTECTED = (
    # Shells, and what they read on the way.
    *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".bash_completion", ".profile"),
    *(".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".mkshrc", ".cshrc", ".tcshrc", ".login"),
    *(".inputrc", ".config/fish", ".config/nushell", ".config/powershell", ".xonshrc", ".config/zsh", ".oh-my-zsh"),
    *(".config/starship.toml", ".direnvrc", ".config/direnv", ".config/bash", ".local/share/bash-completion"),
    *(".cargo/env", ".nvm", ".lessfilter", ".dircolors", ".shrc", ".config/mise", ".asdfrc"),
    # The login, the desktop and what the system starts for a user.
    *(".pam_environment", ".xinitrc", ".xsession", ".xsessionrc", ".xprofile", ".config/environment.d"),
    *(".config/autostart", ".config/systemd", ".local/share/systemd", ".local/share/dbus-1", ".forward", ".procmailrc"),
    *(".config/plasma-workspace", ".config/sway", ".config/i3", ".config/hypr", ".i3", ".local/share/applications"),
    *(".rhosts", ".shosts", "Library/LaunchAgents", ".local/bin", "bin"),
    # Terminals and editors.
    *(".tmux.conf", ".config/tmux", ".screenrc", ".config/kitty", ".config/wezterm", ".wezterm.lua"),
    *(".vimrc", ".vim", ".exrc", ".gvimrc", ".config/nvim", ".config/vim", ".emacs", ".emacs.d", ".config/emacs"),
    *(".nanorc", ".config/helix", ".config/zed", ".config/Code", ".vscode", ".vscode-server", ".gdbinit", ".lldbinit"),
    # Programs that run others, and what says with which credentials.
    *(".config/git", ".gitconfig", ".ssh", ".gnupg", ".aws", ".kube", ".docker", ".netrc", ".npmrc", ".pypirc"),
    *(".config/swink", ".config/swink-agent", ".swink", ".cargo/config.toml", ".cargo/bin", ".psqlrc", ".sqliterc"),
)
"""Read-only beneath the home folder where that can be written: what runs, or says what runs, at the next login."""

DEFAULT_ALLOW = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "COLORTERM"),
    *("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "COLUMNS", "LINES", "CI", "MANPATH", "LOCALE_ARCHIVE"),
    *("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYENV_ROOT", "PYTHONDONTWRITEBYTECODE", "PYTHONUTF8"),
    *("PYTHONIOENCODING", "PYTHONUNBUFFERED", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "GOROOT", "GOPATH"),
    *("GOTOOLCHAIN", "JAVA_HOME", "NVM_DIR", "NVM_BIN", "RBENV_ROOT", "SDKROOT", "DEVELOPER_DIR"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NIX_SSL_CERT_FILE", "NIX_PATH", "NIX_PROFILES", "XDG_DATA_DIRS"),
)
"""The variables that a child gets from ours; a name that ends in `*` is a pattern."""

_NEVER_BY_PATTERN = re.compile(
    r"key|token|secret|passw|passphrase|_pass$|_pwd$|credential|auth|cookie|bearer|private|session|_dsn$"
    r"|^(LD_|DYLD_|GIT_|BASH_|PERL5|RUBYOPT|NODE_OPTIONS|ENV$|PYTHONSTARTUP|PYTHONHOME|PROMPT_COMMAND)",
    re.IGNORECASE,
)

_COMES_AND_GOES = re.compile(r"(hist[^/]*|hst|viminfo|/fish|/swink(-agent)?)$", re.IGNORECASE)

_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


def clean_environment(environ: Mapping[str, str], allow: str | Iterable[str] = DEFAULT_ALLOW) -> dict[str, str]:
    """What a child may know of our environment: the names in `allow`, and a `PATH` in any case.

    A pattern (`LC_*`) never lets through what is named like a key or makes programs load code; a name written out
    does, as somebody chose it.
    """
    names = set(several_texts(allow, "clean_environment(allow=…)"))
    starts = tuple(name[:-1] for name in names if name.endswith("*"))
    clean = {
        name: value
        for name, value in environ.items()
        if name in names or (starts and name.startswith(starts) and not _NEVER_BY_PATTERN.search(name))
    }
    clean.setdefault("PATH", _DEFAULT_PATH)
    return clean


class ProcessLimits(Value, frozen=True, kw_only=True):
    """What one command may use; `None` sets no limit."""

    processes: int | None = 512
    file_size: int | None = 8 * 1024**3
    open_files: int | None = 8192
    core: int | None = 0


def _hidden_here() -> tuple[str, ...]:
    return tuple(dict.fromkeys(path for home in _homes() for path in default_hidden(home)))


def _environment_here() -> dict[str, str]:
    return clean_environment(os.environ)


class SandboxProfile(Value, frozen=True, kw_only=True):
    """What a child process may read, write, reach and use.

    `write`: folders that may be written, and nothing else but a private temporary folder. `read`: `None` for everything
    that is not hidden, else these folders, the write roots and the system's. `hidden` wins over both. `protected`:
    names beneath each write root that stay read-only, existing or not; where the home folder can be written, those of
    `HOME_PROTECTED` too. `programs`: where this program runs from, read-only too where a root contains it.
    `environment` is all that the child gets of ours.

    Paths are made absolute, and those of roots real, at construction. What is hidden by a relative path is so beneath
    each write root, as what is protected. Raises `ValueError` for walls that cannot be meant: the whole machine
    writable, a root inside a hidden folder, a protected name that leaves its root, a relative path to hide without a
    root; and `TypeError` for one string where a tuple of paths is wanted.
    """

    hidden_fields: ClassVar[frozenset[str]] = frozenset({"environment", "hidden", "programs"})

    write: tuple[str, ...] = ()
    read: tuple[str, ...] | None = None
    hidden: tuple[str, ...] = field(default_factory=_hidden_here)
    protected: tuple[str, ...] = DEFAULT_PROTECTED
    programs: tuple[str, ...] = field(default_factory=own_folders)
    network: bool = False
    environment: Mapping[str, str] = field(default_factory=_environment_here)
    limits: ProcessLimits = ProcessLimits()

    def __post_init__(self) -> None:
        force_setattr(self, "write", _real(self.write))
        force_setattr(self, "read", None if self.read is None else _real(self.read))
        force_setattr(self, "hidden", tuple(dict.fromkeys(_hidden(self.hidden, self.write))))
        force_setattr(self, "protected", tuple(dict.fromkeys(map(protected_name, _several(self.protected)))))
        force_setattr(self, "programs", tuple(dict.fromkeys(_absolute(path) for path in _several(self.programs))))
        force_setattr(self, "environment", dict(self.environment))
        for root in self.write:
            if root == os.path.sep:
                raise ValueError(
                    "the whole machine as a write root leaves no wall: give the folders that may be written"
                )
            for path, real in zip(self.hidden, real_paths(self.hidden), strict=True):
                if is_beneath(root, real):
                    raise ValueError(
                        f"the write root {root!r} lies in {path!r}, which is hidden: choose another folder"
                    )
        for name, value in self.environment.items():
            if not name or "=" in name or "\0" in name or "\0" in value:
                raise ValueError(f"not a variable that a process can have: {name!r}")

    @property
    def fingerprint(self) -> str:
        """A digest of everything that the profile says: two profiles with the same one build the same walls."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        # As ASCII: a path may hold bytes that are no text.
        said = json.dumps(msgspec.to_builtins(fields, order="deterministic"))
        return hashlib.sha256(said.encode()).hexdigest()

    def hidden_paths(self) -> tuple[str, ...]:
        """What is hidden and exists now: each path and, where it is a link, where it leads. None inside another."""
        found = set(real_paths(path for path in self.hidden if os.access(path, os.F_OK)))
        outer: list[str] = []
        for path in sorted(found - {os.path.sep}):
            if not outer or not is_beneath(path, outer[-1]):
                outer.append(path)
        return tuple(outer)

    def hidden_elsewhere(self, there: Collection[str]) -> list[str]:
        """What is hidden and not among what is there: a command must not see it come.

        Not what programs keep of what was typed, not our own, which we may just be about to write, and not what the
        command can make itself.
        """
        ours = (value for name, value in os.environ.items() if name.startswith("SWINK_") and os.path.isabs(value))
        known = frozenset((*there, *map(os.path.abspath, ours)))
        return [path for path in _watched(self.hidden, self.write) if path not in known]

    def protected_names(self) -> tuple[str, ...]:
        """The absolute paths that are read-only by name beneath the write roots, existing or not."""
        names: list[str] = []
        for root in self.write:
            if is_git_folder(root):  # of a repository whose work tree is elsewhere
                names.extend(os.path.join(root, name[5:]) for name in self.protected if name.startswith(".git/"))
            else:
                names.extend(os.path.join(root, name) for name in self.protected)
        if self.protected:
            for home in map(os.path.realpath, _homes()):
                if any(is_beneath(home, root) for root in self.write):
                    names.extend(os.path.join(home, name) for name in HOME_PROTECTED)
        names.extend(self.own_programs())
        return tuple(dict.fromkeys(names))

    def own_programs(self) -> tuple[str, ...]:
        """What this program runs from and lies in a write root: read-only, as commands must not write what we run."""
        names = [name for root in self.write for name in own_names_in(root, self.programs)]
        return tuple(name for name in dict.fromkeys(names) if not any(is_beneath(name, o) for o in names if o != name))


@lru_cache(maxsize=8)
def _watched(hidden: tuple[str, ...], write: tuple[str, ...]) -> tuple[str, ...]:
    """What of this must not come to be while a command runs; the same for every command, and there are many paths."""
    others = (path for path in hidden if not _COMES_AND_GOES.search(path))
    return tuple(path for path in others if not any(is_beneath(path, root) for root in write))


def is_beneath(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or in it; both absolute and normal."""
    return path == folder or path.startswith(folder.rstrip(os.path.sep) + os.path.sep)


def real_paths(paths: Iterable[str]) -> Iterator[str]:
    """`os.path.realpath` of each, for many paths in few folders: no more is asked of the disk than is needed."""
    folders: dict[str, str] = {}
    for path in paths:
        folder, name = os.path.split(path)
        if name in ("", os.path.curdir, os.path.pardir) or os.path.islink(path):
            yield os.path.realpath(path)
        else:
            real = folders.get(folder) or folders.setdefault(folder, os.path.realpath(folder))
            yield os.path.join(real, name)


def _homes() -> tuple[str, ...]:
    """The home folder as the environment has it, and as the system has it."""
    homes = [os.path.expanduser("~")]
    try:
        import pwd

        homes.append(pwd.getpwuid(os.getuid()).pw_dir)
    except (ImportError, KeyError, AttributeError):  # no such user, or no such system
        pass
    return tuple(dict.fromkeys(os.path.abspath(home) for home in homes if os.path.isabs(home) and home != os.path.sep))


def _several(paths: Iterable[str | os.PathLike[str]] | str) -> tuple[str, ...]:
    if isinstance(paths, (str, os.PathLike)):
        raise TypeError(f"a tuple of paths is wanted, not one path: ({os.fspath(paths)!r},)")
    return tuple(os.fspath(path) for path in paths)


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def _real(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(os.path.realpath(os.path.expanduser(path)) for path in _several(paths)))


def _hidden(paths: Iterable[str], roots: tuple[str, ...]) -> Iterator[str]:
    """The paths to hide, absolute: where this process happens to be says nothing about where they are."""
    for path in _several(paths):
        expanded = os.path.expanduser(path)
        if os.path.isabs(expanded):
            yield os.path.normpath(expanded)
        elif not roots:
            raise ValueError(f"{path!r} is to be hidden, and there is no write root to count from: make it absolute")
        else:
            yield from (os.path.normpath(os.path.join(root, expanded)) for root in roots)


def protected_name(name: str) -> str:
    """The name as one from a root on. Raises `ValueError` for one that leaves it."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if os.path.isabs(name) or not parts or ".." in parts:
        raise ValueError(f"a protected name is relative to a write root and stays in it, not {name!r}")
    return "/".join(parts)
