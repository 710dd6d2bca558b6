"""Filling the memory of columns from records.

Contents:
    Status          the result of filling
    FillSegment     a segment of a run, and what its records have in common
    BytesColumn     a growing column of byte strings
    Builder         the memory of all columns of some rows
    start, stop     allocate this memory; free the parts that no column owns
    fill_all        append records
"""

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from kconsumer._core.arrow_columns cimport KC_COLUMNS
from kconsumer._core.record_run cimport RunSegment


cdef enum Status:
    GOOD
    FULL           # with the next record a column would exceed its limit
    MALFORMED      # the bytes have changed since they were checked
    NO_MEMORY


cdef struct BytesColumn:
    # A growing column of byte strings.
    int32_t* ends          # string i is data[ends[i]:ends[i + 1]]
    unsigned char* data
    uint8_t* valid         # one bit per row
    Py_ssize_t used
    Py_ssize_t room
    int64_t nulls


cdef struct Builder:
    bint wants[KC_COLUMNS]
    Py_ssize_t limit       # of bytes in a column
    Py_ssize_t rows
    Py_ssize_t room        # for rows
    BytesColumn key
    BytesColumn value
    BytesColumn topic
    int64_t* offset
    int64_t* timestamp
    int32_t* partition
    int8_t* timestamp_type
    int32_t* epoch
    uint8_t* epoch_valid
    int64_t epoch_nulls
    int32_t* header_ends   # row i has the headers header_ends[i] to header_ends[i + 1] - 1
    BytesColumn header_key
    BytesColumn header_value
    Py_ssize_t headers
    Py_ssize_t headers_room


cdef struct FillSegment:
    # The rest of a segment that was not filled yet, and what its records have in common.
    RunSegment segment
    int64_t end            # records at and after this offset are left out
    int32_t partition
    const char* topic
    Py_ssize_t topic_size


cdef bint start(Builder* builder, Py_ssize_t rows, Py_ssize_t size) noexcept nogil
cdef void stop(Builder* builder) noexcept nogil
cdef Status fill_all(Builder* builder, FillSegment* segments, Py_ssize_t* at, Py_ssize_t count) noexcept nogil
