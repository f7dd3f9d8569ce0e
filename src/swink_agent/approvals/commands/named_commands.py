"""What a command names openly, however it is wrapped: for rules that forbid.

Owns a rough reading of text that may be anything. It sees through quotes, redirections, assignments, keywords and
programs that run others, and is no proof of what does not run: a name can be put together in ways that only bash can
follow. What is permitted goes by the strict reading in `shell_words`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .shell_words import ASSIGNMENT, KEYWORDS, names

__all__ = ["is_runner", "named_commands", "program_name", "simple_commands"]

_SHELLS = names("ash bash busybox dash eval fish ksh mksh sh source zsh .")
# Programs that run the program named in their arguments, or text given in them. Any of their words may be one.
_RUNNERS = _SHELLS | names(
    "arch builtin caffeinate catchsegv chroot chrt command coproc doas entr env exec fakeroot find firejail flock gdb "
    "ionice ltrace nice nocache nohup nsenter numactl parallel perf pkexec prlimit proxychains rlwrap runuser script "
    "setarch setpriv setsid ssh start-stop-daemon stdbuf strace su sudo systemd-run taskset time timeout torsocks "
    "toybox trap unbuffer unshare valgrind watch xargs xvfb-run"
)
# Where git runs what is named behind one of these.
_GIT_RUNS = names("bisect foreach difftool filter-branch hook mergetool --exec -x --tree-filter for-each-repo")
_TELLERS = names("cat echo printf")
_VERSION = re.compile(r"[-.]?\d[\d.]*$")
_MORE_THAN_A_NAME = re.compile(r"[\s;&|<>(){}$`'\"\\=]")
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_ANSI = re.compile(r"\\(x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{1,4}|U[0-9A-Fa-f]{1,8}|[0-7]{1,3}|c.|.)", re.DOTALL)
_SIMPLE_ANSI = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}
_DEEPEST = 4


def named_commands(command: str, depth: int = 0) -> list[tuple[str, ...]]:
    """What the command would run as far as that shows, with what its parts give to a shell as text."""
    found: list[tuple[str, ...]] = []
    parts = simple_commands(command)
    feeds_a_shell = any(program_name(words[0]) in _SHELLS for words in parts)
    for words in parts:
        found.append(words)
        if depth >= _DEEPEST:
            continue
        if is_runner(words):
            for word in words[1:]:
                text = _text_in(word)
                if text is not word or _MORE_THAN_A_NAME.search(word):
                    found.extend(named_commands(text, depth + 1))
        elif feeds_a_shell and program_name(words[0]) in _TELLERS:
            found.extend(named_commands(" ".join(words[1:]), depth + 1))
    return found


def _text_in(word: str) -> str:
    """What a word gives to run: `-S…` of env, `alias.x=!…` of git."""
    if word.startswith("-S"):
        return word[2:]
    return word.partition("=!")[2] or word.removeprefix("--split-string=")


def program_name(program: str) -> str:
    """What a program is called, wherever it lies and however it is written."""
    return program.rpartition("/")[2].casefold().removesuffix(".exe")


def is_runner(words: tuple[str, ...]) -> bool:
    """Whether any of the further words may be a program that this one runs."""
    name = program_name(words[0])
    if name == "git":
        return not _GIT_RUNS.isdisjoint(words) or any("=!" in word for word in words[:50])
    return name in _RUNNERS or _VERSION.sub("", name) in _RUNNERS


def simple_commands(command: str) -> list[tuple[str, ...]]:
    """What the parts of a compound command would probably run: quotes taken off, assignments, keywords and
    redirections left out, or put behind where they hold text for the command to read."""
    return [words for part in _Splitter().split(command) if (words := _without_prefixes(part))]


class _Splitter:
    """One pass over a command that may be anything."""

    def __init__(self) -> None:
        self.parts: list[list[str]] = [[]]
        self.later: list[str] = []
        """What the command is given to read as text."""
        self.word: list[str] | None = None
        self.is_quoted = False
        self.target: str | None = None
        """The sign of a redirection whose file has not come yet."""
        self.modes = ["bare"]
        """How the text is quoted here, and around it: bare, double, or tick."""

    def split(self, command: str) -> list[list[str]]:
        characters = iter(command.replace("\\\n", "").replace("${IFS}", " ").replace("$IFS", " "))
        for character in characters:
            if character == "\\":
                self.is_quoted = True
                self._add(next(characters, ""))
            elif character == '"':
                self._quote()
                self._enter("double")
            elif character == "'" and self.modes[-1] != "double":
                self._single_quoted(characters, is_ansi=self._quote())
            elif character == "`" or (character == "(" and self._starts_a_command()):
                self._end_word(substitution=True)
                self._end_command()
                self._enter("tick" if character == "`" else "bare")
            elif self.modes[-1] == "double":
                self._add(character)
            elif character in ";&|()\n\r":
                self._separator(character)
            elif character in "<>":
                self._redirection(character)
            elif character in " \t":
                self._end_word()
            else:
                self._add(character)
        self._end_word()
        self._end_command()
        return [part for part in self.parts if part]

    def _separator(self, character: str) -> None:
        if self.target is not None and self.word is None and character in "&|":
            return  # >&, <&, >|
        self._end_word()
        if character == "\n" or not (character == "&" and self.target):
            self._end_command()
        if character == ")" and len(self.modes) > 1:
            self.modes.pop()

    def _redirection(self, character: str) -> None:
        if self.target is not None and self.word is None:
            self.target += character
            return
        if self.word and not self.is_quoted and "".join(self.word).isdigit():
            self.word = None  # the number of a stream
        self._end_word()
        self.target = character

    def _single_quoted(self, characters: Iterator[str], *, is_ansi: bool) -> None:
        text: list[str] = []
        while (character := next(characters, "'")) != "'":
            text.append(character)
            if is_ansi and character == "\\":
                text.append(next(characters, ""))
        for character in _ANSI.sub(_unescaped, "".join(text)) if is_ansi else text:
            self._add(character)

    def _starts_a_command(self) -> bool:
        return self.modes[-1] != "double" or (self.word or [""])[-1] == "$"

    def _enter(self, mode: str) -> None:
        if mode != "bare" and self.modes[-1] == mode:
            self.modes.pop()
        else:
            self.modes.append(mode)

    def _quote(self) -> bool:
        """Whether the quote is one of $'…' and $"…"."""
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
            self.target = None
        elif text == "{" and not quoted:
            self._end_command()  # of a function, or of a group with a name
        else:
            self.parts[-1].append(text)

    def _end_command(self) -> None:
        if self.later and self.parts[-1]:
            self.parts[-1].extend(self.later)
        self.later = []
        self.target = None
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
    for position, word in enumerate(words):
        if word in KEYWORDS or ASSIGNMENT.fullmatch(word) or (position > 0 and word.startswith("-")):
            continue
        braces = _BRACES.fullmatch(word)
        if braces is not None:  # {rm,-rf,x} is three words
            return (*(part for part in braces[1].split(",") if part), *words[position + 1 :]) or (word,)
        return tuple(words[position:])
    return ()
