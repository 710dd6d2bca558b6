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
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EINTR
from libc.math cimport ceil
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kconsumer._core.metric_events cimport PollEvents, record_quick_poll
from kconsumer._core.wire cimport (
    Slice,
    Span,
    kc_store_be32,
    kc_store_be64,
    read_i16,
    read_i32,
    read_i64,
    read_uvarint,
    slice_of,
    take,
)

import os
import sys

from kconsumer._core.fetch import PartitionFetch
from kconsumer.errors import KafkaError


cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident()


cdef extern from "fast_wait.h" nogil:
    const int KC_SYSTEM_WAITS
    int kc_wait(int selector, int* readable, int limit, int timeout_ms)
    double kc_monotonic_ms()


cdef enum:
    TOPIC_ID_BYTES = 16
    KEY_BYTES = TOPIC_ID_BYTES + 4     # topic id and partition
    PARTITION_BYTES = 33               # one partition of a request
    CORRELATION_ID_AT = 8              # in a request: after its size, API key and version
    EPOCH_BYTES = 4                    # of the fetch session epoch, the last field before the topics
    MAX_PARTITIONS = 256               # of one response; one with more is handed over
    MAX_FRAME_BYTES = 1 << 16          # of a response that arrives in parts; a larger one is handed over
    MAX_OUTPUT = 1 << 20               # decompressed bytes of one partition; more are handed over
    MAX_SAMPLES = 64                   # responses or polls whose metrics are recorded together
    MAX_READY = 32                     # descriptors that one wait reports
    READABLE = 1                       # selectors.EVENT_READ


cdef double MAX_WAIT_MS = 1e9

cdef long forks = 0     # how often this process and its parents have forked


def count_fork():
    """Count a fork. The child of a fork calls this."""
    global forks
    forks += 1


if sys.platform != "win32":
    os.register_at_fork(after_in_child=count_fork)


cdef struct Update:
    # What a response reports of one partition.
    int64_t high_watermark
    int64_t last_stable_offset
    int64_t log_start_offset
    int64_t next_offset                # equal to the position if there are no records


@cython.final
cdef class FastPartition:
    """The copy of one partition's state. `requested` is its RequestedPartition in the fetch session."""

    cdef readonly object requested
    cdef readonly object topic_partition
    cdef bytes topic_id
    cdef int32_t number
    cdef int32_t leader_epoch
    cdef int32_t max_bytes
    cdef readonly int64_t offset             # the position, and the offset in the fetch in flight
    cdef readonly object offset_epoch        # the leader epoch of the record before `offset`, or None
    cdef readonly int64_t offset_before      # the position before the last poll that has moved it
    cdef readonly object epoch_before
    cdef readonly bint advanced              # the position has moved since the fast path was armed
    cdef readonly int64_t high_watermark     # -1: not reported since then, as the next two
    cdef readonly int64_t last_stable_offset
    cdef readonly int64_t log_start_offset
    cdef Slice records                       # while a response is processed: its records, as the next one
    cdef object next_epoch                   # the leader epoch of the record before the next offset, or None
    cdef int64_t moved_in                    # the number of the last poll that has moved the position
    cdef int64_t seen_in                     # the number of the last response that contained the partition

    def __init__(self, requested, bytes topic_id not None, position):
        row = requested.row
        self.requested = requested
        self.topic_partition = requested.chain.topic_partition
        self.topic_id = topic_id
        self.number, self.leader_epoch = row.partition, row.current_leader_epoch
        self.max_bytes = row.partition_max_bytes
        self.offset, self.offset_epoch = position.offset, position.offset_epoch
        self.high_watermark = self.last_stable_offset = self.log_start_offset = -1
        self.moved_in = self.seen_in = -1


@cython.final
cdef class FastConnection:
    """The copy of the state of one connection, on which only a fetch is in flight.

    `head` and `tail` are the bytes of an incremental Fetch request before and after its topics. `recv_into` and `send`
    are methods of its socket or transport. `find(topic_id, partition)` returns the FastPartition of a partition of the
    session, or None if its response needs the general path.
    """

    cdef readonly object flight              # the InFlightFetch with which the fast path was armed
    cdef readonly object unsent              # the UnsentRequest of that fetch
    cdef readonly object node                # its NodeConnection
    cdef readonly int descriptor
    cdef object frames                       # its FrameBuffer
    cdef object recv_into
    cdef object send
    cdef object find
    cdef bytes head
    cdef bytes tail
    cdef int32_t session_id
    cdef readonly int32_t epoch              # of the request in flight, as the next two
    cdef readonly int32_t correlation_id
    cdef readonly double sent_at             # ms
    cdef readonly double responded_at        # ms; 0: there was no response since the fast path was armed
    cdef Py_ssize_t received                 # bytes of the response to the request in flight
    cdef readonly dict partitions            # FastPartitions by topic id and number (bytes)
    cdef readonly bytes request              # the last request, if the socket has not taken all of it; None: it has
    cdef readonly Py_ssize_t sent            # the number of bytes of `request` that the socket has taken
    cdef readonly object error               # the exception of the last recv or send; None: there was none

    def __init__(
        self,
        flight,
        node,
        int descriptor,
        frames,
        recv_into,
        send,
        find,
        bytes head not None,
        bytes tail not None,
        int32_t session_id,
        int32_t epoch,
        int32_t correlation_id,
        double sent_at,
        unsent,
    ):
        self.unsent = unsent
        self.flight, self.node, self.descriptor, self.frames = flight, node, descriptor, frames
        self.recv_into, self.send, self.find = recv_into, send, find
        self.head, self.tail = head, tail
        self.session_id, self.epoch = session_id, epoch
        self.correlation_id, self.sent_at = correlation_id, sent_at
        self.partitions = {}

    cdef FastPartition partition(self, Span* topic_id, int32_t number):
        """Returns the partition with this topic id and number, or None if its response needs the general path."""
        cdef bytes key = PyBytes_FromStringAndSize(NULL, KEY_BYTES)
        cdef unsigned char* p = <unsigned char*> PyBytes_AS_STRING(key)
        memcpy(p, topic_id.p, TOPIC_ID_BYTES)
        kc_store_be32(p + TOPIC_ID_BYTES, <uint32_t> number)
        found = self.partitions.get(key)
        if found is None:
            found = self.find(key[:TOPIC_ID_BYTES], number)
            if found is not None:
                self.partitions[key] = found
        return found

    cdef bytes next_request(self, list seen, Update* updates):
        """Returns the next request of the session. It contains those partitions in `seen` that moved."""
        cdef list moved = []
        cdef Py_ssize_t topics = 0, index = 0, first, at
        cdef FastPartition partition
        cdef bytes topic_id = b""
        for at in range(len(seen)):
            if updates[at].next_offset != (<FastPartition> seen[at]).offset:
                moved.append(at)
        for at in moved:
            partition = seen[at]
            if partition.topic_id != topic_id:
                topics += 1
                topic_id = partition.topic_id
        cdef Py_ssize_t room = (
            len(self.head) + len(self.tail) + 5 + topics * (TOPIC_ID_BYTES + 6) + len(moved) * PARTITION_BYTES
        )
        cdef bytes data = PyBytes_FromStringAndSize(NULL, room)
        cdef unsigned char* start = <unsigned char*> PyBytes_AS_STRING(data)
        cdef unsigned char* p = start + len(self.head)
        memcpy(start, PyBytes_AS_STRING(self.head), <size_t> len(self.head))
        kc_store_be32(start + CORRELATION_ID_AT, <uint32_t> (self.correlation_id + 1))
        kc_store_be32(p - EPOCH_BYTES, <uint32_t> following_epoch(self.epoch))
        p = store_uvarint(p, <uint32_t> topics + 1)
        while index < len(moved):
            first = index
            topic_id = (<FastPartition> seen[moved[first]]).topic_id
            while index < len(moved) and (<FastPartition> seen[moved[index]]).topic_id == topic_id:
                index += 1
            memcpy(p, PyBytes_AS_STRING(topic_id), TOPIC_ID_BYTES)
            p = store_uvarint(p + TOPIC_ID_BYTES, <uint32_t> (index - first) + 1)
            for at in moved[first:index]:
                p = store_partition(p, <FastPartition> seen[at], updates[at].next_offset)
            p[0] = 0     # no tagged fields of the topic
            p += 1
        memcpy(p, PyBytes_AS_STRING(self.tail), <size_t> len(self.tail))
        p += len(self.tail)
        kc_store_be32(start, <uint32_t> (p - start - 4))
        return data[:p - start]


cdef inline int32_t following_epoch(int32_t epoch) noexcept:
    """Returns the next fetch session epoch. After the largest epoch, this is 1, because 0 starts a session."""
    return <int32_t> (epoch + 1) if epoch < INT32_MAX else 1


cdef inline unsigned char* store_uvarint(unsigned char* p, uint32_t value) noexcept:
    """Store an unsigned varint at `p`. Returns the address after it."""
    while value >= 0x80:
        p[0] = <unsigned char> ((value & 0x7F) | 0x80)
        value >>= 7
        p += 1
    p[0] = <unsigned char> value
    return p + 1


cdef unsigned char* store_partition(unsigned char* p, FastPartition partition, int64_t offset) noexcept:
    """Store the part of a Fetch request for one partition at `p`. Returns the address after it."""
    kc_store_be32(p, <uint32_t> partition.number)
    kc_store_be32(p + 4, <uint32_t> partition.leader_epoch)
    kc_store_be64(p + 8, <uint64_t> offset)
    kc_store_be32(p + 16, 0xFFFFFFFFu)                   # last fetched epoch: none
    kc_store_be64(p + 20, 0xFFFFFFFFFFFFFFFFu)           # log start offset: only followers send it
    kc_store_be32(p + 28, <uint32_t> partition.max_bytes)
    p[32] = 0                                           # no tagged fields
    return p + PARTITION_BYTES


cdef inline bint read_no_tags(Span* span) noexcept:
    """Read the number of tagged fields. Returns False if there are any."""
    cdef uint32_t count
    return read_uvarint(span, &count) and count == 0


cdef inline bint read_no_rows(Span* span) noexcept:
    """Read the size of an array. Returns False unless it is null or empty."""
    cdef uint32_t size
    return read_uvarint(span, &size) and size <= 1


@cython.final
cdef class FastPath:
    """The fast path of one consumer.

    `lock` is the engine's lock, without settling. `driver` has an attribute `wakeup_requested`. `now()` returns the
    time in ms; with `system_clock`, this is the time of the system's monotonic clock. `make_batch(runs, positions,
    skipped)` returns a batch of records, and `empty` is a batch without records. `track(memory)` counts received
    memory. `record()` records the metrics of `samples` and `polls`. `events` records polls that find nothing and do not
    wait.
    """

    cdef readonly bint armed
    cdef readonly bint waiting               # `poll` waits, without the lock
    cdef readonly unsigned long thread       # the thread that called `poll` last
    cdef readonly double until               # ms; from then on `poll` returns None, because managers or timers are due
    cdef readonly list connections
    cdef readonly list pending               # (connection, frames, bytes): what the general path must handle
    cdef readonly list moved                 # the partitions whose positions the last poll has moved
    #: (node, time, latency, time waited, bytes received, bytes sent, records) of each response, times in ms.
    #: records: (partition, bytes, records, end offset, log start offset, next offset) of each partition with records.
    cdef readonly list samples
    cdef readonly list polls                 # when each poll began, and when it stopped waiting (0: unknown); ms
    cdef readonly double last_poll           # when the last poll began, or has armed the fast path; ms
    cdef readonly int64_t responses          # the number of responses that were processed
    cdef readonly int64_t handed_over        # the number of responses that were handed over
    cdef readonly str gave_up                # why the last one was; None: there was none
    cdef object lock
    cdef object driver
    cdef object now
    cdef object make_batch
    cdef object empty
    cdef object track
    cdef object record
    cdef PollEvents events
    cdef object select
    cdef int selector                        # its descriptor, if C code may wait for it; else -1
    cdef bint system_clock                   # C code may read the clock
    cdef int ready[MAX_READY]                # the descriptors that a wait has reported; -1: one that can be written
    cdef long forks                          # the value of `forks` when the fast path was armed
    cdef bint check_crcs
    cdef bint read_committed
    cdef Py_ssize_t batch_limit
    cdef Py_ssize_t memory_left              # bytes that responses may still use
    cdef int64_t generation                  # changes when the fast path is armed or disarmed, and with each poll
    cdef int64_t polling                     # the generation of the poll that `begin_poll` has begun
    cdef double woken                        # when the last wait began or ended; ms
    cdef int64_t poll_number
    cdef double waited_ms                    # how long `poll` has waited since the last response
    cdef int64_t parsed                      # the number of responses that were parsed
    cdef Update updates[MAX_PARTITIONS]

    def __init__(
        self,
        lock,
        driver,
        now,
        make_batch,
        empty,
        track,
        record,
        PollEvents events not None,
        *,
        bint check_crcs,
        bint read_committed,
        Py_ssize_t batch_limit,
        bint system_clock=False,
    ):
        self.system_clock = system_clock and KC_SYSTEM_WAITS
        self.lock, self.driver, self.now = lock, driver, now
        self.make_batch, self.empty, self.track, self.record = make_batch, empty, track, record
        self.events = events
        self.check_crcs, self.read_committed, self.batch_limit = check_crcs, read_committed, batch_limit
        self.connections, self.pending, self.moved = [], [], []
        self.samples, self.polls = [], []

    # --- arming ------------------------------------------------------------------------------------------------

    def arm(self, list connections not None, select, int selector, double until, Py_ssize_t memory_left):
        """Give the fetches in flight on these connections to the fast path. A poll that holds the lock calls this.

        `select(seconds)` waits for all descriptors of the client, as a selector does, and `selector` is the descriptor
        of this selector if that is an epoll set, or -1. From the time `until` (ms) on, and after responses of
        `memory_left` bytes, `poll` returns None.
        """
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

    def take_samples(self):
        """Returns `samples` and `polls`, and replaces both by empty lists."""
        samples, polls = self.samples, self.polls
        self.samples, self.polls = [], []
        return samples, polls

    # --- polling -----------------------------------------------------------------------------------------------

    def nothing_arrived(self, guard):
        """Returns True if a poll that does not wait would find nothing, and then records such a poll.

        Returns False if `poll` must find it out, or if a thread is inside a call of the consumer: its AccessGuard has a
        `holder`. The state is checked and changed after the last Python code, so no thread can enter meanwhile.
        """
        cdef double now
        if not self.armed or self.selector < 0:
            return False
        if self.polls:
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
        now = self.last_poll
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
        if self.generation != self.polling:
            return None
        return self.proceed(self.find_ready(0), self.polling, max_records, max_bytes)

    def end_poll(self):
        """End the wait of a poll, which has returned records, or was cancelled."""
        self.waiting = False

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
        if len(self.samples) >= MAX_SAMPLES or len(self.polls) >= 2 * MAX_SAMPLES:
            self.record()
        self.polls += [now, 0.0]
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
            self.wait_ended(now)
        return batch

    cdef object expire(self, double now):
        """End a poll without records. Returns an empty batch, or None if managers or timers are due."""
        if now >= self.until:
            return None
        self.wait_ended(now)
        return self.empty

    cdef int wait_ended(self, double now) except -1:
        """Store when the last poll has stopped waiting, unless its metrics were recorded meanwhile."""
        if self.polls:
            self.polls[len(self.polls) - 1] = now
        return 0

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
        with nogil:
            count = kc_wait(self.selector, self.ready, MAX_READY, timeout_ms)
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
        self.lock.acquire()
        try:
            if self.generation != generation:
                return None
            for index in range(count):
                connection = self.connection_of(self.ready[index])
                if connection is None:
                    return None
                ready.append(connection)
            for connection in ready:
                if not self.receive(connection, now, generation, max_records, max_bytes, runs, positions, skipped):
                    self.until = 0.0     # the next poll returns None
                    ordinary = False
                    break
        finally:
            self.lock.release()
        if positions:
            return self.make_batch(runs, positions, skipped)
        return self.empty if ordinary else None

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
        cdef list frames, seen = [], new_runs = [], records = [], moved = self.moved[:]
        cdef dict new_positions = {}, new_skipped = {}
        cdef FastPartition partition
        try:
            count = connection.recv_into(connection.frames.recv_view())
        except BlockingIOError:
            return True
        except OSError as error:
            connection.error = error
        if count < 0:
            return True
        if count == 0:
            return self.give_up("the connection was closed")
        try:
            frames = connection.frames.received(count)
        except KafkaError as error:
            connection.error = error
            return self.give_up("the response is invalid")
        connection.received += count
        if not frames and connection.frames.incomplete <= MAX_FRAME_BYTES:
            return True      # brokers often send the records of a response after its other fields
        self.pending.append((connection, frames, connection.received))
        if len(frames) != 1 or connection.frames.pending:
            return self.give_up("the response is large")
        frame = frames[0]
        if not self.parse(connection, Slice(frame), seen):
            return self.give_up("the response is not ordinary")
        max_records -= sum(map(len, runs))
        max_bytes -= sum([run.size for run in runs])
        if not self.take_records(seen, max_records, max_bytes, new_runs, new_skipped, records):
            return self.give_up("the response has more records than a poll may return, or corrupt ones")
        request = connection.next_request(seen, self.updates)
        if new_runs:
            self.memory_left -= frame.capacity
            if self.memory_left < 0:
                return self.give_up("the memory must be checked")
            self.track(frame)
        for index in range(len(seen)):
            partition = seen[index]
            if self.updates[index].next_offset != partition.offset:
                new_positions[partition.topic_partition] = self.updates[index].next_offset, partition.next_epoch
                if partition.moved_in != self.poll_number:
                    moved.append(partition)
        latency_ms = now - connection.sent_at
        if self.generation != generation:     # a signal handler has used the consumer, which has handled the frame
            return self.give_up("a signal handler has used the consumer")
        # The second phase. No Python code runs before `send`.
        self.moved = moved
        self.commit(connection, seen, request, now)
        self.send(connection)
        self.pending.pop()
        self.samples.append(
            (connection.node, now, latency_ms, self.waited_ms, connection.received, connection.sent, records)
        )
        self.waited_ms, connection.received = 0.0, 0
        runs += new_runs
        positions.update(new_positions)
        skipped.update(new_skipped)
        return connection.request is None

    cdef bint give_up(self, str reason) except -1:
        """Count a response that is handed over, and store the reason. Returns False."""
        self.handed_over += 1
        self.gave_up = reason
        return False

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
        self, list seen, Py_ssize_t max_records, Py_ssize_t max_bytes, list runs, dict skipped, list records
    ) except -1:
        """Take the records of the partitions in `seen`, and set the `next_offset` of their `updates`.

        Returns False unless all records are valid, and are at most `max_records`.
        """
        cdef Py_ssize_t index, size
        cdef Update* update
        cdef FastPartition partition
        for index in range(len(seen)):
            partition, update = seen[index], &self.updates[index]
            update.next_offset, partition.next_epoch = partition.offset, partition.offset_epoch
            size = partition.records.span.end - partition.records.span.p
            if size == 0:
                continue
            fetch = PartitionFetch(
                partition.topic_partition,
                partition.records,
                partition.offset,
                check_crcs=self.check_crcs,
                read_committed=self.read_committed,
                on_decompressed=self.track,
                batch_limit=self.batch_limit,
            )
            try:
                run = fetch.take(max_records, max_bytes, MAX_OUTPUT)
            except KafkaError:
                return False
            max_records -= len(run)
            max_bytes -= run.size
            if not fetch.exhausted or fetch.output_bytes > MAX_OUTPUT or fetch.next_offset <= partition.offset:
                return False
            update.next_offset, partition.next_epoch = fetch.next_offset, fetch.next_leader_epoch
            if len(run):
                runs.append(run)
            passed_over = fetch.take_skipped()
            if passed_over:
                skipped[partition.topic_partition] = passed_over
            end = update.last_stable_offset if self.read_committed else update.high_watermark
            records.append((partition, size, len(run), end, update.log_start_offset, fetch.next_offset))
        return True

    cdef int commit(self, FastConnection connection, list seen, bytes request, double now) noexcept:
        """Move the positions, and make `request` the one in flight."""
        cdef Py_ssize_t index
        cdef Update* update
        cdef FastPartition partition
        for index in range(len(seen)):
            partition, update = <FastPartition> seen[index], &self.updates[index]
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

    cdef int send(self, FastConnection connection) except -1:
        """Send the request of a connection, or as much of it as the socket takes."""
        try:
            connection.sent = connection.send(connection.request)
        except BlockingIOError:
            return 0
        except OSError as error:
            connection.error = error
            return 0
        if connection.sent == len(connection.request):
            connection.request = None
        return 0


@cython.final
cdef class SettlingLock:
    """The engine's lock. A thread that acquires it finds the state settled, because that disarms the fast path.

    `settle()` disarms the fast path and writes its state back.
    """

    cdef readonly object inner
    cdef object settle
    cdef FastPath fast_path

    def __init__(self, lock):
        self.inner = lock

    def settle_with(self, FastPath fast_path not None, settle):
        """Set the fast path, and the function that disarms it."""
        self.fast_path, self.settle = fast_path, settle

    def acquire(self, blocking=True, timeout=-1):
        """Acquire the lock. Returns False if that was not possible.

        While the fast path waits, its thread is inside a call, and does not hold the lock. As on the general path,
        another thread then gets the lock only if it is willing to wait for it.
        """
        cdef FastPath fast_path = self.fast_path
        if not blocking and fast_path is not None and fast_path.waiting:
            if fast_path.thread != PyThread_get_thread_ident():
                return False
        if not self.inner.acquire(blocking, timeout):
            return False
        if fast_path is not None and fast_path.armed:
            try:
                self.settle()
            except BaseException:
                self.inner.release()
                raise
        return True

    def release(self):
        """Release the lock."""
        self.inner.release()

    def __enter__(self):
        self.acquire()

    def __exit__(self, kind, error, trace):
        self.inner.release()

    def _is_owned(self):
        return self.inner._is_owned()
