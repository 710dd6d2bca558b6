"""Encodes the incremental Fetch requests of the fast path, without message objects.

The bytes before and after the topics are those of a request that the encoder of messages has made.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kconsumer._core.fast_connection cimport (
    MAX_PARTITIONS,
    TOPIC_ID_BYTES,
    FastConnection,
    FastPartition,
    Update,
    following_epoch,
)
from kconsumer._core.wire cimport kc_store_be32, kc_store_be64


cdef enum:
    PARTITION_BYTES = 33               # one partition of a request


cdef bytes next_request(FastConnection connection, list seen, Update* updates):
    """Returns the next request of the session. It contains those partitions in `seen` that moved."""
    cdef Py_ssize_t moved[MAX_PARTITIONS]     # indexes in `seen`
    cdef Py_ssize_t count = 0, topics = 0, index = 0, first, at
    cdef FastPartition partition
    cdef bytes topic_id = b""
    for at in range(len(seen)):
        if updates[at].next_offset != (<FastPartition> seen[at]).offset:
            moved[count] = at
            count += 1
    for index in range(count):
        partition = <FastPartition> seen[moved[index]]
        if partition.topic_id != topic_id:
            topics += 1
            topic_id = partition.topic_id
    cdef Py_ssize_t room = (
        len(connection.head) + len(connection.tail) + 5 + topics * (TOPIC_ID_BYTES + 6) + count * PARTITION_BYTES
    )
    cdef bytes data = PyBytes_FromStringAndSize(NULL, room)
    cdef unsigned char* start = <unsigned char*> PyBytes_AS_STRING(data)
    cdef unsigned char* p = start + len(connection.head)
    memcpy(start, PyBytes_AS_STRING(connection.head), <size_t> len(connection.head))
    kc_store_be32(start + CORRELATION_ID_AT, <uint32_t> (connection.correlation_id + 1))
    kc_store_be32(p - EPOCH_BYTES, <uint32_t> following_epoch(connection.epoch))
    p = store_uvarint(p, <uint32_t> topics + 1)
    index = 0
    while index < count:
        first = index
        topic_id = (<FastPartition> seen[moved[first]]).topic_id
        while index < count and (<FastPartition> seen[moved[index]]).topic_id == topic_id:
            index += 1
        memcpy(p, PyBytes_AS_STRING(topic_id), TOPIC_ID_BYTES)
        p = store_uvarint(p + TOPIC_ID_BYTES, <uint32_t> (index - first) + 1)
        for at in moved[first:index]:
            p = store_partition(p, <FastPartition> seen[at], updates[at].next_offset)
        p[0] = 0     # no tagged fields of the topic
        p += 1
    memcpy(p, PyBytes_AS_STRING(connection.tail), <size_t> len(connection.tail))
    p += len(connection.tail)
    kc_store_be32(start, <uint32_t> (p - start - 4))
    return data[:p - start]


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
