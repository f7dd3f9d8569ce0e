"""From what a command line says to an agent in a folder: the steps that every front end takes, in one order.

Owns that order: folder, trust, settings, session, redactor, agent. What can be wrong is found before anything is spent
or run. Owns none of the parts, and nothing of how a run is driven or shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.stream import StreamFn
from swink_agent.core.types import ModelSpec, ThinkingLevel
from swink_agent.core.values.value import Value

from .agent import AgentOptions, StandardAgent, redactor_for, standard_agent
from .credentials import Credentials
from .errors import NoModel
from .foreign_code import import_nothing_from
from .input_files import added_folder, folder_of
from .masking_key import masking_key
from .sessions import RunSession, WantedSession
from .settings import load_settings
from .trust import TrustStore, find_project

if TYPE_CHECKING:
    from swink_agent.approvals import SessionTrust
    from swink_agent.approvals.approvals import AskFn

__all__ = ["SETTING_FLAGS", "Opening", "OpeningOptions"]

SETTING_FLAGS = (
    *("model", "thinking", "system", "append_system", "tools", "approve", "allow", "deny", "sandbox", "network"),
    *("max_turns", "max_cost", "timeout", "output", "masking", "unmask"),
)
"""The options of the command line that are settings, by the same name."""


class OpeningOptions(Value, frozen=True, kw_only=True):
    """What a command line says of where to work, how, and in which session."""

    flags: Mapping[str, Any] = {}
    """Settings by name; one that is `None` or missing was not given."""
    cwd: str | None = None
    added: tuple[str, ...] = ()
    session: WantedSession = WantedSession()

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> OpeningOptions:
        """What the options of `swink` say, by the names that the command line has for them."""
        several = ("allow", "deny")
        return cls(
            flags={name: options[name] or None if name in several else options[name] for name in SETTING_FLAGS},
            cwd=options["cwd"],
            added=tuple(options["add_dir"]),
            session=WantedSession(is_kept=not options["no_session"], newest=options["continue"], id=options["resume"]),
        )


class Opening:
    """A folder with its settings, ready for sessions and agents. Raises `UsageProblem` and `SettingsError`."""

    def __init__(self, options: OpeningOptions, *, credentials: Credentials | None = None) -> None:
        self.options = options
        self.folder: Path = folder_of(options.cwd)
        self.added = tuple(dict.fromkeys([added_folder(name) for name in options.added]))
        # What is loaded later is not what the model wrote meanwhile.
        import_nothing_from((self.folder, *self.added))
        self.credentials = Credentials() if credentials is None else credentials
        self.project = find_project(self.folder, TrustStore())
        self.settings = load_settings(
            flags=options.flags, project=None if self.project is None else self.project.settings_files
        )

    def __repr__(self) -> str:
        return f"<Opening {self.folder}>"

    def with_flags(self, **flags: Any) -> Opening:
        """The same with other settings, as if the command line had said so."""
        return Opening(
            structs.replace(self.options, flags={**self.options.flags, **flags}), credentials=self.credentials
        )

    def session(self, wanted: WantedSession | None = None) -> RunSession:
        """The session to record in, by default the one that the command line wants. Raises `UsageProblem`."""
        return RunSession(self.settings, self.folder, self.options.session if wanted is None else wanted)

    def redactor(self, session: RunSession) -> Redactor:
        """What masks secrets; with a key that is kept where the session is, so that placeholders stay the same."""
        is_key_kept = session.is_kept and self.settings.value("masking")
        return redactor_for(self.settings, self.credentials, key=masking_key() if is_key_kept else None)

    def model_of(self, session: RunSession) -> ModelSpec | None:
        """The model that a session goes on with, unless the command line names another."""
        model = None if self.options.flags.get("model") is not None else session.model
        if model is None or self.options.flags.get("thinking") is None:
            return model
        return structs.replace(model, thinking_level=ThinkingLevel(self.settings.value("thinking")))

    def agent(
        self,
        session: RunSession,
        redactor: Redactor,
        *,
        ask: AskFn | None = None,
        on_local_state: Callable[[Any], None] | None = None,
        trust: SessionTrust | None = None,
        model: ModelSpec | None = None,
        stream_fn: StreamFn | None = None,
    ) -> StandardAgent:
        """The standard agent, not yet attached to the session. Raises `NoModel` and `UsageProblem`."""
        options = AgentOptions(
            settings=self.settings,
            credentials=self.credentials,
            folder=self.folder,
            added=self.added,
            project=self.project,
            ask=ask,
            on_local_state=on_local_state,
            redactor=redactor,
            trust=trust,
            model=self.model_of(session) if model is None else model,
            stream_fn=stream_fn,
        )
        try:
            return standard_agent(options)
        except NoModel as error:
            if options.model is None or model is not None:
                raise
            raise NoModel(
                f"the session goes on with {options.model}, which cannot be asked: {error}; -m goes on with another"
            ) from error
