"""Sends spans and metrics to a collector by OTLP over HTTP, for programs that do not set up an SDK themselves.

The usual `OTEL_…` variables set the address of the collector, and what is sent.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from swink_agent.core.machine.extras import require
from swink_agent.core.values.checks import check_text

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

_LAST_SECONDS = 5.0  # how long the program waits for the collector when it ends


class TelemetryExport:
    """The providers for `instrument`, until `close()`."""

    def __init__(self, traces: Any, measurements: Any, failures: list[str]) -> None:
        self._traces = traces
        self._measurements = measurements
        self._failures = failures
        self._collector = _collector()

    @property
    def tracer_provider(self) -> TracerProvider:
        return self._traces

    @property
    def meter_provider(self) -> MeterProvider:
        return self._measurements

    def close(self, seconds: float = _LAST_SECONDS) -> str | None:
        """Sends the remaining data, for at most `seconds`; returns a warning if something could not be sent."""
        is_sent = _within(seconds, self._traces.shutdown, lambda: self._measurements.shutdown(seconds * 1000))
        who = f"telemetry was not sent: the collector at {self._collector}"
        if self._failures:
            return f"{who} {self._failures[-1]}"
        return None if is_sent else f"{who} did not answer within {seconds:g} s"


def start_export(service: str = "swink") -> TelemetryExport:
    """Begins to send spans and metrics. Raises `MissingExtra` if a package of the extra `otel` is not installed."""
    check_text("service", service)
    sdk = require("opentelemetry.sdk.trace", extra="otel")
    batches = require("opentelemetry.sdk.trace.export", extra="otel")
    sdk_metrics = require("opentelemetry.sdk.metrics", extra="otel")
    readers = require("opentelemetry.sdk.metrics.export", extra="otel")
    resources = require("opentelemetry.sdk.resources", extra="otel")
    spans_out = require("opentelemetry.exporter.otlp.proto.http.trace_exporter", extra="otel")
    metrics_out = require("opentelemetry.exporter.otlp.proto.http.metric_exporter", extra="otel")
    # The SDK logs every failure; the program reports one, when it ends.
    log = logging.getLogger("opentelemetry")
    log.addHandler(logging.NullHandler())
    log.propagate = False
    failures: list[str] = []
    resource = resources.Resource.create()
    if str(resource.attributes.get("service.name", "")).startswith("unknown_service"):
        resource = resource.merge(resources.Resource({"service.name": service}))
    traces = sdk.TracerProvider(resource=resource)
    traces.add_span_processor(batches.BatchSpanProcessor(_noting(spans_out.OTLPSpanExporter(), failures)))
    reader = readers.PeriodicExportingMetricReader(_noting(metrics_out.OTLPMetricExporter(), failures))
    return TelemetryExport(traces, sdk_metrics.MeterProvider([reader], resource), failures)


def _noting(exporter: Any, failures: list[str]) -> Any:
    """Returns the exporter, changed so that each failed export is added to `failures`."""
    send = exporter.export

    def export(batch: Any, *arguments: Any, **options: Any) -> Any:
        result = send(batch, *arguments, **options)
        if result.name != "SUCCESS":
            failures.append("refused it, or did not answer")
        return result

    exporter.export = export
    return exporter


def _collector() -> str:
    """The collector's host and port, without a path, and without a user and password."""
    names = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    given = next(filter(None, map(os.environ.get, names)), "http://localhost:4318")
    return urlsplit(given).netloc.rpartition("@")[2] or "an address that is not a URL"


def _within(seconds: float, *steps: Callable[[], object]) -> bool:
    """Runs the steps at the same time, each in a daemon thread; returns whether all ended in time."""
    latest = time.monotonic() + seconds
    threads = [threading.Thread(target=step, name="swink-telemetry", daemon=True) for step in steps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, latest - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)
