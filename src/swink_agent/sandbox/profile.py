"""What a child process may do, as data, the same for every back end.

Contains `SandboxProfile`, the default lists of hidden and protected paths, and the environment of a child. The back
ends enforce the profile; `protected` finds what exists beneath a root.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

import msgspec
from msgspec import field
from msgspec.structs import force_setattr

from swink_agent.core.values.checks import check_switch
from swink_agent.core.values.several import several, several_paths, several_texts
from swink_agent.core.values.value import Value

from .credentials import default_hidden, own_hidden
from .kernel.mounts import real_paths
from .names import HOME_DATA, HOME_PROGRAMS, LOGIN_FOLDERS, PROTECTED_NAMES
from .programs import own_folders, own_names_in, way_to
from .reading import home_reads
from .repositories.enclosing import is_git_folder

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


def _home_here() -> tuple[str, ...]:
    return tuple(dict.fromkeys(path for home in home_folders() for path in home_reads(home)))


class SandboxProfile(Value, frozen=True, kw_only=True):
    """What a child process may read, write, reach and use.

    `write`: folders that may be written, besides a private temporary folder. `read`: `None` for everything that is not
    hidden, else these folders, the write roots and the system's. `home`: what may be read of a home folder in any case;
    all of it if a folder here, in `write` or in `read`, other than `/`, contains it. `hidden` wins over all of them.
    `protected`: names beneath
    each write root. What exists is read-only; what a command makes is judged when it ends. Those of `NAMES` count at
    any depth. Unless it is empty, a home folder in a root is protected too (`at_home`). `opened`: absolute paths
    beneath the write roots that may be written although their names are protected. `programs`: the folders that this
    program runs from, read-only in a root too. `environment`: all variables that the child inherits. `network`: the
    machine's network, unfiltered. `hosts`: without `network`, the hosts that may be reached through our proxy:
    `example.org`, `*.example.org`, either with `:port`, an address, a network, or `*` for every public host.

    At construction, paths are made absolute, and those of `write` and `read` real. A relative hidden path applies
    beneath each write root, like a protected one. Raises `ValueError` if the whole machine is writable, a root is in a
    hidden folder, a protected name leaves its root, a path to hide is relative and there is no root, or a host or
    variable is not valid; and `TypeError` for one string instead of a tuple of paths.
    """

    hidden_fields: ClassVar[frozenset[str]] = frozenset({"environment", "hidden", "home", "programs"})

    write: tuple[str, ...] = ()
    read: tuple[str, ...] | None = None
    home: tuple[str, ...] = field(default_factory=_home_here)
    hidden: tuple[str, ...] = field(default_factory=_hidden_here)
    protected: tuple[str, ...] = PROTECTED_NAMES
    opened: tuple[str, ...] = ()
    programs: tuple[str, ...] = field(default_factory=own_folders)
    network: bool = False
    hosts: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: clean_environment(os.environ))
    limits: ProcessLimits = field(default_factory=ProcessLimits)

    def __post_init__(self) -> None:
        check_switch("network", self.network)
        force_setattr(self, "write", _real(self.write))
        force_setattr(self, "read", None if self.read is None else _real(self.read))
        # Roots stay readable for a profile that is made from this one and writes less.
        home = (*map(os.path.abspath, map(os.path.expanduser, _several(self.home))), *self.write)
        force_setattr(self, "home", tuple(dict.fromkeys(home)))
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

    def closed_homes(self) -> tuple[str, ...]:
        """The real home folders of which commands read only what is in `home`."""
        if self.read is not None and os.path.sep not in self.read:
            return ()
        whole = [folder for folder in (*self.write, *(self.read or ()), *self.home) if folder != os.path.sep]
        return tuple(
            home
            for home in _real_homes()
            if os.path.isdir(home) and not any(is_beneath(home, folder) for folder in whole)
        )

    def read_at_home(self) -> tuple[str, ...]:
        """The paths of `home` that exist, and where links among them lead.

        Not those whose way leads through a write root: a command could make a link there to any other folder.
        """
        found: dict[str, None] = {}
        for path in filter(os.path.lexists, self.home):
            real = os.path.realpath(path)
            if path == real or not any(is_beneath(way, root) for way in way_to(path) for root in self.write):
                found.update(dict.fromkeys((path, real)))
        return tuple(found)

    def protected_names(self) -> tuple[str, ...]:
        """The absolute paths beneath the write roots that the profile names, existing or not, and our own programs."""
        names: list[str] = []
        for root in self.write:
            if is_git_folder(root):  # a repository whose work tree is elsewhere
                names.extend(os.path.join(root, name[5:]) for name in self.protected if name.startswith(".git/"))
            else:
                names.extend(os.path.join(root, name) for name in self.protected)
        names = [name for name in names if not self.is_opened(name)]
        return tuple(dict.fromkeys((*names, *self.own_programs())))

    def is_opened(self, path: str) -> bool:
        """Whether the path may be written although its name is protected."""
        return any(is_beneath(path, opened) for opened in self.opened)

    def at_home(self) -> tuple[str, ...]:
        """What is read-only in a home folder that may be written: see `at_home`. None if nothing is protected."""
        found = (name for root in self.write for name in at_home(root)) if self.protected else ()
        return tuple(dict.fromkeys(found))

    def own_programs(self) -> tuple[str, ...]:
        """The folders in a write root that this program runs from: read-only, so that commands cannot change it."""
        names = [name for root in self.write for name in own_names_in(root, self.programs)]
        return tuple(name for name in dict.fromkeys(names) if not any(is_beneath(name, o) for o in names if o != name))


def runs_as_a_whole(folder: str) -> bool:
    """Whether every file in the folder would run at the user's next login, or instead of a command of its name."""
    homes = _real_homes()
    return any(
        is_beneath(folder, os.path.realpath(os.path.join(home, name))) for home in homes for name in LOGIN_FOLDERS
    ) or any(folder == os.path.realpath(os.path.join(home, name)) for home in homes for name in HOME_PROGRAMS)


def runs_at_home(folder: str) -> bool:
    """Whether the folder is in a part of the home folder that is read-only when the home folder may be written."""
    for home in _real_homes():
        if not _lies_inside(folder, home):
            continue
        name = folder[len(home) + 1 :]
        if any(is_beneath(folder, program) for program in _programs_in(home)):
            return True
        if name.startswith(".") and not _is_data(name) and not _holds_data(name):
            return True
    return False


def holds_home(root: str) -> bool:
    """Whether the folder is a home folder, or contains one."""
    return any(is_beneath(home, root) for home in _real_homes())


def at_home(root: str) -> list[str]:
    """What is read-only in `root` because it is a home folder or contains one: each existing path of these.

    Names that begin with a dot, except data such as caches (`HOME_DATA`); and folders of `PATH`.
    """
    found: list[str] = []
    for home in _real_homes():
        if not is_beneath(home, root):
            continue
        found += filter(os.path.lexists, _programs_in(home))
        found += _besides_data(home, "")
    return list(dict.fromkeys(found))


def _besides_data(home: str, inner: str) -> Iterator[str]:
    """The names with a dot in the home folder; if one has data in it, its other parts in place of it."""
    try:
        with os.scandir(os.path.join(home, inner)) as entries:
            listed = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
    except OSError:
        return
    for name, is_folder in listed:
        place = f"{inner}/{name}" if inner else name
        if not place.startswith(".") or _is_data(place):
            continue
        if is_folder and _holds_data(place):
            yield from _besides_data(home, place)
        else:
            yield os.path.join(home, place)


def _programs_in(home: str) -> list[str]:
    named = map(os.path.normpath, os.environ.get("PATH", "").split(os.pathsep))
    usual = (os.path.join(home, name) for name in HOME_PROGRAMS)
    return [*usual, *(path for path in named if _lies_inside(path, home))]


def _is_data(name: str) -> bool:
    return any(is_beneath(name, data) for data in HOME_DATA)


def _holds_data(name: str) -> bool:
    return any(_lies_inside(data, name) for data in HOME_DATA)


def _real_homes() -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(os.path.realpath, home_folders())))


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
