"""What the rules let pass unasked, held against what real bash does with it.

Commands are made from a grammar and from mutations of it, with a fixed seed. Those that the rules allow run in bash,
where the only programs to be found are shims that record their name and arguments: what ran is one program that a rule
names, with exactly the words that the rules had read, and nothing else happened.
"""

from __future__ import annotations

import os
import random
import shutil
import string
from collections.abc import Callable
from pathlib import Path

import pytest

from swink_agent.policies._read_only import READ_ONLY
from swink_agent.policies._shell_words import NotPlain, plain_commands, plain_words
from swink_agent.policies.command_rules import CommandRules

SEED = 20_240_917
COUNT = 10_000

OWN_RULES = ["npm test", "frob", "git commit -m", "./tools/check", "pytest"]
OWN_PREFIXES = [tuple(rule.split()) for rule in OWN_RULES]
PREFIXES = [tuple(prefix.split()) for prefix in READ_ONLY] + OWN_PREFIXES
LISTED = sorted({prefix[0] for prefix in PREFIXES if "/" not in prefix[0]})
BUILTINS = ["echo", "false", "pwd", "true", "type"]

# fmt: off
# Not one of these is in a rule. Each has a shim, so that running one would be seen and would do nothing.
UNLISTED = [
    "rm", "evil", "touch", "sh", "python4", "curl", "tee", "xargs", "env", "awk", "nohup", "time", "-c", "a=b", "l",
]
BENIGN_WORDS = [
    "src", "a.txt", "-la", "--stat", "-n", "5", "-i", "README.md", "HEAD~1", "main..HEAD", "x=y", "a,b", "%s", "@",
    "^x", "--", "-", "--oneline", "--color=never", "-name", "-type", "f", ".", "1,20p", "user@host:path", "+%Y",
    "a:b", "...",
]
QUOTED_WORDS = [
    "'a b'", '"a b"', "'*.py'", '"*.py"', "'$HOME'", "'`id`'", "'a;b'", '"a;b"', '"a|b"', "'#x'", '"#x"', "''", '""',
    "a\\ b", "\\*", "\\;", "\\$HOME", "\\~", '"\\$x"', '"\\`id\\`"', '"\\d+"', '"a\\"b"', '"\\\\"', "'\\'", "\\'",
    "\\#", "'\xe9'", '"\u65e5\u672c"', "'\xe4'x", 'a\'b\'"c"d', "'&&'", '"<(x)"', "'!'", "\\!", "'{a,b}'", '"{a,b}"',
    "\\{a,b\\}", "'~'", '"~"',
]
NASTY = [
    "; evil", "&& evil", "|| evil", "| evil", "& evil", "\nevil", "\r\nevil", "\revil", "\n", ";", "&", "|", "`evil`",
    "$(evil)", "${x:-$(evil)}", "$((evil))", "$[1]", "<(evil)", ">(evil)", "> pwned", ">> pwned", ">|pwned",
    "&> pwned", "2>&1", "< a.txt", "<<EOF\nevil\nEOF", "<<< evil", "$IFS", "${IFS}evil", "$'\\x65vil'", "$'a\\nb'",
    '$"evil"', "$x", "*", "?", "[a]", "a*", "{a,b}", "{1..3}", "a{b,c}", "~", "~root", "x=~", "a:~", "!!", "!evil",
    "#", "# evil", "a#b", "\t", "\x0b", "\x0c", "\x00", "\x01", "\x7f", "\xa0", "\u2003", "\u3000", "\u200b",
    "\u202e", "\ufeff", "\u2028", "\x85", "\\\n", "\\", "'", '"', '"`evil`"', '"$(evil)"', "'\n'", '"\n"', '"!"',
    "\xe9", "\uff4c\uff53", "\ud800", "\U000e0041", "\xe9\\", "()", "(evil)", "{ evil; }", "() { evil; }",
    "if evil; then :; fi", "evil", "./evil", "=evil", "A=b", "A=b evil", "+(a)",
]
PREFIXED = [
    "A=b ", "A+=b ", "a[0]=b ", "PATH=. ", "! ", "time ", "coproc ", "exec ", "eval ", "command ", "builtin ", "env ",
    "\\\n", "nohup ", ". ", "source ", "if ", "{ ", "( ", "[[ ", "function ", "sudo ", "> pwned ", "2>pwned ", "$x",
    "''", '""', "\\", "xargs ", "test -v ", "export ", "trap ", "-", "./", "/", "~/", "$(echo evil) ", "`evil` ", "#",
    ";", "&", "|", "\n", " ",
]
CURATED = [
    "ls", "l''s", "l\\s", "\\ls", "'ls'", '"ls"', 'l""s \'\'', "ls;evil", "ls\nevil", "ls\revil", "ls&evil",
    "ls|evil", "ls $(evil)", "ls `evil`", "ls ${PATH:0:1}", "ls $'\\x3bevil'", "test -v 'a[$(evil)]'",
    "[ -v 'a[$(evil)]' ]", "ls\\", "printf -v 'a[$(evil)]' x", "let 'a[$(evil)]'", "unset 'a[$(evil)]'", "echo \\",
    "declare 'a[$(evil)]=1'", "ls '", "read 'a[$(evil)]'", "eval evil", "exec evil", "command evil",
    "builtin eval evil", ". ./evil", "trap evil EXIT", "alias ls=evil", "function ls { evil; }", "ls() { evil; }",
    "set -k", "enable -n ls", "hash -p ./evil ls", "time ls", "find . -exec evil ;", "find . -exec evil \\;",
    "find . -delete", "rg --pre evil x", "git -c alias.x=!evil x", "git log --output=pwned", "sort -o pwned a.txt",
    "sort -uo pwned", "tree -Io x pwned", "rg -e -- --pre=evil x", "sed -n 'wpwned' a.txt", "sed -n '1e evil' a.txt",
    "sed -n 1p -i a.txt", "git log --format=%G?", "git diff --ext-diff", "echo x >pwned", "cat <a.txt",
    "echo 'a'\\''b'", 'echo "a\\\nb"', "echo a\\\nb", "echo 'a\nb'", 'echo "$\'x\'"', "%1", "-c evil", "''", '""',
    "' '", "ls ''", "'ls '", "'ls -la'", "ls\\ -la", "-ls", "=ls", "ls=", "a.b", "1", "2>x ls", "echo {", "echo }",
    "echo [", "echo ]", "echo [[", "echo if", "echo time", "echo !", "echo eval", "ls if", "ls then",
]
# fmt: on


# -- making commands -----------------------------------------------------------------------------------------


def requoted(word: str, dice: random.Random) -> str:
    """The word as bash would read it all the same: quotes and backslashes put where they change nothing."""
    shown: list[str] = []
    for character in word:
        way = dice.random()
        if way < 0.70:
            shown.append(character)
        elif way < 0.80:
            shown.append(f"\\{character}")
        elif way < 0.88 and character != "'":
            shown.append(f"'{character}'")
        elif way < 0.96 and character not in '"\\':
            shown.append(f'"{character}"')
        else:
            shown.append(dice.choice(["''", '""']) + character)
    return "".join(shown)


def ordinary(dice: random.Random) -> str:
    words = list(dice.choice(PREFIXES if dice.random() < 0.4 else OWN_PREFIXES))
    if dice.random() < 0.35:
        words = [requoted(word, dice) for word in words]
    for _ in range(dice.randrange(5)):
        word = dice.choice(QUOTED_WORDS if dice.random() < 0.4 else BENIGN_WORDS)
        words.append(requoted(word, dice) if dice.random() < 0.2 and word in BENIGN_WORDS else word)
    return dice.choice([" ", "  ", " "]).join(words)


def spoilt(dice: random.Random) -> str:
    command, nasty = ordinary(dice), dice.choice(NASTY)
    where = dice.random()
    if where < 0.35:
        return f"{command} {nasty}"
    if where < 0.55:
        return command + nasty
    if where < 0.7:
        return dice.choice(PREFIXED) + command
    position = dice.randrange(len(command) + 1)
    return command[:position] + nasty + command[position:]


def shuffled(dice: random.Random) -> str:
    """An ordinary command after a few blind changes of single characters."""
    characters = list(ordinary(dice))
    alphabet = string.printable + "éа\u200b\u00a0\u202e'\"\"''\\\\  "
    for _ in range(dice.randrange(1, 4)):
        position = dice.randrange(len(characters) + 1)
        match dice.randrange(3):
            case 0:
                characters.insert(position, dice.choice(alphabet))
            case 1:
                characters[position : position + 1] = [dice.choice(alphabet)]
            case _:
                del characters[position : position + 1]
    return "".join(characters)


def noise(dice: random.Random) -> str:
    return dice.choice(["", "ls ", "frob "]) + "".join(
        dice.choice("ls frob'\"\\$`;&|<>(){}[]*?~#!=-.\n\t ") for _ in range(dice.randrange(1, 14))
    )


def generated() -> list[str]:
    dice = random.Random(SEED)
    kinds: list[tuple[Callable[[random.Random], str], float]] = [
        (ordinary, 0.32),
        (spoilt, 0.36),
        (shuffled, 0.20),
        (noise, 0.12),
    ]
    makers = dice.choices([maker for maker, _ in kinds], [share for _, share in kinds], k=COUNT)
    return [*CURATED, *(maker(dice) for maker in makers)]


# -- running them --------------------------------------------------------------------------------------------


class Range:
    """A folder with shims for programs, in which bash runs commands and what they start is written down."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.programs = folder / "programs"
        self.record = folder / "record"
        self.output = folder / "output"
        for place in (self.folder, self.folder / "tools", self.programs):
            place.mkdir()
        shim = folder / "shim"
        shim.write_text('#!/bin/sh\nprintf "%s\\0" "$#" "$0" "$@" >>"$RECORD"\n')
        shim.chmod(0o755)
        for name in [*LISTED, *UNLISTED]:
            (self.programs / name).symlink_to(shim)
        for name in ("evil", "ls", "tools/check"):
            (self.folder / name).symlink_to(shim)
        for name in ("a.txt", "b.txt"):
            (self.folder / name).write_text(name)
        start = folder / "start"
        start.write_text(f"enable -n {' '.join(BUILTINS)}\n")  # so that these are shims like the others
        self.bash = shutil.which("bash") or "/bin/bash"
        self.environment = {"PATH": str(self.programs), "RECORD": str(self.record), "BASH_ENV": str(start)}
        self.files = self._files()

    def _files(self) -> list[str]:
        return sorted(str(path) for path in self.folder.rglob("*"))

    def run(self, command: str) -> tuple[int, list[list[str]], bytes]:
        """The exit code, the program and arguments of everything that ran, and what was printed."""
        self.record.write_bytes(b"")
        writing = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(self.output), writing, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        arguments = [self.bash, "--noprofile", "--norc", "-c", command]
        before = os.getcwd()
        os.chdir(self.folder)
        try:
            child = os.posix_spawn(self.bash, arguments, self.environment, file_actions=actions)
        finally:
            os.chdir(before)
        _, status = os.waitpid(child, 0)
        ran: list[list[str]] = []
        entries = iter(self.record.read_bytes().decode().split("\0")[:-1])
        for count in entries:
            program, *words = [next(entries) for _ in range(int(count) + 1)]
            ran.append([program.removeprefix(f"{self.programs}/"), *words])
        return os.waitstatus_to_exitcode(status), ran, self.output.read_bytes()

    def is_untouched(self) -> bool:
        return self._files() == self.files


@pytest.fixture
def shooting_range(tmp_path: Path) -> Range:
    return Range(tmp_path)


# -- the tests -----------------------------------------------------------------------------------------------


@pytest.mark.timeout(180)
def test_no_unlisted_program_runs_unasked(shooting_range: Range) -> None:
    rules = CommandRules.standard(allow=OWN_RULES, search_path=str(shooting_range.programs))
    commands = generated()
    folder = str(shooting_range.folder)
    allowed = [command for command in commands if rules.decide(command, folder=folder).verdict == "allow"]
    assert len(commands) >= 10_000
    assert len(allowed) >= len(commands) // 5, "too few were allowed to prove anything"
    surprises: list[str] = []
    for command in dict.fromkeys(allowed):
        words = list(plain_words(command))
        code, ran, printed = shooting_range.run(command)
        if (code, ran, printed) != (0, [words], b""):
            surprises.append(f"{command!r} was read as {words} and ran {ran}, exit code {code}, printing {printed!r}")
        if not any(tuple(words[: len(prefix)]) == prefix for prefix in PREFIXES):
            surprises.append(f"{command!r} is named by no rule")
    assert surprises == []
    assert shooting_range.is_untouched()


def test_what_is_read_as_plain_words_is_read_so_by_bash_whatever_the_program(shooting_range: Range) -> None:
    """Also where no rule allows it: trust given by a person goes by the same reading."""
    dice = random.Random(SEED + 1)
    surprises: list[str] = []
    count = 0
    for _ in range(6000):
        command = "l " + "".join(dice.choice("aa \\'\"'\"~:=$-é!{") for _ in range(dice.randrange(2, 12)))
        try:
            words = list(plain_words(command))
        except NotPlain:
            continue
        count += 1
        _, ran, printed = shooting_range.run(command)
        if (ran, printed) != ([words], b""):
            surprises.append(f"{command!r} was read as {words} and ran {ran}, printing {printed!r}")
    assert surprises == []
    assert count > 400
    assert shooting_range.is_untouched()


@pytest.mark.timeout(180)
def test_commands_in_a_row_are_read_as_bash_reads_them_and_only_listed_programs_run(shooting_range: Range) -> None:
    rules = CommandRules.standard(patterns=["frob *"], compound=True, search_path=str(shooting_range.programs))
    dice = random.Random(SEED + 2)
    parts = ["frob", "frob a", "l 'b c'", 'frob "d;e"', "frob \\;", "l", "frob '|' a"]
    between = ["&&", "||", ";", "|", " && ", " ; ", " | ", " || "]
    nasty = [*";&|<$!#(){}'\\ `\n", "|&", ";;", "&&&", "evil", "a=b "]
    surprises: list[str] = []
    several = 0
    for _ in range(1500):
        command = "".join(dice.choice(parts) + dice.choice(between) for _ in range(dice.randrange(1, 4)))
        command += dice.choice(parts)
        if dice.random() < 0.7:
            position = dice.randrange(len(command) + 1)
            command = command[:position] + dice.choice(nasty) + command[position:]
        try:
            commands = [list(words) for words in plain_commands(command)]
        except NotPlain:
            continue
        if len(commands) < 2:
            continue
        several += 1
        _, ran, printed = shooting_range.run(command)
        expected = list(commands)
        for words in ran:  # what || guards does not run, and the parts of a pipe run at once
            if words in expected:
                expected.remove(words)
            else:
                surprises.append(f"{command!r} was read as {commands} and ran {ran}, printing {printed!r}")
        if "||" not in command and len(ran) != len(commands) and b"not found" not in printed:
            surprises.append(f"{command!r} was read as {commands} and ran {ran}, printing {printed!r}")
        verdict = rules.decide(command, folder=str(shooting_range.folder)).verdict
        if (verdict == "allow") != all(words[0] == "frob" for words in commands):
            surprises.append(f"{command!r} is decided as {verdict}")
    assert surprises == []
    assert several > 300
    assert shooting_range.is_untouched()


@pytest.mark.parametrize(
    ("command", "ran"),
    [
        ("ls; evil x", [["ls"], ["evil", "x"]]),
        ("ls $(evil)", [["evil"], ["ls"]]),
        ("ls\nevil", [["ls"], ["evil"]]),
        ("test -v 'a[$(evil)]'", [["evil"]]),
        ("./evil 'a b' ''", [["./evil", "a b", ""]]),
        ("A=b evil", [["evil"]]),
        ("ls *.txt", [["ls", "a.txt", "b.txt"]]),
        ("pwd", [["pwd"]]),
    ],
)
def test_the_range_sees_what_runs(shooting_range: Range, command: str, ran: list[list[str]]) -> None:
    assert shooting_range.run(command)[1] == ran


def test_the_range_sees_files_that_were_written(shooting_range: Range) -> None:
    shooting_range.run("ls > pwned")
    assert not shooting_range.is_untouched()
