"""What the parts of metrics.pyx declare."""

include "metrics/sampled_values.pxd"
include "metrics/metric_events.pxd"
