"""PartitionFetch: returns the bytes that a broker sent for one partition as runs of checked records (RecordRun).

Decides which records are returned: it checks sizes and checksums, decompresses one batch at a time, skips control
records, records of aborted transactions and records below the position, and advances the position. Other modules send
the requests and process the records. The fields are in fetch.pxd, the layouts in batch.pxd and message_set.pxd.
"""

from copy import copy

cimport cython
from cpython.pyport cimport PY_SSIZE_T_MAX
from libc.stdint cimport INT64_MAX, int8_t, int64_t, uint32_t

from kconsumer._core.wire cimport Slice, Span, remaining, slice_of

from kconsumer.errors import BatchTooLargeError, CorruptRecordError, RecordTooLargeError


cdef enum:
    NO_TIMESTAMP = -1    # TimestampType
    CREATE_TIME = 0
    LOG_APPEND = 1
    MIN_RECORDS_WITHOUT_GIL = 4096  # the GIL is released to check more than this number of records

# If `PartitionFetch.log_bytes` is set, the decompressed size in bytes of all batches together is limited. The limit is
# never below this number (see `log_limit`).
cdef Py_ssize_t LOG_OUTPUT_LIMIT = 256 << 20


# Set by `use_codecs`. The codecs are Python libraries, which `kconsumer._internal.compression` imports.
cdef object decompress = None
cdef object output_limit = None


class DecompressionError(Exception):
    """The compressed bytes cannot be decompressed."""


class OutputLimitError(DecompressionError):
    """The compressed bytes decompress to more than the limit."""


def use_codecs(decompress_batch, limit_output):
    """Set the functions for decompression in this process. `kconsumer._internal.compression` calls this at its import.

    `decompress_batch(codec, data, limit, magic)` decompresses the Slice `data` from a batch of format `magic` to at
    most `limit` bytes. It returns bytes, or a Slice if a part of `data` was stored uncompressed. It raises
    DecompressionError or OutputLimitError. `limit_output(size)` returns the maximum decompressed size in bytes of a
    batch whose compressed size is `size` bytes.
    """
    global decompress, output_limit
    decompress = decompress_batch
    output_limit = limit_output


@cython.final
@cython.auto_pickle(False)
cdef class PartitionFetch:
    """The fetched bytes of one partition, from `fetch_offset` on. `take` returns their records.

    The records are taken from one batch at a time, which is called the open batch.

    `records`: the bytes, as a Slice, another buffer, or None.
    `check_crcs`: whether checksums are verified.
    `log_bytes`: True if the bytes are part of a log, False if they are from a fetch response. Bytes of a log may begin
    at any offset, may repeat offsets, and need not contain a complete batch. The size of all their decompressed batches
    together is limited.
    `read_committed`: whether records of `aborted_transactions` are skipped.
    `aborted_transactions`: pairs (producer id, first offset).
    `on_decompressed`: called with the memory block of each decompressed batch, for memory accounting; or None.
    `batch_limit`: the maximum decompressed size of one batch in bytes. If it is 0, the function `limit_output` decides
    (see `use_codecs`).
    """

    def __init__(
        self,
        topic_partition,
        records,
        int64_t fetch_offset,
        *,
        bint check_crcs=True,
        bint log_bytes=False,
        bint read_committed=False,
        aborted_transactions=(),
        on_decompressed=None,
        Py_ssize_t batch_limit=0,
    ):
        self.topic_partition = topic_partition
        self.batch_limit = batch_limit
        self.on_decompressed = on_decompressed
        self.next_offset = fetch_offset
        self.floor = max(fetch_offset, 0)
        self.epoch = -1
        self.check_crcs = check_crcs
        self.log_bytes = log_bytes
        if read_committed:
            self.aborted = AbortedIndex(aborted_transactions)
        if records is not None:
            self.data = records if isinstance(records, Slice) else Slice(records)
            self.rest = self.data.span

    @property
    def next_leader_epoch(self):
        """The leader epoch of the position `next_offset`.

        It is the leader epoch of the last batch that `take` has skipped or whose records it has returned. None if there
        is no such batch yet, or if the batch has no leader epoch.
        """
        return None if self.epoch < 0 else self.epoch

    @property
    def exhausted(self):
        """True if nothing is left for `take`: no record to return, no batch to skip, and no error to raise."""
        return self.is_exhausted()

    cdef bint is_exhausted(self) noexcept:
        """Returns `exhausted`."""
        cdef Span rest = self.rest
        cdef BatchHeader header
        if self.error is not None or self.owner is not None:
            return False
        if next_batch(&rest, &header) != FOUND_END:
            return False
        return self.begun or self.log_bytes or remaining(&rest) == 0

    @property
    def held_bytes(self):
        """The memory in bytes that this object keeps alive: the fetched bytes, and the decompressed open batch."""
        if self.data is None or self.exhausted:
            return 0
        if self.owner is None or self.owner is self.data:
            return len(self.data)
        return len(self.data) + len(self.owner)

    def take(
        self, Py_ssize_t max_records, Py_ssize_t max_bytes=PY_SSIZE_T_MAX, Py_ssize_t max_output=0, RecordTest test=None
    ):
        """Returns the next records as a RecordRun, and advances the position past them.

        The run ends after `max_records` records, or as soon as its records have `max_bytes` bytes or more
        (uncompressed, with headers). When the batches that this call opened have decompressed to `max_output` bytes or
        more, it opens no further batch (0: no limit). The run contains only records that `test` selects, if that is not
        None. The run may be empty although `next_offset` advanced, for example past control records or an empty batch.

        Raises CorruptRecordError for malformed bytes, BatchTooLargeError for a batch that decompresses to more than the
        limit, and RecordTooLargeError if there is no complete batch. If there are valid records before the error, this
        call returns them, and the next call raises the error. After that, every call raises it.
        """
        return self.next_run(max_records, max_bytes, max_output, test)

    cdef RecordRun next_run(
        self, Py_ssize_t max_records, Py_ssize_t max_bytes, Py_ssize_t max_output, RecordTest test
    ):
        """Do what `take` does."""
        cdef RecordRun run
        if self.error is not None:
            raise copy(self.error)
        run = new_run(self.topic_partition, self)
        run.offset_before, run.epoch_before = self.next_offset, self.epoch
        cdef Py_ssize_t output = self.output_bytes
        start = self.position_in_data()
        try:
            while run.count < max_records and run.size < max_bytes and (self.owner is not None or self.open_batch()):
                if self.owner is not None:
                    self.take_from_batch(run, max_records - run.count, max_bytes - run.size, test)
                if max_output and self.owner is None and self.output_bytes - output >= max_output:
                    break
        except (BatchTooLargeError, CorruptRecordError, RecordTooLargeError) as error:
            self.error = copy(error)      # without a traceback, which would keep the caller's frames alive
            if run.count == 0 and self.next_offset == run.offset_before:
                raise
        except BaseException:
            # A signal handler raised, or memory is exhausted. The caller does not get the run, so the next take() must
            # return its records again.
            self._rewind(start, run.offset_before, run.epoch_before)
            raise
        run.next_offset, run.epoch = self.next_offset, self.epoch
        return run

    def take_skipped(self):
        """Returns the batches that were skipped since the last call, as tuples (first offset, offset after the last,
        reason). The reason is "control" or "aborted"."""
        skipped, self.skipped = self.skipped, None
        return skipped or ()

    def drain(self):
        """Drop all bytes and any error. After that, `exhausted` is True."""
        self.data = None
        self.prefetched = None
        self.owner = None
        self.error = None
        self.begun = True
        self.rest.p = self.rest.end = NULL

    def __repr__(self):
        return (
            f"<PartitionFetch of {self.topic_partition}, next offset {self.next_offset}, "
            f"{remaining(&self.rest)} bytes not yet read>"
        )

    def _rewind(self, Py_ssize_t batch_at, int64_t offset, epoch):
        """Move the position back to `offset`, so that `take` returns the records from there on again.

        `batch_at`: the index in the fetched bytes of the batch that contains `offset`. `epoch`: the leader epoch of
        the position; -1: none.
        """
        if self.data is None:
            return
        self.rest = self.data.span
        self.rest.p += batch_at
        self.prefetched = None
        self.owner = None
        self.error = None
        if self.aborted is not None:
            self.aborted.rewind(batch_at)
        self.next_offset = offset
        self.floor = max(offset, 0)
        self.epoch = epoch

    cdef Py_ssize_t position_in_data(self):
        """Returns the index in the fetched bytes at which the open batch begins, or the next one if none is open."""
        if self.data is None:
            return 0
        return self.batch.segment.batch_at if self.owner is not None else self.rest.p - self.data.span.p

    cdef bint open_batch(self) except -1:
        """Open the next batch. If it is aborted or empty, close it again at once.

        Returns False if there is no next batch, or if a signal handler called drain(). Raises RecordTooLargeError if
        the fetched bytes have no complete batch. Raises the errors of `take` if the next batch is invalid.
        """
        cdef BatchHeader header
        cdef Slice data = self.data      # a signal handler may call drain() while a library decompresses
        cdef Slice owner = data
        cdef const unsigned char* start = self.rest.p
        cdef Found found = next_batch(&self.rest, &header)
        if found == FOUND_END:
            if self.begun or self.log_bytes or remaining(&self.rest) == 0:
                return False
            raise RecordTooLargeError(
                f"the broker sent {remaining(&self.rest)} bytes of {self.topic_partition} at offset "
                f"{self.next_offset}, but not one complete batch; raise max_partition_fetch_bytes and "
                "fetch_max_bytes",
                topic_partition=self.topic_partition,
                offset=self.next_offset,
            )
        self.begun = True
        self.check_found(found, start, &header)
        self.check_header(&header)
        self.begin_batch(&header, start - data.span.p)
        if self.is_aborted(&header):
            self.note_skipped(&header, "aborted")
            self.close_batch()
            return True
        if header.attributes & CONTROL and header.magic == 2:
            self.note_skipped(&header, "control")
        if header.attributes & CODEC and (remaining(&header.body) or header.magic < 2):
            owner = self.decompressed(data, &header)
            if self.data is not data:
                return False
        if header.magic < 2:
            self.find_messages(&header, owner, start)
        else:
            self.find_records(&header, owner)
        self.owner = owner
        if self.batch.left == 0:
            self.end_batch()
        return True

    cdef int note_skipped(self, const BatchHeader* header, str reason) except -1:
        """Add a batch to `skipped`."""
        if self.skipped is None:
            self.skipped = []
        self.skipped.append((max(header.base_offset, self.floor), self.batch.last_offset + 1, reason))
        return 0

    cdef int check_found(self, Found found, const unsigned char* start, BatchHeader* header) except -1:
        """Raise CorruptRecordError unless `found` is a batch of format 2, or a valid message of format 0 or 1.

        For a message of format 0 or 1, also sets the fields of `header` that next_batch() did not set.
        """
        cdef Span message
        if found == FOUND_BAD_SIZE:
            raise self.corrupt(header.base_offset, f"a batch size of {header.size} is too small")
        if found == FOUND_BAD_MAGIC:
            raise self.corrupt(header.base_offset, f"there is no message format {header.magic}")
        if found == FOUND_OLD:
            message.p = start
            message.end = self.rest.p
            if not read_outer(message, header):
                raise self.corrupt(header.base_offset, "malformed message")
            if header.attributes & CODEC and header.body.p == NULL:
                raise self.corrupt(header.base_offset, "a compressed message without a value")
        return 0

    cdef int check_header(self, const BatchHeader* header) except -1:
        """Raise CorruptRecordError if the header is invalid or the checksum does not match."""
        cdef uint32_t crc = 0
        if header.base_offset < 0 or header.last_offset_delta < 0:
            raise self.corrupt(
                header.base_offset,
                f"a batch of base offset {header.base_offset} and last delta {header.last_offset_delta}",
            )
        if header.base_offset > INT64_MAX - 1 - header.last_offset_delta:
            raise self.corrupt(header.base_offset, "the last offset is beyond 63 bits")
        if header.magic < 2:
            return 0
        if self.check_crcs:
            crc32c_of(header.covered.p, remaining(&header.covered), &crc)
            if crc != header.crc:
                raise self.corrupt_batch(
                    header, f"its checksum is {crc:#010x}, but {header.crc:#010x} was stored with it"
                )
        if header.record_count < 0:
            raise self.corrupt_batch(header, f"a record count of {header.record_count}")
        return 0

    cdef int begin_batch(self, const BatchHeader* header, Py_ssize_t at) except -1:
        """Initialize the open batch from its header. `at`: the index of the batch in the fetched bytes."""
        cdef bint log_append = header.attributes & LOG_APPEND_TIME != 0
        self.batch.defect = NULL
        self.batch.reached = header.base_offset
        self.batch.last_offset = header.base_offset + header.last_offset_delta
        self.batch.segment.magic = header.magic
        self.batch.segment.leader_epoch = header.leader_epoch if header.leader_epoch >= 0 else -1
        self.batch.segment.floor = self.floor
        self.batch.segment.batch_at = at
        self.batch.segment.timestamp_kind = <int8_t> (LOG_APPEND if log_append else CREATE_TIME)
        self.batch.segment.one_timestamp = log_append
        self.batch.segment.base_timestamp = header.max_timestamp if log_append else header.base_timestamp
        return 0

    cdef bint is_aborted(self, const BatchHeader* header) except -1:
        """Returns whether the batch belongs to an aborted transaction and must be skipped."""
        if self.aborted is None or header.producer_id < 0:
            return False
        self.aborted.advance(self.batch.last_offset, self.batch.segment.batch_at)
        if header.attributes & (TRANSACTIONAL | CONTROL) != TRANSACTIONAL:
            return False
        return self.aborted.covers(header.producer_id)

    cdef int find_records(self, const BatchHeader* header, Slice owner) except -1:
        """Set the records of the open batch, which has format 2.

        `owner` contains the records: it is the decompressed batch, or the fetched bytes if the batch is not compressed.
        Raises CorruptRecordError if the record count is 0 but there are bytes, and for an invalid transaction marker.
        """
        cdef int marker
        self.batch.control = header.attributes & CONTROL != 0
        self.batch.left = header.record_count
        self.batch.segment.base_offset = header.base_offset
        self.batch.segment.span = owner.span if header.attributes & CODEC and remaining(&header.body) else header.body
        if self.batch.left == 0 and remaining(&self.batch.segment.span):
            raise self.corrupt_batch(header, "it has no records, but bytes where they belong")
        if self.batch.control and self.aborted is not None and header.producer_id >= 0:
            marker = marker_type(self.batch.segment.span)
            if marker == BAD_MARKER:
                raise self.corrupt_batch(header, "it ends a transaction, but does not say how")
            if marker == ABORT_MARKER:
                self.aborted.end(header.producer_id, self.batch.segment.batch_at)
        return 0

    cdef int find_messages(self, const BatchHeader* header, Slice owner, const unsigned char* start) except -1:
        """Set the records of the open batch, which are messages of format 0 or 1.

        `header` may be that of a wrapper, which is a compressed message that contains others. Then `owner` contains the
        decompressed messages. Otherwise the records are the consecutive uncompressed messages from `start` on.
        """
        cdef Messages found
        cdef bint wrapped = header.attributes & CODEC != 0
        if wrapped:
            find_wrapped(owner.span, header, self.floor, self.check_crcs, &found)
        else:
            self.rest.p = start
            find_uncompressed(&self.rest, self.floor, self.check_crcs, &found)
            self.batch.last_offset = found.last_offset
        self.batch.control = False
        self.batch.left = found.count
        self.batch.defect = found.defect
        self.batch.reached = offset_at(found.base_offset, found.first_offset)
        self.batch.segment.span = found.span
        self.batch.segment.base_offset = found.base_offset
        if header.magic == 0:
            self.batch.segment.timestamp_kind = NO_TIMESTAMP
        # The log append time of a wrapper is the timestamp of all its messages. Other messages have their own ones.
        if header.magic == 0 or not wrapped or not self.batch.segment.one_timestamp:
            self.batch.segment.one_timestamp = False
            self.batch.segment.base_timestamp = 0
        return 0

    cdef Slice decompressed(self, Slice data, const BatchHeader* header):
        """Returns the decompressed records of a batch, from the prefetching decompressor or from a Python library."""
        cdef Py_ssize_t size = remaining(&header.body)
        cdef Py_ssize_t limit = self.batch_limit or output_limit(size)
        cdef Slice body = None
        if self.log_bytes:
            limit = min(limit, self.log_limit(data) - self.output_bytes)
        if header.magic == 2 and can_decompress():
            if self.prefetched is None:
                self.prefetched = PrefetchDecompressor(data)
            body = self.prefetched.take(header.attributes & CODEC, header.body)
            if remaining(&self.rest) > HEADER_BYTES:
                self.prefetched.prefetch(self.rest)
        if body is None or remaining(&body.span) > limit:
            body = self.decompressed_now(data, header, slice_of(data, header.body.p, size), max(limit, 0))
            if self.prefetched is not None:
                self.prefetched.update_expected_size(remaining(&body.span))
        self.output_bytes += remaining(&body.span)
        # A batch that was stored uncompressed is still in the fetched bytes, which the caller has counted already.
        if self.on_decompressed is not None and body.owner is not data:
            self.on_decompressed(body.owner)
        return body

    cdef Slice decompressed_now(self, Slice data, const BatchHeader* header, Slice packed, Py_ssize_t limit):
        """Decompress the records of a batch with a Python library. Returns the records.

        Raises BatchTooLargeError if they exceed `limit` bytes, CorruptRecordError if they cannot be decompressed.
        """
        try:
            plain = decompress(header.attributes & CODEC, packed, limit, header.magic)
        except OutputLimitError as error:
            raise self.too_large(data, header, limit) from error
        except DecompressionError as error:
            raise self.corrupt_batch(header, str(error)) from error
        return <Slice> plain if isinstance(plain, Slice) else Slice(plain)

    cdef int take_from_batch(self, RecordRun run, Py_ssize_t limit, Py_ssize_t size, RecordTest test) except -1:
        """Check records of the open batch and append them to `run`. Closes the batch after its last record.

        Drops records and stops like `check_records`. Raises CorruptRecordError at a malformed
        record, after the records before it were appended.
        """
        cdef OpenBatch batch = self.batch
        cdef RunSegment segment
        cdef Py_ssize_t dropped
        cdef bint good
        owner = self.owner
        if batch.left > MIN_RECORDS_WITHOUT_GIL and (limit > MIN_RECORDS_WITHOUT_GIL or test is not None):
            with nogil:
                good = check_records(&batch, limit, size, test, &segment, &dropped)
        else:
            good = check_records(&batch, limit, size, test, &segment, &dropped)
        self.batch = batch
        run.dropped += dropped
        if segment.count:
            run.add(&segment, owner)
        if segment.count or dropped:
            self.next_offset = max(self.next_offset, batch.reached)
            self.epoch = segment.leader_epoch
        if not good:
            raise self.corrupt(max(batch.reached, self.floor), "malformed record", batch.last_offset + 1)
        if batch.left == 0:
            self.end_batch()
        return 0

    cdef int end_batch(self) except -1:
        """Close the open batch after its last record.

        Raises CorruptRecordError if the bytes after the last record are invalid (`batch.defect` describes the error).
        """
        if self.batch.defect != NULL:
            raise self.corrupt(
                max(self.batch.reached, self.floor), self.batch.defect.decode("ascii"), self.batch.last_offset + 1
            )
        return self.close_batch()

    cdef int close_batch(self) except -1:
        """Close the open batch and advance the position past it."""
        cdef int64_t after = self.batch.last_offset + 1
        self.epoch = self.batch.segment.leader_epoch
        if self.log_bytes:
            self.next_offset = max(self.floor, after)
        else:
            # Never move back. If the last record's offset were beyond the batch's last offset, the batch would
            # otherwise be fetched again and again.
            self.floor = self.next_offset = max(self.next_offset, after)
        self.owner = None
        return 0

    cdef Py_ssize_t log_limit(self, Slice data) except -1:
        """Returns the maximum of the decompressed sizes of all batches in `data` together, in bytes.

        `data`: the fetched bytes. This limit applies only if `log_bytes` is True.
        """
        return max(LOG_OUTPUT_LIMIT, self.batch_limit, output_limit(len(data)))

    cdef object too_large(self, Slice data, const BatchHeader* header, Py_ssize_t limit):
        """Returns the error for a batch that decompresses to more than `limit` bytes."""
        cdef int64_t offset = max(header.base_offset, self.floor)
        # Malicious bytes can have a last offset below the position. The offset to seek to must still be above it.
        cdef int64_t after = max(header.base_offset + header.last_offset_delta, offset) + 1
        cdef Py_ssize_t whole = self.batch_limit or output_limit(remaining(&header.body))
        topic, partition = self.topic_partition
        where = f"{topic}-{partition}" if topic else f"partition {partition}"
        if limit == whole:
            what = f"decompresses to more than the {limit} bytes that decompressed_batch_max_bytes allows; raise it"
        else:
            whole = self.log_limit(data)
            what = (
                f"and those before it decompress to more than {whole} bytes; decode fewer batches at a time, or raise "
                "decompressed_batch_max_bytes"
            )
        return BatchTooLargeError(
            f"the batch of {where} at offset {offset} {what}; seek to offset {after} to skip it",
            topic_partition=self.topic_partition,
            offset=offset,
            next_offset=after,
            limit=whole,
        )

    cdef object corrupt(self, int64_t offset, str what, int64_t after=-1):
        """Returns a CorruptRecordError for malformed bytes at `offset`.

        `after`: the offset of the next batch, which the message names; -1 if it is unknown.
        """
        topic, partition = self.topic_partition
        where = f"{topic}-{partition} at offset {offset}" if topic else f"partition {partition} at offset {offset}"
        hint = f"; seek to offset {after} to continue after its batch" if after >= 0 else ""
        return CorruptRecordError(
            f"corrupt record data in {where}: {what}{hint}",
            topic=topic,
            partition=partition,
            offset=offset,
        )

    cdef object corrupt_batch(self, const BatchHeader* header, str what):
        """Returns a CorruptRecordError for a batch with valid offsets. Its message names the offset after the batch."""
        return self.corrupt(
            max(header.base_offset, self.floor), what, header.base_offset + header.last_offset_delta + 1
        )


cdef PartitionFetch new_fetch(
    object topic_partition,
    Slice records,
    int64_t fetch_offset,
    bint check_crcs,
    bint read_committed,
    object on_decompressed,
    Py_ssize_t batch_limit,
):
    """Returns a PartitionFetch of a fetch response without aborted transactions. Creates it without keyword arguments,
    which take longer than a small response."""
    cdef PartitionFetch made = PartitionFetch.__new__(PartitionFetch)
    made.topic_partition, made.on_decompressed, made.batch_limit = topic_partition, on_decompressed, batch_limit
    made.next_offset, made.floor, made.epoch = fetch_offset, max(fetch_offset, 0), -1
    made.check_crcs = check_crcs
    if read_committed:
        made.aborted = AbortedIndex(())
    made.data, made.rest = records, records.span
    return made
