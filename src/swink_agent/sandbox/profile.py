"""What a child process may do, as data, the same for every back end.

Contains `SandboxProfile`, the default lists of hidden and protected paths, and the environment of a child. The back
ends enforce the profile; `protected` finds what exists beneath a root.
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

from swink_agent.core.values.checks import check_switch
from swink_agent.core.values.several import several, several_paths, several_texts
from swink_agent.core.values.value import Value

from ._hidden import default_hidden, own_hidden
from .kernel.mounts import real_paths
from .programs import own_folders, own_names_in
from .repositories.enclosing import is_git_folder

DEFAULT_PROTECTED = (
    # What git runs by itself. `.git/commondir` and `config.worktree` can add another `config` and `hooks`.
    ".git/hooks",
    ".git/config",
    ".git/config.worktree",
    ".git/commondir",
    # Our own settings for this folder.
    ".swink",
    # Tasks and settings that an editor runs when the folder is opened. `.envrc` is not here: direnv asks again
    # whenever it changes.
    # What other editors read is moved aside after a command instead (`repositories/leftovers`).
    ".vscode",
    ".idea",
)
"""Read-only beneath every write root, existing or not."""

EDITOR_PROTECTED = (".exrc", ".nvimrc", ".nvim.lua", ".lvimrc", ".dir-locals.el", ".dir-locals-2.el", ".helix", ".zed")
"""Files that editors run when a file in their folder is opened. Tools do not write them; new ones are moved aside."""

HOME_PROTECTED = (
    # Shells, and what they read at their start.
    *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".bash_completion", ".profile"),
    *(".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".mkshrc", ".cshrc", ".tcshrc", ".login"),
    *(".inputrc", ".config/fish", ".config/nushell", ".config/powershell", ".xonshrc", ".config/zsh", ".oh-my-zsh"),
    *(".config/starship.toml", ".direnvrc", ".config/direnv", ".config/bash", ".local/share/bash-completion"),
    *(".cargo/env", ".nvm", ".lessfilter", ".dircolors", ".shrc", ".config/mise", ".asdfrc"),
    # The login, the desktop, and what the system starts for a user.
    *(".pam_environment", ".xinitrc", ".xsession", ".xsessionrc", ".xprofile", ".config/environment.d"),
    *(".config/autostart", ".config/systemd", ".local/share/systemd", ".local/share/dbus-1", ".forward", ".procmailrc"),
    *(".config/plasma-workspace", ".config/sway", ".config/i3", ".config/hypr", ".i3", ".local/share/applications"),
    *(".rhosts", ".shosts", "Library/LaunchAgents", ".local/bin", "bin"),
    # Terminals and editors.
    *(".tmux.conf", ".config/tmux", ".screenrc", ".config/kitty", ".config/wezterm", ".wezterm.lua"),
    *(".vimrc", ".vim", ".exrc", ".gvimrc", ".config/nvim", ".config/vim", ".emacs", ".emacs.d", ".config/emacs"),
    *(".nanorc", ".config/helix", ".config/zed", ".config/Code", ".vscode", ".vscode-server", ".gdbinit", ".lldbinit"),
    # Programs that run others, and their credentials.
    *(".config/git", ".gitconfig", ".ssh", ".gnupg", ".aws", ".kube", ".docker", ".netrc", ".npmrc", ".pypirc"),
    *(".config/pip", ".pip", ".config/VSCodium", ".config/Cursor", "Library/Application Support/Code/User"),
    *(".config/swink", ".config/swink-agent", ".swink", ".cargo/config.toml", ".cargo/bin", ".psqlrc", ".sqliterc"),
)
"""Read-only beneath a writable home folder: files that run at the next login, or decide what runs."""

RUN_FROM_A_FOLDER = {
    **dict.fromkeys((".config/fish",), ("config.fish", "conf.d", "functions", "completions")),
    **dict.fromkeys(
        (".config/nvim", ".vim", ".config/vim"),
        ("init.lua", "init.vim", "vimrc", "gvimrc", "plugin", "autoload", "ftplugin", "after", "lua", "pack"),
    ),
    **dict.fromkeys((".emacs.d", ".config/emacs"), ("init.el", "early-init.el", "site-lisp", "elpa")),
    ".config/git": ("config", "attributes", "hooks"),
    ".config/zsh": (".zshrc", ".zshenv", ".zprofile", ".zlogin"),
    ".config/systemd": ("user",),
    ".config/Code": ("User/settings.json", "User/tasks.json", "User/keybindings.json"),
    ".config/tmux": ("tmux.conf",),
    ".config/kitty": ("kitty.conf",),
    ".config/pip": ("pip.conf",),
    ".ssh": ("config", "rc", "environment", "authorized_keys", "authorized_keys2"),
}
"""Names in such a folder that run by themselves, read-only if a write root is the folder or inside it."""

RUN_AS_A_WHOLE = (
    *(".config/autostart", ".config/environment.d", ".config/plasma-workspace", ".config/systemd/user"),
    *(".local/share/systemd/user", ".local/share/dbus-1", ".local/share/applications", "Library/LaunchAgents"),
    *(".config/fish/conf.d", ".config/fish/functions", ".config/fish/completions", ".local/share/bash-completion"),
)
"""Folders in the home folder in which every file runs at login or by its name. A write root must not be in them."""
_OF_PROGRAMS = ("bin", ".local/bin", ".cargo/bin")
"""Folders in the home folder that `PATH` usually names. A write root may be inside them, but not one of them."""

DEFAULT_ALLOW = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "COLORTERM"),
    *("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "COLUMNS", "LINES", "CI", "MANPATH", "LOCALE_ARCHIVE"),
    *("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYENV_ROOT", "PYTHONDONTWRITEBYTECODE", "PYTHONUTF8"),
    *("PYTHONIOENCODING", "PYTHONUNBUFFERED", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "GOROOT", "GOPATH"),
    *("GOTOOLCHAIN", "JAVA_HOME", "NVM_DIR", "NVM_BIN", "RBENV_ROOT", "SDKROOT", "DEVELOPER_DIR"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NIX_SSL_CERT_FILE", "NIX_PATH", "NIX_PROFILES", "XDG_DATA_DIRS"),
    *("CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO"),
)
"""The variables that a child inherits. A name that ends in `*` is a pattern."""

_NEVER_BY_PATTERN = re.compile(
    r"key|token|secret|passw|passphrase|_pass$|_pwd$|credential|auth|cookie|bearer|private|session|_dsn$"
    r"|^(LD_|DYLD_|GIT_|BASH_|PERL5|RUBYOPT|NODE_OPTIONS|ENV$|PYTHONSTARTUP|PYTHONHOME|PROMPT_COMMAND)",
    re.IGNORECASE,
)

_OF_DISPLAY = re.compile(r"TERM|COLORTERM|NO_COLOR|FORCE_COLOR|CLICOLOR|COLUMNS|LINES|LANG|LANGUAGE|LC_\w+|TZ")
"""Variables that only decide how output looks."""

_COMES_AND_GOES = re.compile(r"(hist[^/]*|hst|viminfo|/fish|/swink(-agent)?)$", re.IGNORECASE)

_PATHS = "the paths of a SandboxProfile"
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


def clean_environment(environ: Mapping[str, str], allow: str | Iterable[str] = DEFAULT_ALLOW) -> dict[str, str]:
    """The variables that a child inherits: the names in `allow`, and always a `PATH`.

    A pattern (`LC_*`) never matches names that look like a key or make programs load code; a name in full does,
    because the user chose it.
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


def _most_memory() -> int | None:
    from .kernel.usage import memory_of_machine

    memory = memory_of_machine()
    return None if memory is None else memory * 3 // 4


class ProcessLimits(Value, frozen=True, kw_only=True):
    """What one command may use; `None` sets no limit.

    `memory`: bytes that its processes may use together, on Linux; by default 3/4 of what the machine or container has.
    `disk_left`: bytes that stay free on the disks of the write roots; if less than twice that is free already, half of
    what is free. `file_size`: bytes of one file. The other limits are counts.
    """

    processes: int | None = 512
    memory: int | None = field(default_factory=_most_memory)
    disk_left: int | None = 1024**3
    file_size: int | None = 8 * 1024**3
    open_files: int | None = 8192
    core: int | None = 0


def _hidden_here() -> tuple[str, ...]:
    return tuple(dict.fromkeys(path for home in home_folders() for path in default_hidden(home)))


class SandboxProfile(Value, frozen=True, kw_only=True):
    """What a child process may read, write, reach and use.

    `write`: folders that may be written, besides a private temporary folder. `read`: `None` for everything that is not
    hidden, else these folders, the write roots and the system's. `hidden` wins over both. `protected`: names beneath
    each write root that stay read-only, existing or not; unless it is empty, so do those of `HOME_PROTECTED` in a root.
    `programs`: the folders that this program runs from, read-only in a root too. `environment`: all variables that the
    child inherits. `network`: the machine's network, unfiltered. `hosts`: without `network`, the hosts that may be
    reached through our proxy: `example.org`, `*.example.org`, either with `:port`, an address, a network, or `*` for
    every public host.

    At construction, paths are made absolute, and those of `write` and `read` real. A relative hidden path applies
    beneath each write root, like a protected one. Raises `ValueError` if the whole machine is writable, a root is in a
    hidden folder, a protected name leaves its root, a path to hide is relative and there is no root, or a host or
    variable is not valid; and `TypeError` for one string instead of a tuple of paths.
    """

    hidden_fields: ClassVar[frozenset[str]] = frozenset({"environment", "hidden", "programs"})

    write: tuple[str, ...] = ()
    read: tuple[str, ...] | None = None
    hidden: tuple[str, ...] = field(default_factory=_hidden_here)
    protected: tuple[str, ...] = DEFAULT_PROTECTED
    programs: tuple[str, ...] = field(default_factory=own_folders)
    network: bool = False
    hosts: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: clean_environment(os.environ))
    limits: ProcessLimits = field(default_factory=ProcessLimits)

    def __post_init__(self) -> None:
        check_switch("network", self.network)
        force_setattr(self, "write", _real(self.write))
        force_setattr(self, "read", None if self.read is None else _real(self.read))
        force_setattr(self, "hidden", tuple(dict.fromkeys(_hidden(self.hidden, self.write))))
        force_setattr(self, "protected", tuple(dict.fromkeys(map(protected_name, _listed(self.protected)))))
        programs = map(os.path.expanduser, _several(self.programs))
        force_setattr(self, "programs", tuple(dict.fromkeys(map(os.path.abspath, programs))))
        force_setattr(self, "environment", dict(self.environment))
        force_setattr(self, "hosts", _hosts(self.hosts))
        for root in self.write:
            if root == os.path.sep:
                raise ValueError(
                    "the whole machine as a write root leaves nothing protected: give the folders that may be written"
                )
            for path, real in zip(self.hidden, real_paths(self.hidden), strict=True):
                if is_beneath(root, real):
                    raise ValueError(f"the write root {root!r} is in {path!r}, which is hidden: choose another folder")
        for name, value in self.environment.items():
            if not name or "=" in name or "\0" in name or "\0" in value:
                raise ValueError(f"not a variable that a process can have: {name!r}")

    @property
    def fingerprint(self) -> str:
        """A digest of the profile: profiles with the same fingerprint confine alike, and find the same programs.

        Variables that only decide how output looks do not count: a command may be approved at another terminal.
        """
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        fields["environment"] = {
            name: value for name, value in self.environment.items() if not _OF_DISPLAY.fullmatch(name)
        }
        # As ASCII: a path may contain bytes that are not text.
        said = json.dumps(msgspec.to_builtins(fields, order="deterministic"))
        return hashlib.sha256(said.encode()).hexdigest()

    @property
    def proxied_hosts(self) -> tuple[str, ...]:
        """The hosts that commands reach through a proxy: none if they have the machine's network anyway."""
        return () if self.network else self.hosts

    def hidden_paths(self) -> tuple[str, ...]:
        """The real paths of the hidden paths that exist now. None is inside another."""
        found = set(real_paths(path for path in self.hidden if os.access(path, os.F_OK)))
        outer: list[str] = []
        for path in sorted(found - {os.path.sep}):
            if not outer or not is_beneath(path, outer[-1]):
                outer.append(path)
        return tuple(outer)

    def hidden_elsewhere(self, there: Collection[str]) -> list[str]:
        """The hidden paths that are not in `there`, which has the existing ones: no command may read them once created.

        Histories of typed text, our own files, which we may be about to write, and paths that the command can create
        itself are left out.
        """
        ours = (value for name, value in os.environ.items() if name.startswith("SWINK_") and os.path.isabs(value))
        known = frozenset((*there, *map(os.path.abspath, ours)))
        return [path for path in _watched(self.hidden, self.write) if path not in known]

    def protected_names(self) -> tuple[str, ...]:
        """The absolute paths that are read-only by name beneath the write roots, existing or not."""
        names: list[str] = []
        for root in self.write:
            if is_git_folder(root):  # a repository whose work tree is elsewhere
                names.extend(os.path.join(root, name[5:]) for name in self.protected if name.startswith(".git/"))
            else:
                names.extend(os.path.join(root, name) for name in self.protected)
        if self.protected:
            # By their real paths: the root may be the home folder, contain it, or be a part of it such as `.config`.
            for home in map(os.path.realpath, home_folders()):
                at_home = (os.path.join(home, name) for name in HOME_PROTECTED)
                names.extend(path for path in at_home if any(_lies_inside(path, root) for root in self.write))
                for name, parts in RUN_FROM_A_FOLDER.items():
                    inner = (os.path.join(home, name, part) for part in parts)
                    inside = [root for root in self.write if is_beneath(root, os.path.join(home, name))]
                    names.extend(path for path in inner if any(_lies_inside(path, root) for root in inside))
        names.extend(self.own_programs())
        return tuple(dict.fromkeys(names))

    def own_programs(self) -> tuple[str, ...]:
        """The folders in a write root that this program runs from: read-only, so that commands cannot change it."""
        names = [name for root in self.write for name in own_names_in(root, self.programs)]
        return tuple(name for name in dict.fromkeys(names) if not any(is_beneath(name, o) for o in names if o != name))


def runs_as_a_whole(folder: str) -> bool:
    """Whether every file in the folder would run at the user's next login, or instead of a command of its name."""
    homes = [os.path.realpath(home) for home in home_folders()]
    return any(
        is_beneath(folder, os.path.realpath(os.path.join(home, name))) for home in homes for name in RUN_AS_A_WHOLE
    ) or any(folder == os.path.realpath(os.path.join(home, name)) for home in homes for name in _OF_PROGRAMS)


def runs_at_home(folder: str) -> bool:
    """Whether the folder is a part of the home folder that is read-only when the home folder may be written."""
    whole = [name for name in HOME_PROTECTED if name not in RUN_FROM_A_FOLDER and name not in _OF_PROGRAMS]
    parts = [os.path.join(name, part) for name, inner in RUN_FROM_A_FOLDER.items() for part in inner]
    homes = [os.path.realpath(home) for home in home_folders()]
    return any(
        is_beneath(folder, os.path.realpath(os.path.join(home, name))) for home in homes for name in (*whole, *parts)
    )


@lru_cache(maxsize=8)
def _watched(hidden: tuple[str, ...], write: tuple[str, ...]) -> tuple[str, ...]:
    """The hidden paths whose creation is watched. Cached, because there are many and every command needs them."""
    others = (path for path in hidden if not _COMES_AND_GOES.search(path))
    return tuple(path for path in others if not any(is_beneath(path, root) for root in write))


def _lies_inside(path: str, folder: str) -> bool:
    return path != folder and is_beneath(path, folder)


def is_beneath(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or in it; both are absolute and normal."""
    return path == folder or path.startswith(folder.rstrip(os.path.sep) + os.path.sep)


def home_folders() -> tuple[str, ...]:
    """The home folder according to the environment, and according to the system."""
    homes = [os.path.expanduser("~")]
    try:
        import pwd

        homes.append(pwd.getpwuid(os.getuid()).pw_dir)
    except (ImportError, KeyError, AttributeError):  # no such user, or no such system
        pass
    return tuple(dict.fromkeys(os.path.abspath(home) for home in homes if os.path.isabs(home) and home != os.path.sep))


def own_paths() -> tuple[str, ...]:
    """The usual places of this program's settings, keys, sessions and checkpoints. An application may use others."""
    return tuple(dict.fromkeys(path for home in home_folders() for path in own_hidden(home)))


def _several(paths: Iterable[str | os.PathLike[str]] | str) -> tuple[str, ...]:
    return several_paths(_listed(paths), _PATHS)


def _listed(paths: Iterable[str | os.PathLike[str]] | str) -> tuple[str, ...]:
    if isinstance(paths, (str, os.PathLike)):
        raise TypeError(f"give a tuple of paths, not one path: ({os.fspath(paths)!r},)")
    return tuple(map(os.fspath, several(paths, _PATHS)))


def _hosts(entries: Iterable[str]) -> tuple[str, ...]:
    entries = several_texts(entries, "SandboxProfile(hosts=…)")
    if not entries:
        return ()
    from .network.hosts import host_entry

    return tuple(dict.fromkeys(map(host_entry, entries)))


def _real(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(os.path.realpath(os.path.expanduser(path)) for path in _several(paths)))


def _hidden(paths: Iterable[str], roots: tuple[str, ...]) -> Iterator[str]:
    """The paths to hide, made absolute independently of the working folder."""
    for path in _several(paths):
        expanded = os.path.expanduser(path)
        if os.path.isabs(expanded):
            yield os.path.normpath(expanded)
        elif not roots:
            raise ValueError(f"{path!r} is a relative path to hide, and there is no write root: make it absolute")
        else:
            yield from (os.path.normpath(os.path.join(root, expanded)) for root in roots)


def protected_name(name: str) -> str:
    """The name as a path relative to a root. Raises `ValueError` if it leaves the root."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if os.path.isabs(name) or not parts or ".." in parts:
        raise ValueError(f"a protected name must be relative to a write root and stay in it, not {name!r}")
    return "/".join(parts)
