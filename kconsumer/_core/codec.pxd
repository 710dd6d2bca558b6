"""What the parts of codec.pyx declare."""

include "codec/compiled_schema.pxd"
include "codec/decoder.pxd"
include "codec/encoder.pxd"
