"""What a sandbox can be asked to start, checked before anything has happened.

Owns the words for what makes no sense: every back end would say it in its own way, or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from subprocess import DEVNULL
from typing import cast

__all__ = ["check_request"]


def check_request(
    argv: object, cwd: object, environment: Mapping[str, str] | None, stdin: object, pass_fds: object
) -> None:
    """Raises `TypeError` or `ValueError`, with the reason, unless a process could be started with these."""
    if isinstance(argv, (str, bytes)):
        raise TypeError(f"a command is a list of words, not one text: give [{argv!r}], or run it by a shell")
    if not isinstance(argv, Sequence):
        raise TypeError(f"a command is a list of words, not of type {type(argv).__name__}")
    words = cast("Sequence[object]", argv)
    if not words or words[0] == "":
        raise ValueError("a command has at least a program")
    for number, word in enumerate(words):
        _check_text(f"argument {number}", word)
    _check_text("cwd", cwd)
    for name, value in (environment or {}).items():
        _check_text("the name of a variable", name)
        if not name or "=" in name:
            raise ValueError(f"{name!r} is no name of a variable")
        _check_text(f"variable {name!r}", value)
    if not isinstance(pass_fds, Sequence) or isinstance(pass_fds, (str, bytes)):
        raise TypeError("pass_fds are numbers of descriptors")
    if stdin != DEVNULL:
        _check_descriptor("stdin is a descriptor or DEVNULL", stdin)
    for descriptor in cast("Sequence[object]", pass_fds):
        _check_descriptor("pass_fds are numbers of descriptors", descriptor)


def _check_text(what: str, text: object) -> None:
    if not isinstance(text, str):
        raise TypeError(f"{what} is of type {type(text).__name__}: give text")
    if "\0" in text:
        raise ValueError(f"{what} holds a NUL character, which nothing of a process can")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise ValueError(f"{what} holds half of a character (a lone surrogate)") from None


def _check_descriptor(rule: str, number: object) -> None:
    if not isinstance(number, int) or number < 0:
        raise ValueError(f"{rule}, not {number!r}")
    try:
        os.fstat(number)
    except OSError:
        raise ValueError(f"{number} is no open descriptor") from None
