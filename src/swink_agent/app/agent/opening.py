"""Opens an agent in a folder from command-line options. Every front end takes these steps, in the same order.

The order: folder, trust, settings, session, redactor, agent. Problems are found before anything is spent or run. Also
starts the telemetry of the process, with the first agent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from msgspec import structs

from swink_agent.core.agent.agent import Agent
from swink_agent.core.machine.extras import MissingExtra
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.stream import StreamFn
from swink_agent.core.types import ModelSpec, ThinkingLevel
from swink_agent.core.values.value import Value

from ..errors import NoModel
from ..keys.credentials import Credentials
from ..keys.masking_key import masking_key
from ..runs.input_files import added_folder, folder_of
from ..runs.sessions import RunSession, WantedSession
from ..settings.mcp_servers import ServerSettings
from ..settings.settings import load_settings
from ..trust.folder_rules import FolderRules
from ..trust.foreign_code import import_nothing_from
from ..trust.trust import TrustStore, find_project
from .confinement import writable_folders
from .standard import AgentOptions, StandardAgent, redactor_for, standard_agent

if TYPE_CHECKING:
    from swink_agent.approvals import SessionTrust
    from swink_agent.approvals.approvals import AskFn
    from swink_agent.telemetry import TelemetryExport

    from .servers import McpServers

SETTING_FLAGS = (
    *("model", "thinking", "temperature", "max_tokens", "system", "append_system", "tools", "approve", "allow", "deny"),
    *("sandbox", "network", "allow_hosts", "max_turns", "max_cost", "timeout", "output", "masking", "unmask", "otel"),
    "web_search",
)
"""The command-line options that are settings, by the same name."""
_NAME = "swink"


class GivenToAgent(TypedDict, total=False):
    """Arguments for an agent in addition to the folder, settings and session. `AgentOptions` describes them."""

    ask: AskFn | None
    is_attended: bool
    on_local_state: Callable[[Any], None] | None
    stream_fn: StreamFn | None
    trust: SessionTrust | None
    servers: McpServers | None


class OpeningOptions(Value, frozen=True, kw_only=True):
    """The command-line options for the folder, the settings and the session."""

    flags: Mapping[str, Any] = {}
    """Settings by name. `None` or missing means not given."""
    cwd: str | None = None
    added: tuple[str, ...] = ()
    session: WantedSession = WantedSession()
    uses_servers: bool = True
    """Whether the MCP servers of the settings are started."""
    other_servers: tuple[ServerSettings, ...] = ()
    """MCP servers from an editor."""
    uses_hooks: bool = True
    """Whether the hooks of the settings run."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> OpeningOptions:
        """The options of `swink`, by their names on the command line."""
        several = ("allow", "deny", "allow_hosts", "unmask")
        return cls(
            flags={name: options[name] or None if name in several else options[name] for name in SETTING_FLAGS},
            cwd=options["cwd"],
            added=tuple(options["add_dir"]),
            session=WantedSession(is_kept=not options["no_session"], newest=options["continue"], id=options["resume"]),
            uses_servers=not options["no_mcp"],
            uses_hooks=not options["no_hooks"],
        )


class Opening:
    """A folder with its settings, ready for sessions and agents. Raises `UsageProblem` and `SettingsError`."""

    def __init__(self, options: OpeningOptions, *, credentials: Credentials | None = None) -> None:
        self.options = options
        self.folder: Path = folder_of(options.cwd)
        self.added = tuple(dict.fromkeys([added_folder(name) for name in options.added]))
        # From now on nothing is imported from folders that the model may write to.
        import_nothing_from((self.folder, *self.added))
        self.credentials = Credentials() if credentials is None else credentials
        self.telemetry = Telemetry()
        self.project = find_project(self.folder, TrustStore())
        self.settings = load_settings(
            flags=options.flags,
            project=None if self.project is None else self.project.settings_files,
            kept=FolderRules().setting(self.folder),
        )

    @property
    def writable(self) -> tuple[str, ...]:
        """The folders that commands may write. A program from there is started only in the sandbox."""
        return writable_folders(self.folder, self.added)

    def with_flags(self, **flags: Any) -> Opening:
        """The same with other settings, as if the command line had set them."""
        options = structs.replace(self.options, flags={**self.options.flags, **flags})
        other = Opening(options, credentials=self.credentials)
        other.telemetry = self.telemetry
        return other

    def session(self, wanted: WantedSession | None = None) -> RunSession:
        """The session to record in, by default the one that the command line wants. Raises `UsageProblem`."""
        return RunSession(self.settings, self.folder, self.options.session if wanted is None else wanted)

    def redactor(self, session: RunSession) -> Redactor:
        """The redactor. If the session is kept, so is its key, so that placeholders stay the same."""
        is_key_kept = session.is_kept and self.settings.value("masking")
        return redactor_for(self.settings, self.credentials, key=masking_key() if is_key_kept else None)

    def model_of(self, session: RunSession) -> ModelSpec | None:
        """The model that a session continues with, unless the command line names another."""
        is_named = self.options.flags.get("model") is not None
        model = None if is_named or session.info is None else session.info.model
        if model is None or self.options.flags.get("thinking") is None:
            return model
        return structs.replace(model, thinking_level=ThinkingLevel(self.settings.value("thinking")))

    def agent(
        self, session: RunSession, redactor: Redactor, *, model: ModelSpec | None = None, **given: Unpack[GivenToAgent]
    ) -> StandardAgent:
        """The standard agent, not yet attached to the session. Raises `NoModel` and `UsageProblem`."""
        options = AgentOptions(
            settings=self.settings,
            credentials=self.credentials,
            folder=self.folder,
            added=self.added,
            project=self.project,
            redactor=redactor,
            model=self.model_of(session) if model is None else model,
            uses_servers=self.options.uses_servers,
            other_servers=self.options.other_servers,
            uses_hooks=self.options.uses_hooks,
            **given,
        )
        try:
            made = standard_agent(options)
        except NoModel as error:
            if options.model is None or model is not None:
                raise
            raise NoModel(
                f"the session continues with {options.model}, which cannot be used: {error}; -m names another"
            ) from error
        if made.hooks is not None:
            made.hooks.watch(made.agent)
        if self.settings.value("otel"):
            try:
                self.telemetry.report(made.agent)
            except BaseException:
                made.close()
                raise
        return made


class Telemetry:
    """The telemetry of one process. It reports nothing until `report`."""

    def __init__(self) -> None:
        self._lock = Lock()  # agents are opened in several threads
        self._export: TelemetryExport | None = None
        self._problem: str | None = None

    def report(self, agent: Agent) -> None:
        """Reports the agent's runs from now on. Raises `MissingExtra`."""
        from swink_agent.telemetry import instrument, start_export

        with self._lock:
            if self._problem is not None:
                return
            if self._export is None:
                try:
                    self._export = start_export(_NAME)
                except MissingExtra:
                    raise
                except Exception as error:  # the SDK may raise anything about its variables
                    words = Redactor().redact(" ".join(str(error).split()))
                    self._problem = f"telemetry was not sent: {words or type(error).__name__}"
                    return
            export = self._export
        instrument(agent, name=_NAME, tracer_provider=export.tracer_provider, meter_provider=export.meter_provider)

    def close(self, seconds: float = 5.0) -> str | None:
        """Sends the remaining data, for at most `seconds`; returns a warning if that fails."""
        export, self._export = self._export, None
        return self._problem if export is None else export.close(seconds)
