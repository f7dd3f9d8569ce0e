"""Converts constructor arguments and prompts to the values that a run needs, and a configuration back to arguments.

`checks` validates the values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from ..config import AgentLoopConfig
from ..encoding.media import documents_of, images_of
from ..errors import ProviderMismatch
from ..providers import ProviderStreamFn, parsed_model
from ..stream import StreamFn
from ..types import AgentMessage, ModelSpec, Text, UserMessage, as_messages, as_prompts
from ..values.checks import a_kind, as_fallbacks, as_policies
from ..values.data import encodable
from .options import PromptOptions
from .queues import MessageQueues

Prompt: TypeAlias = str | AgentMessage | Sequence[str | AgentMessage]

POLICY_SLOTS = ("pre_turn_policies", "pre_dispatch_policies", "post_turn_policies", "post_loop_policies")
_NOT_ARGUMENTS = ("stream_fn", "fallbacks", "message_provider", "state")
"""Fields of a configuration that differ from the constructor argument of the same name."""


def as_model(model: str | ModelSpec) -> ModelSpec:
    """Returns the model. Raises `TypeError` or `ValueError` for anything that does not name one."""
    if isinstance(model, str):
        return parsed_model(model)
    if not isinstance(cast("object", model), ModelSpec):
        raise TypeError(f"{a_kind(model)} does not name a model; give provider:model or a ModelSpec")
    return model


def stream_fns(
    model: ModelSpec, stream_fn: StreamFn | None, fallbacks: Sequence[tuple[str | ModelSpec, StreamFn | None]]
) -> tuple[StreamFn, tuple[tuple[ModelSpec, StreamFn], ...]]:
    """Returns the stream functions of the model and of its fallbacks; `None` finds the adapter of the model's provider.

    Raises `ProviderMismatch` for a model that its stream function does not serve.
    """
    pairs = [(as_model(spec), asked) for spec, asked in as_fallbacks(fallbacks)] if fallbacks != () else []
    for spec, asked in ((model, stream_fn), *pairs):
        serves = getattr(asked, "serves", None)  # a function without it serves every provider
        if serves is not None and not serves(spec.provider):
            raise ProviderMismatch(str(spec), getattr(asked, "provider", "") or "another provider")
    if stream_fn is not None and not pairs:
        return stream_fn, ()
    by_provider = ProviderStreamFn()
    others = tuple([(spec, by_provider if asked is None else asked) for spec, asked in pairs])
    return by_provider if stream_fn is None else stream_fn, others


def check_model(config: AgentLoopConfig) -> None:
    """Raises an error if every request to the model would fail: for example, there is no adapter or no key."""
    stream_fn = config.stream_fn
    if isinstance(stream_fn, ProviderStreamFn):
        stream_fn = stream_fn.adapter(config.model)
    check = getattr(stream_fn, "check", None)
    if check is not None and config.get_api_key is None:
        check(config.model, config.stream_options)


def check_provider(stream_fn: StreamFn, model: ModelSpec, before: str) -> None:
    """Raises `ProviderMismatch` for a model that a stream function, bound to one provider, does not serve.

    `before` is the provider of the current model.
    """
    if model.provider != before and getattr(stream_fn, "is_bound", False):
        own = getattr(stream_fn, "provider", before)
        if model.provider != own and model.provider not in getattr(stream_fn, "kin", ()):
            raise ProviderMismatch(str(model), before)


def policies_by_slot(policies: Sequence[object], **chosen: Sequence[Any]) -> dict[str, tuple[Any, ...]]:
    """Returns the policies of each slot that has any: those given for it, then those of `policies` that have it."""
    by_slot = {name: as_policies(given, name) for name, given in chosen.items() if given != ()}
    for policy in as_policies(policies, "policies") if policies != () else ():
        for name in chosen:
            if callable(getattr(policy, name.removesuffix("_policies"), None)):
                by_slot[name] = (*by_slot.get(name, ()), policy)
    return by_slot


def as_history(given: Iterable[str | AgentMessage]) -> tuple[AgentMessage, ...]:
    if given == ():
        return ()
    is_several = isinstance(given, Iterable) and not isinstance(given, str)  # pyright: ignore[reportUnnecessaryIsInstance]
    return as_messages(list(given) if is_several else cast("Any", given))


def prompts_of(prompt: Prompt, given: PromptOptions[Any]) -> tuple[AgentMessage, ...]:
    """Returns the messages of a prompt, with its attachments after its text, which are removed from `given`.

    Raises `ValueError` for a prompt without any content, `TypeError` for attachments without a string, and for an
    attachment what `encoding.media` raises.
    """
    images, documents = given.pop("images", ()), given.pop("documents", ())
    if images == () and documents == ():
        return as_prompts(prompt)
    attached = [*images_of(images), *documents_of(documents)]
    if not attached:
        return as_prompts(prompt)
    if not isinstance(prompt, str):
        raise TypeError(
            "images and documents go with a prompt that is a string; put them into the messages' content instead"
        )
    return (UserMessage([Text(encodable(prompt)), *attached] if prompt.strip() else attached),)


def arguments_of(
    config: AgentLoopConfig, own: Mapping[str, Any], given: Mapping[str, Any], known: Iterable[str]
) -> dict[str, Any]:
    """Returns the constructor arguments for an agent with this configuration, its `own` parts, and those `given`.

    Raises `TypeError` for a name that is not among the `known`.
    """
    if unknown := [name for name in given if name not in known]:
        raise TypeError(f"an agent has no argument {unknown[0]!r}; it has {', '.join(known)}")
    queues = config.message_provider
    assert isinstance(queues, MessageQueues)
    arguments = {name: getattr(config, name) for name in config.__struct_fields__ if name not in _NOT_ARGUMENTS}
    arguments |= {
        **own,
        "stream_fn": _given_or_none(config.stream_fn),
        "fallbacks": [(model, _given_or_none(stream_fn)) for model, stream_fn in config.fallbacks],
        "message_provider": queues.provider,
        "steering_mode": queues.steering_mode,
        "follow_up_mode": queues.follow_up_mode,
    }
    if "stream_fn" in given:
        arguments |= {"fallbacks": (), "get_api_key": None}
    if "policies" in given:
        arguments |= dict.fromkeys(POLICY_SLOTS, ())
    return arguments | dict(given)


def _given_or_none(stream_fn: Any) -> Any:
    """Returns `None` for the function that finds the adapter of a model: the new agent makes its own."""
    return None if isinstance(stream_fn, ProviderStreamFn) else stream_fn
