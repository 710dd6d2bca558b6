# The hot part of the buffer of fetched data. `kconsumer/fetching/buffer.py` has the rest of these classes.

from libc.stdint cimport int64_t

from kconsumer._core.decode cimport PartitionFetch
from kconsumer._core.metrics cimport FetchEvents, ResponseTally


cdef class Memory:
    cdef public Py_ssize_t limit
    cdef public Py_ssize_t reserved
    cdef public Py_ssize_t decompressed
    cdef public Py_ssize_t least_response
    cdef Py_ssize_t alive             # bytes of blocks that are not freed
    cdef Py_ssize_t needed            # bytes of blocks that buffered fetches refer to
    cdef dict blocks
    cdef object freed
    cdef object on_freed

    cpdef object track(self, object memory, size=*)
    cpdef int acquire(self, object block) except -1
    cpdef int release(self, object block) except -1
    cpdef int reap_freed(self) except -1
    cpdef int record_decompressed(self, Py_ssize_t unpacked) except -1
    cpdef int record_response(self, Py_ssize_t size, Py_ssize_t expected) except -1
    cpdef Py_ssize_t reserve_for(self, Py_ssize_t max_bytes) except -1
    cdef Py_ssize_t used_bytes(self) except -1
    cdef Py_ssize_t room_bytes(self) except? -1


cdef class CompletedFetch:
    cdef public BufferedChain chain
    cdef public object topic_id
    cdef public object block
    cdef public object decompressed_block
    cdef public double arrived_at
    cdef public int64_t fetch_offset
    cdef public PartitionFetch data
    cdef public Py_ssize_t size
    cdef public int error_code
    cdef public object diverging_epoch
    cdef public ResponseTally tally
    cdef public Py_ssize_t records
    cdef public Py_ssize_t record_bytes
    cdef public str failure
    cdef public double failed_at
    cdef public object corrupt_at
    cdef public bint in_turn_queue


cdef class BufferedChain:
    cdef public object topic_partition
    cdef public PartitionPosition state
    cdef public object leader
    cdef public int64_t position
    cdef public object next_offset
    cdef public list fetches
    cdef public int failures
    cdef public str failure
    cdef public double buffered_since
    cdef public bint leader_changed
    cdef public bint set_aside

    cdef bint has_error(self) except -1
    cdef bint follows(self, object leader) except -1
    cdef bint may_grow(self) except -1
    cpdef int advance(self, int64_t offset, object leader) except -1


cdef class BufferQueue:
    cdef readonly Memory memory
    cdef public dict dirty
    cdef public dict chains
    cdef public object turns
    cdef public Py_ssize_t waiting
    cdef public dict paused
    cdef public CompletedFetch current
    cdef public list finished
    cdef public Py_ssize_t buffered
    cdef public object error

    cpdef int append(self, CompletedFetch fetch, object next_offset) except -1
    cpdef int clear_error(self, BufferedChain chain) except -1
    cpdef int account(self, FetchEvents events, double now) except -1
    cpdef CompletedFetch peek(self)
    cpdef int pop(self, CompletedFetch fetch) except -1
    cpdef bint has_data(self) except -1
    cpdef int enqueue(self, CompletedFetch fetch) except -1
    cpdef int dequeue(self, CompletedFetch fetch) except -1
    cpdef int finish(self, CompletedFetch fetch) except -1
