"""Which commands only read, option by option.

Owns the table behind `CommandRules.standard()`. An entry names every option with which its program is known to read
and print and nothing else; an option that is not named is asked about, so one that a later version adds is too. Left
out are programs that run others (env, xargs, awk, less, man), write a file named by a plain argument (tee, uniq, xxd),
or load code of the folder they are called in (npm, cargo, go, make).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from types import MappingProxyType

from swink_agent.core.value import Value

from .display import safe_display

__all__ = ["READ_ONLY", "ReadOnly"]

# Where looking tells nobody anything about the person: part of the operating system.
_PUBLIC = ("/bin", "/dev/null", "/etc/os-release", "/lib", "/lib64", "/proc/cpuinfo", "/proc/meminfo", "/usr")
_PARENT = re.compile(r"(^|[/=:]|^-[A-Za-z]+)\.\.(/|$)")
_NUMBER = re.compile(r"-[0-9]+[bcwkMG]?")
_ABSOLUTE = re.compile(r"(?:-[A-Za-z]+|-[^=]*=)?(/.*)", re.DOTALL)


class ReadOnly(Value, frozen=True, kw_only=True):
    """What a command that only reads may be given."""

    flags: str = ""
    """One-letter options without a value; they may stand together: `-la`."""
    valued: str = ""
    """One-letter options whose value is the rest of the word, or the next word."""
    options: frozenset[str] = frozenset()
    """Longer options, whole: `--stat`, also as `--stat=…`, and `-name` for programs that have such."""
    numbers: bool = False
    """Whether `-20` is an option or a value here."""
    operands: str | None = ".*"
    """What a word that is no option must be like; `None`: there are none."""
    first: str | None = None
    """What the first word must be like, where it is a program of its own."""
    never: str | None = None
    """What no word may have in it."""
    harmless: bool = False
    """Whether no word at all makes it do more than print."""
    paths: bool = True
    """Whether words name files: those outside of the folder are asked about."""

    def problem(self, words: tuple[str, ...], folder: str | None) -> str | None:
        """Why the command with these further words is not known to only read, or `None`."""
        if self.harmless:
            return None
        if self.first is not None and not (words and re.fullmatch(self.first, words[0])):
            return f"with {safe_display(words[0], 60) if words else 'nothing more'} it may do more than read"
        for word in words:
            shown = safe_display(word, 60)
            if self.never is not None and re.search(self.never, word):
                return f"with {shown} it may run another program"
            if word.startswith("-") and word != "-":
                if not self._has_option(word):
                    return f"{shown} is not among its options that only read"
            elif self.operands is None or not re.fullmatch(self.operands, word, re.DOTALL):
                return f"with {shown} it may do more than read"
            if self.paths and _leads_outside(word, folder):
                return f"{shown} leads out of the folder"
        return None

    def _has_option(self, word: str) -> bool:
        # What follows `--` is looked at all the same: it may have been the value of the option before it.
        if word == "--":
            return True
        name = word.partition("=")[0] if word.startswith("--") else word
        if name in self.options or (self.numbers and _NUMBER.fullmatch(word)):
            return True
        if word.startswith("--"):
            return False
        for letter in word[1:]:
            if letter in self.valued:
                return True
            if letter not in self.flags:
                return False
        return True


def _leads_outside(word: str, folder: str | None) -> bool:
    """Whether the word names a file elsewhere, as far as its text tells: links are the sandbox's business."""
    if _PARENT.search(word):
        return True
    named = _ABSOLUTE.fullmatch(word)
    if named is None:
        return False
    path = named[1]
    roots = _PUBLIC if folder is None else (*_PUBLIC, folder)
    if any(path == root or path.startswith(f"{root.rstrip('/')}/") for root in roots):
        return False
    # A pattern to look for may begin with a slash too, and then names nothing that is there.
    first = path.lstrip("/").partition("/")[0]
    return not first or os.path.lexists(f"/{first}")


def _reads(
    flags: str = "",
    valued: str = "",
    options: str = "",
    *,
    numbers: bool = False,
    operands: str | None = ".*",
    first: str | None = None,
    never: str | None = None,
    paths: bool = True,
) -> ReadOnly:
    return ReadOnly(
        flags=flags,
        valued=valued,
        options=frozenset(options.split()),
        numbers=numbers,
        operands=operands,
        first=first,
        never=never,
        paths=paths,
    )


_HELP = " --help --version"
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
    " --first-parent --follow --full-history --graph --grep --invert-grep --left-right --max-count"
    " --merges --no-decorate"
    " --no-merges --oneline --parents --perl-regexp --regexp-ignore-case --reverse --simplify-by-decoration"
    " --since --skip"
    " --source --tags --topo-order --until"
)
# The placeholders of a signature make git run gpg.
_SIGNATURE = "%[-+ ]?G"
_LINES = r"([0-9]+|\$)(,\+?[0-9]+|,\$)?p"

READ_ONLY: Mapping[str, ReadOnly] = MappingProxyType(
    {
        # files
        "ls": _reads(
            "1AaBCcdFfGgHhiklLmNnopqQRrSsTtUuvXxZ",
            "I",
            "--all --almost-all --classify --color --directory --full-time --group-directories-first --human-readable"
            " --ignore --inode --recursive --reverse --size --sort --time --time-style" + _HELP,
        ),
        "cat": _reads("AbEensTtuv", "", "--number --number-nonblank --show-all --squeeze-blank" + _HELP),
        "head": _reads("qvz", "nc", "--bytes --lines --quiet --verbose" + _HELP, numbers=True),
        "tail": _reads("qvz", "nc", "--bytes --lines --quiet --verbose" + _HELP, numbers=True),
        "wc": _reads("clmwL", "", "--bytes --chars --lines --max-line-length --words" + _HELP),
        "nl": _reads("p", "bdfhilnsvw", _HELP),
        "cut": _reads(
            "sn", "bcdf", "--bytes --characters --complement --delimiter --fields --output-delimiter" + _HELP
        ),
        "sort": _reads(
            "bCcdfghiMnRrsuVz",
            "kt",
            "--check --dictionary-order --field-separator --general-numeric-sort --human-numeric-sort --ignore-case"
            " --ignore-leading-blanks --key --month-sort --numeric-sort --reverse --stable --unique --version-sort"
            + _HELP,
        ),
        "diff": _reads(
            "abBcdeEiNnpqrstTuwyZ",
            "CUWx",
            "--brief --color --context --exclude --ignore-all-space --ignore-blank-lines --ignore-case --new-file"
            " --recursive --side-by-side --suppress-common-lines --unified --width" + _HELP,
            numbers=True,
        ),
        "cmp": _reads("bls", "in", "--bytes --print-bytes --quiet --silent --verbose" + _HELP),
        "comm": _reads("123z", "", "--check-order --nocheck-order --total" + _HELP),
        "stat": _reads("Lt", "c", "-f --dereference --file-system --format --printf --terse" + _HELP),
        "file": _reads("bhiLN", "F", "--brief --dereference --mime --mime-encoding --mime-type" + _HELP),
        # tree reads on behind a letter with a value, so these stand alone
        "tree": _reads(
            "aACdDfFgGhilnNpqQrstuUvx", "", "-I -L -P --dirsfirst --du --filelimit --gitignore --noreport --prune"
        ),
        "du": _reads(
            "abcDhHkLlmPSsx",
            "dt",
            "--all --apparent-size --bytes --exclude --human-readable --max-depth --summarize" + _HELP,
        ),
        "df": _reads("aHhiklmPT", "t", "--human-readable --inodes --local --print-type --total" + _HELP),
        "od": _reads("abcdfiloxsv", "AjNtw", "--address-radix --format --read-bytes --skip-bytes" + _HELP),
        "readlink": _reads("efmnqsvz", "", "--canonicalize --canonicalize-existing --no-newline" + _HELP),
        "realpath": _reads("eLmPqsz", "", "--relative-base --relative-to" + _HELP),
        **{
            name: _reads("bctwz", "", "--check --ignore-missing --quiet --status --tag" + _HELP)
            for name in ("cksum", "md5sum", "sha1sum", "sha256sum", "sha512sum")
        },
        # looking for things
        "grep": _reads(
            "abcEFGHhIiLlnoPqRrsTUvwxyZz",
            "ABCDdefm",
            "--after-context --before-context --binary-files --byte-offset --context --count --exclude --exclude-dir"
            " --exclude-from --extended-regexp --file --files-with-matches --files-without-match --fixed-strings"
            " --ignore-case --include --invert-match --line-number --line-regexp --max-count"
            " --no-filename --no-messages"
            " --null --only-matching --perl-regexp --quiet --recursive --regexp --text --with-filename --word-regexp"
            " --color --colour" + _HELP,
            numbers=True,
        ),
        "rg": _reads(
            "abcFHhIiLlnNopPqSsUuvVwx0.",
            "ABCdefgjMmrTtE",
            "--after-context --before-context --color --column --context --count --count-matches"
            " --fixed-strings --files"
            " --files-with-matches --files-without-match --glob --glob-case-sensitive --heading --hidden --iglob"
            " --ignore-case --invert-match --json --line-number --line-regexp --max-columns --max-count --max-depth"
            " --max-filesize --multiline --multiline-dotall --no-config --no-filename --no-heading --no-ignore"
            " --no-ignore-vcs --no-line-number --no-messages --null --only-matching --passthru --pcre2 --pretty --quiet"
            " --regexp --replace --smart-case --sort --sortr --stats --text --trim --type --type-list"
            " --type-not --vimgrep"
            " --with-filename --word-regexp --version",
        ),
        "find": _reads(
            "HLP",
            "",
            "-a -amin -and -anewer -atime -cmin -cnewer -ctime -daystart -depth -empty -executable -false"
            " -follow -group"
            " -iname -ilname -inum -ipath -iregex -iwholename -links -lname -ls -maxdepth -mindepth -mmin -mount -mtime"
            " -name -newer -newermt -newerct -newerat -nogroup -not -nouser -o -or -path -perm -print -print0 -printf"
            " -prune -quit -readable -regex -regextype -samefile -size -true -type -uid -user -wholename"
            " -writable -xdev" + _HELP,
            numbers=True,
        ),
        "which": _reads("as", "", "--all", paths=False),
        "type": _reads("aftpP", "", "", paths=False),
        # lines of a file: sed's own language can write files and run programs, a range of lines cannot
        "sed -n": _reads(first=f"{_LINES}(;{_LINES})*"),
        # data
        "jq": _reads(
            "acCejMnRrSs",
            "",
            "--arg --argjson --ascii-output --color-output --compact-output --exit-status --join-output"
            " --monochrome-output --null-input --raw-input --raw-output --slurp --sort-keys --tab" + _HELP,
        ),
        # words and names
        "echo": ReadOnly(harmless=True),
        "pwd": _reads("LP", "", "", operands=None),
        "true": _reads(operands=None),
        "false": _reads(operands=None),
        "basename": _reads("az", "s", "--multiple --suffix", paths=False),
        "dirname": _reads("z", "", "--zero", paths=False),
        "seq": _reads("w", "fs", "--equal-width --format --separator", operands=r"[0-9.]+", numbers=True),
        "date": _reads("Ru", "", "-I -Idate -Iseconds --iso-8601 --rfc-3339 --utc", operands=r"\+.*", paths=False),
        "uname": _reads("amnoprsv", "", "--all" + _HELP, operands=None),
        "id": _reads("Ggnru", "", _HELP, operands=None),
        "whoami": _reads(operands=None),
        "nproc": _reads("", "", "--all", operands=None),
        # versions; of programs that ask no file in the folder which version of themselves to be
        **{
            f"{name} --version": _reads(operands=None)
            for name in ("bash", "gcc", "git", "node", "python", "python3", "tar")
        },
        "python -V": _reads(operands=None),
        "python3 -V": _reads(operands=None),
        "node -v": _reads(operands=None),
        # git, as far as the repository's own settings name no program: see docs/approvals.md
        "git status": _reads(
            "bsuvz",
            "",
            "--branch --column --ignored --long --no-column --no-renames --porcelain --renames --short --show-stash"
            " --untracked-files -uall -uno -unormal --verbose",
        ),
        "git diff": _reads("abpRswz", "GSUlMC", _DIFF),
        "git log": _reads("abcgipsrtwz", "nGSULMC", _LOG + " --format --pretty", numbers=True, never=_SIGNATURE),
        "git show": _reads("abpsrtwz", "GSULMC", _LOG + " --format --pretty", never=_SIGNATURE),
        "git shortlog": _reads("ecns", "", "--all --email --numbered --since --summary --until --no-merges"),
        "git rev-list": _reads("", "n", _LOG + " --count", numbers=True),
        "git blame": _reads(
            "bcefklnpstw", "LMC", "--abbrev --color-lines --date --line-porcelain --porcelain --show-email"
        ),
        "git grep": _reads(
            "acEFGhHIilLnoPpqvWwz",
            "ABCem",
            "--after-context --all-match --and --before-context --break --cached --color --column --context --count"
            " --extended-regexp --files-with-matches --files-without-match --fixed-strings --function-context --heading"
            " --ignore-case --invert-match --line-number --max-depth --name-only --no-color --not --only-matching --or"
            " --perl-regexp --quiet --show-function --untracked --word-regexp",
        ),
        "git ls-files": _reads(
            "cdikmostuvz", "x", "--cached --deleted --exclude-standard --ignored --modified --others --stage"
        ),
        "git ls-tree": _reads("dlrtz", "", "--abbrev --full-name --full-tree --long --name-only --name-status"),
        "git cat-file": _reads("pste"),
        "git describe": _reads(
            "", "", "--abbrev --all --always --contains --dirty --exact-match --long --match --tags"
        ),
        "git merge-base": _reads("a", "", "--all --fork-point --independent --is-ancestor --octopus"),
        "git rev-parse": _reads(
            "",
            "",
            "--abbrev-ref --absolute-git-dir --git-dir --is-bare-repository --is-inside-work-tree --short --show-prefix"
            " --show-toplevel --symbolic-full-name --verify",
        ),
        "git reflog": _reads(operands=None),
        "git reflog show": _reads("", "n", "--all --date --max-count", numbers=True),
        "git stash list": _reads(operands=None),
        "git stash show": _reads("pu", "", "--include-untracked --name-only --name-status --numstat --patch --stat"),
        "git worktree list": _reads("v", "", "--porcelain --verbose", operands=None),
        "git branch": _reads("arv", "", "--all --color --no-color --remotes --show-current --verbose", operands=None),
        "git branch --list": _reads("arv", "", "--all --color --no-color --remotes --sort --verbose"),
        "git tag": _reads("", "n", "--sort", operands=None),
        "git tag --list": _reads("", "n", "--contains --merged --no-merged --points-at --sort"),
        "git tag -l": _reads("", "n", "--contains --merged --no-merged --points-at --sort"),
    }
)
