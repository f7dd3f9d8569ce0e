"""One name for one thing: no two modules of one package have the same name, in whatever folders they are."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2] / "src" / "swink_agent"
PARALLEL = {("sandbox", "backend")}
"""Both back ends have a module of this name."""
EVERYWHERE = {"__init__", "_exports"}


def test_no_two_modules_of_a_package_have_the_same_name() -> None:
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in ROOT.rglob("*.py"):
        place = path.relative_to(ROOT)
        if len(place.parts) > 1 and path.stem not in EVERYWHERE:
            found[place.parts[0], path.stem].append(str(place))
    assert {key: places for key, places in found.items() if len(places) > 1 and key not in PARALLEL} == {}
