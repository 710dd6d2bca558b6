"""Traces and metrics of consumers for OpenTelemetry, by its semantic conventions for messaging.

```python
from kconsumer.opentelemetry import Instrumentation

instrumentation = Instrumentation()
instrumentation.instrument()  # every consumer of the process; or instrument_consumer(consumer)
```

`OpenTelemetryReporter` exports the metrics that a consumer measures itself, under the names of the Java consumer.
"""

from __future__ import annotations

from kconsumer._common.extras import how_to_install

try:
    from kconsumer.opentelemetry.instrumentation import Instrumentation
    from kconsumer.opentelemetry.reporter import OpenTelemetryReporter
except ImportError as error:
    if not (error.name or "").startswith("opentelemetry"):
        raise
    raise ImportError(
        "kconsumer.opentelemetry needs the package opentelemetry-api: pip install opentelemetry-api, or the extra"
        f" opentelemetry ({how_to_install('opentelemetry')})",
        name=error.name,
    ) from error

__all__ = ["Instrumentation", "OpenTelemetryReporter"]
