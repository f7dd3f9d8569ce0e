"""`owned_by`: a ready `authorize` for servers whose sessions belong to users.

Owns who may do what with a session of somebody else: nothing, and it looks as if the session did not exist. The site
writes the owner into the metadata of a new session.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias

from aiohttp import web

from swink_agent.core.values.checks import is_function, is_not
from swink_agent.core.values.several import several_texts
from swink_agent.memory import SessionInfo, SessionNotFound

from .routes.asking import Action

LoginFn: TypeAlias = Callable[[web.Request], "str | None | Awaitable[str | None]"]
"""Returns the name of the user who sent the request, or `None` for nobody."""


class Owned:
    """An `authorize` by which each session belongs to the user who made it."""

    owner_key = "user"
    """The key of the owner in the metadata of a session."""

    def __init__(self, login: LoginFn, operators: tuple[str, ...]) -> None:
        self._login = login
        self._operators = operators

    async def __call__(self, request: web.Request, action: Action, session: SessionInfo | None) -> str | None:
        user: Any = self._login(request)
        if inspect.isawaitable(user):
            user = await user
        if not isinstance(user, str) or not user:
            raise web.HTTPUnauthorized
        if action == "operate":
            return user if user in self._operators else None
        if session is not None and session.metadata.get(self.owner_key) != user:
            raise SessionNotFound("this session belongs to another user")
        return user


def owned_by(login: LoginFn, *, operators: str | Iterable[str] = ()) -> Owned:
    """Returns an `authorize` for `app(…)`, by which each session belongs to the user who made it.

    `login(request)` names the user; `None` is 401. Sessions of others are 404, and absent from lists, events and pages.
    Only `operators` may operate durable runs.
    """
    if not is_function(login):
        raise is_not("login", login, "a function of the request")
    return Owned(login, several_texts(operators, "owned_by(operators=…)"))
