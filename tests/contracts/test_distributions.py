"""The distributions: the links of README work in the source, and on the page of the wheel."""

from __future__ import annotations

import re
import shutil
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
    """Builds the distribution with the build backend, in a process with the project as its folder."""
    command = [sys.executable, "-c", BUILD, f"build_{kind}", str(folder)]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.split()[-1]


def relative(markdown: str) -> list[str]:
    """The files and folders that relative links lead to."""
    found = [link.partition("#")[0] for link in LINK.findall(markdown) if "://" not in link]
    return [link for link in found if link]


@pytest.mark.sweep
def test_every_link_of_the_readme_works_in_the_source_and_on_the_page_of_the_wheel(
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
    assert "Start here: install" in page, "the text of a link stays"


def urls_of(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return HeaderParser().parsestr(archive.read(name).decode()).get_all("Project-URL", [])


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("remote", "page"),
    [
        ("https://code.example/team/agent.git", "https://code.example/team/agent"),
        ("https://ann:s3cret@code.example:8443/team/agent/", "https://code.example/team/agent"),
        ("git@code.example:team/agent.git", "https://code.example/team/agent"),
        ("ssh://git@code.example:2222/team/agent.git", "https://code.example/team/agent"),
        ("/srv/git/agent", None),
        ("../agent", None),
        ("file:///srv/git/agent", None),
        (None, None),
    ],
)
def test_a_wheel_names_the_host_that_its_clone_came_from(tmp_path: Path, remote: str | None, page: str | None) -> None:
    """Also if it is built from the source distribution, inside another repository."""
    pytest.importorskip("hatchling")
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    project, other = tmp_path / "project", tmp_path / "other"
    (project / "src/swink_agent").mkdir(parents=True)
    (project / "src/swink_agent/__init__.py").touch()
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, project)
    for clone, address in ((project, remote), (other, "https://code.example/other/thing")):
        subprocess.run(["git", "init", "-q", str(clone)], check=True)
        if address is not None:
            subprocess.run(["git", "-C", str(clone), "remote", "add", "origin", address], check=True)
    expected = [] if page is None else [f"Source, {page}", f"Issues, {page}/issues"]
    assert urls_of(built("wheel", project, tmp_path)) == expected
    with tarfile.open(built("sdist", project, tmp_path)) as archive:
        archive.extractall(other, filter="data")
    (unpacked,) = [place for place in other.iterdir() if place.name.startswith("swink")]
    assert urls_of(built("wheel", unpacked, other)) == expected
