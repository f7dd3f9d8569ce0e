"""Makes every test wait for the check of a command's leftovers, however busy the machine is."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def patient_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this, a slow check is reported with the next command's result, and no test here runs another command."""
    monkeypatch.setattr("swink_agent.sandbox.repositories.watch_behind._PATIENCE", 30.0)
