"""What a store of checkpoints gives out: a checkpoint, what a rewind does to a path, and the error."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from swink_agent.core.errors import ToolError

from .tree_entries import Entry

Owner: TypeAlias = Literal["other", "run"]
What: TypeAlias = Literal["restore", "remove", "same", "changed", "failed"]


class CheckpointError(ToolError):
    """A checkpoint that could not be kept or found, with what to do. Nothing was changed."""


class Checkpoint(NamedTuple):
    """What a folder was at one moment."""

    id: str
    root: str
    taken: float
    """Seconds since 1970."""
    run_id: str
    owner: Owner
    """Who changed what differs from the checkpoint before: the run, or somebody else."""
    files: int
    """How many files, links and folders are kept."""
    changed: int
    """How many paths differ from the checkpoint before."""
    skipped: tuple[str, ...]
    """Paths without a copy that a person may miss; at most 100."""
    undoes: str = ""
    """The runs that were taken back, if this is what a rewind left, with spaces between."""


class PathRewind(NamedTuple):
    """What happens to one path."""

    path: str
    what: What
    """`changed` and `failed` are left alone; `same` already is as it was."""
    before: str | None
    """The hash of the content that it gets, empty for a folder; `None` if it is removed."""
    now: str | None
    """The same for what is there at the time of planning."""
    note: str = ""
    target: Entry | None = None
    present: Entry | None = None
