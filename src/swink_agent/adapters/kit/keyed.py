"""Adapters that need an address and a key, which is most of them.

Owns where the two come from: the constructor, the environment, or the provider's own address, at which a key is a must.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, ClassVar

from swink_agent.core.errors import AuthError
from swink_agent.core.stream import StreamOptions
from swink_agent.core.types import ModelSpec

from .bodies import EncodedMessages
from .http import HttpStreamFn
from .transport import Limits, Transport

__all__ = ["JSON_HEADERS", "KeyedStreamFn"]

JSON_HEADERS = {"content-type": "application/json", "accept": "text/event-stream", "accept-encoding": "identity"}

_WITH_THEIR_OWN_WIRE = frozenset({"anthropic", "bedrock", "gemini", "local", "ollama", "openai", "openai-responses"})


class KeyedStreamFn(HttpStreamFn):
    """The base of adapters with an address and a key: a subclass names its `description` and its `default_url`.

    The key comes from `StreamOptions.api_key`, else from `api_key`, else from the environment. A server other than
    the provider's own may need none.
    """

    serves_all_elsewhere: ClassVar[bool] = False
    """Whether models of every provider are hosted by servers that speak this wire format."""
    default_url: ClassVar[str] = ""
    url_variable: ClassVar[str] = ""
    key_variable: ClassVar[str] = ""
    """The variables that are named to a user, which are the first of the description's."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "description" in vars(cls):
            cls.url_variable = next(iter(cls.description.url_variables), "")
            cls.key_variable = next(iter(cls.description.key_variables), "")

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        transport: Transport | None = None,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(transport=transport, limits=limits)
        variable = _first_set(self.description.url_variables)
        given = base_url or os.environ.get(variable) or None
        self._has_own_address = given is not None
        self.address_source = "base_url" if base_url else variable or self.url_variable
        self.given_address = given or ""
        self.base_url = self.with_version(given or self.default_url)
        self._needs_key = given is None
        self._api_key = api_key or os.environ.get(_first_set(self.description.key_variables)) or None
        self.encoded = EncodedMessages()
        """Messages as this provider takes them, each encoded once."""

    def with_version(self, url: str) -> str:
        """The address with the version part that it may or may not have, and no slash at its end."""
        url = url.rstrip("/")
        return url if url.endswith("/v1") else f"{url}/v1"

    def serves(self, provider: str) -> bool:
        """Models of its own provider; at an address that was given, also those of providers without a wire format of
        their own: a server may host what it likes."""
        if super().serves(provider) or not self._has_own_address:
            return super().serves(provider)
        return self.serves_all_elsewhere or provider not in _WITH_THEIR_OWN_WIRE

    def check(self, model: ModelSpec, options: StreamOptions) -> None:
        self.key(options)
        self.server()

    def key(self, options: StreamOptions) -> str | None:
        """The key for one call. Raises `AuthError` if there must be one and is none."""
        key = options.api_key or self._api_key
        if key is None and self._needs_key:
            raise AuthError(f"no key for {self.provider}: set {self.key_variable}, or pass api_key")
        return key


def _first_set(variables: Iterable[str]) -> str:
    """The first of the variables that holds something; none of them if none does."""
    return next((name for name in variables if os.environ.get(name)), "")
