"""The fast path of fetching: polls whose responses need no decision run here, without managers and message objects.

While the fast path is armed, it owns the fetches in flight: it receives their responses, returns the records, and sends
the next fetches. It holds copies of the state that such a cycle changes: positions, fetch session epochs, correlation
ids. `FastPathControl` (engine/fast_path.py) creates these copies, and writes them back when the fast path is disarmed.

The fast path decides only whether a response is ordinary. It is if it has no error, no throttle time, no aborted
transaction, no other tagged fields, and only complete, valid batches that one poll can return. Everything else is
handed over: the received frame is kept in `pending`, `poll` returns None, and the caller continues on the general path.

A response is processed in two phases. The first changes nothing but `pending`: it parses the frame, takes the records
and encodes the next request. It may run Python code, and signal handlers with it, and it may raise. The second phase
changes the copies and sends the request. No Python code runs in it, so it is never left half done.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EINTR
from libc.math cimport ceil
from libc.stdint cimport int64_t

from kconsumer._core.fast_connection cimport FastConnection, FastPartition, Update, following_epoch
from kconsumer._core.fast_empty cimport exchange_empty, prepare_exchange, record_empty
from kconsumer._core.fast_request cimport next_request
from kconsumer._core.fast_response cimport ResponseParser
from kconsumer._core.held_handlers cimport HeldHandlers
from kconsumer._core.fast_samples cimport MAX_SAMPLES, FastSamples, PartitionSample, ResponseSample
from kconsumer._core.metric_events cimport ConnectionEvents, FetchEvents, PollEvents, record_quick_poll
from kconsumer._core.record_run cimport RecordRun
from kconsumer._core.wire cimport Frame, slice_of

import os
import sys

from kconsumer.errors import KafkaError


cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident()


cdef extern from "fast_wait.h" nogil:
    const int KC_SYSTEM_WAITS
    int kc_wait(int selector, int* readable, int limit, int timeout_ms)
    double kc_monotonic_ms()


cdef enum:
    MAX_SLICE_MS = 50                  # the longest wait without Python code, which notices what no signal interrupts
    MAX_FRAME_BYTES = 1 << 16          # of a response that arrives in parts; a larger one is handed over
    READABLE = 1                       # selectors.EVENT_READ


cdef double MAX_WAIT_MS = 1e9

cdef long forks = 0     # how often this process and its parents have forked


cdef long fork_number() noexcept:
    """Returns how often this process and its parents have forked."""
    return forks


def count_fork():
    """Count a fork. The child of a fork calls this."""
    global forks
    forks += 1


if sys.platform != "win32":
    os.register_at_fork(after_in_child=count_fork)


@cython.final
cdef class FastPath:
    """The fast path of one consumer.

    `lock` is the engine's lock, without settling. `delivery.open` is set when a poll moves positions. `signals` defers
    signal handlers. `interruptible()` is a Python function that does nothing. `driver` has an attribute
    `wakeup_requested`. `now()` returns the time in ms; with `system_clock`, this is the time of the system's monotonic
    clock. `make_batch(runs, positions, skipped)` returns a batch of records, and `empty` is a batch without records.
    `track(memory, size)` counts received memory. `events`, `network` and `fetches` record metrics.
    """

    def __init__(
        self,
        lock,
        driver,
        now,
        interruptible,
        make_batch,
        empty,
        track,
        PollEvents events not None,
        *,
        bint check_crcs,
        bint read_committed,
        Py_ssize_t batch_limit,
        bint system_clock=False,
        delivery,
        HeldHandlers signals not None,
        ConnectionEvents network=None,
        FetchEvents fetches=None,
    ):
        self.network, self.fetches = network, fetches
        self.system_clock = system_clock and KC_SYSTEM_WAITS
        self.delivery, self.signals = delivery, signals
        self.lock, self.driver, self.now = lock, driver, now
        self.interruptible = interruptible
        self.make_batch, self.empty, self.track = make_batch, empty, track
        self.events = events
        self.parser = ResponseParser(
            track, check_crcs=check_crcs, read_committed=read_committed, batch_limit=batch_limit
        )
        self.connections, self.pending, self.moved = [], [], []
        self.samples = FastSamples()
    # --- arming ------------------------------------------------------------------------------------------------

    def arm(self, list connections not None, select, int selector, double until, Py_ssize_t memory_left):
        """Give the fetches in flight on these connections to the fast path. A poll that holds the lock calls this.

        `select(seconds)` waits for all descriptors of the client, as a selector does, and `selector` is the descriptor
        of this selector if that is an epoll set, or -1. From the time `until` (ms) on, and after responses of
        `memory_left` bytes, `poll` returns None.
        """
        cdef FastConnection connection
        for connection in connections:
            prepare_exchange(connection)
        self.connections, self.select, self.forks = connections, select, forks
        self.selector = selector if KC_SYSTEM_WAITS else -1
        self.until, self.memory_left = until, memory_left
        self.pending, self.moved = [], []
        self.last_poll = self.time()
        self.generation += 1
        self.armed = True

    def disarm(self):
        """End the ownership of the fetches. The caller holds the lock, and writes the state back."""
        self.armed = False
        self.generation += 1

    def postpone(self, double until):
        """Change the time (ms) from which on `poll` returns None. Returns False if it must return None in any case."""
        if not self.armed or self.until <= 0:
            return False
        self.until = until
        return True

    cpdef int record(self) except -1:
        """Record the metrics of the polls and responses since the last call. Runs no Python code."""
        cdef FastConnection connection
        for connection in self.connections:
            record_empty(connection, self.network, self.fetches)
        return self.samples.record(self.network, self.fetches, self.events)

    # --- polling -----------------------------------------------------------------------------------------------

    def nothing_arrived(self, guard):
        """Returns True if a poll that does not wait would find nothing, and then records such a poll.

        Returns False if `poll` must find it out, or if a thread is inside a call of the consumer: its AccessGuard has a
        `holder`. The state is checked and changed after the last Python code, so no thread can enter meanwhile.
        """
        cdef double now
        if not self.armed or self.selector < 0 or self.delivery.open:
            return False
        if self.samples.poll_count:
            self.record()     # they began earlier than this poll
        now = self.time()
        if not self.armed or guard.holder or now >= self.until or self.forks != forks or self.driver.wakeup_requested:
            return False
        if kc_wait(self.selector, self.ready, MAX_READY, 0) != 0:
            return False
        if self.moved:
            self.moved = []
        self.last_poll = now
        record_quick_poll(self.events, now)
        return True

    def poll(self, double timeout_ms, Py_ssize_t max_records, Py_ssize_t max_bytes):
        """Returns records, or an empty batch after the timeout. Waits without the lock.

        Returns None if the general path must continue: something is due, or a response is not ordinary. Raises the
        exceptions of signal handlers. If it raises, or if a signal handler raises right after it, the caller must roll
        back the positions of `moved`.
        """
        cdef double now, deadline, end
        cdef int count
        cdef int64_t generation = self.begin()
        if not generation:
            return None
        now = self.woken
        deadline = now + timeout_ms
        end = deadline if deadline < self.until else self.until
        while True:
            count = self.wait(end - now, generation)
            batch = self.proceed(count, generation, max_records, max_bytes)
            if batch is not self.empty:
                return batch
            now = self.woken
            if now >= end:
                return self.expire(now)

    def begin_poll(self):
        """Begin a poll that waits elsewhere. Returns False if the general path must continue.

        The caller calls `continue_poll` when descriptors are ready, and `end_poll` at the end of the wait.
        """
        self.polling = self.begin()
        if not self.polling:
            return False
        self.thread = PyThread_get_thread_ident()
        self.waiting = True     # before `generation` is read, see `wait`
        if self.generation != self.polling:
            self.waiting = False
        return self.waiting

    def continue_poll(self, Py_ssize_t max_records, Py_ssize_t max_bytes):
        """Process what has arrived. Returns records, `empty` if there are none yet, or None like `poll`."""
        if self.generation != self.polling or self.until <= 0:
            return None
        return self.proceed(self.find_ready(0), self.polling, max_records, max_bytes)

    def end_poll(self):
        """End the wait of a poll, which has returned records, or was cancelled."""
        self.waiting = False
        self.woken = self.time()

    def expire_poll(self):
        """End a poll without records at its timeout. Returns an empty batch, or None like `poll`."""
        cdef double now = self.time()
        return self.expire(now) if self.generation == self.polling else None

    cdef int64_t begin(self) except -1:
        """Begin a poll. Returns its generation, or 0 if the general path must continue."""
        cdef double now
        cdef int64_t generation
        if not self.armed:
            return 0
        self.moved = []     # before any Python code: after an exception, the caller rolls back these partitions
        self.poll_number += 1
        generation = self.generation = self.generation + 1    # ends an outer `poll`, in which a signal handler polls
        now = self.last_poll = self.woken = self.time()
        if now >= self.until or self.driver.wakeup_requested:
            return 0
        if self.samples.response_count == MAX_SAMPLES or self.samples.poll_count == MAX_SAMPLES:
            self.record()
        self.samples.begin_poll(now)
        return generation

    cdef object proceed(self, int count, int64_t generation, Py_ssize_t max_records, Py_ssize_t max_bytes):
        """Continue the poll with this `generation` after a wait, which has found `count` descriptors.

        Returns records, `empty` if there are none yet, or None if the general path must continue.
        """
        cdef double now
        if self.generation != generation or self.driver.wakeup_requested:
            return None
        now = self.time()
        self.waited_ms += now - self.woken
        self.woken = now
        if not count:
            return self.empty
        batch = self.serve(count, now, generation, max_records, max_bytes)
        if batch is not None and batch is not self.empty:
            self.samples.end_poll(now)
        return batch

    cdef object expire(self, double now):
        """End a poll without records. Returns an empty batch, or None if managers or timers are due."""
        if now >= self.until:
            return None
        self.samples.end_poll(now)
        return self.empty

    cdef double time(self) except? -1:
        """Returns the present time in ms."""
        return kc_monotonic_ms() if self.system_clock else self.now()

    cdef int wait(self, double wait_ms, int64_t generation) except -1:
        """Wait until a descriptor is ready. Returns how many of them are in `ready`. Signal handlers may run meanwhile.

        A signal may end the wait early. A thread that disarms the fast path wakes a poll that waits. It changes
        `generation` first, and then reads `waiting`. This method sets `waiting` first.
        """
        self.thread = PyThread_get_thread_ident()
        self.waiting = True
        try:
            if self.generation != generation:
                return 0
            return self.find_ready(wait_ms)
        finally:
            self.waiting = False

    cdef int find_ready(self, double wait_ms) except -1:
        """Returns how many descriptors are in `ready`, after a wait until there are any."""
        cdef int count = 0, timeout_ms
        if self.selector < 0:
            for key, mask in self.select(wait_ms / 1000.0 if wait_ms > 0 else 0)[:MAX_READY]:
                self.ready[count] = key.fd if mask == READABLE else -1
                count += 1
            return count
        timeout_ms = <int> min(ceil(wait_ms), MAX_WAIT_MS) if wait_ms > 0 else 0
        while timeout_ms > MAX_SLICE_MS and count == 0:
            with nogil:
                count = kc_wait(self.selector, self.ready, MAX_READY, MAX_SLICE_MS)
            timeout_ms -= MAX_SLICE_MS
            if count == 0:
                self.interruptible()
        if count == 0 and timeout_ms:
            with nogil:
                count = kc_wait(self.selector, self.ready, MAX_READY, timeout_ms)
        elif count == 0:
            count = kc_wait(self.selector, self.ready, MAX_READY, 0)
        if count == -EINTR:
            PyErr_CheckSignals()
            return 0
        if count < 0:
            raise OSError(-count, os.strerror(-count))
        return count

    cdef object serve(
        self, int count, double now, int64_t generation, Py_ssize_t max_records, Py_ssize_t max_bytes
    ):
        """Process the responses on the connections whose descriptors are the first `count` in `ready`.

        Returns a batch of records, `empty` if there are none yet, or None if the general path must continue.
        """
        cdef list ready = [], runs = []
        cdef dict positions = {}, skipped = {}
        cdef bint ordinary = True
        cdef FastConnection connection
        cdef int index
        if self.generation == generation:
            count = self.exchange_empties(count, now)
            if count == 0:
                return self.empty
            if count < 0:
                return None
        # Python code runs with the lock. A signal handler that runs inside it would keep the lock while it waits for
        # another thread that needs the lock.
        holds = self.signals.hold_all()
        acquired = False
        try:
            acquired = self.lock.acquire()
            if self.generation != generation:
                return None
            for index in range(count):
                connection = self.connection_of(self.ready[index])
                if connection is None:
                    if self.ready[index] < 0:     # not only readable
                        self.until = 0.0     # the next poll returns None
                    return None
                ready.append(connection)
            for connection in ready:
                if not self.receive(connection, now, generation, max_records, max_bytes, runs, positions, skipped):
                    self.until = 0.0     # the next poll returns None
                    ordinary = False
                    break
        finally:
            if acquired:
                self.lock.release()
            if holds:
                self.signals.release()
        if positions:
            return self.make_batch(runs, positions, skipped)
        return self.empty if ordinary else None

    cdef int exchange_empties(self, int count, double now) except -2:
        """Handle empty responses on the first `count` descriptors in `ready`. Returns how many others are in `ready`.

        Returns -1 if a socket has not taken all of a request. Runs no Python code.
        """
        cdef int index, others = 0
        cdef FastConnection connection
        cdef Exchange result
        for index in range(count):
            connection = self.connection_of(self.ready[index])
            result = NOT_EMPTY if connection is None else self.exchange(connection, now, False)
            if result == REFUSED:
                return -1
            if result == NOT_EMPTY:
                self.ready[others] = self.ready[index]
                others += 1
        return others

    cpdef bint is_waiting(self) noexcept:
        """Returns True if the poll that `begin_poll` has begun still waits, and the fast path was not settled since."""
        return self.waiting and self.generation == self.polling

    cdef Exchange exchange(self, FastConnection connection, double now, bint align) except? NOT_EMPTY:
        """Handle an empty response. After REFUSED the fast path must be disarmed. Runs no Python code.

        `align`: see `exchange_empty`.
        """
        self.waited_ms += now - self.woken
        self.woken = now
        if not exchange_empty(connection, now, self.waited_ms, self.network, self.fetches, align):
            return NOT_EMPTY
        self.responses += 1
        self.waited_ms = 0.0
        if connection.request is None:
            return DONE
        self.until = 0.0     # the next poll returns None
        return REFUSED

    cdef FastConnection connection_of(self, int descriptor):
        """Returns the connection with this descriptor, or None."""
        cdef FastConnection connection
        for connection in self.connections:
            if connection.descriptor == descriptor:
                return connection
        return None

    cdef bint receive(
        self,
        FastConnection connection,
        double now,
        int64_t generation,
        Py_ssize_t max_records,
        Py_ssize_t max_bytes,
        list runs,
        dict positions,
        dict skipped,
    ) except -1:
        """Receive and process a response. Adds its records to `runs`, and the partitions that moved to `positions`.

        Returns False if the general path must continue. Nothing was added then, unless the next request was not sent.
        """
        cdef Py_ssize_t count = 0, index
        cdef bint blocked
        cdef int64_t recorded
        cdef list frames, seen = [], new_runs = [], moved = self.moved[:]
        cdef dict new_positions = {}, new_skipped = {}
        cdef FastPartition partition
        cdef RecordRun run
        cdef Frame frame
        count = connection.receive()
        blocked = connection.blocked is not None and connection.blocked()
        if count < 0:
            return True if not blocked else self.give_up("TLS must write")
        if count == 0:
            return self.give_up("the connection was closed")
        try:
            frames = connection.frames.take_frames(count)
        except KafkaError as error:
            connection.error = error
            return self.give_up("the response is invalid")
        connection.received += count
        if not frames and connection.frames.incomplete <= MAX_FRAME_BYTES and not blocked:
            connection.wait_for_rest()
            return True      # brokers often send the records of a response after its other fields
        connection.wait_for_any()
        self.pending.append((connection, frames, connection.received))
        if blocked:
            return self.give_up("TLS has more bytes, or must write")
        if len(frames) != 1 or connection.frames.pending:
            return self.give_up("the response is large")
        frame = <Frame> frames[0]
        if not self.parser.parse(connection, slice_of(frame, frame.data, frame.size), seen):
            return self.give_up("the response is not ordinary")
        connection.expects_empty = not seen
        for run in runs:     # of other responses to this poll
            max_records -= run.count
            max_bytes -= run.size
        if not self.parser.take_records(seen, max_records, max_bytes, new_runs, new_skipped):
            return self.give_up("the response has more records than a poll may return, or corrupt ones")
        request = next_request(connection, seen, self.parser.updates)
        if new_runs:
            self.memory_left -= frame.capacity
            if self.memory_left < 0:
                return self.give_up("the memory must be checked")
            self.track(frame, frame.capacity)
        for index in range(len(seen)):
            partition = seen[index]
            if self.parser.updates[index].next_offset != partition.offset:
                new_positions[partition.topic_partition] = self.parser.updates[index].next_offset, partition.next_epoch
                if partition.moved_in != self.poll_number:
                    moved.append(partition)
        if self.samples.response_count == MAX_SAMPLES:
            self.record()
        if self.fetches is not None:
            self.find_sensors(seen)
        self.samples.reserve(len(seen))
        if self.generation != generation:     # a signal handler has used the consumer, which has handled the frame
            return self.give_up("a signal handler has used the consumer")
        if moved:
            self.delivery.open = True     # from here on until the poll has returned, commits use the old positions
        # The second phase. No Python code runs before `send`.
        self.moved = moved
        recorded = self.samples.recorded
        self.add_sample(connection, seen, request, now)
        self.commit(connection, seen, request, now)
        connection.send_request()
        self.pending.pop()
        if connection.request is not None:
            self.samples.set_sent(recorded, connection.sent)
        self.waited_ms, connection.received = 0.0, 0
        runs += new_runs
        if new_positions:
            positions.update(new_positions)
        if new_skipped:
            skipped.update(new_skipped)
        return connection.request is None

    cdef int find_sensors(self, list seen) except -1:
        """Find the sensors of the partitions with records. May create those of a topic, with Python code."""
        cdef FastPartition partition
        cdef Py_ssize_t index
        for index in range(len(seen)):
            partition = seen[index]
            if partition.consumed is None and self.parser.updates[index].bytes:
                partition.consumed = self.fetches.topic(partition.topic_partition.topic)
                partition.lags = self.fetches.partitions.get(partition.topic_partition)
        return 0

    cdef int add_sample(self, FastConnection connection, list seen, bytes request, double now) noexcept:
        """Add the metrics of a response, whose next request the socket takes completely."""
        cdef ResponseSample response
        cdef PartitionSample sample
        cdef Update* update
        cdef int64_t end
        cdef Py_ssize_t index
        response.now, response.latency_ms, response.waited_ms = now, now - connection.sent_at, self.waited_ms
        response.received, response.sent, response.partitions = connection.received, len(request), 0
        for index in range(len(seen) if self.fetches is not None else 0):
            update = &self.parser.updates[index]
            if not update.bytes:
                continue
            end = update.last_stable_offset if self.parser.read_committed else update.high_watermark
            sample.bytes, sample.records = update.record_bytes, update.records
            sample.lag, sample.lead = end - update.next_offset, update.next_offset - update.log_start_offset
            sample.has_lag = end >= 0 and update.log_start_offset >= 0
            sample.counted = False
            self.samples.add_partition(<FastPartition> seen[index], &sample)
            response.partitions += 1
        return self.samples.add_response(connection, &response)

    cdef bint give_up(self, str reason) except -1:
        """Count a response that is handed over, and store the reason. Returns False."""
        self.handed_over += 1
        self.gave_up = reason
        return False

    cdef int commit(self, FastConnection connection, list seen, bytes request, double now) noexcept:
        """Move the positions, and make `request` the one in flight."""
        cdef Py_ssize_t index
        cdef Update* update
        cdef FastPartition partition
        for index in range(len(seen)):
            partition, update = <FastPartition> seen[index], &self.parser.updates[index]
            partition.records = None
            if update.high_watermark >= 0:
                partition.high_watermark = update.high_watermark
            if update.last_stable_offset >= 0:
                partition.last_stable_offset = update.last_stable_offset
            if update.log_start_offset >= 0:
                partition.log_start_offset = update.log_start_offset
            if update.next_offset == partition.offset:
                continue
            if partition.moved_in != self.poll_number:
                partition.moved_in = self.poll_number
                partition.offset_before, partition.epoch_before = partition.offset, partition.offset_epoch
            partition.offset, partition.offset_epoch = update.next_offset, partition.next_epoch
            partition.advanced = True
        connection.epoch = following_epoch(connection.epoch)
        connection.correlation_id += 1
        connection.sent_at = connection.responded_at = now
        connection.request, connection.sent = request, 0
        self.responses += 1
        return 0
