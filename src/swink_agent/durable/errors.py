"""The errors of durable runs.

    DurableError(message)       an `AgentError`
    ├── RunNotFound             no run has that id
    ├── RunConflict             the id belongs to another run, or the run to follow is not over
    ├── RunOver                 the run cannot be retried
    └── StoreUnavailable        the store cannot be reached or written

Owns the tree. No message contains a password.
"""

from __future__ import annotations

from swink_agent.core.errors import AgentError


class DurableError(AgentError):
    """A durable run or its store cannot be used as requested."""


class RunNotFound(DurableError):
    """No run has this id."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"there is no run {run_id!r} in this store")
        self.run_id = run_id


class RunConflict(DurableError):
    """The id is taken by a run of another agent or prompt, or the run that this one follows is not over."""


class RunOver(DurableError):
    """The run is not in a state in which this can be done."""


class StoreUnavailable(DurableError):
    """The store cannot be reached or written at the moment: try again later."""
