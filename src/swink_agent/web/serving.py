"""Runs the server of `swink web`: the standard agent of one folder, at an address, until it is told to stop.

Owns the socket, TLS, and the parts of the site that come from settings. The command handles signals and flags.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from aiohttp import web

from swink_agent.adapters.kit.listener import Connection, listening, noted
from swink_agent.adapters.kit.server_log import ServerLog
from swink_agent.app.agent.models import choose_model, named_model
from swink_agent.app.agent.opening import Opening
from swink_agent.app.agent.standard import redactor_for
from swink_agent.app.errors import ApplicationError, UsageProblem
from swink_agent.app.evals.evaluation import results_folder
from swink_agent.app.runs.sessions import open_store
from swink_agent.app.settings.settings import Settings
from swink_agent.core.stream import StreamFn
from swink_agent.evals import EvalStore

from .access import Access, add_safe_headers
from .channels import SessionChannel
from .problems import Problem, invalid
from .server import MAX_READERS, MAX_UPLOAD, application
from .site import Site
from .standard import StandardTalk
from .talks import Talk

FIRST_REQUEST = 30.0
"""Seconds in which a connection must send its first request."""
_KEEP_ALIVE = 75.0
_LINGER = 2.0
_SHUTDOWN = 1.0
NAME = "local"
"""The name of every user with the token, which only the person who started the server has."""


def standard_site(opening: Opening, access: Access, *, stream_fn: StreamFn | None = None) -> Site:
    """Returns the site of `swink web` for one folder and its settings."""

    async def open_talk(channel: SessionChannel, by: str) -> Talk:
        return await StandardTalk.open(channel, opening, stream_fn=stream_fn)

    def models() -> list[tuple[str, str, str]]:
        from swink_agent.app.talk.commands.model_commands import model_items

        aliases = {alias: item.value for alias, item in opening.settings.aliases().items()}
        return [(item.key, item.label, item.detail) for item in model_items(opening.credentials, "", aliases)]

    def commands() -> list[str]:
        from swink_agent.app.talk.commands import COMMANDS, own_commands

        known = [f"{sign}{command.name[1:]}" for command in COMMANDS for sign in "/#"]
        return [*known, *[command.name for command in own_commands(opening.project)]]

    def model() -> str | None:
        try:
            return str(choose_model(opening.settings, opening.credentials)[0])
        except ApplicationError:
            return None

    def check_model(name: str) -> None:
        try:
            named_model(name, opening.settings.aliases())
        except ApplicationError as error:
            raise invalid(str(error)) from None

    return Site(
        access=access,
        authorize=lambda request, action, session: NAME,
        store=open_store(opening.settings),
        open_talk=open_talk,
        redactor=redactor_for(opening.settings, opening.credentials),
        folder=str(opening.folder.resolve()),
        model=model,
        models=models,
        commands=commands,
        check_model=check_model,
        durable=_durable_of(opening.settings),
        evals=EvalStore(results_folder()),
        max_upload=MAX_UPLOAD,
        max_readers=MAX_READERS,
    )


def _durable_of(settings: Settings) -> Callable[[], Any]:
    """Returns a function that finds the user's store of durable runs: the one in the settings, or the usual file once
    it exists."""
    found: Any = None

    def find() -> Any:
        nonlocal found
        if found is None and find_spec("dbos") is not None:
            from swink_agent.app.runs.durable import durable_at, lacks_file

            given = settings.value("durable.url")
            durable = durable_at(given)
            if given is not None or not lacks_file(durable):
                found = durable
        return found

    return find


def bound(host: str, port: int) -> socket.socket:
    """Returns a socket bound to this address. Raises `UsageProblem` if the address is in use or not of this machine."""
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        made = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UsageProblem(f"{host} is not an address to listen at: {error.strerror or error} (--host)") from error
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError as error:
        made.close()
        why, flag = error.strerror or error, "--host" if error.errno == errno.EADDRNOTAVAIL else "--port"
        raise UsageProblem(f"cannot listen at {host}:{port}: {why}; {flag} takes another") from error
    return made


def tls_context(cert: str, key: str) -> ssl.SSLContext:
    """Returns the TLS context for these files. Raises `UsageProblem`."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(cert, key)
    except OSError as error:
        raise UsageProblem(f"the TLS files cannot be used: {_why_not(cert, key, error)}") from error
    return context


def _why_not(cert: str, key: str, error: OSError) -> str:
    """Returns what is wrong with TLS files, because OpenSSL does not report which of the two it means."""
    for flag, name in (("--tls-cert", cert), ("--tls-key", key)):
        try:
            Path(name).read_bytes()
        except OSError as unread:
            return f"{name} cannot be read: {unread.strerror or unread} ({flag})"
    if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
        return f"{key} is not the key of the certificate in {cert} (--tls-cert, --tls-key)"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cert)
    except OSError:
        return f"{cert} is not a certificate in PEM (--tls-cert)"
    return f"{key} is not a key in PEM that can be read without a password (--tls-key)"


def hosts_of(host: str, allowed: Collection[str], port: int) -> list[str]:
    """Returns the host names of the server, in addition to the loopback names."""
    own = [] if host in ("", "0.0.0.0", "::") else [f"{f'[{host}]' if ':' in host else host}:{port}"]
    return [*own, *allowed]


@asynccontextmanager
async def served(site: Site, socket_of_site: socket.socket, tls: ssl.SSLContext | None = None) -> AsyncGenerator[None]:
    """Serves during the `with` block. At its end, runs are stopped as by Esc, and readers are notified."""
    loop = asyncio.get_running_loop()
    application_of_site = application(site)
    application_of_site.middlewares.insert(0, noted)
    runner = web.AppRunner(application_of_site, handler_cancellation=True, shutdown_timeout=_SHUTDOWN)
    await runner.setup()
    manager = runner.server
    assert manager is not None
    log, quiet = ServerLog("swink_agent.web"), logging.Logger("swink_agent.web", logging.CRITICAL)

    def connection() -> _Connection:
        return _Connection(
            manager,
            patience=FIRST_REQUEST,
            loop=loop,
            access_log=quiet,
            logger=log,
            keepalive_timeout=_KEEP_ALIVE,
            lingering_time=_LINGER,
        )

    try:
        async with listening(manager, [socket_of_site], connection, tls):
            yield
    finally:
        await asyncio.shield(runner.cleanup())


class _Connection(Connection):
    """A connection that answers invalid HTTP with a problem document and the headers of every answer."""

    __slots__ = ()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        super().handle_error(request, status, exc, message)  # writes it to the log
        is_theirs = status < 500
        detail = "this is not valid HTTP" if is_theirs else "the server failed; its log has the reason"
        response = Problem(status, "not_http" if is_theirs else "failed", detail).response()
        add_safe_headers(response)
        response.force_close()
        return response
