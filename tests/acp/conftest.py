"""A folder to work in, and variables that belong to no user."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, with a key and with settings and sessions of its own."""
    (tmp_path / "work").mkdir()
    (tmp_path / "home").mkdir()
    for name, value in {
        "HOME": str(tmp_path / "home"),
        "SSL_CERT_FILE": os.devnull,
        "SWINK_CONFIG_DIR": str(tmp_path / "config"),
        "SWINK_DATA_DIR": str(tmp_path / "data"),
        "ANTHROPIC_API_KEY": "key-of-a-test-0123456789",
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "XAI_API_KEY", "MISTRAL_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name in [name for name in os.environ if name.startswith("SWINK_") and not name.endswith("_DIR")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr("swink_agent.app.keys.credentials.usable_keyring", lambda: None)
    return tmp_path / "work"
