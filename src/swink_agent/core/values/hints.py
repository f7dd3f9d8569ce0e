"""Types that hints name but that are loaded only when somebody reads the hints.

Owns no type; which there are is listed in `hint_types`. `hints.Path | None` costs nothing until `typing.get_type_hints`
evaluates it, and a name under `TYPE_CHECKING` alone could not be evaluated at all.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .hint_types import *
else:
    from ..lazy import lazy_names

    __getattr__, __dir__ = lazy_names(__name__, ".hint_types")
