"""The page of a hostile run in a real browser: no script runs, and the page of a case shows when it is asked for.

Each page is tested unchanged, and again without its policy: escaping alone must be enough.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

from swink_agent.evals import report

from .hostile import CANARY, HOSTILE
from .sample_runs import history, infected, ordinary

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
IS_NEEDED = "SWINK_NEEDS_BROWSER" in os.environ

pytestmark = [
    pytest.mark.sweep,
    pytest.mark.timeout(300),
    pytest.mark.skipif(BROWSER is None and not IS_NEEDED, reason="chromium is not installed here; .ci/run installs it"),
]

QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
    "--disable-extensions",
)
POLICY = re.compile(r"<meta http-equiv=\"Content-Security-Policy\"[^>]*>\n")


def browsed(html: str, place: Path, *options: str, at: str = "") -> str:
    """What the browser prints of a page, at one of its names."""
    assert BROWSER is not None, "install chromium: these tests are not to be left out here"
    place.mkdir(parents=True, exist_ok=True)
    page = place / "page.html"
    page.write_text(html, encoding="utf-8")
    command = [BROWSER, *QUIET, f"--user-data-dir={place / 'profile'}", "--virtual-time-budget=2000", *options]
    process = subprocess.Popen(
        [*command, page.as_uri() + at],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(place)},
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=90)
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)  # its helpers too
        except ProcessLookupError:
            pass
    return printed.decode("utf-8")


def opened(html: str, place: Path, at: str = "") -> str:
    text = browsed(html, place, "--dump-dom", at=at)
    assert "</html>" in text, "the browser showed nothing"
    return text


def without_policy(html: str) -> str:
    bare, count = POLICY.subn("", html)
    assert count == 1
    return bare


def picture(html: str, place: Path, at: str = "") -> bytes:
    """The dots of what is shown, without what a file says around them."""
    file = place / "shown.png"
    browsed(html, place, f"--screenshot={file}", "--window-size=900,700", at=at)
    data = file.read_bytes()
    dots, position = b"", 8
    while position < len(data):
        (length,) = struct.unpack(">I", data[position : position + 4])
        if data[position + 4 : position + 8] == b"IDAT":
            dots += data[position + 8 : position + 8 + length]
        position += length + 12
    return zlib.decompress(dots)


def test_the_canary_sings_where_a_script_can_run(tmp_path: Path) -> None:
    html = report(ordinary(), "html").replace("</main>", f"<script>{CANARY}</script></main>")
    assert "pwned" in opened(without_policy(html), tmp_path / "bare")
    assert "pwned" not in opened(html, tmp_path / "with its policy")


@pytest.mark.parametrize("kind", ["as it is", "bare"])
def test_no_script_of_a_hostile_case_runs(kind: str, tmp_path: Path) -> None:
    html = report(infected("\n\n".join(HOSTILE.values())), "html")
    dumped = opened(html if kind == "as it is" else without_policy(html), tmp_path, at="#c1")
    assert "pwned" not in dumped
    assert re.findall(r"<(?:script|iframe|object|embed|link|base|form|template)\b", dumped) == []
    assert len(re.findall(r'<section class="case"', dumped)) == 1


@pytest.mark.parametrize("name", ["script", "closes everything", "quotes", "svg", "forged case", "controls"])
def test_no_attack_runs_even_without_the_policy(name: str, tmp_path: Path) -> None:
    dumped = opened(without_policy(report(infected(HOSTILE[name]), "html")), tmp_path, at="#c1")
    assert "pwned" not in dumped
    assert len(re.findall(r'<section class="case"', dumped)) == 1


def test_the_page_of_a_case_replaces_the_overview(tmp_path: Path) -> None:
    html = report(ordinary(), "html", history=history())
    overview, case = picture(html, tmp_path / "1"), picture(html, tmp_path / "2", "#c6")
    assert overview != case
    gone = re.sub(r'<section class="overview".*?</section>\n(?=<section class="case")', "", html, flags=re.DOTALL)
    assert gone != html
    assert picture(gone, tmp_path / "3", "#c6") == case, "nothing of the overview is seen beside a case"
    assert picture(html, tmp_path / "4", "#c6a2m1") != overview, "a link to a message shows its case"
