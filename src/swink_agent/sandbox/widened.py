"""Derives the profile of a command with more access from the usual one.

A command that reaches the network can send out whatever it can read. So it gets a narrower `read` than others: its
folders, the system, and the folders of programs and their caches, but not the rest of the home folder.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec.structs import replace

from swink_agent.core.values.several import several_paths, several_texts

from .profile import SandboxProfile, is_beneath
from .programs import way_to

_BY_VARIABLE = (
    *("VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT", "CARGO_HOME", "RUSTUP_HOME", "GOROOT", "GOPATH", "JAVA_HOME"),
    *("NVM_DIR", "NVM_BIN", "RBENV_ROOT", "SDKROOT", "DEVELOPER_DIR", "LOCALE_ARCHIVE"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NIX_SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT"),
    *("NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO"),
)
"""Variables that name a program's folder, or certificates."""
_IN_HOME = (
    *(".pyenv", ".nvm", ".fnm", ".volta", ".rustup", ".cargo", "go", ".rbenv", ".rvm", ".sdkman", ".asdf", ".bun"),
    *(".deno", ".npm", ".yarn", ".pnpm-store", ".m2", ".gradle", ".gem", ".bundle", ".nuget", ".dotnet", ".ivy2"),
    *(".sbt", ".conda", "miniconda3", "anaconda3", ".gitconfig", ".config/git"),
    *(".local/bin", ".local/lib", ".local/pipx", ".local/share/uv", ".local/share/pnpm", ".local/share/virtualenv"),
    *(".local/share/mise", ".local/share/fnm", ".local/share/pipx", ".local/share/npm", ".local/state/nix"),
    *(".nix-profile", ".nix-defexpr", "bin"),
)
_CACHES = (
    *("pip", "uv", "pdm", "pipenv", "pypoetry", "virtualenv", "hatch", "pre-commit", "ruff", "conda", "rattler"),
    *("npm", "yarn", "Yarn", "pnpm", "bun", "deno", "node", "node-gyp", "node-gyp-cache", "typescript", "electron"),
    *("ms-playwright", "puppeteer", "Cypress", "selenium", "esbuild", "turbo", "prisma", "huggingface"),
    *("go-build", "gopls", "golangci-lint", "ccache", "sccache", "bazel", "bazelisk", "zig", "composer", "coursier"),
    *("gradle", "maven", "nix", "mise", "fnm", "rubocop_cache", "helm", "Homebrew", "fontconfig", "matplotlib"),
    "torch",
)
"""Names of programs in cache folders. Other names there may be caches of what a person has read."""
_FOLDERS_OF_CACHES = (".cache", "Library/Caches")
_OF_PROGRAMS = ("bin", "sbin", "shims", "Scripts")


def profile_with_access(
    base: SandboxProfile,
    *,
    hosts: str | Iterable[str] = (),
    network: bool = False,
    write: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
    read: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
) -> SandboxProfile:
    """The profile of commands that may do more than those of `base`.

    `hosts` are added to those of `base`; `network` opens the whole network instead. With hosts or `network`, a `base`
    that reads everything reads only its folders, those given here, the system's and `tool_folders()`. `write` and
    `read` add folders; one that is hidden is opened if it is named itself. Raises `ValueError` for a part of a hidden
    folder, and for what a profile does not accept.
    """
    hosts = several_texts(hosts, "profile_with_access(hosts=…)")
    write = several_paths(write, "profile_with_access(write=…)")
    read = several_paths(read, "profile_with_access(read=…)")
    added = [os.path.realpath(os.path.expanduser(path)) for path in (*write, *read)]
    hidden = tuple(path for path in base.hidden if path not in added and os.path.realpath(path) not in added)
    for path in added:
        for outer in hidden:
            if is_beneath(path, os.path.realpath(outer)):
                raise ValueError(f"{path!r} is in {outer!r}, which is hidden as a whole: ask for all of it")
    reached = () if network else (*base.hosts, *hosts)
    reads = base.read
    if reads is None and (network or reached):
        reads = (*base.write, *tool_folders(base.environment, outside=(*base.write, *added)))
    return replace(
        base,
        hosts=tuple(reached),
        network=base.network or network,
        write=(*base.write, *write),
        read=None if reads is None else (*reads, *read),
        hidden=hidden,
    )


def tool_folders(environment: Mapping[str, str], *, outside: Collection[str] = ()) -> tuple[str, ...]:
    """The folders outside of the system that programs are in, and their caches, as far as they exist.

    They are found by `PATH` and other variables, and by their usual names in the home folder. Never the home folder
    itself or one that contains it, and none whose path leads through a folder of `outside`: a command that writes there
    could make a link to any other folder.
    """
    home = os.path.realpath(os.path.expanduser("~"))
    at_home = [*_IN_HOME, *(f"{folder}/{name}" for folder in _FOLDERS_OF_CACHES for name in _CACHES)]
    places = (*_named(environment), *(os.path.join(home, name) for name in at_home))
    named = [path for path in places if not any(is_beneath(way, o) for way in way_to(path) for o in outside)]
    paths = dict.fromkeys(map(os.path.realpath, named))
    found = [path for path in paths if not is_beneath(home, path) and path != os.path.sep and os.path.exists(path)]
    return tuple(path for path in found if not any(is_beneath(path, outer) for outer in found if outer != path))


def _named(environment: Mapping[str, str]) -> Iterator[str]:
    for name in _BY_VARIABLE:
        yield from (path for path in environment.get(name, "").split(os.pathsep) if os.path.isabs(path))
    local = os.path.realpath(os.path.expanduser("~/.local"))
    for path in environment.get("PATH", "").split(os.pathsep):
        if os.path.isabs(path):
            yield path
            above = os.path.dirname(path.rstrip(os.path.sep))
            # Programs need the folders beside theirs: `lib`, `share`. Not in `~/.local`, which has more than programs.
            if os.path.basename(path.rstrip(os.path.sep)) in _OF_PROGRAMS and os.path.realpath(above) != local:
                yield above
