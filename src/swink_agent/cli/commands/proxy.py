"""`swink proxy`: serves models to machines that have no keys."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import Callable

import click

from swink_agent.app.agent.models import stream_fn_of, with_stored_keys
from swink_agent.app.errors import ApplicationError, UsageProblem
from swink_agent.app.keys.credentials import Credentials
from swink_agent.app.settings.settings import Settings, load_settings
from swink_agent.core.errors import AuthError
from swink_agent.core.stream import StreamFn
from swink_agent.core.types import ModelSpec

from ..process.groups import Number
from ..process.interrupts import ended_by_signal
from ..prompt.reporter import Reporter
from ..screen.screen import Screen

TOKEN_VARIABLE = "SWINK_PROXY_TOKEN"


@click.command(
    epilog="""\b
Examples:
  swink proxy                                   creates a token and prints it
  SWINK_PROXY_TOKEN=… swink proxy --port 8787
\b
On the other machine:
  export SWINK_PROXY_URL=http://127.0.0.1:8787 SWINK_PROXY_TOKEN=…
  swink -p "…" --model proxy:anthropic:claude-sonnet-4-6"""
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option(
    "--port",
    default=8787,
    show_default=True,
    metavar="PORT",
    type=Number(0, 65535),
    help="0 chooses a free one.",
)
@click.option("--streams", default=8, show_default=True, type=Number(1, 1000), help="Most requests at once.")
@click.option("--insecure", is_flag=True, help="Let other machines connect although nothing is encrypted.")
def proxy(host: str, port: int, streams: int, insecure: bool) -> int:
    """Serve models to machines that have no keys.

    The keys stay here. A client needs the token, which comes from SWINK_PROXY_TOKEN or is new at each start. Traffic is
    not encrypted: keep it on this machine, or use something that encrypts, such as an ssh tunnel.
    """
    if not host.strip():
        raise UsageProblem("an empty text is not an address to listen at (--host)")
    from swink_agent.web.access import is_loopback

    if not insecure and not is_loopback(host):
        raise UsageProblem(
            f"{host} can be reached from outside, and the proxy does not encrypt: --insecure allows that"
        )
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    is_new = not token
    token = token or secrets.token_urlsafe(32)
    return asyncio.run(_serve(host, port, token, is_new, streams))


async def _serve(host: str, port: int, token: str, is_new: bool, streams: int) -> int:
    from swink_agent.adapters.proxy_server import ProxyServer

    ended = ended_by_signal()
    settings, credentials = load_settings(), Credentials()
    server = ProxyServer({token: streams}, _upstream(settings, credentials))
    Reporter(Screen(sys.stderr), credentials.redactor()).hear_log()
    try:
        async with server.serve(host, port) as url:
            click.echo(f"export SWINK_PROXY_URL={url}")
            if is_new:
                click.echo(f"export {TOKEN_VARIABLE}={token}")
            if not credentials.listing():
                click.echo("warning: no key is set here; to store one: swink keys set PROVIDER", err=True)
            click.echo("Serving. Ctrl+C ends it.", err=True)
            await ended.wait()
    except OSError as error:
        raise UsageProblem(f"cannot listen at {host}:{port}: {error.strerror or error}") from error
    return 0


def _upstream(settings: Settings, credentials: Credentials) -> Callable[[ModelSpec], StreamFn]:
    """The adapters with the keys stored on this machine, created once for each provider."""
    made: dict[str, StreamFn] = {}

    def stream_fn(model: ModelSpec) -> StreamFn:
        place = str(model) if model.provider == "local" else model.provider
        if place not in made:
            try:
                made[place] = with_stored_keys(stream_fn_of(model, settings, credentials), credentials)
            except ApplicationError as error:  # reported to the client as an error of the provider
                raise AuthError(str(error)) from error
        return made[place]

    return stream_fn
