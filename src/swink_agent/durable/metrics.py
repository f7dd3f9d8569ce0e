"""The metrics that a fleet of workers reports to OpenTelemetry.

    swink.durable.runs        runs by status
    swink.durable.lag         the age of the oldest queued run, in seconds
    swink.durable.workers     workers on the list
    swink.durable.takeovers   workers whose runs were taken over, counted by the worker that did it

Owns the instruments. A worker creates them if its program has loaded the SDK of OpenTelemetry, and measures every ten
seconds.
"""

from __future__ import annotations

import sys
from typing import Any

from .info import STATUSES, FleetStats

_SCOPE = "swink_agent.durable"


class FleetMetrics:
    def __init__(self, meter_provider: Any = None) -> None:
        from opentelemetry import metrics

        meter = metrics.get_meter(_SCOPE, meter_provider=meter_provider)
        self._runs = meter.create_gauge("swink.durable.runs", "{run}", "Runs in the store, by status.")
        self._lag = meter.create_gauge("swink.durable.lag", "s", "The age of the oldest queued run.")
        self._workers = meter.create_gauge("swink.durable.workers", "{worker}", "Workers on the list.")
        self._takeovers = meter.create_counter("swink.durable.takeovers", "{worker}", "Workers that were taken over.")

    def measure(self, stats: FleetStats) -> None:
        for status in STATUSES:
            self._runs.set(getattr(stats, status), {"status": status})
        self._lag.set(stats.lag)
        self._workers.set(len(stats.workers))

    def count_takeover(self) -> None:
        self._takeovers.add(1)


def metrics_if_wanted() -> FleetMetrics | None:
    """The instruments, if the program has set up OpenTelemetry; else nothing is loaded or measured."""
    return FleetMetrics() if "opentelemetry.sdk.metrics" in sys.modules else None
