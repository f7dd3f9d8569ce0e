"""The public names of this package, and the modules that define them. `core/lazy.py` reads this list."""

from .application import app as app
from .embedded import AgentContext as AgentContext
