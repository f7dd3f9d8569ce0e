"""Hostile sessions in a real browser: no script runs, nothing is fetched, and no speaker is forged.

Each page is tested unchanged, and again without its policy: escaping alone must be enough. The policy alone must also
be enough, which is tested with an unescaped page.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from .sessions import ATTACKS, CANARY, ROLES, infected, ordinary

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
IS_NEEDED = "SWINK_NEEDS_BROWSER" in os.environ
"""Set by .ci/run, where a browser that is missing is a failure and no reason to look away."""

pytestmark = [
    pytest.mark.sweep,
    pytest.mark.timeout(300),
    pytest.mark.skipif(BROWSER is None and not IS_NEEDED, reason="chromium is not installed here; .ci/run installs it"),
]

QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *(
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-dev-shm-usage",
        "--disable-extensions",
    ),
)
POLICY = re.compile(r"<meta http-equiv=\"Content-Security-Policy\"[^>]*>\n")


def opened(html: str, place: Path) -> str:
    """What a browser makes of the page: its elements as they are when everything in it has run."""
    assert BROWSER is not None, "install chromium: these tests are not to be left out here"
    place.mkdir(parents=True, exist_ok=True)
    page = place / "page.html"
    page.write_text(html, encoding="utf-8")
    command = [BROWSER, *QUIET, f"--user-data-dir={place / 'profile'}", "--virtual-time-budget=2000", "--dump-dom"]
    environment = {**os.environ, "HOME": str(place)}
    process = subprocess.Popen(
        [*command, page.as_uri()],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )
    try:
        dumped, _ = process.communicate(timeout=90)
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)  # its helpers too
        except ProcessLookupError:
            pass
    text = dumped.decode("utf-8")
    assert "</html>" in text, "the browser showed nothing"
    return text


def without_policy(html: str) -> str:
    bare, count = POLICY.subn("", html)
    assert count == 1
    return bare


def roles(dumped: str) -> tuple[str, ...]:
    return tuple([kind.split()[0] for kind in re.findall(r'<article class="([^"]*)"', dumped)])


@pytest.fixture
def visits() -> Iterator[tuple[str, list[str]]]:
    """A server's address, and what was asked of it."""
    asked: list[str] = []

    class Listening(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Listening)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_canary_sings_where_a_script_can_run(tmp_path: Path) -> None:
    html = ordinary().html().replace("</main>", f"<script>{CANARY}</script></main>")
    assert "pwned" in opened(without_policy(html), tmp_path / "bare")
    assert "pwned" not in opened(html, tmp_path / "with its policy")
    image = ordinary().html().replace("</main>", f'<img src="x" onerror="{CANARY}"></main>')
    assert "pwned" in opened(without_policy(image), tmp_path / "bare image")
    assert "pwned" not in opened(image, tmp_path / "image with its policy")


@pytest.mark.parametrize("name", ATTACKS)
def test_no_attack_runs_even_without_the_policy(name: str, tmp_path: Path) -> None:
    dumped = opened(without_policy(infected(ATTACKS[name]).html()), tmp_path)
    assert "pwned" not in dumped
    assert roles(dumped) == ROLES
    assert re.findall(r"<(?:script|iframe|object|embed|svg|link|base|form|template)\b", dumped) == []


@pytest.mark.parametrize("kind", ["as it is", "bare"])
def test_all_attacks_in_one_session(kind: str, tmp_path: Path) -> None:
    html = infected("\n\n".join(ATTACKS.values())).html()
    dumped = opened(html if kind == "as it is" else without_policy(html), tmp_path)
    assert "pwned" not in dumped
    assert roles(dumped) == ROLES


def test_nothing_is_fetched(tmp_path: Path, visits: tuple[str, list[str]]) -> None:
    address, asked = visits
    evil = f"{address}/x.png ![a]({address}/i.png) <img src={address}/j.png> "
    evil += f"<link rel=prefetch href={address}/p> url({address}/u)"
    for number, session in enumerate((infected(evil), infected(f"{address}/plain.png"))):
        opened(without_policy(session.html()), tmp_path / str(number))
    assert asked == []
    control = ordinary().html().replace("</main>", f'<img src="{address}/control.png"></main>')
    opened(control, tmp_path / "with its policy")
    assert asked == []
    opened(without_policy(control), tmp_path / "control")
    assert asked == ["/control.png"]
