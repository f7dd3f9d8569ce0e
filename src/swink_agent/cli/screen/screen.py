"""stderr and stdout of a terminal: lines that stay, one line that does not, colours.

No line of ours is wider than the window, so none wraps. In text that we did not write, each row begins with a mark of
ours, and control characters are escaped. Text is made safe in `rendering.escaping` and measured in `rendering.cells`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TextIO

import click
import msgspec

from swink_agent.app.errors import UsageProblem
from swink_agent.approvals.display import safe_display
from swink_agent.rendering.cells import FOLLOWING, cell_width, cut, cut_middle, laid_out
from swink_agent.rendering.escaping import safe_text

_CHANGES = {"added": ("  + ", "green"), "removed": ("  - ", "red"), "hunk": ("  @ ", "dim")}
_STYLES = {"dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36", "bold": "1"}
_ANSWERS = {"y": True, "yes": True, "n": False, "no": False}
_LEAST = 8


def is_live(is_terminal: bool, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether lines can be erased here: on a terminal whose type is known and is not "dumb"."""
    return is_terminal and environ.get("TERM", "") not in ("", "dumb")


def wants_colour(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether to use colours: on a terminal that can show them, unless the user declined."""
    return is_live(stream.isatty(), environ) and not environ.get("NO_COLOR")


def width_of(stream: TextIO) -> int | None:
    """The widest row that does not wrap on this stream; `None` if it is not a terminal."""
    if not stream.isatty():
        return None
    try:
        columns = os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError, AttributeError):
        columns = shutil.get_terminal_size().columns
    return max(10, columns) - 1


def write_answer(text: str) -> None:
    """Writes to stdout: without control characters to a terminal, unchanged to a pipe. Raises `OSError`."""
    stream = sys.stdout
    data = (safe_text(text) if stream.isatty() else text).encode("utf-8", "replace")
    stream.flush()
    stream.buffer.write(data)
    stream.buffer.flush()


def say_json(value: object) -> None:
    """Prints a value for programs, as indented JSON."""
    click.echo(json.dumps(msgspec.to_builtins(value), indent=2))


def discard_stdout() -> None:
    """Discards the rest of stdout's buffer, so that the interpreter does not fail on it at exit."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)
        sys.stdout.flush()
    except (OSError, ValueError):
        pass


def confirm(question: str, what: str) -> None:
    """Asks the user on stderr. Raises `click.Abort` unless the answer is yes, with the cursor in a new row.

    `what` continues "--yes to". Raises `UsageProblem` if there is no terminal.
    """
    if not sys.stdin.isatty():
        raise UsageProblem(
            f"stdin is not a terminal, so you cannot be asked: add --yes to {what}, or --dry-run to see it"
        )
    try:
        while (answer := click.prompt(f"{question} [y/N]", "n", show_default=False, err=True).lower()) not in _ANSWERS:
            click.echo("Answer y or n.", err=True)
    except click.Abort:
        click.echo(err=True)  # Ctrl+C and Ctrl+D leave the cursor after the question
        raise
    if not _ANSWERS[answer]:
        raise click.Abort


class Palette:
    """Styles for text, or none if colours are off."""

    def __init__(self, colours: bool) -> None:
        self._colours = colours

    def style(self, text: str, *styles: str) -> str:
        if not self._colours or not text or not styles:
            return text
        return f"\x1b[{';'.join(_STYLES[style] for style in styles)}m{text}\x1b[0m"


class Screen(Palette):
    """A stream for people, usually stderr. Safe from any thread. Does nothing if the stream is closed."""

    def __init__(
        self,
        stream: TextIO,
        *,
        colours: bool | None = None,
        width: Callable[[], int] | None = None,
        live: bool | None = None,
    ) -> None:
        super().__init__(wants_colour(stream) if colours is None else colours)
        self._stream = stream
        self._given_width = width
        self._status = ""
        self._held: list[str] | None = None
        self._lock = threading.RLock()
        self.is_watched = stream.isatty()
        """Whether a user can follow the run: the stream is a terminal of any kind."""
        self.is_terminal = is_live(self.is_watched) if live is None else live
        """Whether the status line can be shown."""

    @property
    def columns(self) -> int:
        if self._given_width is not None:
            return max(10, self._given_width())
        return (width_of(self._stream) or 79) + 1

    @property
    def width(self) -> int | None:
        """The widest row that does not wrap; `None` without a terminal."""
        return self.columns - 1 if self.is_terminal or self.is_watched else None

    def line(self, text: str) -> None:
        """Writes a line that stays. The caller has made the text safe and narrow enough."""
        with self._lock:
            if self._held is not None:
                self._held.append(text)
                return
            self._write(self._erased() + text + "\n" + self._cut_status())

    def say(self, mark: str, text: str, *styles: str, following: str = FOLLOWING, most: int | None = None) -> None:
        """Writes foreign text as lines that stay. The first begins with `mark` in these styles, the others with
        `following`. Beyond `most` rows the middle is left out."""
        rows = laid_out(safe_text(text), mark, following, self.width, most=most)
        first = self.style(rows[0][: len(mark)].rstrip(), *styles) + rows[0][len(mark.rstrip()) :]
        self.line("\n".join([first, *rows[1:]]))

    def rows(self, mark: str, text: str, *styles: str, most: int | None = None) -> None:
        """Writes foreign text as lines that stay, each with the mark before it and in these styles."""
        for row in laid_out(safe_text(text), mark, mark, self.width, most=most):
            self.line(self.style(row, *styles))

    def change(self, lines: Iterable[tuple[str, str]], *, context: str) -> None:
        """Writes the lines of a change, each given with its kind. `context` is the mark of unchanged lines."""
        for kind, text in lines:
            mark, style = _CHANGES.get(kind, (context, "dim"))
            self.rows(mark, text.removeprefix("@@ ") if kind == "hunk" else text, style)

    def status(self, text: str) -> None:
        """Shows a line that does not stay: cut to the width, replaced by the next one. Only on a terminal."""
        if not self.is_terminal:
            return
        with self._lock:
            if self._held is not None:
                return
            erase = self._erased()
            self._status = safe_text(text).replace("\n", " ").replace("\t", " ")
            self._write(erase + self._cut_status())

    def clear(self) -> None:
        with self._lock:
            if self._status:
                self._write(self._erased())
                self._status = ""

    def hold(self) -> None:
        """Holds back all output until `release`, because the user is being asked something on this terminal."""
        with self._lock:
            self.clear()
            self._held = [] if self._held is None else self._held

    def release(self) -> None:
        with self._lock:
            held, self._held = self._held, None
            for text in held or ():
                self.line(text)

    def _cut_status(self) -> str:
        """The status line, cut to the window's current width, which may have changed."""
        self._status = cut(self._status, self.columns - 1, sign="")
        return self._status

    def _erased(self) -> str:
        """The control sequence that erases the status line, which takes several rows in a window made narrower."""
        if not self._status:
            return ""
        rows = (cell_width(self._status) - 1) // self.columns
        # Only xterm cuts long lines off instead of wrapping them, and it sets this variable.
        return f"\r\x1b[{rows}A\x1b[J" if rows > 0 and not os.environ.get("XTERM_VERSION") else "\r\x1b[K"

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            pass  # a stream without a reader is not a failure


def table(
    rows: Sequence[Sequence[str]], right: Sequence[int] = (), *, room: int | None = None, whole: Sequence[int] = ()
) -> str:
    """The rows as aligned columns; the columns in `right` are aligned to the right.

    A row is one line, no wider than `room`, by default the window. The widest columns are shortened first, the columns
    in `whole` never. Without a window nothing is shortened.
    """
    if not rows:
        return ""
    room = width_of(sys.stdout) if room is None else room
    cells = [[safe_display(cell, None) for cell in row] for row in rows]
    widths = [max(cell_width(row[column]) for row in cells) for column in range(len(cells[0]))]
    flexible = [column for column in range(len(widths)) if column not in whole and widths[column] > _LEAST]
    while room is not None and sum(widths) + 2 * (len(widths) - 1) > room and flexible:
        widest = max(flexible, key=lambda column: widths[column])
        widths[widest] -= 1
        if widths[widest] <= _LEAST:
            flexible.remove(widest)
    lines = ("  ".join([_padded(*cell, right) for cell in enumerate(zip(row, widths, strict=True))]) for row in cells)
    return "\n".join([line.rstrip() if room is None else cut(line.rstrip(), room) for line in lines])


def _padded(column: int, cell_and_width: tuple[str, int], right: Sequence[int]) -> str:
    cell, width = cell_and_width
    cell = cut_middle(cell, width)
    padding = " " * (width - cell_width(cell))
    return padding + cell if column in right else cell + padding
