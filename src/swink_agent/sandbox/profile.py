"""What a child process may do: the walls as data, the same for every back end.

Owns `SandboxProfile`, the lists of what is hidden and protected unless said otherwise, and the environment of a child.
Does not own how a wall is built (the back ends) or what lies on the disk beneath a root (`_protected`).
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterable, Mapping
from typing import ClassVar

import msgspec
from msgspec import field
from msgspec.structs import force_setattr

from swink_agent.core.value import Value

from .programs import own_folders, own_names_in

__all__ = [
    "DEFAULT_ALLOW",
    "DEFAULT_PROTECTED",
    "HOME_PROTECTED",
    "ProcessLimits",
    "SandboxProfile",
    "clean_environment",
    "default_hidden",
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
    ".vscode",
    ".idea",
)
"""Read-only beneath every write root, existing or not."""

HOME_PROTECTED = (
    *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".inputrc"),
    *(".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login", ".xprofile"),
    *(".config/fish", ".config/git", ".config/environment.d", ".config/autostart", ".config/systemd"),
    *(".config/swink", ".config/swink-agent", ".swink", ".gitconfig", ".ssh", ".gnupg", ".aws", ".kube", ".docker"),
    *(".pam_environment", ".xinitrc", ".xsession", ".vimrc", ".tmux.conf", ".netrc", ".npmrc", ".pypirc"),
    *(".local/bin", "bin", "Library/LaunchAgents"),
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

_HIDDEN_IN_HOME = (
    # keys and the credentials of clouds, registries and databases
    *(".ssh", ".gnupg", ".password-store", ".local/share/keyrings", ".pki", ".netrc", "_netrc", ".authinfo"),
    *(".aws", ".azure", ".kube", ".docker", ".oci", ".bluemix", ".fly", ".terraform.d", ".terraformrc", ".vault-token"),
    *(
        ".config/gcloud",
        ".config/gh",
        ".config/glab-cli",
        ".config/hub",
        ".config/op",
        ".config/doctl",
        ".config/rclone",
    ),
    *(".config/containers/auth.json", ".config/github-copilot", ".config/sops", ".config/age", ".boto", ".s3cfg"),
    *(".git-credentials", ".config/git/credentials", ".npmrc", ".yarnrc.yml", ".pypirc", ".gem/credentials"),
    *(".cargo/credentials", ".cargo/credentials.toml", ".m2/settings.xml", ".m2/settings-security.xml"),
    *(".gradle/gradle.properties", ".composer/auth.json", ".config/composer/auth.json", ".databrickscfg", ".snowflake"),
    *(".pgpass", ".my.cnf", ".mylogin.cnf", ".huggingface/token", ".cache/huggingface/token"),
    # other agents
    *(".claude", ".claude.json", ".codex", ".gemini"),
    # our own keys, settings and sessions
    *(".config/swink", ".config/swink-agent", ".local/share/swink-agent", ".local/state/swink-agent"),
    # what was typed, and browsers
    *(".bash_history", ".zsh_history", ".zhistory", ".histfile", ".local/share/fish", ".python_history"),
    *(".node_repl_history", ".psql_history", ".mysql_history", ".sqlite_history", ".lesshst", ".viminfo"),
    *(".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware"),
    *(".config/microsoft-edge", ".config/vivaldi", ".config/opera", "snap/firefox", "snap/chromium"),
    *(".var/app/org.mozilla.firefox", ".var/app/com.google.Chrome", ".var/app/org.chromium.Chromium"),
)
_HIDDEN_IN_MAC_HOME = (
    *("Library/Keychains", "Library/Cookies", "Library/Safari", "Library/Mail", "Library/Messages"),
    *("Library/Containers/com.apple.Safari", "Library/Application Support/swink-agent"),
    *("Library/Application Support/Google/Chrome", "Library/Application Support/Firefox"),
    *("Library/Application Support/Chromium", "Library/Application Support/BraveSoftware"),
    *("Library/Application Support/Microsoft Edge", "Library/Application Support/Arc"),
    *("Library/Application Support/1Password", "Library/Group Containers/2BUA8C4S2C.com.1password"),
)
_HIDDEN_IN_SYSTEM = (
    *("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d"),
    *("/etc/security/opasswd", "/etc/ssl/private", "/etc/krb5.keytab", "/etc/ssh/ssh_host_rsa_key"),
    *("/etc/ssh/ssh_host_ecdsa_key", "/etc/ssh/ssh_host_ed25519_key", "/etc/ssh/ssh_host_dsa_key"),
    # sockets of daemons that do more than their caller may, and secrets given to services
    *("/run/user", "/run/docker.sock", "/run/docker", "/run/containerd", "/run/podman", "/run/crio", "/run/dbus"),
    *("/run/secrets", "/run/credentials", "/run/libvirt", "/run/snapd.socket", "/run/systemd/private"),
    *("/var/run/docker.sock", "/var/run/secrets", "/var/spool/cron", "/var/lib/docker"),
)

_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


def clean_environment(environ: Mapping[str, str], allow: Iterable[str] = DEFAULT_ALLOW) -> dict[str, str]:
    """What a child may know of our environment: the names in `allow`, and a `PATH` in any case.

    A pattern (`LC_*`) never lets through what is named like a key or makes programs load code; a name written out
    does, as somebody chose it.
    """
    names = set(allow)
    starts = tuple(name[:-1] for name in names if name.endswith("*"))
    clean = {
        name: value
        for name, value in environ.items()
        if name in names or (starts and name.startswith(starts) and not _NEVER_BY_PATTERN.search(name))
    }
    clean.setdefault("PATH", _DEFAULT_PATH)
    return clean


def default_hidden(home: str | os.PathLike[str], environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Where credentials, browser profiles and our own keys lie, whether they exist or not."""
    home = os.path.abspath(os.fspath(home))
    names = _HIDDEN_IN_HOME + (_HIDDEN_IN_MAC_HOME if sys.platform == "darwin" else ())
    hidden = [os.path.join(home, name) for name in names] + list(_HIDDEN_IN_SYSTEM)
    for variable in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        folder = (os.environ if environ is None else environ).get(variable, "")
        if os.path.isabs(folder):
            hidden.append(os.path.join(folder, "swink-agent"))
            hidden.append(os.path.join(folder, "swink"))
    return tuple(dict.fromkeys(hidden))


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

    Paths are made absolute, and those of roots real, at construction. Raises `ValueError` for walls that cannot be
    meant: the whole machine writable, a root inside a hidden folder, a protected name that leaves its root.
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
        force_setattr(self, "hidden", tuple(dict.fromkeys(_absolute(path) for path in _several(self.hidden))))
        force_setattr(self, "protected", tuple(dict.fromkeys(_relative(name) for name in _several(self.protected))))
        force_setattr(self, "programs", tuple(dict.fromkeys(_absolute(path) for path in _several(self.programs))))
        force_setattr(self, "environment", dict(self.environment))
        for root in self.write:
            if root == os.path.sep:
                raise ValueError(
                    "the whole machine as a write root leaves no wall: give the folders that may be written"
                )
            for path in self.hidden:
                if is_beneath(root, os.path.realpath(path)):
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
        return hashlib.sha256(msgspec.json.encode(fields, order="deterministic")).hexdigest()

    def hidden_paths(self) -> tuple[str, ...]:
        """What is hidden and exists now: each path and, where it is a link, where it leads. None inside another."""
        found: set[str] = set()
        folders: dict[str, str] = {}
        for path in self.hidden:  # for every command: so no more is asked of the disk than is needed
            if os.access(path, os.F_OK):
                folder, name = os.path.split(path)
                real = folders.get(folder) or folders.setdefault(folder, os.path.realpath(folder))
                found.add(os.path.realpath(path) if os.path.islink(path) else os.path.join(real, name))
        outer: list[str] = []
        for path in sorted(found - {os.path.sep}):
            if not outer or not is_beneath(path, outer[-1]):
                outer.append(path)
        return tuple(outer)

    def protected_names(self) -> tuple[str, ...]:
        """The absolute paths that are read-only by name beneath the write roots, existing or not."""
        names = [os.path.join(root, name) for root in self.write for name in self.protected]
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


def is_beneath(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or in it; both absolute and normal."""
    return path == folder or path.startswith(folder.rstrip(os.path.sep) + os.path.sep)


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


def _relative(name: str) -> str:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if os.path.isabs(name) or not parts or ".." in parts:
        raise ValueError(f"a protected name is relative to a write root and stays in it, not {name!r}")
    return "/".join(parts)
