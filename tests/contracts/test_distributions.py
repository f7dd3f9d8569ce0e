"""What is published: the source distribution has every file that README links, the wheel's page has no dead link."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\(([^)\s]+)\)")
BUILD = "import sys; from hatchling import build; print(getattr(build, sys.argv[1])(sys.argv[2]))"


def built(kind: str, project: Path, folder: Path) -> Path:
    """The distribution, made by the hook of the build backend, in a process with the project as its folder."""
    command = [sys.executable, "-c", BUILD, f"build_{kind}", str(folder)]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.split()[-1]


def relative(markdown: str) -> list[str]:
    """The files and folders that relative links lead to."""
    found = [link.partition("#")[0] for link in LINK.findall(markdown) if "://" not in link]
    return [link for link in found if link]


@pytest.mark.sweep
def test_the_source_has_what_readme_links_and_the_page_of_the_wheel_links_nothing_that_is_not_there(
    tmp_path: Path,
) -> None:
    pytest.importorskip("hatchling")
    source = built("sdist", ROOT, tmp_path)
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    readme = (unpacked / "README.md").read_text(encoding="utf-8")
    links = relative(readme)
    assert len(links) > 20
    assert [link for link in links if not (unpacked / link).exists()] == []
    # From what was unpacked, as an installer does it.
    wheel = built("wheel", unpacked, tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = HeaderParser().parsestr(archive.read(name).decode())
    page = metadata.get_payload()
    assert metadata["Description-Content-Type"].startswith("text/markdown")
    assert isinstance(page, str)
    assert [link for link in LINK.findall(page) if not link.startswith("https://")] == []
    assert "swink -p" in page
    assert "docs/cli.md" in page, "the text of a link stays"
