"""What an application may give to an agent and to one of its runs: the types, and their conversion.

Owns the names of these values and their precedence: those of `agent.override`, then those of one run, then the agent's
own. `checks` validates the values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from contextlib import ContextDecorator
from contextvars import ContextVar
from typing import Any, Generic, Protocol, TypeAlias, TypedDict, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from ..cancel import CancellationToken
from ..config import AgentLoopConfig
from ..encoding.media import DocumentInput, ImageInput, documents_of, images_of
from ..errors import ProviderMismatch
from ..providers import ProviderStreamFn, parsed_model
from ..run.inbox import MessageQueues
from ..run.turn import SystemPrompt, Tools, TurnTools, as_toolbox, check_prompt
from ..stream import StreamFn, StreamOptions
from ..tool import Toolbox
from ..types import AgentMessage, ModelSpec, Text, UserMessage, as_messages, as_prompts
from ..values.checks import a_kind, as_fallbacks, check_whole, is_function, is_not
from ..values.data import encodable
from ..values.value import Deps
from ..values.words import RUN_ARGUMENTS
from .structured import ValidateFn

T = TypeVar("T")
Prompt: TypeAlias = str | AgentMessage | Sequence[str | AgentMessage]

POLICY_SLOTS = ("pre_turn_policies", "pre_dispatch_policies", "post_turn_policies", "post_loop_policies")
_METHODS = (*[(name, name.removesuffix("_policies")) for name in POLICY_SLOTS], ("masks", "mask"))
_NOT_ARGUMENTS = ("stream_fn", "fallbacks", "message_provider", "state", "masks", *POLICY_SLOTS)
"""Fields of a configuration that differ from the constructor argument of the same name."""


class ModelStreamFn(StreamFn, Protocol):
    """A stream function that names its model, as those of `swink_agent.testing` do: both in one."""

    @property
    def model(self) -> ModelSpec: ...


Model: TypeAlias = str | ModelSpec | ModelStreamFn
"""What may stand where a model is given."""
Fallback: TypeAlias = tuple[str | ModelSpec, StreamFn | None] | ModelStreamFn


class _OwnValues(TypedDict, Generic[Deps], total=False):
    """Values that replace the agent's own."""

    deps: Deps | None
    model: Model | None
    tools: Tools[Deps] | None
    system_prompt: SystemPrompt[Deps] | None
    stream_options: StreamOptions | None
    max_turns: int | None


class _ApartOptions(_OwnValues[Deps], total=False):
    """The options of every method that runs an agent. They apply to that run only.

    With `messages`, the run is apart: it begins from them, with `state` or a copy of the agent's first state, and
    neither reads nor changes what the agent keeps. `cancel` ends the run as an abort does.
    """

    messages: Sequence[str | AgentMessage] | None
    state: MutableMapping[str, Any] | None
    cancel: CancellationToken | None


class RunOptions(_ApartOptions[Deps], total=False):
    """The options of methods that continue a run."""


class PromptOptions(_ApartOptions[Deps], total=False):
    """The options of methods that run a prompt. They add its attachments."""

    images: Sequence[ImageInput]
    documents: Sequence[DocumentInput]


class ValueOptions(PromptOptions[Deps], Generic[T, Deps], total=False):
    """The options of methods that return a value. They add the functions that check it."""

    validate: ValidateFn[T] | Sequence[ValidateFn[T]]


class OverrideOptions(_OwnValues[Deps], total=False):
    """The options of `agent.override`."""

    stream_fn: StreamFn | None


# -- arguments of the constructor -----------------------------------------------------------------------------


def stream_fn_in(model: object) -> StreamFn | None:
    """Returns the stream function that stands for a model, if one does."""
    names_its_model = is_function(model) and isinstance(getattr(model, "model", None), ModelSpec)
    return cast("StreamFn", model) if names_its_model else None


def as_model(model: Model) -> ModelSpec:
    """Returns the model. Raises `TypeError` or `ValueError` for anything that does not name one."""
    if isinstance(model, str):
        return parsed_model(model)
    if stream_fn_in(model) is not None:
        return cast("ModelStreamFn", model).model
    if not isinstance(model, ModelSpec):
        raise TypeError(f"{a_kind(model)} does not name a model; give provider:model or a ModelSpec")
    return model


def stream_fns(
    model: ModelSpec, stream_fn: StreamFn | None, fallbacks: Sequence[Fallback]
) -> tuple[StreamFn, tuple[tuple[ModelSpec, StreamFn], ...]]:
    """Returns the stream functions of the model and of its fallbacks; `None` finds the adapter of the model's provider.

    Raises `ProviderMismatch` for a model that its stream function does not serve.
    """
    given = as_fallbacks(map(_as_pair, fallbacks) if _is_list(fallbacks) else fallbacks) if fallbacks != () else ()
    pairs = [(as_model(spec), asked) for spec, asked in given]
    for spec, asked in ((model, stream_fn), *pairs):
        serves = getattr(asked, "serves", None)  # a function without it serves every provider
        if serves is not None and not serves(spec.provider):
            raise ProviderMismatch(str(spec), getattr(asked, "provider", "") or "another provider")
    if stream_fn is not None and not pairs:
        return stream_fn, ()
    by_provider = ProviderStreamFn()
    others = tuple([(spec, by_provider if asked is None else asked) for spec, asked in pairs])
    return by_provider if stream_fn is None else stream_fn, others


def _is_list(given: object) -> bool:
    return isinstance(given, Iterable) and not isinstance(given, str)


def _as_pair(fallback: Any) -> Any:
    """Returns a fallback that is a stream function as a pair."""
    return fallback if stream_fn_in(fallback) is None else (fallback.model, fallback)


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


def policies_by_slot(policies: Sequence[object]) -> dict[str, tuple[Any, ...]]:
    """Returns the policies of each slot that has any, and those with masks."""
    by_slot: dict[str, tuple[Any, ...]] = {}
    for policy in policies:
        for name, method in _METHODS:
            if callable(getattr(policy, method, None)):
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
    return arguments | dict(given)


def _given_or_none(stream_fn: Any) -> Any:
    """Returns `None` for the function that finds the adapter of a model: the new agent makes its own."""
    return None if isinstance(stream_fn, ProviderStreamFn) else stream_fn


# -- values for one run --------------------------------------------------------------------------------------

Given: TypeAlias = dict[str, Any]
"""Converted values by name. For a missing name, the agent's own value applies."""

_NAMES = ("deps", "model", "tools", "system_prompt", "stream_options", "max_turns")
_MAY_BE_NONE = ("deps", "max_turns")
_OF_RUNS = ("messages", "state", "cancel")
_IN_CONFIG = ("model", "stream_options", "stream_fn", "max_turns")
_OVERRIDES: ContextVar[tuple[tuple[object, Given], ...]] = ContextVar("swink_agent_overrides", default=())
"""The overrides of this context, the innermost last, each with its agent."""


class Apart(Struct):
    """What a run begins from that is apart from the agent's own."""

    messages: tuple[AgentMessage, ...]
    state: MutableMapping[str, Any] | None
    """`None` for a copy of the state that the agent was made with."""


def apart_of(options: dict[str, Any]) -> Apart | None:
    """Removes `messages` and `state` from the options of a run; returns what it begins from, or `None` if it is the
    agent's own.

    Raises `TypeError` for messages that are not a sequence of messages and strings, for a state that is not a mapping,
    and for a state without messages.
    """
    messages, state = options.pop("messages", None), options.pop("state", None)
    if state is not None and not isinstance(state, MutableMapping):
        raise is_not("state", state, "a mapping that can be changed, such as a dict")
    if messages is None:
        if state is not None:
            raise TypeError("state can be given to a run only together with messages; otherwise set agent.state")
        return None
    if isinstance(messages, (str, bytes)) or not isinstance(messages, Sequence):
        raise is_not("messages", messages, "a list of messages and strings")
    return Apart(as_messages(list(cast("Sequence[Any]", messages))), cast("MutableMapping[str, Any] | None", state))


def cancel_of(options: dict[str, Any]) -> CancellationToken | None:
    """Removes `cancel` from the options of a run. Raises `TypeError` for what is not a token."""
    cancel = options.pop("cancel", None)
    if cancel is not None and not isinstance(cancel, CancellationToken):
        raise is_not("cancel", cancel, "a CancellationToken")
    return cancel


def given_to(agent: object, options: Mapping[str, Any]) -> Given | None:
    """Returns the values for a run of the agent that starts in this context, overrides included; `None` for none.

    Raises `TypeError` for an unknown name, and whatever the constructor raises for a wrong value.
    """
    overrides = _OVERRIDES.get()
    if not options and not overrides:
        return None
    given = _converted(options, _NAMES)
    own_stream_fn = given.get("stream_fn")  # that of the run's model
    for owner, values in overrides:
        if owner is agent:
            if "model" in values and given.get("stream_fn") is own_stream_fn:
                given.pop("stream_fn", None)
            given |= values
    return given or None


class Override(ContextDecorator):
    """Within its block, these values take precedence over all others in runs of the agent that start in this context.
    It may be entered again, also inside its own block."""

    def __init__(self, agent: object, options: Mapping[str, Any]) -> None:
        self._mine = agent, _converted(options, (*_NAMES, "stream_fn"))

    def __enter__(self) -> None:
        _OVERRIDES.set((*_OVERRIDES.get(), self._mine))

    def __exit__(self, *_: object) -> None:
        # Not reset by a token: a test fixture may exit in another context than it entered.
        overrides = list(_OVERRIDES.get())
        for position in range(len(overrides) - 1, -1, -1):
            if overrides[position] is self._mine:
                del overrides[position]
                break
        _OVERRIDES.set(tuple(overrides))


def _converted(options: Mapping[str, Any], names: tuple[str, ...]) -> Given:
    given: Given = {}
    for name, value in options.items():
        if name in ("images", "documents") and "stream_fn" not in names:
            raise TypeError(f"{name!r} goes with a prompt, and this run has none")
        if name not in names and name in RUN_ARGUMENTS:
            raise TypeError(f"a run has no argument {name!r}; write {RUN_ARGUMENTS[name]}")
        if name not in names:
            can = names if "stream_fn" in names else (*names, *_OF_RUNS)
            raise TypeError(f"{name!r} cannot be given for one run; {', '.join(can)} can")
        if name == "model" and (asked := stream_fn_in(value)) is not None:
            given["stream_fn"] = asked
        if value is not None or name in _MAY_BE_NONE:
            given[name] = _value(name, value)
    return given


def _value(name: str, value: Any) -> Any:
    match name:
        case "max_turns":
            if value is not None:
                check_whole(name, value)
        case "model":
            return as_model(value)
        case "tools":
            return as_toolbox(value)
        case "system_prompt":
            check_prompt(value)
        case "stream_fn" if not is_function(value):
            raise is_not(name, value, "a function")
        case "stream_options" if isinstance(value, type) or not hasattr(value, "max_tokens"):
            raise is_not(name, value, "StreamOptions")
        case _:
            pass
    return value


def config_of(config: AgentLoopConfig, given: Given | None) -> AgentLoopConfig:
    """Returns the configuration of a run. It never contains the deps that the run is given.

    With a stream function from `override`, there are no fallbacks, and no key is needed.
    """
    if given is None:
        return config
    changes = {name: given[name] for name in _IN_CONFIG if name in given}
    if "stream_fn" in changes:
        changes |= {"fallbacks": (), "get_api_key": None}
    return replace(config, **changes) if changes else config


def check_given(config: AgentLoopConfig, given: Given | None, toolbox: Toolbox | TurnTools) -> None:
    """Raises an error if a run is impossible: no adapter for the model, no key, or no deps for a tool that needs
    them."""
    made = config_of(config, given)
    if made.model is not config.model:
        check_provider(made.stream_fn, made.model, config.model.provider)
    if given is None or "stream_fn" not in given:
        check_model(made)
    if given is None:
        if config.deps is None:
            toolbox.check_deps()
    elif given.get("deps", config.deps) is None:
        given.get("tools", toolbox).check_deps()
