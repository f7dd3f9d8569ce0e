"""The providers that the application knows by name: its own, and those of installed packages.

By default the first provider in the list with a key is chosen. Installed providers are looked up only when one is
named or the whole list is needed: that takes time, and runs other packages' code.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import cache

from swink_agent.adapters.registry import PROVIDERS
from swink_agent.core.providers import ProviderDescription as Provider
from swink_agent.core.providers import ProviderStreamFn, declared_names, description_of, entry_point_of

from ..errors import UsageProblem

log = logging.getLogger("swink_agent")
LOCAL = "local"
"""The provider of local models. It takes neither key nor address, and is handled separately."""


def provider_named(name: str) -> Provider | None:
    """The provider of that name, or `None`. Raises `UsageProblem` for a package that cannot be loaded."""
    ours = next((provider for provider in PROVIDERS if provider.name == name), None)
    return ours if ours is not None or name in ("", LOCAL) else _installed(name)


def all_providers() -> Iterator[Provider]:
    """Our providers, then the installed ones by name, each loaded when it is reached. Broken ones are left out."""
    yield from PROVIDERS
    for name in _other_names():
        try:
            provider = _installed(name)
        except UsageProblem as problem:
            log.info("%s", problem)  # `swink doctor` reports it
            continue
        if provider is not None:
            yield provider


def unusable_providers() -> dict[str, str]:
    problems: dict[str, str] = {}
    for name in _other_names():
        try:
            _installed(name)
        except UsageProblem as problem:
            problems[name] = str(problem)
    return problems


def _other_names() -> list[str]:
    ours = {provider.name for provider in PROVIDERS} | {LOCAL}
    return [name for name in declared_names() if name not in ours]


@cache
def _installed(name: str) -> Provider | None:
    """The description of an installed provider. For a plain callable it has only the name."""
    point = entry_point_of(name)
    if point is None:
        return None
    try:
        return description_of(name) or Provider(name=name, make=lambda _: ProviderStreamFn(), needs_key=False)
    except Exception as error:  # loading runs another package's code, which may raise anything
        from ..trust.foreign_code import why_not_loaded

        package = point.dist.name if point.dist is not None else point.value
        raise UsageProblem(
            f"the provider {name} of the package {package} cannot be loaded: "
            f"{why_not_loaded(point, error, 'fix or uninstall the package')}"
        ) from error
