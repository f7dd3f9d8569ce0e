"""Without recordings, one skipped test stands for all tests over them."""

from __future__ import annotations

import pytest

from .recordings import all_recordings

REASON = "recorded replies are not in the repository, and SWINK_WIRE_DIR is not set: see tests/wire/README.md"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    over_recordings = [item for item in items if item.path.name == "test_recordings.py"]
    if not over_recordings or all_recordings():
        return
    over_recordings[0].add_marker(pytest.mark.skip(REASON))
    config.hook.pytest_deselected(items=over_recordings[1:])
    items[:] = [item for item in items if item not in over_recordings[1:]]
