"""`#keys` and `#key`: the keys of providers, stored without being seen.

Owns the small wizard: which provider, the key, where it went, and whether its model is to be asked from now on. A key
is in no notice, no error, no log, no history and no session; the redactor learns it before anything else happens.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from swink_agent.app.errors import UsageProblem
from swink_agent.app.providers import Provider, all_providers, provider_named
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.texts.likeness import close_names

from ..front import PickItem

if TYPE_CHECKING:
    from ..conversation import Conversation

__all__ = ["list_keys", "store_key"]


async def list_keys(conversation: Conversation, rest: str) -> None:
    """`#keys`: each masked, and where it comes from."""
    rows = await asyncio.to_thread(conversation.opening.credentials.listing)
    if not rows:
        conversation.notice("no key is set: #key adds one")
        return
    width = max([len(name) for name, _, _ in rows])
    conversation.notice("\n".join([f"  {name:<{width}}  {shown}  {source}" for name, shown, source in rows]))


async def store_key(conversation: Conversation, rest: str) -> None:
    """`#key [provider] [key]`: asks for what is missing, and keeps the key."""
    provider, key = _read(rest)
    if provider is None:
        provider = await _pick_provider(conversation)
        if provider is None:
            return
    if not key:
        key = await conversation.front.read_secret(f"Key of {provider.account}") or ""
    if not key.strip():
        conversation.notice("no key was stored")
        return
    if conversation.opened is not None:
        conversation.opened.redactor.learn(key.strip(), f"{provider.account} key")
    credentials = conversation.opening.credentials
    where = await asyncio.to_thread(credentials.set, provider.account, key)
    conversation.notice(f"the key of {provider.account} is in {where}")
    if variable := credentials.in_environment(provider.account):
        conversation.notice(f"{variable} is set as well, and comes first", "warning")
    await _offer_model(conversation, provider)


def _read(rest: str) -> tuple[Provider | None, str]:
    """The provider and the key of a line. Nothing of a line that is not understood is said again: it may be a key."""
    words = rest.split()
    if not words:
        return None, ""
    provider = provider_named(words[0].lower())
    if provider is None and len(words) == 1 and Redactor(environment={}).redact(words[0]) != words[0]:
        return None, words[0]
    if provider is None or not provider.key_variables:
        names = list(dict.fromkeys([known.account for known in _with_keys()]))
        near = close_names(words[0].lower()[:20], names)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise UsageProblem(f"that is no provider with a key{hint}; there are {', '.join(names)}")
    if len(words) > 2:
        raise UsageProblem("a key has no spaces in it: #key PROVIDER, and the key when it is asked for")
    return provider, words[1] if len(words) == 2 else ""


def _with_keys() -> list[Provider]:
    return [provider for provider in all_providers() if provider.key_variables and not provider.keys_of]


async def _pick_provider(conversation: Conversation) -> Provider | None:
    credentials = conversation.opening.credentials
    items = [
        PickItem(provider.name, provider.name, "has a key" if credentials.has_key(provider.name) else "")
        for provider in _with_keys()
    ]
    chosen = await conversation.front.pick("The key of which provider?", items)
    return None if chosen is None else provider_named(chosen)


async def _offer_model(conversation: Conversation, provider: Provider) -> None:
    """Whether the provider's model is asked from now on."""
    if not provider.default_model or conversation.is_running:
        return
    opened = conversation.opened
    if opened is not None and opened.agent.model.provider == provider.name:
        return
    from swink_agent.core.types import ModelSpec

    model = ModelSpec(provider.name, provider.default_model)
    choices = (("yes", f"ask {model} from now on"), ("no", "go on as before"))
    if opened is not None and await conversation.front.confirm(f"Ask {model}?", choices, "yes") != "yes":
        return
    if conversation.is_running or conversation.opened is not opened:
        return  # something else began meanwhile
    await conversation.remake(model=model)
    conversation.notice(f"{model} is asked from now on")
