"""Finds the programs that a command names, however it is wrapped, for deny rules.

This is a rough parser for any text. It sees through quotes, redirections, assignments, keywords and programs that run
others. It does not prove that something does not run: a name can be put together in ways that only bash can follow.
Allow rules use the strict parser in `shell_words`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from .shell_words import ASSIGNMENT, DOCUMENT, KEYWORDS, names

_SHELLS = names("ash bash busybox dash eval fish ksh mksh sh source zsh .")
# Programs that run a program or text given in their arguments. Any of their words may be one.
_RUNNERS = _SHELLS | names(
    "arch builtin bunx bwrap caffeinate catchsegv cgexec chronic chroot chrt command coproc dbus-run-session doas "
    "dotenv eatmydata entr env exec expect faketime fakeroot find firejail flock gdb hyperfine ionice ltrace "
    "machinectl nice nix-shell nocache nohup npx nsenter numactl parallel perf pkexec prlimit proxychains rlwrap "
    "run-one runcon runuser screen script setarch setpriv setsid sg socat ssh sshpass start-stop-daemon stdbuf strace "
    "su sudo systemd-inhibit systemd-run taskset time timeout tmux torsocks toybox trap tsocks unbuffer unshare uvx "
    "valgrind watch xargs xvfb-run concurrently cpulimit cross-env cross-env-shell daemonize distrobox-enter dumb-init "
    "fakechroot gchroot genv gfind gnice gnohup gosu gstdbuf gtimeout gxargs i386 ld-linux-aarch64.so "
    "ld-linux-x86-64.so ld-linux.so ld.so linux32 linux64 nodemon proot run-parts ssh-agent su-exec tini trickle "
    "watchexec x86_64"
)
# These run others after one of these words, and otherwise install or list.
_RUNNING_WORDS = {
    **dict.fromkeys(("conda", "mamba", "micromamba", "pdm", "pipenv", "pipx", "pixi", "poetry", "rye"), names("run")),
    **dict.fromkeys(("devbox", "doppler", "dotenvx", "op", "volta"), names("run")),
    **dict.fromkeys(("asdf", "aws-vault", "bundle", "direnv", "nvm", "pyenv", "rbenv", "rtx", "tox"), names("exec")),
    **dict.fromkeys(("docker", "nerdctl", "podman"), names("run exec compose")),
    **dict.fromkeys(("kubectl", "oc"), names("exec run debug")),
    "bun": names("x run exec"),
    **dict.fromkeys(("fd", "fdfind"), names("-x -X --exec --exec-batch")),
    "hatch": names("run shell"),
    "mise": names("exec x"),
    "nix": names("run shell develop"),
    "npm": names("exec x"),
    "pnpm": names("exec dlx x"),
    "uv": names("run tool x"),
    "yarn": names("dlx exec run"),
}
# Programs that run their input, or some lines of it, or pass it on to a shell.
_FED = names("at batch bmake crontab ed ex ftp gmake just lftp make nc ncat nvim psql sftp vi vim") | frozenset(
    _RUNNING_WORDS
)
# Git runs what follows one of these words.
_GIT_RUNS = names("bisect foreach difftool filter-branch hook mergetool --exec -x --tree-filter for-each-repo")
_TELLERS = names("cat echo printf")
# Files with these endings are texts or sources of other languages: a shell runs them only if a command names them.
_DATA = tuple(
    names(
        ".c .cc .cfg .cpp .cs .css .csv .diff .go .h .hpp .htm .html .ini .java .js .json .jsx .kt .log .md .mjs "
        ".patch .php .py .pyi .rb .rs .rst .scss .sql .svg .swift .tex .toml .ts .tsv .tsx .txt .xml .yaml .yml"
    )
)
# These pass the content of a file on to nothing.
_KEEPERS = names("git ls wc")
_MAY_BE_ANY_NAME = re.compile(r"[*?\[$`{]")
_FIND_RUNS = names("-exec -execdir -ok -okdir")
_ONLY_TELLS = re.compile(r"-p?[vV]")  # with these options, `command` prints what a name stands for and runs nothing
_VERSION = re.compile(r"[-.]?\d[\d.]*$")
_MORE_THAN_A_NAME = re.compile(r"[\s;&|<>(){}$`'\"\\=]")
_BRACES = re.compile(r"(.*?)\{([^{}]*,[^{}]*)\}(.*)", re.DOTALL)
_MOST_BRACES = 50
_NAMED_STREAM = re.compile(r"\{\w+\}", re.ASCII)
_GIT_ALIAS = re.compile(r"alias\.[^=]+=([^!].*)", re.DOTALL)
_ANSI = re.compile(r"\\(x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{1,4}|U[0-9A-Fa-f]{1,8}|[0-7]{1,3}|c.|.)", re.DOTALL)
_SIMPLE_ANSI = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}
_DEEPEST = 4
_FIELD_SEPARATORS = re.compile(r"\{IFS\}|IFS(?![A-Za-z0-9_])")
_FAR = 500
_MOST_DOCUMENTS = 20
# In `a[1<<2]=3`, `<<` is a shift.
_IN_AN_INDEX = re.compile(r"[\w$]\[[^\]]*$")
_SYSTEM = re.compile(r"/(usr/(local/)?)?s?bin/")


def named_commands(command: str, depth: int = 0) -> list[tuple[str, ...]]:
    """The commands that the text would run, as far as it shows, including text that its parts give to a shell."""
    found: list[tuple[str, ...]] = []
    splitter = _Splitter(command)
    parts = [words for part in splitter.split() if (words := _without_prefixes(part))]
    feeds_a_shell = any(program_name(words[0]) in _SHELLS for words in parts)
    for words in parts:
        found.append(words)
        found.extend(_of_git(words))
        if depth >= _DEEPEST:
            continue
        if is_runner(words) or program_name(words[0]) == "alias":
            for word in words[1:]:
                text = _text_in(word, is_alias=program_name(words[0]) == "alias")
                if text is not word or _MORE_THAN_A_NAME.search(word):
                    inner = named_commands(text, depth + 1)
                    found.extend(inner)
                    if word.startswith("-") and inner:
                        # Letters before the text are options too; how many depends on the program: `env -ivSrm`.
                        found.extend([(inner[0][0][cut:], *inner[0][1:]) for cut in (1, 2) if inner[0][0][cut:]])
        elif feeds_a_shell and program_name(words[0]) in _TELLERS:
            found.extend(named_commands(" ".join(words[1:]), depth + 1))
    if splitter.documents and depth < _DEEPEST and any(_runs_what_it_reads(words) for words in parts):
        for document in splitter.documents:
            if not document.is_only_copied(parts, splitter.inputs):
                found.extend(named_commands(document.text, depth + 1))
    return found


def _runs_what_it_reads(words: tuple[str, ...]) -> bool:
    """Whether the program, or one that it starts, may run the text of a here-document, also from a file."""
    return program_name(words[0]) in _FED or is_runner(words) or ("/" in words[0] and not _SYSTEM.match(words[0]))


class _Written:
    """Where a command's output goes, filled in as it is read."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.is_piped = False


class _Document(NamedTuple):
    """The text of a here-document, the words of the command that reads it, and where that command writes."""

    text: str
    reader: list[str]
    written: _Written

    def is_only_copied(self, parts: Sequence[tuple[str, ...]], inputs: Sequence[str]) -> bool:
        """Whether the text goes into files of another kind than commands, and nothing else reads one of them."""
        is_tee = self.reader[:1] == ["tee"]
        if self.written.is_piped or not (is_tee or self.reader[:1] == ["cat"]):
            return False
        files = [*self.written.files, *[word for word in self.reader[1:] if is_tee and not word.startswith("-")]]
        if not files or not all(file.casefold().endswith(_DATA) for file in files):
            return False
        copies = [file.rpartition("/")[2] for file in files]
        others = [words for words in parts if words != tuple(self.reader) and program_name(words[0]) not in _KEEPERS]
        named = [*[word for words in others for word in words], *inputs]
        return not any(_MAY_BE_ANY_NAME.search(word) or any(copy in word for copy in copies) for word in named)


def _text_in(word: str, *, is_alias: bool) -> str:
    """The command in a word: `-S…` of env, `alias.x=!…` of git, `x=…` of alias, a text attached to an option."""
    if word.startswith("-S"):
        return word[2:]
    hanging = re.match(r"--?[\w-]+=|-[A-Za-z0-9]|[\w.-]+=!" + (r"|[^=]+=" if is_alias else ""), word)
    return word[hanging.end() :] if hanging is not None and _MORE_THAN_A_NAME.search(word) else word


def _of_git(words: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The same git command under its usual name: for `git-push`, and for an alias given on the command line."""
    name = program_name(words[0])
    if name.startswith("git-"):
        return [("git", name[4:], *words[1:])]
    aliases = (_GIT_ALIAS.fullmatch(word) for word in words[1:50]) if name == "git" else ()
    return [("git", *match[1].split()) for match in aliases if match is not None]


def program_name(program: str) -> str:
    """The program's name without its folder, however it is written."""
    return program.rpartition("/")[2].casefold().removesuffix(".exe")


def is_runner(words: tuple[str, ...]) -> bool:
    """Whether any of the later words may be a program that this one runs."""
    name = program_name(words[0])
    if name == "git":
        return not _GIT_RUNS.isdisjoint(words) or any("=!" in word for word in words[:50])
    if name in _RUNNING_WORDS:
        return not _RUNNING_WORDS[name].isdisjoint(words)
    if name in ("find", "gfind"):
        return any(word in _FIND_RUNS or _MAY_BE_ANY_NAME.search(word) for word in words)
    if name == "command" and len(words) > 1 and _ONLY_TELLS.fullmatch(words[1]):
        return False
    return name in _RUNNERS or _VERSION.sub("", name) in _RUNNERS


class _Splitter:
    """One pass over a command, which may be any text.

    Its parts have no quotes and redirections, and text that a part reads is appended to its words.
    """

    def __init__(self, command: str) -> None:
        self.command = command
        self.position = 0
        self.parts: list[list[str]] = [[]]
        self.documents: list[_Document] = []
        """The here-documents: input of programs, some of which run it."""
        self.written = _Written()
        self.inputs: list[str] = []  # the files that commands read as input
        self.later: list[str] = []  # the text that the command reads
        self.word: list[str] | None = None
        self.is_quoted = False
        self.target: str | None = None  # the operator of a redirection whose file has not been read yet
        self.modes = ["bare"]
        """How the text is quoted here and around it: bare, double, tick, brace (of a variable), or sum."""
        self.awaited: list[tuple[re.Match[str], list[str], _Written]] = []
        """The here-documents that begin at the end of this line, with the command that reads them."""

    def split(self) -> list[list[str]]:
        while character := self._take():
            self._character(character)
        self._end_word()
        self._end_command()
        return [part for part in self.parts if part]

    def split_document(self) -> list[list[str]]:
        """The commands of the substitutions in a here-document, which is otherwise plain text."""
        self.modes = ["document"]
        found: list[list[str]] = []
        while character := self._take():
            if character == "\\":
                self._take()
            elif len(self.modes) == 1 and not (character == "`" or (character == "(" and self._before(2) == "$")):
                continue
            elif len(self.modes) == 1:
                self._enter("tick" if character == "`" else "bare")
                self.parts = [[]]
            else:
                self._character(character)
            if len(self.modes) == 1:
                found += self.parts
        self._end_word()
        return [part for part in (*found, *self.parts) if part]

    def _character(self, character: str) -> None:
        mode = self.modes[-1]
        if character == "\\":
            if (following := self._take()) != "\n":  # a backslash at the end of a line joins the next line
                self.is_quoted = True
                self._add(following)
        elif character == '"':
            self._quote()
            self._enter("double")
        elif character == "'" and mode != "double":
            self._single_quoted(is_ansi=self._quote())
        elif character == "`" or (character == "(" and (mode != "double" or (self.word or [""])[-1] == "$")):
            is_sum = character == "(" and self._before(2) == "("
            self._end_word(substitution=True)
            self._end_command()
            self._enter("tick" if character == "`" else "sum" if is_sum else "bare")
        elif mode == "double":
            self._add(character)
        elif character == "#" and self.word is None and mode != "brace":
            self._comment()
        elif character == "$" and (match := _FIELD_SEPARATORS.match(self.command, self.position)):
            self.position = match.end()
            self._end_word()
        elif character == "{" and (self.word or [""])[-1] == "$" and self._is_dollar():
            self._add(character)
            self.modes.append("brace")
        elif character == "}" and mode == "brace":
            self._add(character)
            self.modes.pop()
        elif character in ";&|()\n\r":
            self._separator(character)
        elif character in "<>":
            self._redirection(character)
        elif character in " \t":
            self._end_word()
        else:
            self._add(character)

    def _take(self) -> str:
        character = self.command[self.position : self.position + 1]
        self.position += 1
        return character

    def _before(self, back: int) -> str:
        """The character `back` places before the next one."""
        return self.command[self.position - back : self.position - back + 1] if self.position >= back else ""

    def _is_dollar(self) -> bool:
        """Whether the previous character begins a variable: it is neither escaped nor the end of `$$`."""
        signs = re.search(r"(\\*)(\$+)$", self.command[max(0, self.position - 50) : self.position - 1])
        return signs is not None and (len(signs[1]) + len(signs[2])) % 2 == 1

    def _comment(self) -> None:
        ends = "\n`" if "tick" in self.modes else "\n"
        while self.command[self.position : self.position + 1] not in ("", *ends):
            self.position += 1

    def _separator(self, character: str) -> None:
        if self.target is not None and self.word is None and character in "&|":
            return  # >&, <&, >|
        self._end_word()
        self.written.is_piped = self.written.is_piped or character == "|"
        if character == "\n" or not (character == "&" and self.target):
            self._end_command()
        if character == ")" and len(self.modes) > 1 and self.modes[-1] in ("bare", "sum"):
            self.modes.pop()
            self.awaited.clear()  # only the shell knows which program reads the text, and where
        if character == "\n":
            self._read_documents()

    def _redirection(self, character: str) -> None:
        if self.target is not None and self.word is None:
            self.target += character
        else:
            text = "".join(self.word or ())
            if self.word and not self.is_quoted and (text.isdigit() or _NAMED_STREAM.fullmatch(text)):
                self.word = None  # the number of a stream, or the variable that receives it
            self._end_word()
            self.target = character
        if self.target == "<<" and self.modes[-1] in ("bare", "tick"):
            match = DOCUMENT.match(self.command, self.position)
            begun = self.command.rfind("\n", max(0, self.position - _FAR), self.position) + 1
            line = self.command[max(begun, self.position - _FAR) : self.position]
            if match is not None and len(self.awaited) < _MOST_DOCUMENTS and not _IN_AN_INDEX.search(line):
                self.awaited.append((match, self.parts[-1], self.written))

    def _read_documents(self) -> None:
        """Skips the texts of here-documents that the line before announced, if they end as announced."""
        awaited, self.awaited = self.awaited, []
        for match, reader, written in awaited:
            indent = "\t*" if match["tabs"] else ""
            name = match["single"] or match["double"] or match["escaped"] or match["bare"]
            end = re.compile(rf"^{indent}{re.escape(name)}$", re.MULTILINE).search(self.command, self.position)
            if end is None or end.start() < self.position:
                return
            text = self.command[self.position : end.start()]
            self.position = end.end() + 1
            self.documents.append(_Document(text, reader, written))
            if match["bare"]:
                inner = _Splitter(text)
                self.parts[-1:-1] = inner.split_document()
                self.documents += inner.documents

    def _single_quoted(self, *, is_ansi: bool) -> None:
        text: list[str] = []
        while (character := self._take() or "'") != "'":
            text.append(character)
            if is_ansi and character == "\\":
                text.append(self._take())
        for character in _ANSI.sub(_unescaped, "".join(text)) if is_ansi else text:
            self._add(character)

    def _enter(self, mode: str) -> None:
        if mode not in ("bare", "sum") and self.modes[-1] == mode:
            self.modes.pop()
            if mode == "tick":
                self.awaited.clear()
        else:
            self.modes.append(mode)

    def _quote(self) -> bool:
        """Whether the quote belongs to $'…' or $"…"."""
        is_special = bool(self.word) and (self.word or [""])[-1] == "$" and self.modes[-1] != "double"
        if is_special and self.word:
            self.word.pop()
        self.is_quoted = True
        self._add("")
        return is_special

    def _add(self, character: str) -> None:
        if self.word is None:
            self.word = []
        self.word.append(character)

    def _end_word(self, *, substitution: bool = False) -> None:
        text = "".join(self.word or ())
        if substitution:
            text = text.removesuffix("$")
        ended, self.word = self.word is not None, None
        quoted, self.is_quoted = self.is_quoted, False
        if not text:
            return
        if self.target is not None and ended:
            if self.target == "<<<":
                self.later.append(text)
            elif self.target.startswith(">"):
                self.written.files.append(text)
            elif self.target != "<<":
                self.inputs.append(text)
            self.target = None
        elif text == "{" and not quoted:
            self._end_command()  # of a function, or of a named group
        else:
            self.parts[-1].append(text)

    def _end_command(self) -> None:
        if self.later and self.parts[-1]:
            self.parts[-1].extend(self.later)
        self.later = []
        self.target = None
        self.written = _Written()
        self.parts.append([])


def _unescaped(match: re.Match[str]) -> str:
    text = match[1]
    if text[0] in "xuU" and len(text) > 1:
        code = int(text[1:], 16)
        return chr(code) if code < 0x110000 else ""
    if text[0] in "01234567":
        return chr(int(text, 8) & 0xFF)
    return _SIMPLE_ANSI.get(text, text)


def _without_prefixes(words: list[str]) -> tuple[str, ...]:
    words = [part for word in words for part in _spread(word)]
    for position, word in enumerate(words):
        if not (word in KEYWORDS or ASSIGNMENT.fullmatch(word) or (position > 0 and word.startswith("-"))):
            return tuple(words[position:])
    return ()


def _spread(word: str) -> list[str]:
    """The words that bash makes of braces: {rm,-rf,x} is three."""
    done: list[str] = []
    waiting = [word]
    while waiting:
        text = waiting.pop(0)
        match = _BRACES.fullmatch(text) if "," in text and len(done) + len(waiting) < _MOST_BRACES else None
        if match is None:
            done.append(text)
        else:
            waiting[:0] = [made for part in match[2].split(",") if (made := match[1] + part + match[3])]
    return done
