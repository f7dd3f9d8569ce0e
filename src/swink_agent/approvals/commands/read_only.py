"""Which commands only read, option by option.

Owns the table behind `CommandRules.standard()`. An entry names every option with which its program is known to read
and print and nothing else; an option that is not named is asked about, so one that a later version adds is too. Left
out are programs that run others (env, xargs, less, man), write a file (tee), or load code of the folder they are called
in (npm, cargo, go, make).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from types import MappingProxyType

from ..display import safe_display
from .read_only_git import GIT
from .reading import Form, ReadOnly, reads
from .shell_words import Word
from .small_languages import is_reading_awk, is_reading_jq, is_reading_printf, is_reading_sed, is_reading_test

__all__ = ["READ_ONLY"]


# -- forms ---------------------------------------------------------------------------------------------------


def _sed_form(words: tuple[Word, ...]) -> str | None:
    """A script first, or behind each `-e`; then files."""
    scripts = [after for before, after in pairwise(words) if re.fullmatch("-[nErs]*e", before.text)]
    scripts += [Word(match[1]) for word in words if (match := re.match("-[nErs]*e((?s:.+))", word.text))]
    if not scripts:
        scripts = [word for word in words if not word.text.startswith("-")][:1]
    return _script_problem(scripts, is_reading_sed)


def _awk_form(words: tuple[Word, ...]) -> str | None:
    """A program behind the options, each of which is whole or has its value in the next word; then files."""
    position = 0
    while position < len(words) and words[position].text.startswith("-"):
        text = words[position].text
        value = text[2:] or (words[position + 1].text if position + 1 < len(words) else "")
        if text.startswith("-v") and not re.fullmatch(r"([a-z_][a-z0-9_]*|O?[FR]S)=(?s:.*)", value):
            return f"with {safe_display(value, 60)} it may do more than read"
        position += 1 if text[2:] else 2
    files = words[position + 1 :]
    if any(re.match("-|[A-Za-z_][A-Za-z0-9_]*=", word.text) for word in files):
        return "it is given more than a program and files"
    return _script_problem(list(words[position : position + 1]), is_reading_awk)


def _jq_form(words: tuple[Word, ...]) -> str | None:
    """No word of it loads another file, whichever of them is the program."""
    operands = [word for word in words if not word.text.startswith("-")]
    if any(word.pattern is not None for word in operands[:1]) or (
        any(word.pattern is not None for word in operands) and any(word.text.startswith("--arg") for word in words)
    ):
        return "its program is put together"
    bad = next((word for word in words if not is_reading_jq(word.text)), None)
    return None if bad is None else f"with {safe_display(bad.text, 60)} it may read more than its input"


def _script_problem(scripts: list[Word], is_reading: Callable[[str], bool]) -> str | None:
    if not scripts:
        return "it has no program"
    for script in scripts:
        if script.pattern is not None or not is_reading(script.text):
            return f"with {safe_display(script.text, 60)} it may do more than read"
    return None


def _test_form(words: tuple[Word, ...]) -> str | None:
    return None if is_reading_test(tuple(word.text for word in words)) else "what it tests is not read here"


def _bracket_form(words: tuple[Word, ...]) -> str | None:
    if not words or words[-1].text != "]":
        return "it has no end"
    return _test_form(words[:-1])


def _printf_form(words: tuple[Word, ...]) -> str | None:
    if words and words[0].pattern is None and is_reading_printf(tuple(word.text for word in words)):
        return None
    return "with such a format it may set variables"


def _one_input(valued: str) -> Form:
    """For programs that write their second operand, and take whatever follows the first one for it."""

    def form(words: tuple[Word, ...]) -> str | None:
        is_value = False
        for word in words[:-1]:
            if not is_value and (not word.text.startswith("-") or word.text in ("-", "--")):
                return "it may write what follows its first file"
            is_value = not is_value and word.text[-1] in valued and len(word.text) == 2
        return None if not words or words[-1].pattern is None else "it may write its second file"

    return form


def _archive_form(words: tuple[Word, ...]) -> str | None:
    names = [word.text for word in words]
    if not re.fullmatch("-?t[zjJv]*f", names[0] if names else "") or not all(
        re.fullmatch("[^-:][^:]*", name) for name in names[1:]
    ):
        return "only tar tf and the file is known to only read"
    return None


# -- options -------------------------------------------------------------------------------------------------

_HELP = " --help --version"
_TESTS = "-a -b -c -d -e -f -g -G -h -k -L -n -N -O -p -r -s -S -u -w -x -z -nt -ot -ef -eq -ne -lt -le -gt -ge"

READ_ONLY: Mapping[str, ReadOnly] = MappingProxyType(
    {
        # files
        "ls": reads(
            "1AaBCcdFfGgHhiklLmNnopqQRrSsTtUuvXxZ",
            "I",
            "--all --almost-all --classify --color --directory --full-time --group-directories-first --human-readable"
            " --ignore --inode --recursive --reverse --size --sort --time --time-style" + _HELP,
            patterns=True,
            follows="L",
        ),
        "cat": reads(
            "AbEensTtuv", "", "--number --number-nonblank --show-all --squeeze-blank" + _HELP, patterns=True, filters=0
        ),
        "head": reads("qvz", "nc", "--bytes --lines --quiet --verbose" + _HELP, numbers=True, patterns=True, filters=0),
        "tail": reads("qvz", "nc", "--bytes --lines --quiet --verbose" + _HELP, numbers=True, patterns=True, filters=0),
        "wc": reads("clmwL", "", "--bytes --chars --lines --max-line-length --words" + _HELP, patterns=True, filters=0),
        "nl": reads("p", "bdfhilnsvw", _HELP, patterns=True, filters=0),
        "cut": reads(
            "sn",
            "bcdf",
            "--bytes --characters --complement --delimiter --fields --output-delimiter" + _HELP,
            patterns=True,
            filters=0,
        ),
        "sort": reads(
            "bCcdfghiMnRrsuVz",
            "kt",
            "--check --dictionary-order --field-separator --general-numeric-sort --human-numeric-sort --ignore-case"
            " --ignore-leading-blanks --key --month-sort --numeric-sort --reverse --stable --unique --version-sort"
            + _HELP,
            filters=0,
        ),
        "diff": reads(
            "abBcdeEiNnpqrstTuwyZ",
            "CUWx",
            "--brief --color --context --exclude --ignore-all-space --ignore-blank-lines --ignore-case --new-file"
            " --recursive --side-by-side --suppress-common-lines --unified --width" + _HELP,
            numbers=True,
            follows="",
        ),
        "cmp": reads("bls", "in", "--bytes --print-bytes --quiet --silent --verbose" + _HELP, patterns=True),
        "comm": reads("123z", "", "--check-order --nocheck-order --total" + _HELP, patterns=True),
        "stat": reads("Lt", "c", "-f --dereference --file-system --format --printf --terse" + _HELP, patterns=True),
        "file": reads("bhiLN", "F", "--brief --dereference --mime --mime-encoding --mime-type" + _HELP),
        # tree reads on behind a letter with a value, so these stand alone
        "tree": reads(
            "aACdDfFgGhilnNpqQrstuUvx",
            "",
            "-I -L -P --dirsfirst --du --filelimit --gitignore --noreport --prune",
            follows="l",
        ),
        "du": reads(
            "abcDhHkLlmPSsx",
            "dt",
            "--dereference --all --apparent-size --bytes --exclude --human-readable --max-depth --summarize" + _HELP,
            patterns=True,
            follows="L --dereference",
        ),
        "df": reads("aHhiklmPT", "t", "--human-readable --inodes --local --print-type --total" + _HELP),
        "od": reads(
            "abcdfiloxsv",
            "AjNtw",
            "--address-radix --format --read-bytes --skip-bytes" + _HELP,
            patterns=True,
            filters=0,
        ),
        "readlink": reads("efmnqsvz", "", "--canonicalize --canonicalize-existing --no-newline" + _HELP, patterns=True),
        "realpath": reads("eLmPqsz", "", "--relative-base --relative-to" + _HELP, patterns=True),
        **{
            name: reads("btz", "", "--tag" + _HELP, patterns=True, filters=0)
            for name in ("b2sum", "cksum", "md5sum", "sha1sum", "sha256sum", "sha512sum")
        },
        # looking for things
        "grep": reads(
            "abcEFGHhIiLlnoPqRrsTUvwxyZz",
            "ABCDdefm",
            "--after-context --before-context --binary-files --byte-offset --context --count --exclude --exclude-dir"
            " --exclude-from --extended-regexp --file --files-with-matches --files-without-match --fixed-strings"
            " --ignore-case --include --invert-match --line-number --line-regexp --max-count"
            " --no-filename --no-messages"
            " --null --only-matching --perl-regexp --quiet --recursive --regexp --text --with-filename --word-regexp"
            " --color --colour" + _HELP,
            numbers=True,
            patterns=True,
            follows="R --dereference-recursive",
            filters=1,
        ),
        "rg": reads(
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
            " --with-filename --word-regexp --version --follow",
            follows="L --follow",
            filters=1,
        ),
        "find": reads(
            "HLP",
            "",
            "-a -amin -and -anewer -atime -cmin -cnewer -ctime -daystart -depth -empty -executable -false"
            " -follow -group"
            " -iname -ilname -inum -ipath -iregex -iwholename -links -lname -ls -maxdepth -mindepth -mmin -mount -mtime"
            " -name -newer -newermt -newerct -newerat -nogroup -not -nouser -o -or -path -perm -print -print0 -printf"
            " -prune -quit -readable -regex -regextype -samefile -size -true -type -uid -user -wholename"
            " -writable -xdev" + _HELP,
            numbers=True,
            follows="L -follow",
        ),
        "which": reads("as", "", "--all", paths=False),
        "type": reads("aftpP", "", "", paths=False),
        "command -v": reads(operands=r"[\w.+-]+", paths=False),
        # languages of their own, of which a part only reads
        "sed": reads("nErs", "e", _HELP, form=_sed_form, filters=1),
        "awk": reads("", "Fv", _HELP, form=_awk_form, filters=1),
        "test": reads(options=_TESTS, operands="(?s:.*)", form=_test_form),
        "[": reads(options=_TESTS, operands="(?s:.*)", form=_bracket_form),
        "printf": reads("".join(map(chr, range(33, 127))), form=_printf_form, paths=False),
        # one file or what is piped, with little to it
        "uniq": reads(
            "cdDiuz",
            "fsw",
            "--count --repeated --all-repeated --ignore-case --unique --skip-fields --skip-chars" + _HELP,
            form=_one_input("fsw"),
            filters=0,
        ),
        "xxd": reads("bEeipu", "cgls", "-ps", form=_one_input("cgls"), filters=0),
        "tr": reads(
            "cCdst", "", "--complement --delete --squeeze-repeats --truncate-set1" + _HELP, paths=False, filters=2
        ),
        "column": reads("tnxJe", "sco", "--table --separator --output-separator" + _HELP, patterns=True, filters=0),
        "paste": reads("sz", "d", "--delimiters --serial" + _HELP, patterns=True, filters=0),
        "join": reads("iz", "12aejotv", "--header --ignore-case" + _HELP, patterns=True),
        "fold": reads("bs", "w", "--bytes --spaces --width" + _HELP, patterns=True, filters=0),
        "fmt": reads("cstu", "w", "--split-only --width" + _HELP, patterns=True, filters=0),
        "expand": reads("i", "t", "--initial --tabs" + _HELP, patterns=True, filters=0),
        "tac": reads("br", "s", "--before --regex --separator" + _HELP, patterns=True, filters=0),
        "rev": reads("", "", _HELP, patterns=True, filters=0),
        "hexdump": reads("bcCdovx", "ns", "--canonical --length --skip", filters=0),
        "strings": reads("a", "nt", "--all --bytes --radix" + _HELP, operands="[^@].*", numbers=True, filters=0),
        "zcat": reads("", "", _HELP, patterns=True, filters=0),
        "tar": reads("tzjJvf", form=_archive_form),
        "unzip -l": reads(operands="[^-].*"),
        # data
        "jq": reads(
            "acCejMnRrSs",
            "",
            "--arg --argjson --ascii-output --color-output --compact-output --exit-status --indent --join-output"
            " --monochrome-output --null-input --raw-input --raw-output --slurp --sort-keys --stream --tab" + _HELP,
            form=_jq_form,
            filters=1,
        ),
        # words and names
        "echo": ReadOnly(harmless=True),
        "pwd": reads("LP", "", "", operands=None),
        "true": reads(operands=None),
        "false": reads(operands=None),
        "basename": reads("az", "s", "--multiple --suffix", paths=False),
        "dirname": reads("z", "", "--zero", paths=False),
        "seq": reads("w", "fs", "--equal-width --format --separator", operands=r"[0-9.]+", numbers=True),
        "date": reads(
            "Ru", "d", "--date -I -Idate -Iseconds --iso-8601 --rfc-3339 --utc", operands=r"\+.*", paths=False
        ),
        "uname": reads("amnoprsv", "", "--all" + _HELP, operands=None),
        "id": reads("Ggnru", "", _HELP, operands=None),
        "whoami": reads(operands=None),
        "nproc": reads("", "", "--all", operands=None),
        **{name: reads(operands=None) for name in ("arch", "groups", "hostname", "tty", "uptime")},
        "free": reads("bghkmtw", "", "--human", operands=None),
        "lscpu": reads(operands=None),
        "sleep": reads(operands=r"[0-9]{0,2}(\.[0-9]{1,3})?"),
        # versions; of programs that ask no file in the folder which version of themselves to be
        **{
            f"{name} --version": reads(operands=None)
            for name in ("bash", "gcc", "git", "node", "python", "python3", "tar")
        },
        "python -V": reads(operands=None),
        "python3 -V": reads(operands=None),
        "node -v": reads(operands=None),
        **GIT,
    }
)
