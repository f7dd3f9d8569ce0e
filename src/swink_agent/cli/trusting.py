"""`swink config trust` as a person sees it: what the folder's files say, what of it would not count, and the question.

Owns what is shown before trust is given. What trust is, and that it is given to exactly what was shown, is in
`app.trust`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from swink_agent.app.settings import load_settings, parse_file
from swink_agent.app.trust import NOTES_FILE, PROJECT_FILE, Offer, TrustStore, find_project

from .screen import Screen, plain_text

__all__ = ["trust_folder"]

_MOST_LINES = 60
_MOST_COLUMNS = 160
_MARK = "  │ "


def trust_folder(folder: Path, *, is_sure: bool) -> bool:
    """Shows, asks, and trusts; says whether it did."""
    store = TrustStore()
    found = find_project(folder, store)
    offer = store.offer(folder if found is None else Path(found.folder))
    _show(offer, Screen(sys.stderr))
    if not is_sure and not _says_yes(f"Trust {plain_text(offer.folder)}?"):
        click.echo("Nothing was changed.", err=True)
        return False
    store.accept(offer)
    click.echo(f"{plain_text(offer.folder)} is trusted.", err=True)
    return True


def _show(offer: Offer, screen: Screen) -> None:
    folder = Path(offer.folder)
    if offer.settings is not None:
        screen.line(f"{plain_text(str(folder / PROJECT_FILE))}, whose settings would be used:")
        _quote(offer.settings, screen, numbered=True)
        for line in _uncounted(offer):
            screen.line(f"{screen.style('not counted', 'yellow')}: {plain_text(line)}")
    if offer.notes is not None:
        screen.line(f"{plain_text(str(folder / NOTES_FILE))}, which the model would be told:")
        _quote(offer.notes, screen)
    if offer.settings is None and offer.notes is None:
        screen.line(f"{plain_text(offer.folder)} has neither {PROJECT_FILE} nor {NOTES_FILE}.")


def _quote(data: bytes, screen: Screen, *, numbered: bool = False) -> None:
    """The text behind a mark, so that no line of it can be taken for one of ours, however it wraps."""
    lines = data.decode("utf-8", "replace").removesuffix("\n").split("\n")
    most = len(lines) if numbered else _MOST_LINES  # settings are shown whole: each line of them does something
    width = max(20, min(screen.columns - 12, _MOST_COLUMNS)) // 2  # a character may take two columns
    for number, line in enumerate(lines[:most], 1):
        text = plain_text(line).replace("\t", "    ")
        pieces = [text[start : start + width] for start in range(0, len(text), width)] or [""]
        for position, piece in enumerate(pieces):
            head = f"{number:>4}" if numbered and not position else "    " * numbered
            screen.line(f"{head}{_MARK}{piece}")
    if len(lines) > most:
        screen.line(f"{_MARK}… and {len(lines) - most} more lines")


def _uncounted(offer: Offer) -> list[str]:
    """The lines that say what a project may not say, or say it more loosely than the user's own settings."""
    assert offer.settings is not None
    path = str(Path(offer.folder, PROJECT_FILE))
    notes = load_settings(project=parse_file(path, offer.settings)).notes
    return [note.replace(f"{path}:", "line ", 1) for note in notes]


def _says_yes(question: str) -> bool:
    """The answer at a terminal, or the one that was piped in. Who runs this in a script, with neither, has decided."""
    stream = sys.stdin
    if stream is None:
        return True
    if stream.isatty():
        click.echo(f"{question} [y/N] ", nl=False, err=True)
        return stream.readline().strip().lower() in ("y", "yes")
    answer = stream.readline().strip().lower()
    return answer in ("", "y", "yes")
