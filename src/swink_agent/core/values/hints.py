"""Types for hints, loaded only when the hints are evaluated; `hint_types` lists them.

`hints.Path | None` costs nothing until `typing.get_type_hints` evaluates it. A name that is imported under
`TYPE_CHECKING` only could not be evaluated.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .hint_types import *
else:
    from ..lazy import lazy_names

    __getattr__, __dir__ = lazy_names(__name__, ".hint_types")
