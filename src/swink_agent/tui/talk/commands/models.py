"""Whom the agent asks and what it is told first: `/model`, `/thinking`, `/system`.

Owns the choosing. Another model is another agent in the same session: what is known of a model decides how much of the
conversation it is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from swink_agent.app.errors import UsageProblem
from swink_agent.app.models import default_local_model, has_local_extra, named_model
from swink_agent.app.providers import all_providers
from swink_agent.core.types import ThinkingLevel

from ..front import PickItem

if TYPE_CHECKING:
    from swink_agent.app.credentials import Credentials

    from ..conversation import Conversation

__all__ = ["choose_model", "choose_thinking", "model_items", "system"]


async def choose_model(conversation: Conversation, rest: str) -> None:
    """`/model`: the one that is named, or one from a list."""
    wanted: str | None = rest
    if not wanted:
        wanted = await conversation.front.pick(
            "Model", model_items(conversation.opening.credentials, conversation.model)
        )
        if wanted is None:
            return
    model = named_model(wanted)
    if conversation.opened is not None:
        model = structs.replace(model, thinking_level=conversation.opened.agent.thinking_level)
    await conversation.remake(model=model)
    conversation.notice(f"{model} is asked from now on")


def model_items(credentials: Credentials, now: str = "") -> list[PickItem]:
    """The models that can be asked: the one that is asked now, those of providers with a key, those of this machine,
    and the others.
    """
    from swink_agent.adapters.catalog import ModelCatalog
    from swink_agent.local.presets import PRESETS

    with_key: list[PickItem] = []
    without: list[PickItem] = []
    catalog = ModelCatalog.load()
    for provider in all_providers():
        has_key = credentials.has_key(provider.name)
        for info in catalog.models(provider.name):
            window = f"{info.context_window // 1000:,}k window" if info.context_window else ""
            price = f"${info.prices.input:g}/${info.prices.output:g} a million" if info.prices.input else ""
            detail = ", ".join([part for part in (window, price, "" if has_key else "no key") if part])
            name = f"{provider.name}:{info.model_id}"
            (with_key if has_key else without).append(PickItem(name, name, detail))
    local: list[PickItem] = []
    if has_local_extra():
        default = default_local_model()
        for preset in PRESETS:
            mark = "on this machine, the default" if preset.name == default else "on this machine"
            local.append(PickItem(f"local:{preset.name}", f"local:{preset.name}", mark))
    every = [*with_key, *local, *without]
    asked = [
        item._replace(detail=", ".join(["now", item.detail] if item.detail else ["now"]))
        for item in every
        if item.key == now
    ]
    return [*asked, *[item for item in every if item.key != now]]


async def choose_thinking(conversation: Conversation, rest: str) -> None:
    """`/thinking`: the level that is named, or one from a list."""
    if conversation.opened is None:
        raise UsageProblem("there is no model yet: /model chooses one")
    agent = conversation.opened.agent
    wanted: str | None = rest.lower()
    if not wanted:
        items = [
            PickItem(level.value, level.value, "now" if level == agent.thinking_level else "")
            for level in ThinkingLevel
        ]
        wanted = await conversation.front.pick("Thinking", items)
        if wanted is None:
            return
    if wanted not in [level.value for level in ThinkingLevel]:
        raise UsageProblem(f"there is no level {rest[:40]!r}: {', '.join([level.value for level in ThinkingLevel])}")
    agent.thinking_level = ThinkingLevel(wanted)
    conversation.front.changed()
    conversation.notice(f"{agent.model} is asked to think: {wanted}")


async def system(conversation: Conversation, rest: str) -> None:
    """`/system`: what the model is told first, or a text in place of the standard instructions."""
    if not rest:
        if conversation.opened is None:
            raise UsageProblem("there is no agent yet: /model chooses a model")
        prompt = conversation.opened.agent.system_prompt
        conversation.notice(prompt if isinstance(prompt, str) and prompt else "the model is told nothing first")
        return
    text = rest if conversation.opened is None else conversation.opened.redactor.redact(rest)
    await conversation.remake(opening=conversation.opening.with_flags(system=text))
    conversation.notice("the instructions are replaced; what is known of the folder follows them as before")
