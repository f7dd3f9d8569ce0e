"""Which first words of a command a person may trust for a session, and what such trust covers.

Owns a list of what can be offered. Trust in a prefix is trust in whatever follows it, so it is offered only where what
follows is known to be data: never for a program that runs what its words name or say, under whatever name or path. What
is not in the list is asked about each time.
"""

from __future__ import annotations

import re

from ._named_commands import is_runner, program_name
from ._shell_words import names

__all__ = ["prefix_covers", "prefix_length"]

_VERSION = re.compile(r"[-.]?\d[\d.]*[a-z]?$")

# No option of these runs anything.
_PLAIN = names(
    "basename black cat chmod clang-format cmp comm cp cut date df dirname du echo gofmt head jq ln ls "
    "md5sum mkdir mv nl paste readlink realpath rm rmdir ruff sha256sum shellcheck stat tail touch tr tsc "
    "uniq wc yamllint"
)
# These run a script that is named first, and what follows is the script's.
_INTERPRETERS = names("node nodejs perl php pypy python ruby")
# Names that are none of a project's own, wherever they lie.
_NEVER_BY_PATH = names(
    "ash awk bash bun busybox csh dash deno elvish env fish gawk groovy guile iex ipython irb java jshell "
    "julia jupyter ksh lua luajit make mawk nawk nix node nodejs npm npx nu octave osascript perl php "
    "pnpm powershell pwsh pypy python rscript ruby runghc sbcl scala sh tclsh toybox ts-node tsx uv wish "
    "xonsh yarn zsh"
)
_MODULES = names("black build compileall flake8 isort json.tool mypy pytest ruff unittest")
# `git` is not offered for what fetches (--upload-pack names a program), bisects, rebases (--exec) or configures.
_SUBCOMMANDS = {
    "git": names(
        "add blame branch checkout cherry-pick clean commit diff log merge mv reset restore revert rm show "
        "stash status switch tag worktree"
    ),
    "cargo": names("bench build check clippy doc fmt test"),
    "go": names("build fmt test vet"),
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), names("run test")),
}
_WRAPPERS = {"uv": "run", "poetry": "run", "pdm": "run", "hatch": "run", "bundle": "exec"}

_PYTEST = (
    "-[qvxslh]+|-[qvxs]*[kmr].*|-n.*|--(tb|maxfail|lf|last-failed|ff|failed-first|durations|collect-only|co|no-header"
    "|cov|cov-report|timeout|disable-warnings|showlocals|verbose|quiet|exitfirst|capture|color|stepwise|sw|nf)(=.*)?"
)
# What may follow, before a `--`; of others whatever may.
_OPTIONS = {
    "pytest": _PYTEST,
    "unittest": "-[qvfbc]+|-[kstp].*|--(quiet|verbose|failfast|buffer|locals)",
    "mypy": "--(strict|pretty|no-error-summary|show-error-codes|ignore-missing-imports|no-incremental)",
    "flake8": "--(max-line-length|select|ignore|extend-ignore|exclude|count|statistics|show-source)(=.*)?",
    "isort": "--(check|check-only|diff|profile)(=.*)?|-c",
    "build": "--(sdist|wheel|outdir)(=.*)?|-[sw]",
    "cargo": (
        "-[vqp].*|-[Fj].*|--(release|all|workspace|package|lib|bin|bins|test|tests|example|examples|bench|benches"
        "|all-targets"
        "|features|all-features|no-default-features|quiet|verbose|target|offline|locked|frozen|no-run|no-fail-fast|doc"
        "|check|jobs|profile|message-format|no-deps)(=.*)?"
    ),
    "go": (
        "-(v|race|run|count|short|cover|coverprofile|timeout|bench|benchmem|json|failfast|parallel|tags|p|o|trimpath|x)"
        "(=.*)?"
    ),
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), "-[a-zA-Z]|--silent"),
}


def prefix_length(words: tuple[str, ...]) -> int:
    """How many words to offer for trust; 0 for none."""
    first = words[0]
    program = _name(first)
    following = words[1] if len(words) > 1 else ""
    if program in _INTERPRETERS:
        if following == "-m" and program in ("python", "pypy") and len(words) > 2:
            return 3 if words[2] in _MODULES else 0
        return 0  # the script is a file that the model may write
    if program in _WRAPPERS:
        inner = prefix_length(words[2:]) if following == _WRAPPERS[program] and len(words) > 2 else 0
        return 2 + inner if inner else 0
    if program in _SUBCOMMANDS:
        if following not in _SUBCOMMANDS[program]:
            return 0
        if following == "run":
            return 3 if len(words) > 2 and not words[2].startswith("-") else 0
        return 2
    if program in _PLAIN or program in _OPTIONS:
        return 1
    return 1 if _is_of_the_project(first) and program not in _NEVER_BY_PATH and not is_runner(words) else 0


def prefix_covers(prefix: tuple[str, ...], words: tuple[str, ...]) -> bool:
    """Whether the words begin with the prefix, and what follows is nothing that would run something else."""
    if words[: len(prefix)] != prefix:
        return False
    allowed = _options(prefix)
    if allowed is None:
        return True
    for word in words[len(prefix) :]:
        if word == "--":
            return True
        if word.startswith("-") and not re.fullmatch(allowed, word, re.DOTALL):
            return False
    return True


def _options(prefix: tuple[str, ...]) -> str | None:
    program = _name(prefix[0])
    if program in _WRAPPERS and len(prefix) > 2:
        return _options(prefix[2:])
    if program in _INTERPRETERS and prefix[1:2] == ("-m",) and len(prefix) > 2:
        return _OPTIONS.get(prefix[2])
    return _OPTIONS.get(program)


def _name(program: str) -> str:
    """What a program is called, without its path and its version: python for /usr/bin/python3.12."""
    name = program_name(program)
    return name if name in _PLAIN else _VERSION.sub("", name) or name


def _is_of_the_project(program: str) -> bool:
    return "/" in program and not program.startswith(("/", "~", "../")) and "/../" not in program
