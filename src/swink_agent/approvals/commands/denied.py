"""Finds the programs that a command names openly, for deny rules, and compares the rules with them.

Reads words as a POSIX shell splits them, in compound commands, groups and substitutions, behind assignments and
redirections, and looks into the texts that shells and other runners are given. A name can always be composed in a way
that only a shell can follow: the sandbox confines such a command, not a rule. Allow rules use `shell_words`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from .shell_words import ASSIGNMENT, KEYWORDS, names

SHELLS = names("ash bash busybox dash eval fish ksh sh source ssh zsh .")
"""Programs that run the text that they are given, or that they read."""
RUNNERS = SHELLS | names(
    "bunx builtin bwrap caffeinate chroot chrt command concurrently coproc cross-env doas dotenv dumb-init entr env "
    "exec expect fakeroot firejail flock gdb gosu hyperfine ionice ltrace nice nix-shell nodemon nohup npx nsenter "
    "parallel perf pkexec proxychains runuser screen script setarch setpriv setsid sshpass stdbuf strace su sudo "
    "systemd-run taskset time timeout tini tmux trap unbuffer unshare uvx valgrind watch watchexec xargs"
)
"""Programs that run others: any of their words may be the name of one."""
RUNNING_WORDS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        **dict.fromkeys(("conda", "hatch", "mamba", "pdm", "pipenv", "pipx", "pixi", "poetry", "rye"), names("run")),
        **dict.fromkeys(("asdf", "bundle", "direnv", "nvm", "pyenv", "rbenv", "tox"), names("exec")),
        **dict.fromkeys(("docker", "nerdctl", "podman"), names("run exec")),
        **dict.fromkeys(("fd", "fdfind"), names("-x -X --exec --exec-batch")),
        **dict.fromkeys(("find", "gfind"), names("-exec -execdir -ok -okdir")),
        "bun": names("x run exec"),
        "git": names("bisect foreach filter-branch -x --exec"),
        "kubectl": names("exec run"),
        "mise": names("exec x"),
        "nix": names("run shell develop"),
        "npm": names("exec x"),
        "pnpm": names("exec dlx x"),
        "uv": names("run tool x"),
        "yarn": names("dlx exec run"),
    }
)
"""Programs that run others if one of these words follows."""
# Different names of the same options, for well-known programs.
_SPELLINGS: Mapping[str, tuple[tuple[str, ...], ...]] = MappingProxyType(
    {
        "rm": (("r", "R", "recursive"), ("f", "force"), ("d", "dir"), ("i", "interactive")),
        "cp": (("r", "R", "recursive"), ("f", "force"), ("a", "archive")),
        "mv": (("f", "force"),),
        "ln": (("s", "symbolic"), ("f", "force")),
        **dict.fromkeys(("chmod", "chown", "chgrp"), (("R", "recursive"),)),
        "sed": (("i", "in-place"),),
        "tar": (("x", "extract", "get"), ("c", "create"), ("r", "append"), ("u", "update"), ("P", "absolute-names")),
        "curl": (
            *(("T", "upload-file"), ("d", "data"), ("F", "form"), ("o", "output"), ("O", "remote-name")),
            *(("X", "request"), ("k", "insecure"), ("K", "config"), ("H", "header"), ("u", "user")),
        ),
        "wget": (("O", "output-document"), ("r", "recursive"), ("i", "input-file")),
        "rsync": (("r", "recursive"), ("a", "archive"), ("e", "rsh")),
        "npm": (("g", "global"), ("f", "force")),
        "git push": (("f", "force"), ("d", "delete"), ("n", "dry-run"), ("u", "set-upstream")),
        "git clean": (("f", "force"), ("n", "dry-run"), ("i", "interactive")),
        "git commit": (("n", "no-verify"), ("a", "all"), ("S", "gpg-sign"), ("m", "message"), ("F", "file")),
        "git branch": (("d", "delete"), ("D",), ("m", "move"), ("f", "force")),
        "git checkout": (("f", "force"),),
        "git switch": (("f", "force", "discard-changes"), ("C", "force-create"), ("c", "create")),
        "git tag": (("d", "delete"), ("f", "force")),
        "git add": (("f", "force"), ("A", "all")),
        "git rm": (("f", "force"), ("r",)),
        "git rebase": (("i", "interactive"), ("x", "exec")),
    }
)
_LETTERS = re.compile(r"-[A-Za-z]+", re.ASCII)
# Options of git, before its subcommand, that take a value.
_GIT_VALUED = frozenset(
    ["-C", "-c", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--config-env", "--attr-source"]
)
_TELLERS = names("echo printf")
_NO_PROGRAM = names("for select case")
_ONLY_TELLS = re.compile(r"-p?[vV]")  # with these options, `command` prints what a name stands for and runs nothing
_VERSION = re.compile(r"[-.]?\d[\d.]*$")
_MORE_THAN_A_NAME = re.compile(r"[\s;&|<>(){}$`'\"\\=]")
_OPTION_WITH_TEXT = re.compile(r"--?[\w-]+=|-[A-Za-z]")
_REDIRECTION = re.compile(r"<<-|<<<|<<|<>|<&|>>|>&|>\||<|>|&>>|&>")
_DEEPEST = 4
_MOST_PLACES = 100
"""How often a command may name the program of a rule before it is denied for that alone."""


def denial(command: str, rules: Sequence[tuple[str, ...]]) -> tuple[str, ...] | None:
    """The first rule that denies the command, as far as it names openly what it runs."""
    for words in named_commands(command):
        starts = range(len(words)) if is_runner(words) else (0,)
        for rule in rules:
            if _is_denied(rule, words, starts):
                return rule
    return None


def program_name(program: str) -> str:
    """The program's name without its folder, however it is written."""
    return program.rpartition("/")[2].casefold().removesuffix(".exe")


def is_runner(words: Sequence[str]) -> bool:
    """Whether any of the later words may be a program that this one runs."""
    name = program_name(words[0])
    if name == "command" and len(words) > 1 and _ONLY_TELLS.fullmatch(words[1]):
        return False
    running = RUNNING_WORDS.get(name)
    return name in RUNNERS or _VERSION.sub("", name) in RUNNERS or not (running or frozenset()).isdisjoint(words)


def named_commands(command: str, depth: int = 0) -> list[tuple[str, ...]]:
    """The commands that the text would run, as far as it shows, including text that its parts give to a shell."""
    found: list[tuple[str, ...]] = []
    texts: list[str] = []
    for pipeline in _Reader(command).pipelines():
        parts = [(words, part.documents) for part in pipeline if (words := _without_prefixes(part.words))]
        runs_what_it_reads = any(map(_is_shell, (words for words, _ in parts)))
        for words, documents in parts:
            found.append(words)
            if program_name(words[0]).startswith("git-"):
                found.append(("git", program_name(words[0])[4:], *words[1:]))
            if is_runner(words):
                for word in filter(_MORE_THAN_A_NAME.search, words[1:]):
                    option = _OPTION_WITH_TEXT.match(word)
                    texts.append(word if option is None else word[option.end() :])
            elif runs_what_it_reads and program_name(words[0]) in _TELLERS:
                texts.append(" ".join(words[1:]))
            texts += documents if runs_what_it_reads else ()
        for part in pipeline:
            texts += part.substitutions
    if depth < _DEEPEST:
        for text in texts:
            found += named_commands(text, depth + 1)
    return found


def _is_shell(words: Sequence[str]) -> bool:
    """Whether the command, or one that it starts, runs the text that it reads."""
    named = words if is_runner(words) else words[:1]
    return any(_VERSION.sub("", program_name(word)) in SHELLS for word in named)


def _without_prefixes(words: Sequence[str]) -> tuple[str, ...]:
    """The words without the assignments and keywords in front of the program."""
    start = 0
    while start < len(words):
        word = words[start]
        if word in _NO_PROGRAM:
            return ()
        if word == "function":
            start += 2
        elif ASSIGNMENT.fullmatch(word) or (word in KEYWORDS and word not in RUNNERS):
            start += 1
        else:
            break
    return tuple(words[start:])


# -- reading -------------------------------------------------------------------------------------------------


class _Part:
    """One simple command: its words, the texts that it reads, and documents in which the shell replaces something."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.documents: list[str] = []
        self.substitutions: list[str] = []


class _Reader:
    """One pass over a command, which may be any text. A substitution is read as commands of its own."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._at = 0
        self._found: list[list[_Part]] = []
        self._pipeline: list[_Part] = []
        self._part = _Part()
        self._word: list[str] | None = None
        self._target = ""
        """The operator of a redirection whose word has not been read yet."""
        self._is_quoted = False
        self._in_double = False
        self._in_sum = False
        """Whether this is in `((…))`, in which `<<` is a shift."""
        self._outside: list[tuple[str, list[_Part], _Part, list[str] | None, str, bool]] = []
        """What goes on after each open substitution and group, with the character that opened it."""
        self._awaited: list[tuple[str, bool, bool, _Part]] = []
        """Here-documents that begin at the end of this line: end, indented, quoted, and the command that reads them."""

    def pipelines(self) -> list[list[_Part]]:
        text = self._command
        while self._at < len(text):
            character = text[self._at]
            self._at += 1
            if character == "\\":
                following = text[self._at : self._at + 1]
                self._at += 1
                if following != "\n":
                    self._is_quoted = True
                    self._add(following if not self._in_double or following in '$`"\\' else f"\\{following}")
            elif character == '"':
                self._in_double, self._is_quoted = not self._in_double, True
                self._add("")
            elif character == "`" and self._outside and self._outside[-1][0] == "`":
                self._leave()
            elif character == "`" or (character == "$" and text.startswith("(", self._at)):
                self._at += character == "$"
                self._enter(character)
            elif self._in_double:
                self._add(character)
            else:
                self._plain(character)
        while self._outside:
            self._leave()
        self._end_pipeline()
        return self._found

    def _plain(self, character: str) -> None:
        """Handles a character outside of quotes."""
        text = self._command
        if character == "'":
            end = text.find("'", self._at)
            end = len(text) if end < 0 else end
            self._is_quoted = True
            self._add(text[self._at : end])
            self._at = end + 1
        elif character in " \t":
            self._end_word()
        elif character == "#" and self._word is None:
            end = text.find("\n", self._at)
            self._at = len(text) if end < 0 else end
        elif (character in "<>" or (character == "&" and text.startswith(">", self._at))) and not self._in_sum:
            self._redirection()
        elif character == "(":
            self._end_pipeline()
            self._enter("(")
        elif character == ")":
            if self._outside and self._outside[-1][0] != "`":
                self._leave()
            else:
                self._end_pipeline()
        elif character == "|" and not text.startswith("|", self._at):
            self._end_part()
        elif character in ";&|\n\r":
            self._end_pipeline()
            if character == "\n":
                self._read_documents()
        else:
            self._add(character)

    def _add(self, text: str) -> None:
        if self._word is None:
            self._word = []
        self._word.append(text)

    def _redirection(self) -> None:
        match = _REDIRECTION.match(self._command, self._at - 1)
        assert match is not None
        if self._word is not None and "".join(self._word).isdigit() and not self._is_quoted:
            self._word = None  # the number of a stream
        self._end_word()
        self._at = match.end()
        if match[0] in "<>" and self._command.startswith("(", self._at):
            self._at += 1
            self._enter("(")
        else:
            self._target = match[0]

    def _enter(self, opener: str) -> None:
        """Begins a substitution or a group: what is around it goes on after its end."""
        self._in_sum = self._command[self._at - 2 : self._at] == "(("
        self._outside.append((opener, self._pipeline, self._part, self._word, self._target, self._in_double))
        self._pipeline, self._part, self._word, self._target, self._in_double = [], _Part(), None, "", False

    def _leave(self) -> None:
        inner = self._pipeline
        self._end_pipeline()
        self._in_sum = False
        self._awaited.clear()  # only the shell knows which program reads it
        opener, self._pipeline, self._part, self._word, self._target, self._in_double = self._outside.pop()
        if opener != "(":
            self._add("$()")
        elif not self._part.words and self._word is None:
            self._pipeline += inner  # what a group prints may be piped to a shell

    def _end_word(self) -> None:
        word, target, self._word = self._word, self._target, None
        if word is None:
            return
        text, is_quoted = "".join(word), self._is_quoted
        self._target, self._is_quoted = "", False
        if target in ("<<", "<<-"):
            self._awaited.append((text, target == "<<-", is_quoted, self._part))
        elif target == "<<<":
            self._part.documents.append(text)
        elif not target:
            self._part.words.append(text)

    def _end_part(self) -> None:
        self._end_word()
        self._target = ""
        if self._part.words or self._part.documents:
            self._pipeline.append(self._part)
        self._part = _Part()

    def _end_pipeline(self) -> None:
        self._end_part()
        if self._pipeline:
            self._found.append(self._pipeline)
        self._pipeline = []

    def _read_documents(self) -> None:
        awaited, self._awaited = self._awaited, []
        for name, is_indented, is_quoted, part in awaited:
            indent = "\t*" if is_indented else ""
            end = re.compile(rf"^{indent}{re.escape(name)}(?:\n|\Z)", re.MULTILINE).search(self._command, self._at)
            text = self._command[self._at : len(self._command) if end is None else end.start()]
            self._at = len(self._command) if end is None else end.end()
            part.documents.append(text)
            if not is_quoted and ("`" in text or "$(" in text):
                quotes = text.replace('"', '\\"')
                part.substitutions.append(f': "{quotes}"')


# -- comparing -----------------------------------------------------------------------------------------------


def _is_denied(rule: tuple[str, ...], words: tuple[str, ...], starts: Sequence[int]) -> bool:
    """Whether the command, or one that it runs from one of the starts on, begins as the rule does."""
    program, following = rule[0], rule[1:]
    found = 0
    for start in starts:
        if words[start] == program if "/" in program else program_name(words[start]) == program.casefold():
            found += 1
            if found > _MOST_PLACES or _follows(following, words[start + 1 :], program_name(program)):
                return True
    return False


def _follows(wanted: tuple[str, ...], words: Sequence[str], program: str) -> bool:
    """Whether the words begin with the wanted ones, with any options between them."""
    named = [word for word in wanted if not word.startswith("-")]
    if not _begins(named, words, is_git=program == "git"):
        return False
    spelled = " ".join([program, *named[:1]]) if program == "git" else program
    return all(_has_option(word, words, spelled) for word in wanted if word.startswith("-"))


def _begins(named: list[str], words: Sequence[str], *, is_git: bool) -> bool:
    """Whether the words begin with the named ones, options aside. A word after an option may be its value."""
    reached, before = {0}, ""
    if not named:
        return True
    for word in words:
        if not word.startswith("-"):
            following = {count + 1 for count in reached if word == named[count]}
            if len(named) in following:
                return True
            if before.startswith("-"):
                following |= {count for count in reached if count > 0 or not is_git or before in _GIT_VALUED}
            if not following:
                return False
            reached = following
        before = word
    return False


def _has_option(option: str, words: Sequence[str], program: str) -> bool:
    """Whether the option is given: short ones in any order and group, long ones with or without a value.

    For known programs, any name of the option counts, and long ones may be abbreviated.
    """
    if any(word == option or word.startswith(f"{option}=") for word in words):
        return True
    spellings = _SPELLINGS.get(program, ())
    letters = {letter for word in words if word.startswith("-") and not word.startswith("--") for letter in word[1:]}
    long_ones = [word.partition("=")[0] for word in words if len(word) > 3 and word.startswith("--")]

    def is_given(name: str) -> bool:
        same = next((group for group in spellings if name in group), (name,))
        return any(
            (len(other) == 1 and other in letters)
            or (len(other) > 1 and any(f"--{other}".startswith(word) for word in long_ones))
            for other in same
        )

    if option.startswith("--"):
        return bool(spellings) and is_given(option[2:])
    return _LETTERS.fullmatch(option) is not None and all(is_given(letter) for letter in option[1:])
