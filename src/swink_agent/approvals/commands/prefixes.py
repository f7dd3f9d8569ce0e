"""Decides which first words of a command a person may trust for a session, and what that trust covers.

Trusting a prefix means trusting everything that follows it. It is therefore offered only for listed programs whose
later words are data: never for programs that run what their words name or contain, and never for names that mean a text
or a file of the folder (`npm run x`, `make x`, `./x`), which a model can write.

Test runners and builds are not listed, because they run the project's code, which a model can write. Neither are
programs of an environment in the folder, programs that look for their parts there first (`python -m`), or checkers that
load plugins from the project's settings. A user who wants them unasked writes a rule. If a person trusts such a prefix
by hand, that does not cover options that would run something else.
"""

from __future__ import annotations

import re

from .denied import program_name
from .shell_words import names

_VERSION = re.compile(r"[-.]?\d[\d.]*[a-z]?$")

# No option of these runs anything.
_PLAIN = names(
    "basename black cat chmod clang-format cmp comm cp cut date df dirname du echo gofmt head isort jq ln ls "
    "md5sum mkdir mv nl paste readlink realpath rm rmdir ruff sha256sum shellcheck stat tail touch tr tsc "
    "uniq wc yamllint"
)
# These run the script that is named first; later words are arguments of the script.
_INTERPRETERS = names("node nodejs perl php pypy python ruby")
# Not offered for git commands that fetch (--upload-pack names a program), bisect, rebase (--exec) or configure.
_SUBCOMMANDS = {
    "git": names(
        "add blame branch checkout cherry-pick clean commit diff log merge mv reset restore revert rm show "
        "stash status switch tag worktree"
    ),
    "go": names("build fmt vet"),
}
# Options of git that start another program or write a named file, in any abbreviation. Git runs an unknown merge
# strategy as a program of that name.
_GIT_DOES_MORE = re.compile(
    r"--(ou(t(p(u(t(?!-indicator).*)?)?)?)?|ext(-.*|cmd.*)?|exe.*|s(t(r.*)?)?|upl.*|rec(e.*)?|open.*|show-si.*)(=.*)?"
    r"|--(format|pretty)=.*%[-+ ]?G.*",
    re.DOTALL,
)
# The same as letters, by subcommand: those that do more, and those after which the rest of the word is a value.
_GIT_LETTERS = {
    "merge": ("s", "mFXS"),
    "pull": ("s", "XSj"),
    "rebase": ("sx", "XSC"),
    "cherry-pick": ("s", "mXS"),
    "revert": ("s", "mXS"),
    "grep": ("O", "efABCm"),
    "difftool": ("x", "tGSUO"),
    "clone": ("cu", "bjo"),
}

_PYTEST = (
    "-[qvxslh]+|-[qvxs]*[kmr].*|-n.*|--(tb|maxfail|lf|last-failed|ff|failed-first|durations|collect-only|co|no-header"
    "|cov|cov-report|timeout|disable-warnings|showlocals|verbose|quiet|exitfirst|capture|color|stepwise|sw|nf)(=.*)?"
)
# The options that trust given by hand covers, before a `--`. For other programs it covers all options, except those of
# git in `does_more`.
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
# Folders in which a program is the usual one of its name.
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
    """Whether the words begin with the prefix and nothing after it would run something else."""
    if words[: len(prefix)] != prefix or does_more(words, len(prefix)):
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


def has_known_options(prefix: tuple[str, ...]) -> bool:
    """Whether trust in the prefix covers only options that are listed here. A rule would cover all options."""
    return _options(prefix) is not None


def does_more(words: tuple[str, ...], start: int) -> bool:
    """Whether options from `start` on make a git command start another program or write a named file.

    A user who allows `git merge` allows a merge, not the program that `-s` names.
    """
    if start < 2 or _name(words[0]) != "git":
        return False
    running, valued = _GIT_LETTERS.get(words[1], ("", ""))
    cluster = re.compile(rf"-[^-{valued}{running}]*[{running}]") if running else None
    return any(
        _GIT_DOES_MORE.fullmatch(word) or (cluster is not None and not word.startswith("--") and cluster.match(word))
        for word in words[start:]
    )


def _options(prefix: tuple[str, ...]) -> str | None:
    program = _name(prefix[0])
    if program == "uv" and len(prefix) > 2:
        return _options(prefix[2:])
    if program in _INTERPRETERS and prefix[1:2] == ("-m",) and len(prefix) > 2:
        return _OPTIONS.get(prefix[2])
    return _OPTIONS.get(program)


def _name(program: str) -> str:
    """The program's name without its path and version: python for /usr/bin/python3.12."""
    name = program_name(program)
    return name if name in _PLAIN else _VERSION.sub("", name) or name
