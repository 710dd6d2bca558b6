"""What the parts of arrow.pyx declare."""

include "arrow/arrow_columns.pxd"
include "arrow/arrow_fill.pxd"
