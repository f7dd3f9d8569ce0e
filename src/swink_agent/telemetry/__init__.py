"""Telemetry: the runs of an agent as OpenTelemetry spans and metrics.

`instrument(agent)` reports every run of the agent by the GenAI semantic conventions, to the SDK that the application
has set up. It needs the extra `otel`. Importing this module loads nothing of it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._exports import *
else:
    from swink_agent.core.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(__name__, "._exports")
