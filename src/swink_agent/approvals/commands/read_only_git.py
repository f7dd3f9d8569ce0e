"""The git commands that only read, with their options.

This is git's part of the table in `read_only`. `git_settings` checks what git does by itself because of its settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from .reading import ReadOnly, reads


def _git(shows: Literal["names", "remotes", "log", "contents"], *options: str, **more: Any) -> ReadOnly:
    return reads(*options, git=shows, **more)


_DIFF = (
    " --abbrev --cached --check --color --color-words --compact-summary --diff-algorithm --diff-filter --dirstat"
    " --exit-code --find-renames --full-index --function-context --histogram --ignore-all-space --ignore-blank-lines"
    " --ignore-space-at-eol --ignore-space-change --inter-hunk-context --merge-base --minimal --name-only --name-status"
    " --no-color --no-ext-diff --no-patch --no-prefix --no-renames --no-textconv --numstat --patch --patch-with-stat"
    " --patience --pickaxe-all --pickaxe-regex --raw --relative --shortstat --staged --stat --summary --text --unified"
    " --word-diff --word-diff-regex"
)
_LOG = _DIFF + (
    " --abbrev-commit --after --all --all-match --author --before --branches --committer --date --date-order --decorate"
    " --first-parent --follow --full-history --graph --grep --invert-grep --left-right --max-count --merges"
    " --no-decorate --no-merges --oneline --parents --perl-regexp --regexp-ignore-case --reverse"
    " --simplify-by-decoration --since --skip --source --tags --topo-order --until"
)
# The placeholders of a signature make git run gpg.
_SIGNATURE = "%[-+ ]?G"
_SORTED_BY_SIGNATURE = "signature"

GIT: Mapping[str, ReadOnly] = MappingProxyType(
    {
        # Git, if the repository's own settings name no program: see docs/approvals.md.
        "git status": _git(
            "names",
            "bsuz",
            "",
            "--branch --column --ignored --long --no-column --no-renames --porcelain --renames --short --show-stash"
            " --untracked-files -uall -uno -unormal",
        ),
        "git diff": _git("contents", "abpRswz", "GSUlMC", _DIFF),
        "git log": _git("log", "abcgipsrtwz", "nGSULMC", _LOG + " --format --pretty", numbers=True, never=_SIGNATURE),
        "git show": _git("contents", "abpsrtwz", "GSULMC", _LOG + " --format --pretty", never=_SIGNATURE),
        "git shortlog": _git("names", "ecns", "", "--all --email --numbered --since --summary --until --no-merges"),
        "git rev-list": _git("names", "", "n", _LOG + " --count", numbers=True),
        "git blame": _git(
            "contents", "bcefklnpstw", "LMC", "--abbrev --color-lines --date --line-porcelain --porcelain --show-email"
        ),
        "git grep": _git(
            "contents",
            "acEFGhHIilLnoPpqvWwz",
            "ABCem",
            "--after-context --all-match --and --before-context --break --cached --color --column --context --count"
            " --extended-regexp --files-with-matches --files-without-match --fixed-strings --function-context --heading"
            " --ignore-case --invert-match --line-number --max-depth --name-only --no-color --not --only-matching --or"
            " --perl-regexp --quiet --show-function --untracked --word-regexp",
        ),
        "git ls-files": _git(
            "names", "cdikmostuvz", "x", "--cached --deleted --exclude-standard --ignored --modified --others --stage"
        ),
        "git ls-tree": _git("names", "dlrtz", "", "--abbrev --full-name --full-tree --long --name-only --name-status"),
        "git cat-file": _git("contents", "pste"),
        "git describe": _git(
            "names", "", "", "--abbrev --all --always --contains --dirty --exact-match --long --match --tags"
        ),
        "git merge-base": _git("names", "a", "", "--all --fork-point --independent --is-ancestor --octopus"),
        "git rev-parse": _git(
            "names",
            "",
            "",
            "--abbrev-ref --absolute-git-dir --git-dir --is-bare-repository --is-inside-work-tree --short --show-prefix"
            " --show-toplevel --symbolic-full-name --verify",
        ),
        "git reflog": _git("names", operands=None),
        "git reflog show": _git("names", "", "n", "--all --date --max-count", numbers=True),
        "git stash list": _git("names", operands=None),
        "git stash show": _git(
            "contents", "pu", "", "--include-untracked --name-only --name-status --numstat --patch --stat"
        ),
        "git worktree list": _git("names", "v", "", "--porcelain --verbose", operands=None),
        "git branch": _git(
            "names", "arv", "", "--all --color --no-color --remotes --show-current --verbose", operands=None
        ),
        "git branch --list": _git(
            "names", "arv", "", "--all --color --no-color --remotes --sort --verbose", never=_SORTED_BY_SIGNATURE
        ),
        "git tag": _git("names", "", "n", "--sort", operands=None, never=_SORTED_BY_SIGNATURE),
        **dict.fromkeys(
            ("git tag --list", "git tag -l"),
            _git("names", "", "n", "--contains --merged --no-merged --points-at --sort", never=_SORTED_BY_SIGNATURE),
        ),
        "git remote": _git("names", operands=None),
        **dict.fromkeys(("git remote -v", "git remote --verbose"), _git("remotes", operands=None)),
        "git remote get-url": _git("remotes", "", "", "--all --push", operands=r"[\w./-]+"),
        # `git config` is not here: the user's own settings may contain tokens.
        "git show-ref": _git("names", "dhs", "", "--abbrev --hash --heads --tags --verify"),
        "git count-objects": _git("names", "vH", "", "--human-readable --verbose", operands=None),
        "git check-ignore": _git("names", "nqv", "", "--no-index --non-matching --quiet --verbose"),
    }
)
