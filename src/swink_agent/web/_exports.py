"""The public names of this package, and the modules that define them. `core/lazy.py` reads this list."""

from .embedded import AgentContext as AgentContext
from .owners import owned_by as owned_by
from .server import app as app
