"""The errors of the sandbox, and the report on one back end.

    AgentError
    └── SandboxError                     the base
        ├── SandboxUnavailable(reports)  no back end works here; one report for each that was tried
        ├── UnfitFolder                  the back end works, but not with this folder
        └── SandboxClosed                the sandbox was closed

`open` finds out whether a back end works.
"""

from __future__ import annotations

from collections.abc import Sequence

from swink_agent.core.errors import AgentError
from swink_agent.core.values.value import Value


class BackendReport(Value, frozen=True, kw_only=True):
    """Whether one back end works on this machine; if not, why not, and what would help."""

    name: str
    works: bool
    reason: str = ""
    remedy: str = ""
    is_about_folder: bool = False
    """Whether the problem is the folder and not the machine: elsewhere the back end may work."""

    def __str__(self) -> str:
        if self.works:
            return f"{self.name}: works"
        return f"{self.name}: {self.reason}" + (f" ({self.remedy})" if self.remedy else "")


class SandboxError(AgentError):
    """A child process could not be confined as asked, and was not started.

    `remedy` is advice: `None` if only the general advice for the back end applies, empty if the message contains it.
    """

    def __init__(self, message: str = "", *, remedy: str | None = None) -> None:
        self.remedy = remedy
        super().__init__(message)


class SandboxUnavailable(SandboxError):
    """No back end can enforce the profile. `reports` has the reason for each, and advice."""

    def __init__(self, message: str = "", *, reports: Sequence[BackendReport] = ()) -> None:
        self.reports = tuple(reports)
        tried = "; ".join(map(str, self.reports)) or "there is no back end for this system"
        super().__init__(
            message
            or f"no sandbox works on this machine, so nothing was run: {tried}. "
            'To run commands without a sandbox, the user may choose sandbox="off"'
        )


class UnfitFolder(SandboxError):
    """This back end cannot work with the folder or something in it. The message has the reason."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message, remedy="")


class SandboxClosed(SandboxError):
    """The sandbox was closed: open a new one to start processes."""

    def __init__(self, message: str = "the sandbox is closed: open a new one to start processes") -> None:
        super().__init__(message)
