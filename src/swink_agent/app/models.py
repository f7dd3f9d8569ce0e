"""Which model is asked, and how its stream function is made.

The flag or setting if there is one, else the first provider whose key is there, else the model on this machine if its
extra is installed, else an error that says what to do. Owns that choice, and handing keys and addresses to adapters.
Does not own the models: they are in `adapters` and `local`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from swink_agent.core.cancel import CancellationToken
from swink_agent.core.errors import AgentError, AuthError
from swink_agent.core.providers import ProviderStreamFn, entry_point_of
from swink_agent.core.stream import StreamFn, StreamOptions
from swink_agent.core.types import AgentContext, ModelSpec, ThinkingLevel, UserMessage

from .credentials import Credentials
from .errors import NoModel, UsageProblem
from .providers import LOCAL, PROVIDERS, Provider, all_providers, provider_named
from .settings import Settings

__all__ = ["LOCAL_EXTRA", "choose_model", "has_local_extra", "is_small", "local_fetch", "prepare_local", "stream_fn_of"]

LOCAL_EXTRA = "pip install 'swink-agent[local]'"
_SIZE = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)b(?![a-z0-9])")
_SMALL_PARAMETERS = 14.0
"""In billions, as names such as `llama3.1:8b` tell them."""
_NO_MODEL = f"""there is no model to ask. One of these gives you one:
  a key in the environment     export ANTHROPIC_API_KEY=…   (or OPENAI_, GEMINI_, XAI_, MISTRAL_API_KEY)
  a key that is kept           swink keys set anthropic
  a model on this machine      {LOCAL_EXTRA}
`swink doctor` tells what there is."""


def has_local_extra() -> bool:
    """Whether what the model on this machine needs is installed."""
    return find_spec("xllamacpp") is not None


def choose_model(
    settings: Settings, credentials: Credentials, *, has_local: Callable[[], bool] = has_local_extra
) -> tuple[ModelSpec, str]:
    """The model and why it is this one. Raises `NoModel`, or `UsageProblem` for a name that means nothing."""
    thinking = ThinkingLevel(settings.value("thinking"))
    chosen = settings["model"]
    if chosen.value is not None:
        spec, source = named_model(chosen.value), chosen.source
    else:
        spec, source = _first_at_hand(credentials, has_local)
    return ModelSpec(spec.provider, spec.model_id, thinking, spec.thinking_budgets), source


def is_small(model: ModelSpec) -> bool:
    """Whether the model is one that needs to be watched more closely: of this machine, or of few parameters by name."""
    sizes = [float(size) for size in _SIZE.findall(model.model_id.lower())]
    return model.provider == "local" or bool(sizes and max(sizes) <= _SMALL_PARAMETERS)


def named_model(text: str) -> ModelSpec:
    """The model that a user means: `provider:model`, a provider alone, or a model's name alone."""
    text = text.strip()
    provider, colon, name = text.partition(":")
    if not colon:
        return _by_short_name(text)
    if provider != LOCAL and provider_named(provider) is None:
        found = _in_catalog(text)  # a model's own name may hold a colon
        if found is not None:
            return found
        raise UsageProblem(_unknown_provider(provider))
    if not name.strip():
        return _by_short_name(provider)
    return ModelSpec(provider, name.strip())


def stream_fn_of(
    model: ModelSpec,
    settings: Settings,
    credentials: Credentials,
    *,
    on_local_state: Callable[[Any], None] | None = None,
) -> StreamFn:
    """The stream function for a model, with the address of the settings. Raises `NoModel` if it cannot be used."""
    if model.provider == "local":
        return _local_stream_fn(model, settings, on_local_state)
    known = provider_named(model.provider)
    if known is None:
        raise NoModel(_unknown_provider(model.provider))
    address = settings[f"base_url.{known.name}"] if known.url_variables else None
    if address is not None and address.problem:
        raise NoModel(f"{known.name} cannot be asked: {address.problem}")
    try:
        stream_fn = _made(known, model, address.value or None if address is not None else None)
        key = credentials.find(model.provider)
        build = getattr(stream_fn, "build", None)  # one that is made without the kit may have none
        if build is not None:
            build(model, AgentContext("", (UserMessage("?"),)), StreamOptions(api_key=key.value if key else None))
    except AuthError as error:
        raise NoModel(_what_is_missing(str(error), known)) from error
    except ImportError as error:  # an adapter whose extra is not installed says which
        raise NoModel(str(error)) from error
    except (AgentError, ValueError) as error:
        raise NoModel(f"{model} cannot be asked: {error}") from error
    return stream_fn


def _made(provider: Provider, model: ModelSpec, address: str | None) -> StreamFn:
    """The stream function. Whatever a package of somebody else's raises for it is told with the provider's name."""
    try:
        made = provider.make(address)
        if isinstance(made, ProviderStreamFn):  # of a plain callable, which is called now and not in the run
            made.adapter(model)
        return made
    except (AgentError, ImportError, ValueError):
        raise
    except Exception as error:
        raise NoModel(f"{model} cannot be asked: {_whose(provider)} failed: {error!r}") from error


def _whose(provider: Provider) -> str:
    """A provider and, if somebody else wrote it, the package that it is of."""
    point = None if provider in PROVIDERS else entry_point_of(provider.name)
    of = "" if point is None or point.dist is None else f" of the package {point.dist.name}"
    return f"the provider {provider.name}{of}"


def _what_is_missing(message: str, provider: Provider) -> str:
    """An adapter's words on a missing key or address, with what can be done from a command line."""
    if (text := message.removesuffix(", or pass base_url")) != message:
        return f"{text}, or: swink config set base_url.{provider.name} URL"
    text = message.removesuffix(", or pass api_key")
    return f"{text}, or keep a key: swink keys set {provider.account}" if provider.key_variables else text


def _local_stream_fn(model: ModelSpec, settings: Settings, on_state: Callable[[Any], None] | None) -> StreamFn:
    if not has_local_extra():
        raise NoModel(f"{model} runs on this machine, and what that needs is not installed: {LOCAL_EXTRA}")
    from swink_agent.local import LocalStreamFn

    window = settings.value("context_window")
    chosen: dict[str, Any] = {} if window is None else {"context_length": window}
    return LocalStreamFn(model.model_id, cache_dir=settings.value("models_dir"), on_state=on_state, **chosen)


def local_fetch(
    model: ModelSpec, settings: Settings, on_state: Callable[[Any], None] | None = None
) -> Callable[[CancellationToken], None] | None:
    """What has to be done before a model of this machine can be asked, if it is one: getting its file.

    To be called in a thread. It raises `NoModel` if there is no way to the file, `Aborted` when cancelled.
    """
    if model.provider != "local":
        return None

    def fetch(cancel: CancellationToken) -> None:
        from swink_agent.local.events import LocalModelError
        from swink_agent.local.store import ModelStore

        try:
            ModelStore(settings.value("models_dir")).fetch(model.model_id, on_state, cancel=cancel)
        except LocalModelError as error:
            raise NoModel(str(error)) from error

    return fetch


async def prepare_local(
    name: str, settings: Settings, on_state: Callable[[Any], None] | None, cancel: CancellationToken
) -> None:
    """Has a model of this machine read what all runs of the standard agent begin with, which is then kept on disk.

    Raises `NoModel` if it cannot be run here, `Aborted` when cancelled.
    """
    from tempfile import TemporaryDirectory

    from swink_agent.local import LocalModelError, LocalStreamFn
    from swink_agent.tools import standard_tools

    from .confinement import sandbox_profile
    from .prompt import standard_prompt

    stream_fn = LocalStreamFn(name, cache_dir=settings.value("models_dir"), on_state=on_state, fetch=False)
    wanted = settings.value("tools")
    try:
        with TemporaryDirectory(prefix="swink-") as folder:  # the words are the same for every folder
            profile = sandbox_profile(Path(folder), network=settings.value("network"))
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
            where = credentials.in_environment(provider.name)
            return ModelSpec(
                provider.name, provider.default_model
            ), f"the first key: {where or 'stored ' + provider.account}"
    if has_local():
        return ModelSpec("local", default_local_model()), "no key is set, so the model on this machine"
    raise NoModel(_NO_MODEL)


def default_local_model() -> str:
    from swink_agent.local.presets import DEFAULT_MODEL

    return DEFAULT_MODEL


def _by_short_name(name: str) -> ModelSpec:
    """A provider's first model, a preset of this machine, or a model of the catalog."""
    if name == "local":
        return ModelSpec("local", default_local_model())
    known = provider_named(name)
    if known is not None:
        if not known.default_model:
            raise UsageProblem(f"{name} alone names no model: write {name}:MODEL")
        return ModelSpec(name, known.default_model)
    from swink_agent.local.presets import PRESETS

    if name in [preset.name for preset in PRESETS]:
        return ModelSpec("local", name)
    found = _in_catalog(name)
    if found is not None:
        return found
    raise UsageProblem(_unknown_model(name))


def _in_catalog(name: str) -> ModelSpec | None:
    from swink_agent.adapters.catalog import ModelCatalog

    info = ModelCatalog.load().find(name)
    if info is None or provider_named(info.provider) is None:
        return None
    return ModelSpec(info.provider, name)


def _unknown_model(name: str) -> str:
    from swink_agent.adapters.catalog import ModelCatalog

    near = _near_presets(name) or ModelCatalog.load().nearest(name)
    example = "write provider:model, such as anthropic:claude-sonnet-4-6;"
    hint = f"did you mean {' or '.join(near)}?" if near else example
    return f"no model is called {name!r}; {hint} `swink models` lists them"


def _near_presets(name: str) -> tuple[str, ...]:
    from swink_agent.core.texts.likeness import close_names
    from swink_agent.local.presets import PRESETS

    names = [preset.name for preset in PRESETS]
    return tuple(f"local:{near}" for near in close_names(name, names, n=3, cutoff=0.7))


def _unknown_provider(name: str) -> str:
    from swink_agent.core.providers import declared_names
    from swink_agent.core.texts.likeness import close_names

    names = sorted({*declared_names(), LOCAL})
    near = close_names(name, names)
    hint = f"did you mean {near[0]}? There are" if near else "there are"
    return f"no provider is called {name!r}; {hint}: {', '.join(names)}"
