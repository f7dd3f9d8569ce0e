"""The public names of the local model, one line each, and where they live: the one list, which `core/lazy.py` reads."""

from .events import LocalModelError as LocalModelError
from .events import LocalModelEvent as LocalModelEvent
from .events import LocalState as LocalState
from .presets import DEFAULT_MODEL as DEFAULT_MODEL
from .presets import PRESETS as PRESETS
from .presets import Preset as Preset
from .store import ModelStore as ModelStore
from .store import StoredModel as StoredModel
from .stream import LocalStreamFn as LocalStreamFn
