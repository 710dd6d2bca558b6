"""Handles Fetch responses without partitions, which brokers send to idle consumers.

Such a response changes nothing but the correlation id and the fetch session epoch. The next request differs from the
last one only in these two, and in how long the broker may wait. So a response is compared with the expected bytes, and
the next request is changed in place. No Python code runs meanwhile, and the GIL is held. So no other thread sees the
copies half changed, and the engine's lock is not needed.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN
from libc.math cimport ceil, fmod
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcmp, memset

from kconsumer._core.fast_connection cimport MAX_EMPTY, EmptyResponse, FastConnection, following_epoch
from kconsumer._core.fast_request cimport CORRELATION_ID_AT, EPOCH_BYTES, next_request
from kconsumer._core.metric_events cimport (
    ConnectionEvents,
    FetchEvents,
    record_exchange,
    record_fetch_latency,
)
from kconsumer._core.wire cimport kc_load_be32, kc_store_be32

import os


cdef extern from "fast_socket.h" nogil:
    const int KC_SYSTEM_SOCKETS
    int kc_peek(int descriptor, unsigned char* bytes, int size)
    int kc_receive(int descriptor, unsigned char* bytes, int size)
    int kc_send(int descriptor, const unsigned char* bytes, int size)


cdef enum:
    # The size, the correlation id, tags, the throttle time, the error code, the session id, topics, tags.
    EMPTY_BYTES = 4 + 4 + 1 + 4 + 2 + 4 + 1 + 1
    SESSION_ID_AT = 15
    TOPICS_AT = 19
    # How far before the topics of a request the field begins. It is followed by the least number of bytes, the largest
    # number of bytes, the isolation level, the session id and the session epoch.
    MAX_WAIT_BYTES = 4 + 4 + 4 + 1 + 4 + 4


cdef int prepare_exchange(FastConnection connection) except -1:
    """Encode the request that follows an empty response, if `exchange_empty` may use the socket."""
    cdef unsigned char* head
    if connection.is_socket and KC_SYSTEM_SOCKETS:
        connection.empty_request = next_request(connection, [], NULL)
        head = <unsigned char*> PyBytes_AS_STRING(connection.head)
        connection.max_wait_ms = kc_load_be32(head + len(connection.head) - MAX_WAIT_BYTES)
    return 0


cdef uint32_t aligned_wait_ms(uint32_t max_wait_ms, double now) noexcept:
    """Returns how long (ms) the broker may wait, so that it responds to all idle consumers at the same times.

    These times are the multiples of `max_wait_ms` on the monotonic clock. A response at another time is followed by at
    most one wait that ends between them, after half of `max_wait_ms` or more.
    """
    cdef double left = max_wait_ms - fmod(now, max_wait_ms) if max_wait_ms else 0.0
    return <uint32_t> ceil(max(left, max_wait_ms / 2.0))


cdef int record_empty(FastConnection connection, ConnectionEvents network, FetchEvents fetches) except -1:
    """Record the metrics of the empty responses since the last call.

    They are recorded together, because each of thousands of consumers has its own sensors. To record one value loads
    their memory, and takes longer than to handle an empty response.
    """
    cdef EmptyResponse* response
    cdef int64_t size = len(connection.head) + len(connection.tail) + 1     # without topics
    cdef int index
    for index in range(connection.unrecorded_count):
        response = &connection.unrecorded[index]
        if fetches is not None:
            record_fetch_latency(fetches, response.latency_ms, response.now)
        if network is not None:
            record_exchange(
                network, connection.sensors, response.latency_ms, response.waited_ms, EMPTY_BYTES, size, response.now
            )
    connection.unrecorded_count = 0
    return 0


cdef bint exchange_empty(
    FastConnection connection,
    double now,
    double waited_ms,
    ConnectionEvents network,
    FetchEvents fetches,
    bint align,
) except -1:
    """Receive an empty response, and send the next request. Returns False if it is not empty. Nothing was done then.

    With `align`, the broker is asked to respond at the same time as to other consumers. As after `send_request`,
    `request` is not None if the socket has not taken all of it.
    """
    cdef unsigned char expected[EMPTY_BYTES]
    cdef unsigned char found[EMPTY_BYTES + 1]
    cdef unsigned char* data
    cdef EmptyResponse* response
    cdef int size, count
    if connection.empty_request is None or connection.received or not connection.expects_empty:
        return False
    memset(expected, 0, EMPTY_BYTES)
    kc_store_be32(expected, EMPTY_BYTES - 4)
    kc_store_be32(expected + 4, <uint32_t> connection.correlation_id)
    kc_store_be32(expected + SESSION_ID_AT, <uint32_t> connection.session_id)
    expected[TOPICS_AT] = 1     # an array without elements
    if kc_peek(connection.descriptor, found, EMPTY_BYTES + 1) != EMPTY_BYTES or memcmp(found, expected, EMPTY_BYTES):
        return False
    if connection.unrecorded_count == MAX_EMPTY:
        record_empty(connection, network, fetches)
    if kc_receive(connection.descriptor, found, EMPTY_BYTES) != EMPTY_BYTES:
        return False
    response = &connection.unrecorded[connection.unrecorded_count]
    response.now, response.latency_ms, response.waited_ms = now, now - connection.sent_at, waited_ms
    connection.unrecorded_count += 1
    data = <unsigned char*> PyBytes_AS_STRING(connection.empty_request)
    size = <int> PyBytes_GET_SIZE(connection.empty_request)
    connection.epoch = following_epoch(connection.epoch)
    connection.correlation_id += 1
    connection.sent_at = connection.responded_at = now
    kc_store_be32(data + CORRELATION_ID_AT, <uint32_t> connection.correlation_id)
    kc_store_be32(data + len(connection.head) - EPOCH_BYTES, <uint32_t> connection.epoch)
    kc_store_be32(
        data + len(connection.head) - MAX_WAIT_BYTES,
        aligned_wait_ms(connection.max_wait_ms, now) if align else connection.max_wait_ms,
    )
    count = kc_send(connection.descriptor, data, size)
    if count == size:
        return True
    # The rest of the request is sent after the fast path is disarmed, so its bytes must not change again.
    connection.request, connection.sent = connection.empty_request, count if count > 0 else 0
    connection.empty_request = None
    if count < 0 and count != -EAGAIN:
        connection.error = OSError(-count, os.strerror(-count))
    return True
