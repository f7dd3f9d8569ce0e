"""The public values of a checkpoint store: a checkpoint, the effect of a rewind on a path, and the error."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from swink_agent.core.errors import ToolError

from .tree_entries import Entry

Owner: TypeAlias = Literal["other", "run"]
What: TypeAlias = Literal["restore", "remove", "same", "changed", "failed"]


class CheckpointError(ToolError):
    """A checkpoint could not be kept or found. The message has the remedy, if there is one. Nothing was changed."""


class Checkpoint(NamedTuple):
    """The state of a folder at one moment."""

    id: str
    root: str
    taken: float
    """Seconds since 1970."""
    run_id: str
    owner: Owner
    """Who made the changes since the checkpoint before: the run, or anyone else."""
    files: int
    """How many files, links and folders are kept."""
    changed: int
    """How many paths differ from the checkpoint before."""
    skipped: tuple[str, ...]
    """Paths without a copy that a person may miss; at most 100."""
    undoes: str = ""
    """If a rewind left this state: the runs that it took back, separated by spaces."""


class PathRewind(NamedTuple):
    """The effect of a rewind on one path."""

    path: str
    what: What
    """A path with `changed` or `failed` is left alone; one with `same` already is as it was."""
    before: str | None
    """The hash of the content that it gets, empty for a folder; `None` if it is removed."""
    now: str | None
    """The same for the content at the time of planning; `None` if the path does not exist."""
    note: str = ""
    target: Entry | None = None
    present: Entry | None = None
