"""Parses the Fetch responses of the fast path, without message objects, and takes their records.

Decides only whether a response is ordinary. Everything else is handed over to the general path.
"""

cimport cython
from libc.stdint cimport int16_t, int32_t, uint32_t

from kconsumer._core.fast_connection cimport MAX_PARTITIONS, TOPIC_ID_BYTES, FastConnection, FastPartition, Update
from kconsumer._core.fetch cimport PartitionFetch, new_fetch
from kconsumer._core.record_run cimport RecordRun
from kconsumer._core.wire cimport Slice, Span, read_i16, read_i32, read_i64, read_uvarint, slice_of, take

from kconsumer.errors import KafkaError


cdef enum:
    MAX_OUTPUT = 1 << 20               # decompressed bytes of one partition; more are handed over


@cython.final
cdef class ResponseParser:
    """Parses responses. `updates` has what the last one reports of each of its partitions."""

    def __init__(self, track, *, bint check_crcs, bint read_committed, Py_ssize_t batch_limit):
        self.track = track
        self.check_crcs, self.read_committed, self.batch_limit = check_crcs, read_committed, batch_limit

    cdef bint parse(self, FastConnection connection, Slice frame, list seen) except -1:
        """Parse a response. Appends its partitions to `seen`, and stores what it reports of them in `updates`.

        The field `records` of each partition refers to its records. Returns False if the response is not ordinary.
        """
        cdef Span span = frame.span
        cdef Span topic_id, records
        cdef int32_t correlation_id, throttle_ms, session_id, number, replica
        cdef int16_t code
        cdef uint32_t topics, partitions, size
        cdef Update* update
        cdef FastPartition partition
        self.parsed += 1
        if not (
            read_i32(&span, &correlation_id)
            and correlation_id == connection.correlation_id
            and read_no_tags(&span)
            and read_i32(&span, &throttle_ms)
            and throttle_ms == 0
            and read_i16(&span, &code)
            and code == 0
            and read_i32(&span, &session_id)
            and session_id == connection.session_id
            and read_uvarint(&span, &topics)
            and topics > 0
        ):
            return False
        while topics > 1:
            topics -= 1
            if not (take(&span, TOPIC_ID_BYTES, &topic_id) and read_uvarint(&span, &partitions) and partitions > 0):
                return False
            while partitions > 1:
                partitions -= 1
                if len(seen) == MAX_PARTITIONS:
                    return False
                update = &self.updates[len(seen)]
                if not (
                    read_i32(&span, &number)
                    and read_i16(&span, &code)
                    and code == 0
                    and read_i64(&span, &update.high_watermark)
                    and read_i64(&span, &update.last_stable_offset)
                    and read_i64(&span, &update.log_start_offset)
                    and read_no_rows(&span)
                    and read_i32(&span, &replica)
                    and replica < 0
                    and read_uvarint(&span, &size)
                    and take(&span, <Py_ssize_t> size - 1 if size else 0, &records)
                    and read_no_tags(&span)
                ):
                    return False
                partition = connection.partition(&topic_id, number)
                if partition is None or partition.seen_in == self.parsed:
                    return False
                partition.seen_in = self.parsed
                partition.records = slice_of(frame.owner, records.p, records.end - records.p)
                seen.append(partition)
            if not read_no_tags(&span):
                return False
        return read_no_tags(&span) and span.p == span.end

    cdef bint take_records(
        self, list seen, Py_ssize_t max_records, Py_ssize_t max_bytes, list runs, dict skipped
    ) except -1:
        """Take the records of the partitions in `seen`, and set `next_offset`, `bytes` and `records` of `updates`.

        Returns False unless all records are valid, and are at most `max_records`.
        """
        cdef Py_ssize_t index
        cdef Update* update
        cdef FastPartition partition
        cdef PartitionFetch fetch
        cdef RecordRun run
        for index in range(len(seen)):
            partition, update = seen[index], &self.updates[index]
            update.next_offset, partition.next_epoch = partition.offset, partition.offset_epoch
            update.bytes = partition.records.span.end - partition.records.span.p
            update.records = update.record_bytes = 0
            if update.bytes == 0:
                continue
            fetch = new_fetch(
                partition.topic_partition,
                partition.records,
                partition.offset,
                self.check_crcs,
                self.read_committed,
                self.track,
                self.batch_limit,
            )
            try:
                run = fetch.next_run(max_records, max_bytes, MAX_OUTPUT)
            except KafkaError:
                return False
            max_records -= run.count
            max_bytes -= run.size
            if not fetch.is_exhausted() or fetch.output_bytes > MAX_OUTPUT or fetch.next_offset <= partition.offset:
                return False
            update.next_offset, partition.next_epoch = fetch.next_offset, None if fetch.epoch < 0 else fetch.epoch
            update.records, update.record_bytes = run.count, run.size
            if run.count:
                runs.append(run)
            if fetch.skipped is not None:
                skipped[partition.topic_partition] = fetch.take_skipped()
        return True


cdef inline bint read_no_tags(Span* span) noexcept:
    """Read the number of tagged fields. Returns False if there are any."""
    cdef uint32_t count
    return read_uvarint(span, &count) and count == 0


cdef inline bint read_no_rows(Span* span) noexcept:
    """Read the size of an array. Returns False unless it is null or empty."""
    cdef uint32_t size
    return read_uvarint(span, &size) and size <= 1
