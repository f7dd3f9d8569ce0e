"""The package that docs/providers.md builds, written to disk and installed as pip would leave it."""

from __future__ import annotations

import re
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "providers.md"


def files_of_the_page() -> dict[str, str]:
    """The page's files by their paths, which are the first lines of its blocks."""
    found = re.findall(r"^```(?:python|toml)\n# (\S+)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return dict(found)


def write_project(folder: Path) -> Path:
    for name, text in files_of_the_page().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def install(project: Path, site: Path) -> Path:
    """Puts the package into a folder for PYTHONPATH, with the metadata that an installer makes for it."""
    about = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    for path in (project / "src").rglob("*.py"):
        target = site / path.relative_to(project / "src")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(path.read_text())
    declare(site, about["name"], about["entry-points"], version=about["version"])
    return site


def declare(site: Path, name: str, groups: dict[str, dict[str, str]], *, version: str = "1.0") -> None:
    """The metadata of an installed package that declares these entry points."""
    metadata = site / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [
        line
        for group, points in groups.items()
        for line in (f"[{group}]", *[f"{point} = {value}" for point, value in points.items()])
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")


def fake_of(project: Path) -> Any:
    """The page's strict fake of its provider."""
    spec = spec_from_file_location("fake_acme", project / "tests" / "fake_acme.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.API
