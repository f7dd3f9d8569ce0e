"""SECURITY.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_tests_named_in_the_security_page_exist() -> None:
    named = re.findall(r"`(tests/[^`]+)`", (ROOT / "SECURITY.md").read_text(encoding="utf-8"))
    assert len(named) > 10
    assert [path for path in named if not (ROOT / path).exists()] == []
