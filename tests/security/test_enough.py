"""The number of attacks and of ordinary tasks must not shrink unnoticed."""

from __future__ import annotations

from . import (
    test_approval_tricks,
    test_escape_commands,
    test_escape_files,
    test_exfiltration,
    test_exhaustion,
    test_ordinary_tasks,
    test_poisoned_files,
    test_smuggling,
)


def test_there_are_enough_attacks_of_every_kind() -> None:
    counts = {
        "files": len(test_escape_files.ATTACKS),
        "commands": len(test_escape_commands.ATTACKS),
        "exfiltration": len(test_exfiltration.ATTACKS),
        "approval": len(test_approval_tricks.TRICKS),
        "smuggling": len(test_smuggling.TRICKS),
        "exhaustion": len(test_exhaustion.ATTACKS),
        "poison": len(test_poisoned_files.ATTACKS),
    }
    assert all(count >= 15 for count in counts.values()), counts
    assert sum(counts.values()) >= 350, counts


def test_there_is_enough_ordinary_work() -> None:
    assert len(test_ordinary_tasks.TASKS) >= 60
