"""Decides which commands `xargs` may run with names that other commands print.

The words come from a pipe, so they must be known to be names of files beneath the folder: the first command lists
files, those between only drop or sort lines, and no file of the folder has a name that is split into words, looks like
an option, or leads out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from .places import Place
from .shell_words import SimpleCommand, Word, names

_OPTION = re.compile(r"-[0rtx]+|-[nPL][0-9]+|--null|--no-run-if-empty|--max-(args|procs|lines)=[0-9]+")
_WITH_NUMBER = re.compile(r"-[nPL]")
_FIND = re.compile(r"-(printf|ls|fprint.*|fls)")
# Options with which grep and rg print names: letters without a value, options with the value in the next word, and long
# options. An `e` at the end of letters takes the next word too. `-l` and `--files` count only as options.
_LETTERS = {"grep": "EFHIilnrsvwx", "rg": "FHilnSsuvwx"}
_WITH_VALUE = {"grep": names("-e --include --exclude --exclude-dir"), "rg": names("-e -g -t -T --glob --type")}
_LONG = {
    "grep": re.compile(r"--(include|exclude|exclude-dir)=.*|--files-with-matches", re.DOTALL),
    "rg": re.compile(r"--(glob|type)=.*|-[gtT].+|--files|--files-with-matches", re.DOTALL),
}
_NAMES_ALONE = names("--files --files-with-matches")
_FEWER = re.compile(r"|-n?[0-9]+|-n [0-9]+")
_FILTERS = {"sort": re.compile(r"|-[ruV]+"), "uniq": re.compile(""), "head": _FEWER, "tail": _FEWER}
_FILTERS_BY_TEXT = re.compile("-[vEFiwx]+")


def consumer(
    words: tuple[Word, ...], before: tuple[SimpleCommand, ...], places: Iterable[Place]
) -> tuple[Word, ...] | None:
    """The command that receives the names, or `None` if it may receive anything but names of files beneath."""
    start = 1
    while start < len(words) and words[start].text.startswith("-"):
        text = words[start].text
        if _WITH_NUMBER.fullmatch(text) and start + 1 < len(words) and words[start + 1].text.isdigit():
            start += 1
        elif not _OPTION.fullmatch(text):
            return None
        start += 1
    rest = words[start:]
    if not before or not rest or not _lists_files(before[0]) or not all(map(_is_filter, before[1:])):
        return None
    if any(word.pattern is not None or word.varies for word in rest):
        return None
    return rest if all(place.is_plain() for place in places) else None


def _lists_files(command: SimpleCommand) -> bool:
    """Whether it prints only names of files beneath, without error messages."""
    texts = [word.text for word in command.words[1:]]
    if command.inputs or command.merges or any(word.varies or word.splits for word in command.words):
        return False
    if any(text.startswith("/") for text in texts):
        return False
    program = command.words[0].text
    if program == "find":
        return not any(_FIND.fullmatch(text) for text in texts)
    return program in _LETTERS and _searches_for_names(program, texts)


def _searches_for_names(program: str, texts: list[str]) -> bool:
    letters = re.compile(rf"-([{_LETTERS[program]}]+)(e?)")
    prints_names = is_value = False
    for text in texts:
        if is_value or not text.startswith("-") or text == "-":
            is_value = False
        elif text in _WITH_VALUE[program]:
            is_value = True
        elif (match := letters.fullmatch(text)) is not None:
            prints_names = prints_names or "l" in match[1]
            is_value = bool(match[2])
        elif _LONG[program].fullmatch(text):
            prints_names = prints_names or text in _NAMES_ALONE
        else:
            return False
    return prints_names


def _is_filter(command: SimpleCommand) -> bool:
    """Whether it passes on some of its input lines unchanged and reads no file instead."""
    texts = [word.text for word in command.words[1:]]
    if command.inputs or command.merges or any(word.pattern is not None or word.varies for word in command.words):
        return False
    if command.words[0].text == "grep":
        *options, wanted = texts or ["-"]
        return all(map(_FILTERS_BY_TEXT.fullmatch, options)) and not wanted.startswith("-")
    known = _FILTERS.get(command.words[0].text)
    return known is not None and known.fullmatch(" ".join(texts)) is not None
