"""Messages of the protocol: from bytes to objects and back. Checks of bytes in Avro's encoding.

The parts are in the folder of this name.
"""

include "codec/compiled_schema.pyx"
include "codec/decoder.pyx"
include "codec/encoder.pyx"
include "codec/codec.pyx"
include "codec/message_constructor.pyx"
include "codec/avro_check.pyx"
