"""The errors before and around a run, and the exit code for each.

    ApplicationError        1
    ├── UsageProblem        2   a flag, a setting or an input that cannot be used
    │   └── SettingsError   2   a settings file, variable or value that cannot be used
    ├── CredentialsError    3   a key store that cannot be used
    └── NoModel             3   no model, or no key for it

Owns the exit codes. Scripts rely on their meaning: docs/cli.md lists them.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """How the program ended."""

    DONE = 0
    FAILED = 1
    """The run failed, or its answer could not be written."""
    USAGE = 2
    NO_MODEL = 3
    """No model, or no key that works."""
    LIMIT = 4
    """A limit stopped the run: turns, cost, time, the length of the reply, or another policy."""
    WAITING = 5
    """The run waits for answers about calls."""
    INTERRUPTED = 130


class ApplicationError(Exception):
    """An error whose text is all that a user needs. It is shown without a traceback."""

    exit_code = ExitCode.FAILED


class UsageProblem(ApplicationError):
    """The request cannot be carried out as given."""

    exit_code = ExitCode.USAGE


class SettingsError(UsageProblem):
    """A settings file, variable or value that cannot be used. The text names the place."""


class CredentialsError(ApplicationError):
    """The keys cannot be read or written."""

    exit_code = ExitCode.NO_MODEL


class NoModel(ApplicationError):
    """There is no model to ask, or no key for it. The text says how to get one."""

    exit_code = ExitCode.NO_MODEL
