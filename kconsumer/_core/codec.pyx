"""Messages of the protocol: from bytes to objects and back.

The parts are in the folder of this name.
"""

include "codec/compiled_schema.pyx"
include "codec/decoder.pyx"
include "codec/encoder.pyx"
include "codec/codec.pyx"
include "codec/message_constructor.pyx"
