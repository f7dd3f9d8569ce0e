"""Durable runs for the commands: finds the `Durable` of an address or of `module:name`, and translates errors.

The runs themselves are in `swink_agent.durable`.
"""

from __future__ import annotations

import shlex
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from swink_agent.core.errors import NotPending
from swink_agent.core.values.checks import a_kind

from ..errors import ApplicationError, UsageProblem
from ..own_code import object_named

if TYPE_CHECKING:
    from swink_agent.durable import Durable, FleetStats


def durable_named(name: str, folder: Path) -> Durable:
    """The `Durable` that `module:name` or `path/to/file.py:name` names. Raises `UsageProblem`."""
    from swink_agent.durable import Durable

    found = object_named(name, folder, "Durable", "durable")
    if not isinstance(found, Durable):
        raise UsageProblem(f"{name!r} is {a_kind(found)}, not a swink_agent.durable.Durable")
    return found


def durable_at(url: str | None) -> Durable:
    """The store at this address; `None` is the usual one. Raises `UsageProblem`."""
    from swink_agent.durable import Durable

    try:
        return Durable(url)
    except ValueError as error:
        raise UsageProblem(str(error)) from error


def existing_at(url: str | None) -> Durable:
    """The same, but a database file must already exist, so that a misspelt address does not create a new store."""
    durable = durable_at(url)
    if url is not None and lacks_file(durable):
        raise UsageProblem(f"there is no store at {durable.url}: swink worker and swink submit create one")
    return durable


def lacks_file(durable: Durable) -> bool:
    """Whether the store is a database file that does not exist yet."""
    from swink_agent.durable.urls import store_address

    path = store_address(durable.url).path
    return path is not None and not path.exists()


def store_option(durable: Durable, app: str | None) -> str:
    """The option with which `swink runs` uses this store, after a space; empty for the usual store."""
    from swink_agent.durable import Durable

    try:
        is_usual = Durable().url == durable.url
    except ValueError:
        is_usual = False
    if is_usual:
        return ""
    return f" --app {shlex.quote(app)}" if app is not None else f" --url {shlex.quote(durable.url)}"


@contextmanager
def durable_problems() -> Generator[None]:
    """Turns errors of durable runs into errors that the command shows as one line."""
    from swink_agent.durable import DurableError

    try:
        yield
    except (DurableError, NotPending) as error:
        raise ApplicationError(str(error)) from error
    except (TypeError, ValueError) as error:
        raise UsageProblem(str(error)) from error


def unserved(stats: FleetStats) -> dict[str, int]:
    """The agents with queued runs that no worker serves, each with the number of runs."""
    served = {agent for one in stats.workers for agent in one.agents}
    return {agent: count for agent, count in sorted(stats.queued_agents.items()) if agent not in served}
