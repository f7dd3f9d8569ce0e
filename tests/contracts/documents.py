"""Finds the documents of this repository and the blocks of code in them.

Owns the comments that can precede a block. Readers of the rendered page do not see them:

    <!-- file: NAME -->      the block is that file; the other blocks of the page run beside it
    <!-- cell -->            a cell of a notebook; the cells of a page run one after another, in one session
    <!-- run -->             a shell block: all of its commands are run
    <!-- model: {…} -->      a program that asks a model of Anthropic: it runs against a fake on loopback
    <!-- not run: WHY -->    the block is only shown

    <!-- ci: NAME -->        a stage of `.ci/run` runs the block, which the tests treat as one without a comment

One more comment can be anywhere on a page:

    <!-- files of: PAGE -->  the blocks also run beside the files of that page, a path relative to this one

The object after `model:` is JSON. `replies` are the answers of the fake, each a text or
`{"calls": [[name, arguments]]}`; `typed` is the input on stdin, and `prints` is a text that stdout must contain.

A block whose first line is a path, `# src/acme/adapter.py`, is a file of a package that the page builds.

`test_blocks` runs the blocks.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "bench/README.md"])
MARKER = re.compile(r"<!--\s*(file|cell|run|model|not run)\s*(?::\s*(.*?))?\s*-->", re.DOTALL)
FILES_OF = re.compile(r"^<!-- files of: (\S+) -->$", re.MULTILINE)
PATH = re.compile(r"# ((?:\w+/)+\w+\.py)\n")


@dataclass(frozen=True)
class Block:
    """One fenced block, with the comment in front of it."""

    document: Path
    line: int
    language: str
    code: str
    marker: str = ""
    argument: str = ""

    def __str__(self) -> str:
        return f"{name_of(self.document)}:{self.line}"


def name_of(document: Path) -> str:
    return str(document.relative_to(ROOT))


def blocks_of(document: Path) -> list[Block]:
    """Returns all fenced blocks of a document, including those in lists and quotes."""
    found: list[Block] = []
    marker, argument = "", ""
    for token in MarkdownIt().disable(["inline", "text_join"]).parse(document.read_text(encoding="utf-8")):
        if token.type == "fence":
            assert token.map is not None
            path = PATH.match(token.content)
            said = ("package", path[1]) if path and not marker else (marker, argument)
            found.append(Block(document, token.map[0] + 1, token.info.strip(), token.content, *said))
        said = MARKER.fullmatch(token.content.strip()) if token.type == "html_block" else None
        marker, argument = (said[1], said[2] or "") if said else ("", "")
    return found


def files_of(document: Path) -> dict[str, str]:
    """Returns the files that the blocks of a document run beside, by name: its own, and those of pages it names."""
    found: dict[str, str] = {}
    for page in FILES_OF.findall(document.read_text(encoding="utf-8")):
        found |= files_of(document.parent / page)
    return found | {block.argument: block.code for block in blocks_of(document) if block.marker == "file"}


BLOCKS = [block for document in DOCUMENTS for block in blocks_of(document)]


@dataclass(frozen=True)
class ShellCommand:
    """One command of a shell block: its words, and the comment behind it."""

    words: tuple[str, ...]
    comment: str

    def __str__(self) -> str:
        return shlex.join(self.words)


def commands_of(script: str) -> list[ShellCommand]:
    """Splits a script into its commands, also at pipes and `&&`. Leaves here-documents out."""
    without_input = re.sub(r"<<'?(\w+)'?(.*)\n(?:.*\n)*?\1$", r"\2", script, flags=re.MULTILINE)
    found: list[ShellCommand] = []
    for line in without_input.splitlines():
        code, comment = _without_comment(line)
        lexer = shlex.shlex(code, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        lexer.commenters = ""
        commands: list[list[str]] = [[]]
        words = iter(lexer)
        for word in words:
            if set(word) <= set("<>"):
                next(words, None)  # skips the name of a redirected file
            elif set(word) <= set("|&;()"):
                commands.append([])
            else:
                commands[-1].append(word)
        commands = [command for command in commands if command]
        if commands:
            found += [ShellCommand(tuple(command), "") for command in commands[:-1]]
            found.append(ShellCommand(tuple(commands[-1]), comment))
        elif comment and found:  # a comment that continues on its own line
            found[-1] = ShellCommand(found[-1].words, f"{found[-1].comment} {comment}")
    return found


def _without_comment(line: str) -> tuple[str, str]:
    quote = ""
    for place, character in enumerate(line):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character == "#" and (place == 0 or line[place - 1].isspace()):
            return line[:place], line[place:].strip("# ")
    return line, ""
