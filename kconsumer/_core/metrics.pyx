"""The values of metrics, and the events that are recorded.

The parts are in the folder of this name.
"""

include "metrics/sampled_values.pyx"
include "metrics/metric_events.pyx"
