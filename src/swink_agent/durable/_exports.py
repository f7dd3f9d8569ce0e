"""The public names of durable runs and their modules, one line each. `core/lazy.py` reads this list."""

from swink_agent.core.errors import NotPending as NotPending

from .durable import Durable as Durable
from .errors import DurableError as DurableError
from .errors import RunConflict as RunConflict
from .errors import RunNotFound as RunNotFound
from .errors import RunOver as RunOver
from .errors import StoreUnavailable as StoreUnavailable
from .evaluation import DurableExecutor as DurableExecutor
from .info import FleetStats as FleetStats
from .info import RunInfo as RunInfo
from .info import RunStatus as RunStatus
from .info import WorkerInfo as WorkerInfo
from .run import DurableRun as DurableRun
from .worker import Worker as Worker
