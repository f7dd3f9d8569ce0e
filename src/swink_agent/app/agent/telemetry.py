"""Reports the runs of the command's agents to a collector, if the settings say so.

Owns one export for the whole process, begun with the first agent. What is reported is in `swink_agent.telemetry`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from swink_agent.core.agent.agent import Agent
from swink_agent.core.extras import MissingExtra
from swink_agent.core.secrets.redaction import Redactor

if TYPE_CHECKING:
    from swink_agent.telemetry import TelemetryExport

_NAME = "swink"


class Telemetry:
    """The telemetry of one process, which reports nothing until `report`."""

    def __init__(self) -> None:
        self._export: TelemetryExport | None = None
        self._problem: str | None = None

    def report(self, agent: Agent) -> None:
        """Reports the agent's runs from now on. Raises `MissingExtra`."""
        from swink_agent.telemetry import instrument, start_export

        if self._problem is not None:
            return
        if self._export is None:
            try:
                self._export = start_export(_NAME)
            except MissingExtra:
                raise
            except Exception as error:  # the SDK raises what it likes about its variables
                words = Redactor().redact(" ".join(str(error).split()))
                self._problem = f"telemetry was not sent: {words or type(error).__name__}"
                return
        export = self._export
        instrument(agent, name=_NAME, tracer_provider=export.tracer_provider, meter_provider=export.meter_provider)

    def close(self) -> str | None:
        """Sends what is left; returns a warning if it could not be sent."""
        export, self._export = self._export, None
        return self._problem if export is None else export.close()
