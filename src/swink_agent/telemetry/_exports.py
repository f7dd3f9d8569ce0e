"""The public names of telemetry, one line each, with their modules. `core/lazy.py` reads this list."""

from .exporting import TelemetryExport as TelemetryExport
from .exporting import start_export as start_export
from .instrumentation import Instrumentation as Instrumentation
from .instrumentation import instrument as instrument
