"""The type parameter of agents, tools and contexts: the type of the dependencies that an application gives to a run.

For type checkers it has a default, which Python 3.11 does not support: left out, it is `Any`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    Deps = TypeVarWithDefault("Deps", default=Any)
    Deps_co = TypeVarWithDefault("Deps_co", covariant=True, default=Any)
    Deps_contra = TypeVarWithDefault("Deps_contra", contravariant=True, default=Any)
else:
    Deps = TypeVar("Deps")
    Deps_co = TypeVar("Deps_co", covariant=True)
    Deps_contra = TypeVar("Deps_contra", contravariant=True)
