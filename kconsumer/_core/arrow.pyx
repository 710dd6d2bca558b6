"""Records as columns.

The parts are in the folder of this name.
"""

include "arrow/arrow_columns.pyx"
include "arrow/arrow_fill.pyx"
include "arrow/arrow_build.pyx"
include "arrow/arrow.pyx"
include "arrow/spark.pyx"
