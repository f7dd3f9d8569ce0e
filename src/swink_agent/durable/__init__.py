"""Durable runs: agents that run on many workers, survive the death of any of them, and wait for people for days.

`Durable` is a store of runs: it submits them and finds them again as `DurableRun`s, and `Durable.worker` runs them. The
log of a run is a session whose records are rows of a table; the engine only tells a worker that a run is queued. The
store is an SQLite file by default, or a PostgreSQL database. It needs the extra `durable`. Importing this module loads
none of it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._exports import *
else:
    from swink_agent.core.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(__name__, "._exports")
