# ShareRecord: a ConsumerRecord with a delivery count, and the function that acknowledges it.


cdef class ShareRecord(ConsumerRecord):
    cdef readonly int delivery_count
    cdef object acknowledger       # called with the record and the number of an AcknowledgeType; or None

    cdef int acknowledge(self, int kind) except -1
