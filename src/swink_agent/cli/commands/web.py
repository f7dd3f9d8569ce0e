"""`swink web`: the agent in a browser, and for programs over HTTP. The server is in `swink_agent.web`."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from swink_agent.app.agent.opening import SETTING_FLAGS, Opening, OpeningOptions
from swink_agent.app.browser import browser_program, leading_page, open_in_browser
from swink_agent.app.doctor import WEB_PORT
from swink_agent.app.errors import ExitCode, UsageProblem
from swink_agent.app.runs.sessions import newest_and_unknown, open_store, session_problems
from swink_agent.app.settings.paths import data_folder

from ..process.groups import Number, takes
from ..process.interrupts import ended_by_signal
from ..prompt.reporter import Reporter
from ..root import options_of_prompt
from ..screen.screen import Screen

if TYPE_CHECKING:
    from swink_agent.web.access import Access

TOKEN_VARIABLE = "SWINK_WEB_TOKEN"
_LEAST_TOKEN = 22
"""The length of 128 bits in base 64."""
_ENDING = 4.0
"""Seconds in which runs, readers and telemetry end."""
_SHARED = (
    *[name for name in SETTING_FLAGS if name not in ("output", "allow_hosts")],
    *("no_mcp", "no_hooks", "cwd", "add_dir", "continue", "resume"),
)
"""The flags that the terminal UI has too."""


@options_of_prompt(*_SHARED)
@click.command(
    epilog="""\b
Examples:
  swink web                        opens the browser
  swink web --no-open --port 0     prints the address, at a free port
  swink web --host 192.168.1.7 --tls-cert cert.pem --tls-key key.pem""",
)
@click.option(
    "--port",
    default=WEB_PORT,
    show_default=True,
    metavar="PORT",
    type=Number(0, 65535),
    help="0 chooses a free one.",
)
@click.option("--no-open", is_flag=True, help="Do not open the browser.")
@takes("--host ADDRESS", "Listen at this address. Default: only this machine can connect.")
@takes("--tls-cert FILE", "The certificate, for encrypted connections.")
@takes("--tls-key FILE", "The key of the certificate.")
@click.option("--insecure", is_flag=True, help="Let other machines connect although nothing is encrypted.")
@takes("--allow-host NAME", "Also answer to this host name, with or without a port. Repeatable.", multiple=True)
@takes("--command-host HOST", "Let every command reach this host, as swink --allow-host. Repeatable.", multiple=True)
@takes("--allow-origin URL", "Also accept requests from pages of this site. Repeatable.", multiple=True)
def web(**options: Any) -> int:
    """Open the agent in a browser, and serve its API.

    The address contains a token, which is new at each start or comes from SWINK_WEB_TOKEN. Anyone with the token can do
    everything that you can do in the terminal UI. Only this machine can connect, unless --host is given. Ctrl+C ends
    the server.
    """
    from swink_agent.web.access import is_host, is_loopback, is_origin
    from swink_agent.web.serving import tls_context

    host = options["host"]
    if host is not None and not host.strip():
        raise UsageProblem("an empty text is not an address to listen at (--host)")
    if (options["tls_cert"] is None) != (options["tls_key"] is None):
        raise UsageProblem("--tls-cert and --tls-key go together")
    tls = None if options["tls_cert"] is None else tls_context(options["tls_cert"], options["tls_key"])
    if host is not None and not is_loopback(host) and tls is None and not options["insecure"]:
        raise UsageProblem(
            f"{host} can be reached from outside: give --tls-cert and --tls-key; or --insecure, but then anyone on "
            "the network path can read the token and use the agent"
        )
    for name in options["allow_host"]:
        if not is_host(name):
            raise UsageProblem(f"{name[:60]} is not the name of a host: example.org, or example.org:443 (--allow-host)")
    for origin in options["allow_origin"]:
        if not is_origin(origin) or not origin.startswith(("http://", "https://")):
            raise UsageProblem(f"{origin[:60]} is not the address of a site: https://example.org (--allow-origin)")
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if token and len(token) < _LEAST_TOKEN:
        raise UsageProblem(f"{TOKEN_VARIABLE} has {len(token)} characters: a token needs at least {_LEAST_TOKEN}")
    if not all("!" <= letter <= "~" for letter in token):
        raise UsageProblem(
            f"{TOKEN_VARIABLE} has a character that is not allowed in a header: use letters, digits and punctuation"
        )
    given = {name: options[name] for name in _SHARED}
    opening = Opening(
        OpeningOptions.of({**given, "output": None, "allow_hosts": options["command_host"], "no_session": False}),
        credentials=None,
    )
    if not opening.settings.value("sessions"):
        raise UsageProblem(
            "with the setting sessions = false nothing is recorded, but the browser shows sessions: set it to true"
        )
    return asyncio.run(_serve(opening, options, token or secrets.token_urlsafe(24), tls))


async def _serve(opening: Opening, options: dict[str, Any], token: str, tls: Any) -> int:
    from swink_agent.web.access import Access
    from swink_agent.web.serving import bound, hosts_of, served, standard_site

    host = options["host"] or "127.0.0.1"
    page = _first_page(opening, options)
    listening = bound(host, options["port"])
    port = listening.getsockname()[1]
    hosts = hosts_of(host, options["allow_host"], port)
    access = Access(token=token, hosts=hosts, origins=options["allow_origin"], port=port)
    ended = ended_by_signal()
    name = "127.0.0.1" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    url = f"{'https' if tls else 'http'}://{name}:{port}{page}"
    reporter = Reporter(Screen(sys.stderr), opening.credentials.redactor())
    reporter.hear_log()
    serving = served(standard_site(opening, access), listening, tls)
    await serving.__aenter__()
    try:
        click.echo(f"{url}?token={quote(token, safe='')}")
        for line in _meaning(host, options["allow_host"], is_encrypted=tls is not None):
            click.echo(line, err=True)
        click.echo("Serving. Ctrl+C ends it.", err=True)
        with ExitStack() as pages:
            if not options["no_open"] and not await asyncio.to_thread(_open, pages, url, access, opening):
                click.echo("no browser could be opened: open the address above yourself", err=True)
            await ended.wait()
    finally:
        end = time.monotonic() + _ENDING
        try:
            await asyncio.wait_for(serving.__aexit__(None, None, None), _ENDING)
        except TimeoutError:
            os._exit(ExitCode.DONE)  # something does not end; everything that matters is on disk
        left = max(end - time.monotonic(), 0.1)
        if (problem := await asyncio.to_thread(opening.telemetry.close, left)) is not None:
            reporter.warn(problem)
    return ExitCode.DONE


def _open(pages: ExitStack, url: str, access: Access, opening: Opening) -> bool:
    """Opens the browser, whose command line has no secret; returns whether that worked. The page stays in `pages`."""
    if not browser_program(os.environ, opening.writable):
        return False
    try:
        leading = leading_page(f"{url}?code={access.new_code()}", data_folder(), f"web-{access.port}")
        page = pages.enter_context(leading)
    except OSError:
        return False
    return open_in_browser(page.as_uri(), os.environ, opening.writable)


def _meaning(host: str, allowed: Sequence[str], *, is_encrypted: bool) -> list[str]:
    """Warnings if other machines can connect to the server."""
    from swink_agent.web.access import is_loopback

    if is_loopback(host):
        return []
    lines = ["Other machines can connect. Anyone with the token can do everything that you can in the terminal UI."]
    if not is_encrypted:
        lines.append("Nothing is encrypted: anyone on the network path can read the token and use the agent.")
    if host in ("0.0.0.0", "::") and not allowed:
        lines.append("It only accepts the host names of this machine: --allow-host adds one for other machines.")
    return lines


def _first_page(opening: Opening, options: dict[str, Any]) -> str:
    """The first page: that of the session that the flags name, or the list."""
    wanted = options["resume"]
    if not wanted and not options["continue"]:
        return "/"
    with session_problems():
        store = open_store(opening.settings)
        is_newest = options["continue"]
        found = newest_and_unknown(store, opening.folder.resolve())[0] if is_newest else store.load(wanted)
    return f"/sessions/{found.id}"
