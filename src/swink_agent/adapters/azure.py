"""Azure OpenAI's chat completions: its addresses, and authentication by an `api-key` header or a token from Entra."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

import msgspec

from swink_agent.core.errors import AuthError
from swink_agent.core.stream import StreamOptions
from swink_agent.core.types import AgentContext, ModelSpec

from . import registry
from .kit.errors import NotConfigured
from .kit.keyed import JSON_HEADERS
from .kit.transport import HttpRequest, Limits, Transport
from .openai import OpenAiStreamFn

_API_VERSION = "2024-10-21"


class AzureStreamFn(OpenAiStreamFn):
    """Azure OpenAI, at a resource's URL (the model is the deployment) or at a deployment's.

    `token` is a function, plain or async, that returns a bearer token from Entra; it is called for every request. The
    key comes from `AZURE_OPENAI_API_KEY`, the URL from `AZURE_OPENAI_BASE_URL` or `AZURE_OPENAI_ENDPOINT`.
    """

    description = registry.azure
    kin: ClassVar[frozenset[str]] = frozenset()
    default_url: ClassVar[str] = ""

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        token: Callable[[], str | Awaitable[str]] | None = None,
        api_version: str | None = None,
        transport: Transport | None = None,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(base_url, api_key, transport=transport, limits=limits)
        self.base_url = self.given_address
        self._has_own_address = True
        self._needs_key = token is None
        self._token = token
        self._api_version = api_version

    def url(self, model: ModelSpec) -> str:
        parts = urlsplit(self.server())
        path = parts.path.rstrip("/")
        version = self._api_version or (parse_qs(parts.query).get("api-version") or [None])[0]
        if "/deployments/" in path:
            version = version or _API_VERSION
        elif not path.endswith(("/openai/v1", "/models")):
            path = path.removesuffix("/v1").removesuffix("/openai") + "/openai/v1"
        path = path if path.endswith("/chat/completions") else f"{path}/chat/completions"
        query = urlencode({"api-version": version}) if version else ""
        return urlunsplit((parts.scheme, parts.netloc, path, query, ""))

    def build(self, model: ModelSpec, context: AgentContext, options: StreamOptions) -> HttpRequest:
        self.check(model, options)
        return super().build(model, context, options)

    def check(self, model: ModelSpec, options: StreamOptions) -> None:
        if not self.base_url:
            has_key = options.api_key or self._api_key or not self._needs_key
            also = "" if has_key else " and AZURE_OPENAI_API_KEY"
            raise NotConfigured(f"no address for azure: set AZURE_OPENAI_ENDPOINT{also}", "base_url")
        super().check(model, options)

    def session_fields(self, options: StreamOptions) -> dict[str, Any]:
        """Uses OpenAI's field; older addresses, which contain a deployment, accept only the field `user`."""
        fields, path = super().session_fields(options), urlsplit(self.base_url).path
        if fields and "/deployments/" in path:
            return {"user": fields["prompt_cache_key"]}
        return {} if path.rstrip("/").endswith("/models") else fields

    def key(self, options: StreamOptions) -> str | None:
        return None if self._token is not None and options.api_key is None else super().key(options)

    def headers(self, key: str | None) -> dict[str, str]:
        return JSON_HEADERS if key is None else {**JSON_HEADERS, "api-key": key}

    async def authorize(self, request: HttpRequest) -> HttpRequest:
        if self._token is None or "api-key" in request.headers:
            return request
        try:
            token = self._token()
            token = await token if inspect.isawaitable(token) else token
        except Exception as error:
            raise AuthError(f"the token callback for azure failed: {type(error).__name__}: {error}") from error
        return msgspec.structs.replace(request, headers={**request.headers, "authorization": f"Bearer {token}"})
