"""Chooses the model, and makes its stream function.

A flag or setting names the model. Otherwise it is that of the first provider with a key, else the local model if its
extra is installed, else an error explains what to do. Also passes keys and addresses to adapters.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec import structs

from swink_agent.core.cancel import CancellationToken
from swink_agent.core.errors import AgentError, AuthError
from swink_agent.core.machine.extras import install
from swink_agent.core.providers import ProviderStreamFn, declared_names, entry_point_of
from swink_agent.core.stream import AssistantMessageEvent, StreamFn, StreamOptions
from swink_agent.core.types import AgentContext, ModelSpec, ThinkingLevel, UserMessage

from ..errors import NoModel, UsageProblem
from ..keys.credentials import Credentials
from ..settings.definitions import alias_of
from ..settings.settings import Settings, SourcedValue
from .providers import LOCAL, PROVIDERS, Provider, all_providers, provider_named

LOCAL_EXTRA = install("local")
_SIZE = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)b(?![a-z0-9])")
_SMALL_PARAMETERS = 14.0
"""Billions of parameters at most, read from names such as `llama3.1:8b`."""
_NO_MODEL = f"""there is no model to use. One of these gives you one:
  a key in the environment     export ANTHROPIC_API_KEY=…   (or OPENAI_, GEMINI_, XAI_, MISTRAL_API_KEY)
  a stored key                 swink keys set anthropic
  a model on this machine      {LOCAL_EXTRA}
`swink doctor` shows what is set up."""


def has_local_extra() -> bool:
    return find_spec("xllamacpp") is not None


def choose_model(
    settings: Settings, credentials: Credentials, *, has_local: Callable[[], bool] = has_local_extra
) -> tuple[ModelSpec, str]:
    """The model and why it was chosen. Raises `NoModel`, or `UsageProblem` for an unknown name."""
    thinking = ThinkingLevel(settings.value("thinking"))
    chosen = settings["model"]
    if chosen.value is not None:
        spec, source = model_of_settings(settings), chosen.source
    else:
        spec, source = _first_at_hand(credentials, has_local)
    return ModelSpec(spec.provider, spec.model_id, thinking, spec.thinking_budgets), source


def is_small(model: ModelSpec) -> bool:
    """Whether the model needs closer supervision: it is local, or its name contains a small number of parameters."""
    sizes = [float(size) for size in _SIZE.findall(model.model_id.lower())]
    return model.provider == "local" or bool(sizes and max(sizes) <= _SMALL_PARAMETERS)


def model_of_settings(settings: Settings) -> ModelSpec:
    """The model that the setting names. Raises `UsageProblem` with the file and the line, or the variable."""
    chosen = settings["model"]
    try:
        return named_model(chosen.value, settings.aliases())
    except UsageProblem as error:
        if chosen.is_flag:
            raise
        raise UsageProblem(f"{chosen.source}: model: {error}") from error


def settings_problems(settings: Settings, values: Mapping[str, SourcedValue]) -> dict[str, str]:
    """Problems of values of the right type, by setting. Each names its place."""
    found = {name: item.problem for name, item in values.items() if item.problem}
    for name, item in values.items():
        try:
            if name == "model" and item.value is not None:
                model_of_settings(settings)
            elif (alias := alias_of(name)) is not None:
                named_model(alias, settings.aliases())
            elif name in ("sessions_folder", "models_dir") and item.value is not None:
                path = Path(item.value).expanduser()
                if path.exists() and not path.is_dir():
                    raise UsageProblem(f"{item.source}: {name}: {path} is not a folder")
            elif name in ("extra_tools", "extra_policies") and item.value:
                _refuse_missing(name, item)
        except UsageProblem as error:
            found[name] = str(error)
    return found


def _refuse_missing(name: str, item: SourcedValue) -> None:
    from ..trust.extras import installed_extras

    installed = [extra.name for extra in installed_extras("tool" if name == "extra_tools" else "policy")]
    missing = [one for one in item.value if one not in installed]
    if missing:
        raise UsageProblem(f"{item.source}: {name}: no installed package provides {', '.join(missing)}")


def named_model(text: str, aliases: Mapping[str, SourcedValue] | None = None) -> ModelSpec:
    """The model that a user means: `provider:model`, a provider alone, a model's name alone, or an alias.

    Raises `UsageProblem` with the nearest known name.
    """
    text = text.strip()
    aliases = aliases or {}
    alias = ""
    while text in aliases:  # this ends: files with circular aliases were refused when they were read
        alias, text = text, aliases[text].value.strip()
    try:
        return _known_model(text, aliases)
    except UsageProblem as error:
        if not alias:
            raise
        raise UsageProblem(f"{aliases[alias].source}: aliases.{alias}: {error}") from error


def _known_model(text: str, aliases: Mapping[str, SourcedValue]) -> ModelSpec:
    """The model of a name that is not an alias."""
    provider, colon, name = text.partition(":")
    if not colon:
        return _by_short_name(text, aliases)
    if not provider:
        raise UsageProblem(_unknown_model(name, aliases, text))
    if provider != LOCAL and provider_named(provider) is None:
        if _is_provider(provider.lower()):
            meant = f"{provider.lower()}:{name.strip()}".rstrip(":")
            raise UsageProblem(f"no provider is called {provider!r}; did you mean {meant}?")
        found = _in_catalog(text)  # a model's own name may contain a colon
        if found is not None:
            return found
        raise UsageProblem(unknown_provider(provider))
    if not name.strip():
        known = provider_named(provider)
        model = default_local_model() if provider == LOCAL else known.default_model if known is not None else ""
        hint = f"did you mean {provider}:{model}?" if model else f"write {provider}:MODEL"
        raise UsageProblem(f"{text!r} has no model after the colon; {hint}")
    if provider == LOCAL:
        _refuse_unknown_local(name.strip())
    return ModelSpec(provider, name.strip())


def _refuse_unknown_local(name: str) -> None:
    """Raises `UsageProblem` unless the name is a local model or a path."""
    from swink_agent.local.events import LocalModelError
    from swink_agent.local.weights.presets import preset_named
    from swink_agent.local.weights.store import is_path

    try:
        if not is_path(name):
            preset_named(name)
    except LocalModelError as error:
        raise UsageProblem(str(error)) from error


def stream_fn_of(
    model: ModelSpec,
    settings: Settings,
    credentials: Credentials,
    *,
    on_local_state: Callable[[Any], None] | None = None,
) -> StreamFn:
    """The stream function for a model, with the address from the settings. Raises `NoModel` if it cannot be used."""
    if model.provider == "local":
        return _local_stream_fn(model, settings, on_local_state)
    known = provider_named(model.provider)
    if known is None:
        raise NoModel(unknown_provider(model.provider))
    address = settings[f"base_url.{known.name}"] if known.url_variables else None
    if address is not None and address.problem:
        raise NoModel(f"{known.name} cannot be used: {address.problem}")
    try:
        stream_fn = _made(known, model, address.value or None if address is not None else None)
        key = credentials.find(model.provider)
        build = getattr(stream_fn, "build", None)  # adapters made without the kit may not have it
        if build is not None:
            build(model, AgentContext("", (UserMessage("?"),)), StreamOptions(api_key=key.value if key else None))
    except AuthError as error:
        raise NoModel(_what_is_missing(error, known)) from error
    except ImportError as error:  # an adapter whose extra is not installed names it
        raise NoModel(str(error)) from error
    except (AgentError, ValueError) as error:
        raise NoModel(f"{model} cannot be used: {error}") from error
    return stream_fn


def with_stored_keys(stream_fn: StreamFn, credentials: Credentials) -> StreamFn:
    """The stream function with the keys that the standard agent would use."""

    def asked(
        model: ModelSpec, context: AgentContext, options: StreamOptions, cancel: CancellationToken, /
    ) -> AsyncIterator[AssistantMessageEvent]:
        key = credentials.find(model.provider)
        if key is not None and options.api_key is None:
            options = structs.replace(options, api_key=key.value)
        return stream_fn(model, context, options, cancel)

    return asked


def _made(provider: Provider, model: ModelSpec, address: str | None) -> StreamFn:
    """Makes the stream function. Errors of another package's code are reported with the provider's name."""
    try:
        made = provider.make(address)
        if isinstance(made, ProviderStreamFn):  # a plain callable is called now, not in the run
            made.adapter(model)
        return made
    except (AgentError, ImportError, ValueError):
        raise
    except Exception as error:
        raise NoModel(f"{model} cannot be used: {_whose(provider)} failed: {error!r}") from error


def _whose(provider: Provider) -> str:
    """The provider's name and, if it comes from another package, the package."""
    point = None if provider in PROVIDERS else entry_point_of(provider.name)
    of = "" if point is None or point.dist is None else f" of the package {point.dist.name}"
    return f"the provider {provider.name}{of}"


def _what_is_missing(error: AuthError, provider: Provider) -> str:
    """An adapter's message about a missing key or address, with what to do on the command line."""
    from swink_agent.adapters.kit.errors import NotConfigured  # on use: most models have what they need

    problem = error.problem if isinstance(error, NotConfigured) else str(error)
    if isinstance(error, NotConfigured) and error.argument == "base_url":
        return f"{problem}, or store the address: swink config set base_url.{provider.name} URL"
    return f"{problem}, or store a key: swink keys set {provider.account}" if provider.key_variables else problem


def _local_stream_fn(model: ModelSpec, settings: Settings, on_state: Callable[[Any], None] | None) -> StreamFn:
    if not has_local_extra():
        raise NoModel(f"{model} runs on this machine, and needs an extra that is not installed: {LOCAL_EXTRA}")
    from swink_agent.local import LocalStreamFn

    window = settings.value("context_window")
    chosen: dict[str, Any] = {} if window is None else {"context_length": window}
    return LocalStreamFn(model.model_id, cache_dir=settings.value("models_dir"), on_state=on_state, **chosen)


def local_fetch(
    model: ModelSpec, settings: Settings, on_state: Callable[[Any], None] | None = None
) -> Callable[[CancellationToken], None] | None:
    """Returns a function that fetches the file of a local model. `None` for other models.

    Call the function in a thread. It raises `NoModel` if the file cannot be fetched, `Aborted` when cancelled.
    """
    if model.provider != "local":
        return None

    def fetch(cancel: CancellationToken) -> None:
        from swink_agent.local.events import LocalModelError
        from swink_agent.local.weights.store import ModelStore

        try:
            ModelStore(settings.value("models_dir")).fetch(model.model_id, on_state, cancel=cancel)
        except LocalModelError as error:
            raise NoModel(str(error)) from error

    return fetch


async def prepare_local(
    name: str, settings: Settings, on_state: Callable[[Any], None] | None, cancel: CancellationToken
) -> None:
    """Lets a local model read the beginning of every run of the standard agent, and stores its state on disk.

    Raises `NoModel` if the model cannot run here, `Aborted` when cancelled.
    """
    from swink_agent.local import LocalModelError, LocalStreamFn
    from swink_agent.tools import standard_tools

    from .confinement import sandbox_profile
    from .system_prompt import standard_prompt

    stream_fn = LocalStreamFn(name, cache_dir=settings.value("models_dir"), on_state=on_state, fetch=False)
    wanted = settings.value("tools")  # those for background commands are offered only while there is one
    try:
        with TemporaryDirectory(prefix="swink-") as folder:  # the beginning is the same for every folder
            network, hosts = settings.value("network"), settings.value("allow_hosts")
            profile = sandbox_profile(Path(folder), network=network, hosts=hosts)
            tools = [tool for tool in standard_tools(folder, profile) if tool.name in wanted]
            prompt = standard_prompt(Path(folder), instructions=settings.value("system"))
            await stream_fn.prepare(tools, prompt, cancel=cancel)
    except LocalModelError as error:
        raise NoModel(str(error)) from error
    finally:
        stream_fn.close()


# -- names ---------------------------------------------------------------------------------------------------


def _first_at_hand(credentials: Credentials, has_local: Callable[[], bool]) -> tuple[ModelSpec, str]:
    for provider in all_providers():
        if provider.default_model and credentials.has_key(provider.name):
            where = credentials.in_environment(provider.name) or f"stored {provider.account}"
            return ModelSpec(provider.name, provider.default_model), f"the first key: {where}"
    if has_local():
        return ModelSpec("local", default_local_model()), "no key is set, so the model on this machine"
    raise NoModel(_NO_MODEL)


def default_local_model() -> str:
    from swink_agent.local.weights.presets import DEFAULT_MODEL

    return DEFAULT_MODEL


def _by_short_name(name: str, aliases: Iterable[str] = ()) -> ModelSpec:
    """A provider's default model, a local preset, or a model of the catalog."""
    if name == "local":
        return ModelSpec("local", default_local_model())
    known = provider_named(name)
    if known is not None:
        if not known.default_model:
            raise UsageProblem(f"{name} has no default model: write {name}:MODEL")
        return ModelSpec(name, known.default_model)
    from swink_agent.local.weights.presets import PRESETS

    if name in [preset.name for preset in PRESETS]:
        return ModelSpec("local", name)
    found = _in_catalog(name)
    if found is not None:
        return found
    raise UsageProblem(_unknown_model(name, aliases))


def _in_catalog(name: str) -> ModelSpec | None:
    from swink_agent.adapters.catalog import ModelCatalog

    info = ModelCatalog.load().find(name)
    if info is None or provider_named(info.provider) is None:
        return None
    if name != info.model_id and name.lower() == info.model_id:
        return None  # the provider would refuse the capitals
    return ModelSpec(info.provider, name)


def _unknown_model(name: str, aliases: Iterable[str] = (), written: str = "") -> str:
    near = _nearest(name, aliases)
    example = "write provider:model, such as anthropic:claude-sonnet-4-6;"
    hint = f"did you mean {' or '.join(near)}?" if near else example
    return f"no model is called {written or name!r}; {hint} `swink models` lists them"


def _nearest(name: str, aliases: Iterable[str]) -> Sequence[str]:
    """Suggestions for an unknown name, as they can be written."""
    from swink_agent.adapters.catalog import ModelCatalog
    from swink_agent.core.texts.likeness import close_names
    from swink_agent.local.weights.presets import PRESETS

    provider, slash, model = name.partition("/")
    if slash and model and _is_provider(provider.lower()):
        return (f"{provider.lower()}:{model}",)
    if exact := _in_catalog(name):
        return (str(exact),)
    if short := close_names(name, {*declared_names(), LOCAL, *aliases}, cutoff=0.75):
        return short
    if presets := close_names(name, [preset.name for preset in PRESETS], n=3, cutoff=0.7):
        return [f"local:{near}" for near in presets]
    # The catalog has models of providers that are not available here.
    return [near for near in ModelCatalog.load().nearest(name) if provider_named(near.partition(":")[0]) is not None]


def _is_provider(name: str) -> bool:
    return name == LOCAL or name in declared_names()


def unknown_provider(name: str) -> str:
    from swink_agent.core.texts.likeness import close_names

    names = sorted({*declared_names(), LOCAL})
    near = close_names(name, names)
    hint = f"did you mean {near[0]}? There are" if near else "there are"
    return f"no provider is called {name!r}; {hint}: {', '.join(names)}"
