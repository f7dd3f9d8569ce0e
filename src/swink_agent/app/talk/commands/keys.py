"""`/keys` and `/key`: list and store the keys of providers.

`/key` asks for the provider and the key, stores the key, and shows how to use the provider's model. The redactor learns
the key first, so that the key appears in no notice, error, log, history or session.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from swink_agent.app.agent.providers import Provider, all_providers, provider_named
from swink_agent.app.errors import UsageProblem
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.texts.likeness import close_names
from swink_agent.core.types import ModelSpec

from ..front import PickItem

if TYPE_CHECKING:
    from ..conversation import Conversation


async def list_keys(conversation: Conversation, rest: str) -> None:
    rows = await asyncio.to_thread(conversation.opening.credentials.listing)
    if not rows:
        conversation.notice("no key is set: /key adds one")
        return
    width = max([len(name) for name, _, _ in rows])
    conversation.notice("\n".join([f"  {name:<{width}}  {shown}  {source}" for name, shown, source in rows]))


async def store_key(conversation: Conversation, rest: str) -> None:
    """`/key [provider] [key]`: asks for what is missing, and stores the key."""
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
        conversation.notice(f"{variable} is set too, and has priority", "warning")
    await _offer_model(conversation, provider)


def _read(rest: str) -> tuple[Provider | None, str]:
    """Returns the provider and the key in a line. Errors never quote the line, because it may contain a key."""
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
        raise UsageProblem(f"that is not a provider with a key{hint}; choose one of {', '.join(names)}")
    if len(words) > 2:
        raise UsageProblem("a key has no spaces: give /key PROVIDER, and the key when you are asked")
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
    """Switches to the provider's model if there is none yet, else shows how to switch.

    Does not ask: what the user types meanwhile is their next prompt.
    """
    opened = conversation.opened
    if not provider.default_model or conversation.is_running:
        return
    model = ModelSpec(provider.name, provider.default_model)
    if opened is None:
        await conversation.remake(model=model)
        conversation.notice(f"{model} is used from now on")
    elif opened.agent.model.provider != provider.name:
        line = f"/model {model}"
        title = f"{opened.agent.model} is still used. To change that, type or click:"
        conversation.view.offer(title, [(line, "", "")], lambda _: conversation.later(conversation.submit(line)))
