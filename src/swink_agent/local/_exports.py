"""The public names of this package, and the modules that define them. `core/lazy.py` reads this list."""

from .claim_check import ClaimCheck as ClaimCheck
from .events import LocalModelError as LocalModelError
from .events import LocalModelEvent as LocalModelEvent
from .events import LocalState as LocalState
from .stream import LocalStreamFn as LocalStreamFn
from .weights.presets import DEFAULT_MODEL as DEFAULT_MODEL
from .weights.presets import PRESETS as PRESETS
from .weights.presets import Preset as Preset
from .weights.store import ModelStore as ModelStore
from .weights.store import StoredModel as StoredModel
