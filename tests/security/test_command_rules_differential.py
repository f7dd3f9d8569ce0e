"""The commands that the rules allow unasked, compared with what real bash does.

Commands are made from a grammar and from mutations of it, with a fixed seed: single ones, and joined ones with pipes,
`&&`, `||`, `;`, file patterns, redirections and `cd`. The allowed ones run in bash where no program is found: bash
reports which one it wanted, which must be the one that the rules had read.
"""

from __future__ import annotations

import random
import re
import string
from collections.abc import Callable
from pathlib import Path

import pytest

from swink_agent.approvals.commands.rules import CommandRules
from swink_agent.approvals.commands.shell_words import NotPlain, plain_words, read_script

from .ranges import ShimRange

pytestmark = pytest.mark.sweep

SEED = 20_240_917
COUNT = 10_000

OWN_RULES = ["npm test", "frob", "git commit -m", "./tools/check", "pytest"]
OWN_PREFIXES = [tuple(rule.split()) for rule in OWN_RULES]
READING = ["ls", "cat", "wc -l", "grep -n", "find .", "git log", "git diff", "head", "jq .", "sort", "du -sh"]
PREFIXES = [tuple(prefix.split()) for prefix in READING] + OWN_PREFIXES
BUILTINS = ["echo", "false", "pwd", "true", "type", "test", "[", "printf", "command"]

# fmt: off
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
JOINTS = [" | ", " && ", " || ", "; ", "|", "&&", "||", ";", " |", " ; "]
# What may accompany a command, and what only looks like it.
BESIDE = [
    "2>/dev/null", ">/dev/null", "2>&1", "&>/dev/null", "</dev/null", "< a.txt", ">>/dev/null", "1>&2", ">&2",
    "2> /dev/null", "> /dev/null 2>&1",
]
ALMOST_BESIDE = [
    ">pwned", "2>pwned", ">&pwned", "&>pwned", ">/dev/null/../pwned", ">/dev/nullx", "2>&1pwned", "<>pwned",
    ">|pwned", "< ../x", "2 > pwned", "a2>pwned", "'2'>pwned", ">'/dev/null'", ">\\/dev/null", "3>pwned", "{x}>pwned",
    ">$?", ">*", "<<<x", "<<x", "<&0", ">&-", "2>&3", ">(evil)", "<(evil)", "&", "|&evil",
]
PATTERNS = [
    "*", "*.txt", "src/*", "src/*.py", "a?txt", "?.txt", "*/*.txt", "'a'*", "\\a*", '"a".*', "*x", "src/**",
    "nothing*", "a*\\*", "'*'*", "*'*'", "../*", "/*", ".*", "..*", "./*", "*/../*", "-*", "--*", "$?", '"$?"', "x$?",
    "'$?'", "\\$?",
]
GOING = [
    "cd src && ", "cd src; ", "cd src/deep && ", "cd tools || ", "cd .. && ", "cd nowhere && ", "cd src && cd .. && ",
    "cd 'src' && ", "cd s*c && ", "cd - && ", "cd && ", "cd src | ", "cd src && cd deep && ", "cd / && ", "cd $? && ",
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


def joined(dice: random.Random) -> str:
    """Several commands, with what may accompany them."""
    parts: list[str] = [dice.choice(GOING)] if dice.random() < 0.2 else []
    for position in range(dice.randrange(1, 4)):
        if position:
            parts.append(dice.choice(JOINTS))
        words = [reading(dice)]
        for _ in range(dice.randrange(3)):
            words.append(dice.choice(PATTERNS if dice.random() < 0.3 else BESIDE))
        if dice.random() < 0.06:
            words.insert(dice.randrange(len(words) + 1), dice.choice(ALMOST_BESIDE))
        if dice.random() < 0.1:
            words.reverse()
        parts.append(" ".join(words))
    return "".join(parts)


def reading(dice: random.Random) -> str:
    """A command that is likely to be allowed."""
    if dice.random() < 0.15:
        return ordinary(dice)
    words = list(dice.choice(PREFIXES[: -len(OWN_PREFIXES)]))
    for _ in range(dice.randrange(2)):
        words.append(dice.choice(["src", "a.txt", "'a b'", "README.md", "src/c.py", "--", "-n", "x", "src/../a.txt"]))
    return " ".join(requoted(word, dice) if dice.random() < 0.1 and word.isalnum() else word for word in words)


def spoilt(dice: random.Random) -> str:
    command, nasty = (ordinary if dice.random() < 0.6 else joined)(dice), dice.choice(NASTY)
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
    characters = list((ordinary if dice.random() < 0.5 else joined)(dice))
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
        dice.choice("ls frob'\"\\$`;&|<>(){}[]*?~#!=-.\n\t 12") for _ in range(dice.randrange(1, 14))
    )


def generated() -> list[str]:
    dice = random.Random(SEED)
    kinds: list[tuple[Callable[[random.Random], str], float]] = [
        (ordinary, 0.14),
        (joined, 0.30),
        (spoilt, 0.30),
        (shuffled, 0.18),
        (noise, 0.08),
    ]
    makers = dice.choices([maker for maker, _ in kinds], [share for _, share in kinds], k=COUNT)
    return [*CURATED, *(maker(dice) for maker in makers)]


# -- with shims ----------------------------------------------------------------------------------------------


@pytest.fixture
def shooting_range(tmp_path: Path) -> ShimRange:
    return ShimRange(tmp_path, BUILTINS)


def surprise(command: str, shooting_range: ShimRange) -> str | None:
    """What bash did with the command that the rules had not read in it."""
    parts = [list(words) for pipeline in read_script(command) for words in pipeline]
    ran, printed = shooting_range.run(command)
    printed = re.sub(rb"(?m)^.*: No such file or directory\n", b"", printed)
    if printed or len(ran) > len(parts):
        return f"{command!r} was read as {parts} and ran {ran}, printing {printed!r}"
    if len(parts) == 1 and parts[0][0] != "cd" and [words for _, words in ran] != parts:
        return f"{command!r} was read as {parts} and ran {ran}"
    for where, words in ran:
        if not Path(where).is_relative_to(shooting_range.folder):
            return f"{command!r} ran {words} in {where}"
        if words not in parts:
            return f"{command!r} was read as {parts} and ran {words}"
        if not any(tuple(words[: len(prefix)]) == prefix for prefix in PREFIXES):
            return f"{command!r} ran {words}, which no rule names"
    return None


@pytest.mark.timeout(180)
def test_no_unlisted_program_runs_unasked(shooting_range: ShimRange) -> None:
    rules = CommandRules(allow=[*OWN_RULES, *READING], compound=True)
    commands = generated()
    folder = str(shooting_range.folder)
    allowed = list(dict.fromkeys(c for c in commands if rules.decide(c, folder=folder).verdict == "allow"))
    is_joined = [command for command in allowed if re.search(r"[|;&<>]", command)]
    assert len(commands) >= 10_000
    assert len(allowed) >= len(commands) // 6, "too few were allowed to prove anything"
    assert len(is_joined) >= len(commands) // 12, "too few of them were joined"
    surprises = [found for command in allowed if (found := surprise(command, shooting_range)) is not None]
    assert surprises == []
    assert shooting_range.is_untouched()


def test_plain_words_are_read_as_bash_reads_them(shooting_range: ShimRange) -> None:
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
        ran, printed = shooting_range.run(command)
        if ([words for _, words in ran], printed) != ([words], b""):
            surprises.append(f"{command!r} was read as {words} and ran {ran}, printing {printed!r}")
    assert surprises == []
    assert count > 400
    assert shooting_range.is_untouched()


def test_commands_in_a_row_are_allowed_by_rules_of_the_users_as_bash_reads_them(shooting_range: ShimRange) -> None:
    rules = CommandRules(patterns=["frob *"], compound=True)
    dice = random.Random(SEED + 3)
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
        if rules.decide(command, folder=str(shooting_range.folder)).verdict != "allow":
            continue
        several += 1
        expected = [list(words) for pipeline in read_script(command) for words in pipeline]
        ran, printed = shooting_range.run(command)
        for _, words in ran:  # what || guards does not run, and the parts of a pipe run at once
            if words[0] != "frob" or words not in expected or printed:
                surprises.append(f"{command!r} was read as {expected} and ran {ran}, printing {printed!r}")
            else:
                expected.remove(words)
    assert surprises == []
    assert several > 200
    assert shooting_range.is_untouched()


@pytest.mark.parametrize(
    ("command", "ran"),
    [
        ("ls; evil x", [["ls"], ["evil", "x"]]),
        ("ls $(evil)", [["evil"], ["ls"]]),
        ("ls\nevil", [["ls"], ["evil"]]),
        ("./evil 'a b' ''", [["./evil", "a b", ""]]),
        ("A=b evil", [["evil"]]),
        ("ls *.txt", [["ls", "a.txt", "b.txt"]]),
        ("pwd", [["pwd"]]),
        ("test -f x || ls", [["test", "-f", "x"]]),
        ("ls x || ls y", [["ls", "x"], ["ls", "y"]]),
    ],
)
def test_the_range_sees_what_runs(shooting_range: ShimRange, command: str, ran: list[list[str]]) -> None:
    assert [words for _, words in shooting_range.run(command)[0]] == ran


def test_the_range_sees_where_it_runs_and_files_that_were_written(shooting_range: ShimRange) -> None:
    assert shooting_range.run("cd src && ls")[0] == [(str(shooting_range.folder / "src"), ["ls"])]
    shooting_range.run("ls > pwned")
    assert not shooting_range.is_untouched()
