"""From fetched bytes to checked records, and records as Python objects.

The parts are in the folder of this name.
"""

include "decode/batch.pyx"
include "decode/headers.pyx"
include "decode/message_set.pyx"
include "decode/crc.pyx"
include "decode/compression_frames.pyx"
include "decode/decompressor.pyx"
include "decode/transactions.pyx"
include "decode/record.pyx"
include "decode/share_record.pyx"
include "decode/record_run.pyx"
include "decode/record_filter.pyx"
include "decode/run_batch.pyx"
include "decode/fetch.pyx"
