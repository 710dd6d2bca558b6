"""Takes records from the buffer for a poll. `kconsumer/fetching/collector.py` explains the rules."""

import sys

from kconsumer._core.decode cimport RecordRun, RecordTest
from kconsumer._core.metrics cimport FetchEvents

from kconsumer.errors import KafkaError

cdef Py_ssize_t NO_LIMIT = sys.maxsize    # bytes of records that a call may take
cdef Py_ssize_t MAX_DROPPED = 10_000      # a call ends when filters have dropped this many records
cdef object new_tuple = tuple.__new__


cdef class RecordTaker:
    """The fields of a `Collector`, and how it takes records whose partitions have neither errors nor changes."""

    def __class_getitem__(cls, item):
        return cls

    def __init__(
        self,
        AssignedPartitions assignment not None,
        Delivery delivery not None,
        BufferQueue buffer not None,
        FetchEvents metrics,
        type batch not None,
        *,
        bint deserializes,
        bint deferred,
        bint auto_store=True,
        record_filter=None,
    ):
        self._assignment, self._changes, self._delivery = assignment, assignment.changes, delivery
        self._buffer, self._metrics, self._batch = buffer, metrics, batch
        self._deserializes, self.deferred, self._auto_store = deserializes, deferred, auto_store
        if isinstance(record_filter, RecordTest):
            self._test = record_filter
        else:
            self._filter = record_filter
        self._selects = record_filter is not None
        self._unlocks = deserializes or self._filter is not None
        self.collected, self._skipped, self._passed = (), {}, {}

    def collect(self, Py_ssize_t max_records, max_bytes=None):
        """Returns up to `max_records` of the buffered records. Never waits.

        With `max_bytes`, stops after the record with which the serialized size of the records reaches this many bytes.
        Deserializers do not run in this mode.

        If filters have dropped all records that this call has taken, they count as consumed. The result is empty then,
        and the next call continues behind them.

        If the next fetch to read has an error, raises the error. If this call has taken records already, it returns
        them, and the next call raises the error. Examples of errors are corrupt records, a missing permission, an
        offset out of range without a reset policy, or an exception of a deserializer. The position of that partition
        does not move.
        """
        return self.take(max_records, max_bytes)

    cdef object take(self, Py_ssize_t max_records, object max_bytes):
        cdef BufferQueue buffer = self._buffer
        cdef CompletedFetch fetch
        cdef list runs = []
        cdef dict moved_to, skipped = {}
        cdef Py_ssize_t left = max_records, room, output_room
        self.positions_advanced = self.out_of_memory = False
        self._dropped = 0
        self._delivery.start()
        if self._metrics is not None:
            self._metrics.taken.clear()
        if buffer.paused:
            buffer.restore_paused()
        if buffer.error is not None:
            raise buffer.take_failure()
        fetch = buffer.peek()
        if fetch is None:
            return self._batch.EMPTY
        moved_to = self._delivery.after
        self._output_left = output_room = buffer.memory.output_room
        try:
            while fetch is not None and left > 0 and self._output_left > 0 and self._dropped < MAX_DROPPED:
                room = NO_LIMIT if max_bytes is None else <Py_ssize_t> max_bytes - sum([run.size for run in runs])
                if room <= 0:
                    break
                left -= self.take_from(fetch, left, room, runs, moved_to, skipped)
                fetch = buffer.peek()
        except KafkaError:
            if not moved_to:
                raise
        finally:
            buffer.memory.record_decompressed(output_room - self._output_left)
        if not self._auto_store:
            self._pass_over(runs)
        if self.deferred and runs and max_bytes is None:
            self.return_passed()
            self.collected, self._skipped = runs, skipped
            return self._batch.from_runs(runs, moved_to, skipped)
        if self._unlocks and self._delivery.open:
            runs = self._drop_moved(runs, skipped)
            moved_to = self._delivery.after    # without partitions whose position the user has set
        self.record(runs, moved_to)
        if not self._selects:
            self.positions_advanced = bool(moved_to) and not runs
        elif runs:
            self.return_passed()
        else:
            self._passed.update(moved_to)
            self._delivery.start()    # what was dropped is consumed
            return self._batch.EMPTY
        return self._batch.from_runs(runs, moved_to, skipped)

    def passed(self):
        """Returns an empty batch with the positions behind dropped records that no batch contains yet."""
        positions = self.take_passed()
        return self._batch.from_runs((), positions) if positions else self._batch.EMPTY

    cdef int return_passed(self) except -1:
        """Add the positions behind dropped records, which no batch contains yet, to the batch that is being taken."""
        cdef Delivery delivery = self._delivery
        if self._passed:
            for tp, position in self.take_passed().items():
                if tp not in delivery.after:
                    delivery.before[tp] = delivery.after[tp] = position
        return 0

    cdef dict take_passed(self):
        """Returns those of `_passed` that are still the positions of their partitions, and clears it."""
        cdef PartitionPosition state
        cdef dict found = {}
        for tp, position in self._passed.items():
            state = self._assignment._states.get(tp)
            if state is not None and state.position is not None and state.position.offset == position.offset:
                found[tp] = position
        self._passed = {}
        return found

    cdef int record(self, list runs, dict moved_to) except -1:
        """Record the metrics of what a poll returns."""
        if self._metrics is not None:
            self._metrics.record_returned(runs, moved_to, self._assignment._states, self._changes.now)
        return 0

    def _record(self, list runs not None, dict moved_to not None):
        self.record(runs, moved_to)

    cdef Py_ssize_t take_from(
        self, CompletedFetch fetch, Py_ssize_t limit, Py_ssize_t room, list runs, dict moved_to, dict skipped
    ) except -1:
        """Take up to `limit` records from `fetch`, the first fetch of the buffer. Returns the number of records taken.

        Stops after the record with which the size of the records reaches `room` bytes. Adds the records to `runs`, the
        new position to `moved_to`, and skipped records to `skipped`.
        """
        cdef Py_ssize_t taken
        cdef object run, position = self.may_take(fetch)
        if position is None:
            return 0
        if fetch.data is None:
            self._handle_error(fetch, first=not moved_to)
            return 0
        run = self.run_of(fetch, position, limit, room)
        if run is None:
            return 0
        taken = len(run)
        fetch.advance(taken, run.size)
        if taken:
            runs.append(run)
        self.advance(fetch, position, moved_to, skipped)
        return taken

    cdef object may_take(self, CompletedFetch fetch):
        """Returns the position of the partition, if the fetch begins there and may be read now.

        Otherwise returns None. The data was then dropped, or set aside if the partition is paused.
        """
        cdef BufferedChain chain = fetch.chain
        cdef PartitionPosition state = chain.state
        cdef object position = state.position
        cdef bint is_assigned = self._assignment._states.get(chain.topic_partition) is state
        if state.paused and is_assigned:
            self._buffer.set_aside_paused(chain)
            return None
        if (
            is_assigned
            and state.fetchable
            and position is not None
            and position.offset == fetch.position
            # The user may call seek() with the offset of the corrupt bytes. That sets a new, equal position, which
            # requests another fetch that starts there, without corrupt bytes before that offset.
            and (fetch.corrupt_at is None or position is fetch.corrupt_at)
        ):
            return position
        self._buffer.drop(chain)
        return None

    cdef object run_of(self, CompletedFetch fetch, object position, Py_ssize_t limit, Py_ssize_t room):
        """Returns the next records of the fetch, filtered and deserialized.

        Returns None if they must no longer be returned.
        """
        cdef Py_ssize_t output = fetch.data.output_bytes
        cdef RecordRun run
        cdef bint deserializes
        data = fetch.data
        try:
            run = data.take(limit, room, self._output_left, self._test)
            # If a filter or deserializer fails, the run is shortened, and the data is set back to where the run ends.
            deserializes = self._deserializes and room == NO_LIMIT
            if (deserializes or self._filter is not None) and not self._processed(run, fetch, position, deserializes):
                return None
            if run.dropped:
                self.count_dropped(run.dropped)
        except KafkaError as error:
            fetch.fail(str(error), self._changes.now, position)
            raise
        except MemoryError:
            self.out_of_memory = True
            raise
        finally:
            self._output_left -= data.output_bytes - output
        return run

    cdef int count_dropped(self, Py_ssize_t count) except -1:
        self._dropped += count
        if self._metrics is not None:
            self._metrics.record_filtered(count, self._changes.now)
        return 0

    cdef int advance(self, CompletedFetch fetch, object position, dict moved_to, dict skipped) except -1:
        """Move the position of a partition to where the data of its fetch was read."""
        cdef BufferedChain chain = fetch.chain
        cdef Delivery delivery = self._delivery
        cdef object tp = chain.topic_partition, reached
        data = fetch.data
        if data.next_offset != position.offset:
            chain.advance(data.next_offset, position.leader)
            delivery.before.setdefault(tp, position)
            delivery.open = True
            reached = new_tuple(type(position), (chain.position, data.next_leader_epoch, position.leader))
            moved_to[tp] = reached
            chain.state.position, chain.state.topic_id = reached, fetch.topic_id
            passed_over = data.take_skipped()
            if passed_over:
                skipped[tp] = [*skipped.get(tp, ()), *passed_over]
        if data.exhausted:
            self._buffer.pop(fetch)
        return 0
