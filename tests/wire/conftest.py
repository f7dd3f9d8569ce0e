"""Recorded responses of providers are not in the repository: these tests exist only where the recordings are."""

from __future__ import annotations

import os
from pathlib import Path

WIRE = Path(os.environ["SWINK_WIRE_DIR"]) if os.environ.get("SWINK_WIRE_DIR") else None
collect_ignore_glob = [] if WIRE is not None else ["test_*.py"]


def pytest_report_header() -> str:
    return f"recorded provider responses: {WIRE or 'none, since SWINK_WIRE_DIR is not set; fixtures of our own remain'}"
