"""The commands that only read, with their options.

`CommandRules.standard()` uses this table. An entry lists every option with which its program is known only to read and
print. All other options are asked about, also those of later versions. Not listed are programs that run others (env
with words, xargs, less, man), write a file (tee), or load code of the current folder (npm, cargo, make).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Literal

from swink_agent.rendering.escaping import safe_display

from .reading import Form, ReadOnly, reads
from .shell_words import Word
from .small_languages import is_reading_awk, is_reading_jq, is_reading_printf, is_reading_sed, is_reading_test

# -- forms ---------------------------------------------------------------------------------------------------


def _sed_form(words: tuple[Word, ...]) -> str | None:
    """Checks for options, then a script unless there was one after `-e`, then files.

    An option after an operand is refused: not every sed sorts its words, so the operand may be the script.
    """
    is_after_operand, before = False, ""
    for word in words:
        is_option = word.text.startswith("-") and word.text != "-"
        if is_option and is_after_operand:
            return "it has an option after a script or a file"
        is_after_operand = is_after_operand or not (is_option or re.fullmatch("-[nErs]*e", before))
        before = word.text
    scripts = [after for before, after in pairwise(words) if re.fullmatch("-[nErs]*e", before.text)]
    scripts += [Word(match[1]) for word in words if (match := re.match("-[nErs]*e((?s:.+))", word.text))]
    if not scripts:
        scripts = [word for word in words if not word.text.startswith("-")][:1]
    return _script_problem(scripts, is_reading_sed)


def _awk_form(words: tuple[Word, ...]) -> str | None:
    """Checks for options that are complete or have their value in the next word, then a program, then files."""
    position = 0
    while position < len(words) and words[position].text.startswith("-"):
        text = words[position].text
        if text == "--":
            position += 1
            break
        if not re.match("-[Fv]", text):
            return None if text in _HELP.split() and len(words) == 1 else f"{safe_display(text, 60)} is not known here"
        value = text[2:] or (words[position + 1].text if position + 1 < len(words) else "")
        if text.startswith("-v") and not re.fullmatch(r"([a-z_][a-z0-9_]*|O?[FR]S)=(?s:.*)", value):
            return f"with {safe_display(value, 60)} it may do more than read"
        position += 1 if text[2:] else 2
    files = words[position + 1 :]
    # gawk uses /inet/… as a network address.
    if any(re.match("-|/inet|[A-Za-z_][A-Za-z0-9_]*=", word.text) for word in files):
        return "it is given more than a program and files"
    return _script_problem(list(words[position : position + 1]), is_reading_awk)


def _jq_form(words: tuple[Word, ...]) -> str | None:
    """Checks that no word loads another file, whichever of them is the program."""
    operands = [word for word in words if not word.text.startswith("-")]
    if any(word.pattern is not None for word in operands[:1]) or (
        any(word.pattern is not None for word in operands) and any(word.text.startswith("--arg") for word in words)
    ):
        return "its program is put together from parts"
    bad = next((word for word in words if not is_reading_jq(word.text)), None)
    return None if bad is None else f"with {safe_display(bad.text, 60)} it may read more than its input"


def _script_problem(scripts: list[Word], is_reading: Callable[[str], bool]) -> str | None:
    if not scripts:
        return "it has no program"
    for script in scripts:
        if script.pattern is not None or not is_reading(script.text):
            return f"with {safe_display(script.text, 60)} it may do more than read"
    return None


def _sleep_form(words: tuple[Word, ...]) -> str | None:
    times = [word for word in words if not word.text.startswith("-")]
    is_short = all(word.pattern is None and re.fullmatch(r"[0-9]{0,2}(\.[0-9]{1,3})?", word.text) for word in times)
    return None if is_short else "it may wait for longer than 99 seconds"


def _test_form(words: tuple[Word, ...]) -> str | None:
    return None if is_reading_test(tuple(word.text for word in words)) else "its condition is not known to only read"


def _bracket_form(words: tuple[Word, ...]) -> str | None:
    if not words or words[-1].text != "]":
        return "it has no end"
    return _test_form(words[:-1])


def _printf_form(words: tuple[Word, ...]) -> str | None:
    if words and words[0].pattern is None and is_reading_printf(tuple(word.text for word in words)):
        return None
    return "with such a format it may set variables"


def _one_input(valued: str) -> Form:
    """For programs that write their second operand, and treat any word after the first as that."""

    def form(words: tuple[Word, ...]) -> str | None:
        is_value = False
        for word in words[:-1]:
            if not is_value and (not word.text.startswith("-") or word.text in ("-", "--")):
                return "it may write what follows its first file"
            is_value = not is_value and word.text[-1] in valued and len(word.text) == 2
        return None if not words or words[-1].pattern is None else "it may write its second file"

    return form


def _archive_form(words: tuple[Word, ...]) -> str | None:
    """Checks for the operation, then names without a colon: tar uses the part before a colon as a host.

    A pattern is refused too, because it may match such a name.
    """
    names = [word.text for word in words]
    if (
        not re.fullmatch("-?t[zjJv]*f", names[0] if names else "")
        or not all(re.fullmatch("[^-:][^:]*", name) for name in names[1:])
        or any(word.pattern is not None for word in words)
    ):
        return "only tar tf and the file is known to only read"
    return None


def _ps_form(words: tuple[Word, ...]) -> str | None:
    """Checks for values of options, numbers, and letters that do not show the environment."""
    before = ""
    # If there is no user called x, ps reads every word again in BSD style, where `-e` is the environment.
    plain = [word.text for word in words if not word.text.startswith("--")]
    if len(plain) > 1 and any(text.startswith("-aux") for text in plain):
        return "with -aux and more it may show the environment of programs"
    for word in words:
        text = word.text
        if re.fullmatch("-[eAdfFljHLwyT]*o", before):
            wanted = rf"{_PS_COLUMN}(,{_PS_COLUMN})*"
        elif re.fullmatch("-[eAdfFljHLwyT]*[CpuU]|--(pid|ppid|user)", before):
            wanted = r"[\w.,-]+"
        elif re.match("-[eAdfFljHLwyT]*[oCpuU].", text) and text not in _PS.split():
            wanted = rf"-o{_PS_COLUMN}(,{_PS_COLUMN})*|-p[0-9,]+"
        elif text.startswith("-"):
            wanted = ".*"
        else:
            wanted = rf"{_PS_WORD}|[0-9]+(,[0-9]+)*"
        if not re.fullmatch(wanted, text) or word.pattern is not None:
            return f"with {safe_display(text, 60)} it may show the environment of programs"
        before = text
    return None


def _ss_form(words: tuple[Word, ...]) -> str | None:
    """Checks for numbers, states and ports. The name of a host would be looked up."""
    tokens = (token for word in words if not word.text.startswith("-") for token in re.split("[ ()]+", word.text))
    strange = next((token for token in tokens if not re.fullmatch(_SS_TOKEN, token)), None)
    return None if strange is None else f"with {safe_display(strange, 60)} it may ask the network"


def _netstat_form(words: tuple[Word, ...]) -> str | None:
    texts = [word.text for word in words]
    if "--numeric" in texts or any(re.match("-[^-]*n", text) for text in texts):
        return None
    return "without -n it asks the network for the names of hosts"


def _openssl_form(words: tuple[Word, ...]) -> str | None:
    if not any(word.text == "-noout" for word in words) or any(word.pattern is not None for word in words):
        return "only with -noout it is known to only read"
    return None


# -- options -------------------------------------------------------------------------------------------------

_HELP = " --help --version"
_PS = "-aux -auxf -auxww --sort --no-headers --forest --pid --ppid --user --version"
# Without `e`, which shows the environment of programs, and without letters that take a value.
_PS_WORD = "[axufljvwTr]+"
_PS_COLUMN = (
    "(pid|ppid|pgid|sid|user|uid|ruser|group|comm|args|cmd|command|etime|etimes|time|cputime|pcpu|%cpu|pmem|%mem|rss|vsz"
    "|stat|state|s|tty|tt|tname|start|lstart|stime|ni|nice|pri|nlwp|psr|wchan)(=[^,]*)?"
)
_PS_OPERAND = rf"{_PS_WORD}|[0-9]+(,[0-9]+)*|[\w.-]+|{_PS_COLUMN}(,{_PS_COLUMN})*"
_SS_TOKEN = (
    "|state|exclude|sport|dport|src|dst|or|and|not|eq|neq?|[lg][te]|=|==|!=|!|[<>]=?|:[a-z0-9-]+|[0-9.*/:]+"
    "|[0-9a-f]*:[0-9a-f:*/]*|all|connected|synchronized|bucket|big|established|listening|closed|close-wait|last-ack"
    "|closing|time-wait|syn-sent|syn-recv|fin-wait-[12]|inet6?|unix|link|netlink|tcp|udp|raw|packet"
)
_OPENSSL = (
    "-in -inform -noout -text -subject -issuer -dates -startdate -enddate -serial -fingerprint -hash -issuer_hash"
    " -subject_hash -pubkey -purpose -modulus -email -ocsp_uri -ext -checkend -nameopt -sha1 -sha256 -check -verify"
    " -pubin"
)
_TESTS = "-a -b -c -d -e -f -g -G -h -k -L -n -N -O -p -r -s -S -u -w -x -z -nt -ot -ef -eq -ne -lt -le -gt -ge"
_SOCKETS = "--tcp --udp --listening --numeric --all"


def _prints(flags: str, valued: str = "", options: str = "", **more: Any) -> ReadOnly:
    """A program that prints files, or its input if it is given none. No option of it writes anything."""
    return reads(flags, valued, options + _HELP, patterns=True, filters=0, **more)


def _of_binaries(flags: str, valued: str, options: str) -> ReadOnly:
    """A program that prints parts of programs and libraries; `@FILE` would be more options."""
    return reads(flags, valued, f"--demangle {options}{_HELP}", operands="[^@].*")


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
_ALONE = reads(operands=None)

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
        "cat": _prints("AbEensTtuv", "", "--number --number-nonblank --show-all --squeeze-blank"),
        "head": _prints("qvz", "nc", "--bytes --lines --quiet --verbose", numbers=True),
        "tail": _prints("qvz", "nc", "--bytes --lines --quiet --verbose", numbers=True),
        "wc": _prints("clmwL", "", "--bytes --chars --lines --max-line-length --words"),
        "nl": _prints("p", "bdfhilnsvw"),
        "cut": _prints("sn", "bcdf", "--bytes --characters --complement --delimiter --fields --output-delimiter"),
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
        # tree takes the value of a letter from the next word, so these must be separate words
        "tree": reads(
            "aACdDfFgGhilnNpqQrstuUvx",
            options="-I -L -P --dirsfirst --du --filelimit --gitignore --noreport --prune",
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
        "od": _prints("abcdfiloxsv", "AjNtw", "--address-radix --format --read-bytes --skip-bytes"),
        "readlink": reads("efmnqsvz", "", "--canonicalize --canonicalize-existing --no-newline" + _HELP, patterns=True),
        "realpath": reads("eLmPqsz", "", "--relative-base --relative-to" + _HELP, patterns=True),
        **dict.fromkeys(("b2sum", "cksum", "md5sum", "sha1sum", "sha256sum", "sha512sum"), _prints("btz", "", "--tag")),
        # searching
        "grep": reads(
            "abcEFGHhIiLlnoPqRrsTUvwxyZz",
            "ABCDdefm",
            "--after-context --before-context --binary-files --byte-offset --context --count --exclude --exclude-dir"
            " --exclude-from --extended-regexp --file --files-with-matches --files-without-match --fixed-strings"
            " --ignore-case --include --invert-match --line-number --line-regexp --max-count --no-filename"
            " --no-messages --null --only-matching --perl-regexp --quiet --recursive --regexp --text --with-filename"
            " --word-regexp --color --colour" + _HELP,
            numbers=True,
            patterns=True,
            follows="R --dereference-recursive",
            filters=1,
        ),
        "rg": reads(
            "abcFHhIiLlnNopPqSsUuvVwx0.",
            "ABCdefgjMmrTtE",
            "--after-context --before-context --color --column --context --count --count-matches --fixed-strings"
            " --files --files-with-matches --files-without-match --glob --glob-case-sensitive --heading --hidden"
            " --iglob --ignore-case --invert-match --json --line-number --line-regexp --max-columns --max-count"
            " --max-depth --max-filesize --multiline --multiline-dotall --no-config --no-filename --no-heading"
            " --no-ignore --no-ignore-vcs --no-line-number --no-messages --null --only-matching --passthru --pcre2"
            " --pretty --quiet --regexp --replace --smart-case --sort --sortr --stats --text --trim --type --type-list"
            " --type-not --vimgrep --with-filename --word-regexp --version --follow",
            follows="L --follow",
            filters=1,
        ),
        "find": reads(
            "HLP",
            "",
            "-a -amin -and -anewer -atime -cmin -cnewer -ctime -daystart -depth -empty -executable -false -follow"
            " -group -iname -ilname -inum -ipath -iregex -iwholename -links -lname -ls -maxdepth -mindepth -mmin"
            " -mount -mtime -name -newer -newermt -newerct -newerat -nogroup -not -nouser -o -or -path -perm -print"
            " -print0 -printf -prune -quit -readable -regex -regextype -samefile -size -true -type -uid -user"
            " -wholename -writable -xdev" + _HELP,
            numbers=True,
            follows="L -follow",
        ),
        "which": reads("as", "", "--all", paths=False),
        "type": reads("aftpP", paths=False),
        "command -v": reads(operands=r"[\w.+-]+", paths=False),
        # programs with a language that has a part which only reads
        "sed": reads("nErs", "e", _HELP, form=_sed_form, filters=1),
        "awk": reads("", "Fv", _HELP, form=_awk_form, filters=1),
        "test": reads(options=_TESTS, operands="(?s:.*)", form=_test_form),
        "[": reads(options=_TESTS, operands="(?s:.*)", form=_bracket_form),
        "printf": reads("".join(map(chr, range(33, 127))), form=_printf_form, paths=False),
        # filters for one file or piped input
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
        "column": _prints("tnxJe", "sco", "--table --separator --output-separator"),
        "paste": _prints("sz", "d", "--delimiters --serial"),
        "join": reads("iz", "12aejotv", "--header --ignore-case" + _HELP, patterns=True),
        "fold": _prints("bs", "w", "--bytes --spaces --width"),
        "fmt": _prints("cstu", "w", "--split-only --width"),
        "expand": _prints("i", "t", "--initial --tabs"),
        "tac": _prints("br", "s", "--before --regex --separator"),
        "rev": _prints(""),
        "hexdump": reads("bcCdovx", "ns", "--canonical --length --skip", filters=0),
        "strings": reads("a", "nt", "--all --bytes --radix" + _HELP, operands="[^@].*", numbers=True, filters=0),
        "zcat": _prints("", starts="gzip", endings=".gz .z .Z -gz -z _z .tgz .taz .tar.gz"),
        # it detects the compression by itself
        "tar": reads("tzjJvf", form=_archive_form, starts="gzip bzip2 xz zstd lzip lzma lzop compress"),
        "unzip -l": reads(operands=r"[^-*?\[][^*?\[]*", endings=".zip .ZIP"),
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
        "pwd": reads("LP", operands=None),
        **dict.fromkeys(("arch", "false", "groups", "hostname", "lscpu", "true", "tty", "uptime", "whoami"), _ALONE),
        "basename": reads("az", "s", "--multiple --suffix", paths=False, patterns=True),
        "dirname": reads("z", "", "--zero", paths=False, patterns=True),
        "seq": reads("w", "fs", "--equal-width --format --separator", operands=r"[0-9.]+", numbers=True),
        "date": reads(
            "Ru", "d", "--date -I -Idate -Iseconds --iso-8601 --rfc-3339 --utc", operands=r"\+.*", paths=False
        ),
        "uname": reads("amnoprsv", "", "--all" + _HELP, operands=None),
        "id": reads("Ggnru", "", _HELP, operands=None),
        "nproc": reads("", "", "--all", operands=None),
        "free": reads("bghkmtw", "", "--human", operands=None),
        "sleep": reads(form=_sleep_form),
        # running processes and open ports, without the environment of others
        "ps": reads("eAdfFljHLwyT", "oCpuU", _PS, operands=_PS_OPERAND, form=_ps_form, paths=False),
        "pgrep": reads(
            "aflnovxciw", "uUPgs", "--full --list-name --list-full --newest --oldest --exact --count", paths=False
        ),
        "ss": reads("tuxwlnpaemiosHh46", "fA", f"{_SOCKETS} --processes --summary", form=_ss_form, paths=False),
        "netstat": reads(
            "tuxwlnpaeirsgW46", "", f"{_SOCKETS} --programs --route", operands=None, form=_netstat_form, paths=False
        ),
        # programs and libraries, without options that show the source files which a file names
        "objdump": _of_binaries(
            "dDhxtTfpsrRCwaz",
            "jM",
            "--disassemble --section-headers --all-headers --syms --dynamic-syms --file-headers --full-contents"
            " --reloc",
        ),
        "readelf": _of_binaries(
            "ahlSsdrnVegWuAItC",
            "px",
            "--all --file-header --program-headers --section-headers --syms --dyn-syms --dynamic --relocs --notes"
            " --wide --sections --segments --headers",
        ),
        "nm": _of_binaries(
            "aABCDgopPrsSuvn",
            "ft",
            "--dynamic --extern-only --undefined-only --defined-only --print-size --size-sort --numeric-sort --no-sort"
            " --format --print-file-name",
        ),
        "size": _of_binaries("ABdoxtG", "", "--format --totals --common"),
        "openssl version": reads("abdefopvmrc", operands=None),
        **dict.fromkeys(
            ("openssl x509", "openssl req", "openssl rsa"),
            reads(options=_OPENSSL, operands=r"(?![A-Za-z][\w+.-]*:)[^-].*", form=_openssl_form),
        ),
        # packages
        **dict.fromkeys(
            [f"dpkg {option}" for option in ("-l", "-L", "-s", "--list", "--listfiles", "--status")],
            reads(operands=r"[\w.+:*?-]+", paths=False, starts="dpkg-query"),
        ),
        "apt list": reads("a", "", "--installed --upgradable --all-versions", operands=r"[\w.+*?-]+", paths=False),
        # the system's pip: it does not import from the folder
        **{
            f"{name} {what}": reads(
                "v",
                "",
                "--format --not-required --user --local --exclude --verbose --disable-pip-version-check --files",
                operands=operands,
                paths=False,
                starts="python3 python",
            )
            for name in ("pip", "pip3")
            for what, operands in (("list", None), ("show", r"[\w.-]+"))
        },
        # The command's own environment: the sandbox leaves secrets out, and printed ones are masked.
        "env": _ALONE,
        "printenv": reads(operands=r"[A-Za-z_]\w*", paths=False),
        # versions, of programs that do not let a file in the folder choose their version
        **dict.fromkeys(
            [f"{name} --version" for name in ("bash", "gcc", "git", "node", "python", "python3", "tar")], _ALONE
        ),
        **dict.fromkeys(("python -V", "python3 -V", "node -v"), _ALONE),
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

STARTERS = frozenset({"git", "xargs", *(prefix.split()[0] for prefix, check in READ_ONLY.items() if check.starts)})
"""Programs that start others, which they find by `PATH`: git those of the user's settings."""
