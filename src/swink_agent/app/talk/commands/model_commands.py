"""`/model`, `/thinking`, `/system`: choose the model, how much it reasons, and its instructions.

A change of model creates another agent in the same session, because how much history is sent depends on the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from swink_agent.app.agent.models import default_local_model, has_local_extra, named_model
from swink_agent.app.agent.providers import all_providers
from swink_agent.app.errors import UsageProblem
from swink_agent.core.types import ThinkingLevel

from ..front import PickItem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from swink_agent.app.keys.credentials import Credentials

    from ..conversation import Conversation


async def choose_model(conversation: Conversation, rest: str) -> None:
    """`/model [provider:model]`: switches to this model, or to one from a list."""
    aliases, credentials = conversation.opening.settings.aliases(), conversation.opening.credentials
    short = {alias: item.value for alias, item in aliases.items()}
    wanted = rest or await conversation.front.pick("Model", model_items(credentials, conversation.model, short))
    if wanted is None:
        return
    model = named_model(wanted, aliases)
    if conversation.opened is not None:
        model = structs.replace(model, thinking_level=conversation.opened.agent.thinking_level)
    await conversation.remake(model=model)
    conversation.notice(f"{model} is used from now on")


def model_items(
    credentials: Credentials, now: str = "", aliases: Mapping[str, str] | None = None, *, is_usable: bool = False
) -> list[PickItem]:
    """Returns the models to choose from; with `is_usable`, only those that can be used as they are.

    In this order: the current one, the user's aliases, models of providers with a key, local models, and the others.
    """
    from swink_agent.adapters.catalog import ModelCatalog
    from swink_agent.local.weights.presets import PRESETS

    with_key: list[PickItem] = []
    without: list[PickItem] = []
    catalog = ModelCatalog.load()
    for provider in all_providers():
        has_key = credentials.has_key(provider.name)
        if is_usable and not has_key and provider.needs_key:
            continue
        for info in catalog.models(provider.name):
            window = f"{info.context_window // 1000:,}k window" if info.context_window else ""
            price = f"${info.prices.input:g}/${info.prices.output:g} a million" if info.prices.input else ""
            detail = ", ".join([part for part in (window, price, "" if has_key else "no key") if part])
            name = f"{provider.name}:{info.model_id}"
            (with_key if has_key else without).append(PickItem(name, name, detail))
    local: list[PickItem] = []
    for preset in PRESETS if has_local_extra() else ():
        mark = "on this machine, the default" if preset.name == default_local_model() else "on this machine"
        local.append(PickItem(f"local:{preset.name}", f"local:{preset.name}", mark))
    short = [PickItem(alias, alias, f"alias of {model}") for alias, model in (aliases or {}).items()]
    every = [*short, *with_key, *local, *without]
    asked = [item._replace(detail=f"now, {item.detail}".rstrip(", ")) for item in every if item.key == now]
    return [*asked, *[item for item in every if item.key != now]]


async def choose_thinking(conversation: Conversation, rest: str) -> None:
    """`/thinking [level]`: sets this level, or one from a list."""
    if conversation.opened is None:
        raise UsageProblem("there is no model yet: /model chooses one")
    agent = conversation.opened.agent
    levels, now = [level.value for level in ThinkingLevel], agent.thinking_level.value
    items = [PickItem(level, level, "now" if level == now else "") for level in levels]
    wanted = rest.lower() or await conversation.front.pick("Thinking", items)
    if wanted is None:
        return
    if wanted not in levels:
        raise UsageProblem(f"{rest[:40]!r} is not a level: use {', '.join(levels)}")
    agent.thinking_level = ThinkingLevel(wanted)
    conversation.front.changed()
    conversation.notice(f"{agent.model} is asked to think: {wanted}")


async def system(conversation: Conversation, rest: str) -> None:
    """`/system [text]`: shows the instructions, or replaces the standard ones."""
    if not rest:
        if conversation.opened is None:
            raise UsageProblem("there is no agent yet: /model chooses a model")
        prompt = conversation.opened.agent.system_prompt
        conversation.notice(prompt if isinstance(prompt, str) and prompt else "the model has no instructions")
        return
    await conversation.remake(opening=conversation.opening.with_flags(system=conversation.redact(rest)))
    conversation.notice("the instructions are replaced; facts about the folder still follow them")
