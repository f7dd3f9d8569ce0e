"""What commands may read of a home folder: the start files of shells, git's settings, and programs with their caches.

The rest of a home folder is a person's: commands see nothing of it unless it is among the folders of the profile.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping

from .kernel.mounts import is_in
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
_OF_SHELLS = (
    *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".bash_completion", ".profile"),
    *(".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".inputrc", ".dircolors"),
    *(".editorconfig", ".config/fish", ".oh-my-zsh", ".terminfo"),
)


def home_reads(home: str) -> tuple[str, ...]:
    """The paths in a home folder that commands may read, existing or not."""
    usual = (*_OF_SHELLS, *_IN_HOME, *(f"{folder}/{name}" for folder in _FOLDERS_OF_CACHES for name in _CACHES))
    named = (path for path in map(os.path.normpath, _named(os.environ)) if path != home and is_in(path, [home]))
    return tuple(dict.fromkeys((*(os.path.join(home, name) for name in usual), *named)))


def tool_folders(environment: Mapping[str, str], *, outside: Collection[str] = ()) -> tuple[str, ...]:
    """The folders outside of the system that programs are in, and their caches, as far as they exist.

    They are found by `PATH` and other variables, and by their usual names in the home folder. Never the home folder
    itself or one that contains it, and none whose path leads through a folder of `outside`: a command that writes there
    could make a link to any other folder.
    """
    home = os.path.realpath(os.path.expanduser("~"))
    at_home = [*_IN_HOME, *(f"{folder}/{name}" for folder in _FOLDERS_OF_CACHES for name in _CACHES)]
    places = (*_named(environment), *(os.path.join(home, name) for name in at_home))
    named = [path for path in places if not any(is_in(way, outside) for way in way_to(path))]
    paths = dict.fromkeys(map(os.path.realpath, named))
    found = [path for path in paths if not is_in(home, [path]) and path != os.path.sep and os.path.exists(path)]
    return tuple(path for path in found if not any(is_in(path, [outer]) for outer in found if outer != path))


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
