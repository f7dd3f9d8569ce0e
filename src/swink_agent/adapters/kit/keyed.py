"""The base of adapters with an address and a key.

Both come from the constructor or the environment. The provider's own address is the default and requires a key.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from swink_agent.core.stream import StreamOptions
from swink_agent.core.types import ModelSpec

from ..addresses import whole_address
from .bodies import EncodedMessages, json_object
from .errors import NotConfigured
from .http import HttpStreamFn
from .transport import HttpRequest, Limits, Transport

JSON_HEADERS = {"content-type": "application/json", "accept": "text/event-stream", "accept-encoding": "identity"}

_WITH_THEIR_OWN_WIRE = frozenset({"anthropic", "bedrock", "gemini", "local", "ollama", "openai", "openai-responses"})


class KeyedStreamFn(HttpStreamFn):
    """The base of adapters with an address and a key; a subclass sets `description` and `default_url`.

    The key comes from `StreamOptions.api_key`, else from `api_key`, else from the environment. Other servers than the
    provider's own may work without a key.
    """

    serves_all_elsewhere: ClassVar[bool] = False
    """Whether servers with this wire format host models of every provider."""
    default_url: ClassVar[str] = ""
    """The provider's own address."""
    added_path: ClassVar[str] = ""
    """What the provider's own SDK adds to every address, such as `/v1`; empty if its addresses are whole."""
    url_variable: ClassVar[str] = ""
    key_variable: ClassVar[str] = ""
    """The variables that error messages name: the first of each kind in the description."""

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
        self.base_url = self.whole_address(given or self.default_url)
        self._needs_key = given is None and self.description.needs_key
        self._api_key = api_key or os.environ.get(_first_set(self.description.key_variables)) or None
        self.encoded = EncodedMessages()
        """Messages in this provider's form, each encoded once."""

    def whole_address(self, url: str) -> str:
        """Returns what the address means to the provider's own SDK: the address to which the paths of requests are
        added. One without a path gets that of `default_url`."""
        return whole_address(url, self.default_url, self.added_path)

    def serves(self, provider: str) -> bool:
        """Whether this adapter serves models of the provider: its own; at an address that the user gave, also others
        without their own wire format, since a server may host any model."""
        if super().serves(provider):
            return True
        is_hosted = self.serves_all_elsewhere or provider not in _WITH_THEIR_OWN_WIRE
        return self._has_own_address and is_hosted

    def check(self, model: ModelSpec, options: StreamOptions) -> None:
        self.key(options)
        self.server()

    def headers(self, key: str | None) -> dict[str, str]:
        """Returns the headers of a request, with the key as a bearer token."""
        return JSON_HEADERS if key is None else {**JSON_HEADERS, "authorization": f"Bearer {key}"}

    def request(self, url: str, fields: Mapping[str, Any], options: StreamOptions) -> HttpRequest:
        """Makes the request with these fields as its body. Raises `AuthError` if a required key is missing."""
        headers = {**self.headers(self.key(options)), **options.headers}
        return HttpRequest(url=url, headers=headers, body=json_object(fields), limits=self.limits_for(options))

    def key(self, options: StreamOptions) -> str | None:
        """Returns the key for one call. Raises `AuthError` if a required key is missing."""
        key = options.api_key or self._api_key
        if key is None and self._needs_key:
            raise NotConfigured(f"no key for {self.provider}: set {self.key_variable}", "api_key")
        return key


def _first_set(variables: Iterable[str]) -> str:
    """Returns the first of the variables that is set and not empty, or an empty string."""
    return next((name for name in variables if os.environ.get(name)), "")
