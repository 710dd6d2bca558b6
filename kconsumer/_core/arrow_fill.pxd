"""Filling the memory of columns from records.

Contents:
    Status          how it went
    Piece           a segment of a run, and what else its records have in common
    Bytes           a column of byte strings that grows
    Builder         the memory of all columns of some rows
    start, stop     get that memory, and give back what no column took over
    fill_all        fill it
"""

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from kconsumer._core.arrow_columns cimport KC_COLUMNS
from kconsumer._core.record_run cimport Segment


cdef enum Status:
    GOOD
    FULL           # the next record would take a column past what int32 offsets reach
    MALFORMED      # the bytes were checked, but are not what they were then
    NO_MEMORY


cdef struct Bytes:
    # A column of byte strings that grows.
    int32_t* ends          # ends[i], ends[i + 1]: where string i begins and ends
    unsigned char* data
    uint8_t* valid         # a bit a row
    Py_ssize_t used
    Py_ssize_t room
    int64_t nulls


cdef struct Builder:
    bint wants[KC_COLUMNS]
    Py_ssize_t limit       # of bytes in a column
    Py_ssize_t rows
    Py_ssize_t room        # for rows
    Bytes key
    Bytes value
    Bytes topic
    int64_t* offset
    int64_t* timestamp
    int32_t* partition
    int8_t* timestamp_type
    int32_t* epoch
    uint8_t* epoch_valid
    int64_t epoch_nulls
    int32_t* header_ends   # header_ends[i], header_ends[i + 1]: the headers of row i
    Bytes header_key
    Bytes header_value
    Py_ssize_t headers
    Py_ssize_t headers_room


cdef struct Piece:
    # A segment, of which what has been used is taken off, and what its records have in common.
    Segment segment
    int64_t end            # records from this offset on are left out
    int32_t partition
    const char* topic
    Py_ssize_t topic_size


cdef bint start(Builder* builder, Py_ssize_t rows, Py_ssize_t size) noexcept nogil
cdef void stop(Builder* builder) noexcept nogil
cdef Status fill_all(Builder* builder, Piece* pieces, Py_ssize_t* at, Py_ssize_t count) noexcept nogil
