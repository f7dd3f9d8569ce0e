"""What a command left behind is told with its own result here, however busy the machine is."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def patient_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that takes longer than a moment is told with the next command's result, which no test here runs."""
    monkeypatch.setattr("swink_agent.sandbox.repositories.watch_behind._PATIENCE", 30.0)
