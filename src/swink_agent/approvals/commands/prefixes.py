"""Which first words of a command a person may trust for a session, and what such trust covers.

Owns a list of what can be offered. Trust in a prefix is trust in whatever follows it, so it is offered only where what
follows is known to be data: never for a program that runs what its words name or say, under whatever name or path, nor
for a name that stands for a text or a file of the folder (`npm run x`, `make x`, `./x`), which a model can write. What
is not in the list is asked about each time.

Test runners, and builds that run steps of the project, are not in the list: what they run is the project's code, which
a model can write. Nor is what lies in an environment in the folder, or looks for its parts there first (`python -m`),
nor a checker that loads plugins by the project's settings. Who wants them unasked says so in a rule. Trust that was
given by hand all the same does not cover options that would run something else.
"""

from __future__ import annotations

import re

from .named_commands import program_name
from .shell_words import names

__all__ = ["prefix_covers", "prefix_length"]

_VERSION = re.compile(r"[-.]?\d[\d.]*[a-z]?$")

# No option of these runs anything.
_PLAIN = names(
    "basename black cat chmod clang-format cmp comm cp cut date df dirname du echo gofmt head isort jq ln ls "
    "md5sum mkdir mv nl paste readlink realpath rm rmdir ruff sha256sum shellcheck stat tail touch tr tsc "
    "uniq wc yamllint"
)
# These run a script that is named first, and what follows is the script's.
_INTERPRETERS = names("node nodejs perl php pypy python ruby")
# `git` is not offered for what fetches (--upload-pack names a program), bisects, rebases (--exec) or configures.
_SUBCOMMANDS = {
    "git": names(
        "add blame branch checkout cherry-pick clean commit diff log merge mv reset restore revert rm show "
        "stash status switch tag worktree"
    ),
    "go": names("build fmt vet"),
}
# A strategy of another name is a program of that name.
_MERGES = names("merge cherry-pick revert")
_STRATEGY = re.compile(r"-s.*|--str.*", re.DOTALL)

_PYTEST = (
    "-[qvxslh]+|-[qvxs]*[kmr].*|-n.*|--(tb|maxfail|lf|last-failed|ff|failed-first|durations|collect-only|co|no-header"
    "|cov|cov-report|timeout|disable-warnings|showlocals|verbose|quiet|exitfirst|capture|color|stepwise|sw|nf)(=.*)?"
)
# What may follow, before a `--`, also where somebody gave trust by hand; of others whatever may.
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
}
# Where a program is the one that it is called like.
_SYSTEM = re.compile(r"/(usr/(local/)?)?s?bin/[^/]+")


def prefix_length(words: tuple[str, ...]) -> int:
    """How many words to offer for trust; 0 for none."""
    first = words[0]
    program = _name(first)
    following = words[1] if len(words) > 1 else ""
    if "/" in first and not _SYSTEM.fullmatch(first):
        return 0
    if program in _SUBCOMMANDS:
        return 2 if following in _SUBCOMMANDS[program] else 0
    return 1 if program in _PLAIN else 0


def prefix_covers(prefix: tuple[str, ...], words: tuple[str, ...]) -> bool:
    """Whether the words begin with the prefix, and what follows is nothing that would run something else."""
    if words[: len(prefix)] != prefix:
        return False
    if _name(prefix[0]) == "git" and not _MERGES.isdisjoint(prefix[1:2]):
        return not any(_STRATEGY.fullmatch(word) for word in words[len(prefix) :])
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
    if program == "uv" and len(prefix) > 2:
        return _options(prefix[2:])
    if program in _INTERPRETERS and prefix[1:2] == ("-m",) and len(prefix) > 2:
        return _OPTIONS.get(prefix[2])
    return _OPTIONS.get(program)


def _name(program: str) -> str:
    """What a program is called, without its path and its version: python for /usr/bin/python3.12."""
    name = program_name(program)
    return name if name in _PLAIN else _VERSION.sub("", name) or name
