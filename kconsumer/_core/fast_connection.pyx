"""The copies of state that the fast path of fetching changes: one per partition, and one per connection.

`FastPathControl` (engine/fast_path.py) creates these copies, and writes them back when the fast path is disarmed.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EAGAIN
from libc.stdint cimport int32_t, uint32_t
from libc.string cimport memcpy

from kconsumer._core.metric_events cimport NodeSensors
from kconsumer._core.wire cimport FrameBuffer, Span, kc_store_be32

import os

from kconsumer.errors import KafkaError


cdef extern from "fast_socket.h" nogil:
    const int KC_SYSTEM_SOCKETS
    int kc_receive(int descriptor, unsigned char* bytes, int size)
    int kc_send(int descriptor, const unsigned char* bytes, int size)
    void kc_set_low_water_mark(int descriptor, int count)


cdef enum:
    KEY_BYTES = TOPIC_ID_BYTES + 4     # topic id and partition
    MAX_RECEIVE_BYTES = 1 << 30        # of one system call
    MAX_LOW_WATER_BYTES = 1 << 15      # as in net/node.py


@cython.final
cdef class FastPartition:
    """The copy of one partition's state. `requested` is its RequestedPartition in the fetch session."""

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
    are methods of its socket or transport. `blocked()` returns True if the general path must read or write before the
    descriptor is readable again; it is None if that never happens. `find(topic_id, partition)` returns the
    FastPartition of a partition of the session, or None if its response needs the general path.
    """

    def __init__(
        self,
        flight,
        node,
        int descriptor,
        FrameBuffer frames not None,
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
        NodeSensors sensors=None,
        bint is_socket=False,
        blocked=None,
    ):
        self.sensors, self.is_socket, self.expects_empty = sensors, is_socket, True
        self.unsent, self.blocked = unsent, blocked
        self.flight, self.node, self.descriptor, self.frames = flight, node, descriptor, frames
        self.recv_into, self.send, self.find = recv_into, send, find
        self.head, self.tail = head, tail
        self.session_id, self.epoch = session_id, epoch
        self.correlation_id, self.sent_at = correlation_id, sent_at
        self.partitions = {}
        self.low_water = 1

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

    cdef int send_request(self) except -1:
        """Send `request`, or as much of it as the socket takes."""
        try:
            self.sent = self.send_bytes(self.request)
        except BlockingIOError:
            return 0
        except OSError as error:
            self.error = error
            return 0
        if self.sent == len(self.request):
            self.request = None
        return 0

    cdef Py_ssize_t send_bytes(self, bytes data) except -1:
        """Returns how many bytes the socket has taken. Raises BlockingIOError if it takes none, and other OSErrors."""
        cdef int count
        if not (self.is_socket and KC_SYSTEM_SOCKETS):
            return self.send(data)
        count = kc_send(self.descriptor, <unsigned char*> PyBytes_AS_STRING(data), <int> len(data))
        if count < 0:
            raise OSError(-count, os.strerror(-count))
        return count

    cdef Py_ssize_t receive(self) except -2:
        """Receive into the free space of `frames`. Returns the number of bytes; -1 if none have arrived.

        Returns 0 if the connection was closed. After an error, too, which is then in `error`.
        """
        cdef Py_ssize_t size = 0
        cdef int count
        cdef unsigned char* space
        if self.is_socket and KC_SYSTEM_SOCKETS:
            space = self.frames.free_space(&size)
            count = kc_receive(self.descriptor, space, <int> min(size, MAX_RECEIVE_BYTES))
            if count >= 0 or count == -EAGAIN:
                return count if count >= 0 else -1
            self.error = OSError(-count, os.strerror(-count))
            return 0
        try:
            return self.recv_into(self.frames.recv_view())
        except BlockingIOError:
            return -1
        except (OSError, KafkaError) as error:
            self.error = error
            return 0

    cdef int wait_for_rest(self) noexcept:
        """Let epoll report the socket when the rest of a response has arrived.

        A broker sends a response with records of one partition in three parts: the fields before the records, the
        records, and the fields after them. Without this, a poll could be woken for each of them. `NodeConnection.read`
        does the same from the second part on, because the system call costs more there.
        """
        cdef Py_ssize_t missing = 0 if self.frames.partial is None else self.frames.partial.size - self.frames.filled
        if missing > 0 and self.is_socket and KC_SYSTEM_SOCKETS:
            self.low_water = <int> min(missing, MAX_LOW_WATER_BYTES)
            kc_set_low_water_mark(self.descriptor, self.low_water)
        return 0

    cpdef void wait_for_any(self) noexcept:
        """Let epoll report the socket when any bytes have arrived, after a response or for the general path."""
        if self.low_water > 1:
            kc_set_low_water_mark(self.descriptor, 1)
            self.low_water = 1
