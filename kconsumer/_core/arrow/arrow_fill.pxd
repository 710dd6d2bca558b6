# Fills the memory of columns from records.
#
# Contents:
#     Status          the result of filling
#     FillSegment     a segment of a run, with the values that all its records share
#     BytesColumn     the memory of a column of byte strings, which can grow
#     Builder         the memory of all selected columns
#     start, stop     allocate the memory of a Builder; free the parts that no column has taken
#     fill_all        appends records to a Builder

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from kconsumer._core.decode cimport RunSegment


cdef enum Status:
    GOOD
    FULL           # a column would exceed its limit, or there is no room for another row
    MALFORMED      # the bytes have changed since they were checked
    NO_MEMORY


cdef struct BytesColumn:
    # The memory of a column of byte strings.
    int32_t* ends          # string i is data[ends[i]:ends[i + 1]]
    unsigned char* data
    uint8_t* valid         # validity bitmap: one bit per row, 0 for null
    Py_ssize_t used        # bytes of `data` in use
    Py_ssize_t room        # allocated bytes of `data`
    int64_t nulls          # number of rows that are null


cdef struct Builder:
    bint wants[KC_COLUMNS]  # for each kind of column, whether it was selected
    Py_ssize_t limit       # maximum number of bytes in a column of byte strings, and of headers
    Py_ssize_t rows        # number of filled rows
    Py_ssize_t room        # number of rows for which memory is allocated
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
    Py_ssize_t headers     # number of headers in all rows
    Py_ssize_t headers_room


cdef struct FillSegment:
    RunSegment segment     # the records that were not appended yet
    int64_t end            # records at or above this offset are omitted
    int32_t partition
    const char* topic
    Py_ssize_t topic_size


cdef bint start(Builder* builder, Py_ssize_t rows, Py_ssize_t size) noexcept nogil
cdef void stop(Builder* builder) noexcept nogil
cdef Status fill_all(Builder* builder, FillSegment* segments, Py_ssize_t* at, Py_ssize_t count) noexcept nogil
