"""`swink config trust`: shows the folder's files, the lines that would be ignored, and the changes, then asks.

Trust applies to exactly the content that is shown. `app.trust` implements it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from swink_agent.app.errors import SettingsError
from swink_agent.app.trust import trust
from swink_agent.app.trust.trust import FolderToTrust, Project, TrustStore, as_text, find_project
from swink_agent.approvals.display import safe_display
from swink_agent.rendering.texts.diffs import diff_lines

from ..screen.screen import Screen

_MARK = "  │ "
_MOST_TOLD = 12
"""Lines of a change that are shown before a run. Before trust is given, all lines are shown."""


def trust_folder(folder: Path, *, is_sure: bool) -> bool:
    """Shows the files, asks, and trusts the folder. Returns whether it did."""
    store, screen = TrustStore(), Screen(sys.stderr)
    found = find_project(folder, store)
    chain = () if found is None else found.chain
    wanted = next((item for item in chain if item.can_be_trusted), found)
    offer = store.offer(folder if wanted is None else Path(wanted.folder))
    _show(offer, screen)
    for change in store.changes(offer):  # last, next to the question
        screen.say("", f"{change.path}, the changes since you trusted it:")
        screen.change(diff_lines(as_text(change.old), as_text(change.new)), context=_MARK)
    if not is_sure and not _says_yes(f"Trust {safe_display(offer.folder)}?"):
        screen.line("Nothing was changed.")
        return False
    store.accept(offer)
    screen.say("", f"{offer.folder} is trusted.")
    return True


def _show(offer: FolderToTrust, screen: Screen) -> None:
    """Shows all parts, with a mark before each line of a file, so that no such line looks like our own words."""
    parts = list(trust.offered_parts(offer))
    for part in parts:
        screen.say("not used: " * part.is_uncounted, part.words, *["yellow"] * part.is_uncounted)
        if part.text is not None:
            screen.rows(_MARK, part.text)
    if not parts:
        screen.say("", f"{offer.folder} has neither {trust.PROJECT_FILE} nor {trust.NOTES_FILE}, skills or commands.")


def what_changed(project: Project, store: TrustStore) -> list[str]:
    """The first changed lines of each file that changed since it was trusted, here and in the folders above."""
    told: list[str] = []
    for item in project.chain:
        if not (item.was_changed or item.notes_were_changed or item.unused_prompts):
            continue
        try:
            changes = store.changes(store.offer(Path(item.folder)))
        except SettingsError:  # a file with a mistake cannot be trusted; its note says so
            continue
        for change in changes:
            lines = [
                f"{'+' if kind == 'added' else '-'} {text}"
                for kind, text in diff_lines(as_text(change.old), as_text(change.new), 0)
                if kind in ("added", "removed")
            ]
            more = [f"and {len(lines) - _MOST_TOLD:,} lines more"] if len(lines) > _MOST_TOLD else []
            told.append("\n".join([f"changed in {change.path}:", *lines[:_MOST_TOLD], *more]))
    return told


def _says_yes(question: str) -> bool:
    """The answer, typed at a terminal or piped in. A script that runs this command and gives no answer means yes."""
    if sys.stdin.isatty():
        click.echo(f"{question} [y/N] ", nl=False, err=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    return sys.stdin.readline().strip().lower() in ("", "y", "yes")
