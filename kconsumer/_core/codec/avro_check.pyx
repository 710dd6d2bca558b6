"""Checks values in Avro's binary encoding, before they are decoded by a library that trusts them.

That library reads all bytes for a negative length, counts branches of unions from the end, takes numbers of any length,
repeats the items of an array as often as a damaged count says, and overflows the stack for types that are nested
without end. The check reads the bytes once and creates no object. Its rules are those of Java's decoder, and stricter
where Java ignores bits: booleans are 0 or 1, numbers fit their types, and blocks have the size that they begin with.
"""

cimport cython
from libc.stdint cimport INT64_MIN
from libc.stdlib cimport calloc

from kconsumer._core.wire cimport read_varlong


cdef enum:
    MAX_AVRO_DEPTH = 500           # nested types; the decoder uses the stack for each
    MAX_EMPTY_ITEMS = 100_000      # items without bytes, of which a few bytes may claim any number

cdef enum AvroKind:
    AVRO_NULL, AVRO_BOOLEAN, AVRO_INT, AVRO_ENUM, AVRO_LONG, AVRO_FIXED, AVRO_BYTES, AVRO_RECORD, AVRO_ARRAY, AVRO_MAP,
    AVRO_UNION

cdef struct AvroType:
    int kind                       # an AvroKind
    Py_ssize_t size                # the number of bytes, symbols, or parts
    Py_ssize_t* parts              # the types of fields, items or branches, as indexes of types

cdef dict AVRO_KINDS = {
    "null": AVRO_NULL, "boolean": AVRO_BOOLEAN, "int": AVRO_INT, "enum": AVRO_ENUM, "long": AVRO_LONG,
    "float": AVRO_FIXED, "double": AVRO_FIXED, "fixed": AVRO_FIXED, "bytes": AVRO_BYTES, "string": AVRO_BYTES,
    "record": AVRO_RECORD, "array": AVRO_ARRAY, "map": AVRO_MAP, "union": AVRO_UNION,
}
cdef const char* TRUNCATED = "the bytes end before the value"


@cython.final
cdef class AvroCheck:
    """Checks values of one schema.

    `types` contains (kind, number of bytes or symbols, indexes of its parts in `types`) of each type in the schema. The
    first one is that of the values.
    """

    cdef AvroType* types
    cdef Py_ssize_t count

    def __cinit__(self, list types):
        cdef Py_ssize_t index, at
        cdef AvroType* found
        self.types = <AvroType*> calloc(<size_t> len(types), sizeof(AvroType))
        if self.types == NULL:
            raise MemoryError
        for index, (kind, size, parts) in enumerate(types):
            found = &self.types[index]
            found.kind = AVRO_KINDS[kind]
            found.size = size if found.kind in (AVRO_FIXED, AVRO_ENUM) else len(parts)
            found.parts = <Py_ssize_t*> calloc(<size_t> len(parts) + 1, sizeof(Py_ssize_t))
            self.count = index + 1
            if found.parts == NULL:
                raise MemoryError
            for at, part in enumerate(parts):
                if not 0 <= part < len(types):
                    raise ValueError(f"there is no type {part}")
                found.parts[at] = part

    def __dealloc__(self):
        cdef Py_ssize_t index
        for index in range(self.count):
            free(self.types[index].parts)
        free(self.types)

    def __call__(self, bytes data not None, Py_ssize_t start):
        """Raise ValueError unless the bytes from `start` to the end are one value."""
        cdef Span span
        cdef Py_ssize_t empty = 0
        cdef const char* problem
        if not 0 <= start <= len(data):
            raise ValueError(f"the value begins at byte {start} of {len(data)}")
        span.p = <const unsigned char*> data + start
        span.end = span.p + len(data) - start
        problem = self.walk(&span, 0, 0, &empty)
        if problem != NULL:
            raise ValueError(f"{problem.decode('ascii')} (at byte {len(data) - remaining(&span)} of {len(data)})")
        if remaining(&span):
            raise ValueError(f"{remaining(&span)} bytes follow the value")

    cdef const char* walk(self, Span* span, Py_ssize_t index, int depth, Py_ssize_t* empty) noexcept nogil:
        """Advance `span` past a value of a type. Returns the problem of its bytes, or NULL.

        `empty` counts items without bytes.
        """
        cdef AvroType* of = &self.types[index]
        cdef const char* problem = NULL
        cdef Py_ssize_t at
        cdef int64_t number
        if depth > MAX_AVRO_DEPTH:
            return "it is nested too deeply"
        if of.kind == AVRO_BOOLEAN:
            if remaining(span) and span.p[0] > 1:
                return "a boolean is neither 0 nor 1"
            return skip_avro(span, 1)
        if of.kind == AVRO_INT:
            return read_avro_int(span, &number)
        if of.kind == AVRO_LONG:
            return read_avro_long(span, &number)
        if of.kind == AVRO_FIXED:
            return skip_avro(span, of.size)
        if of.kind == AVRO_BYTES:
            return skip_avro_bytes(span)
        if of.kind == AVRO_RECORD:
            for at in range(of.size):
                problem = self.walk(span, of.parts[at], depth + 1, empty)
                if problem != NULL:
                    return problem
        elif of.kind == AVRO_ENUM or of.kind == AVRO_UNION:
            problem = read_avro_int(span, &number)
            if problem != NULL:
                return problem
            if not 0 <= number < of.size:
                return "there is no such symbol or branch of a union"
            if of.kind == AVRO_ENUM:
                return NULL
            return self.walk(span, of.parts[number], depth + 1, empty)
        elif of.kind != AVRO_NULL:
            return self.walk_blocks(span, of, depth, empty)
        return NULL

    cdef const char* walk_blocks(self, Span* span, AvroType* of, int depth, Py_ssize_t* empty) noexcept nogil:
        """Advance `span` past the blocks of an array or a map, as `walk` does."""
        cdef const char* problem = NULL
        cdef const unsigned char* end
        cdef int64_t count, size
        while True:
            problem = read_avro_long(span, &count)
            if problem != NULL or count == 0:
                return problem
            end = NULL
            if count < 0:
                problem = read_avro_long(span, &size)
                if problem != NULL:
                    return problem
                if count == INT64_MIN or not 0 <= size <= remaining(span):
                    return "a block is longer than the value"
                end, count = span.p + size, -count
            problem = self.walk_items(span, of, count, depth, empty)
            if problem != NULL:
                return problem
            if end != NULL and end != span.p:
                return "a block has not the size that it begins with"

    cdef const char* walk_items(
        self, Span* span, AvroType* of, int64_t count, int depth, Py_ssize_t* empty
    ) noexcept nogil:
        """Advance `span` past the items of one block, as `walk` does."""
        cdef const char* problem = NULL
        cdef const unsigned char* before
        while count > 0:
            before = span.p
            if of.kind == AVRO_MAP:
                problem = skip_avro_bytes(span)
                if problem != NULL:
                    return problem
            problem = self.walk(span, of.parts[0], depth + 1, empty)
            if problem != NULL:
                return problem
            if span.p == before:  # then no item of this type has bytes
                if count > MAX_EMPTY_ITEMS - empty[0]:
                    return "it has too many items without bytes"
                empty[0] += count
                return NULL
            count -= 1
        return NULL


cdef const char* read_avro_long(Span* span, int64_t* out) noexcept nogil:
    """Read a number of 64 bits. Returns the problem of its bytes, or NULL."""
    cdef const unsigned char* start = span.p
    if not read_varlong(span, out):
        if remaining(span) < 10:
            return TRUNCATED
        return "a number has more than ten bytes"
    if span.p - start == 10 and (span.p - 1)[0] > 1:
        return "a number has more than 64 bits"
    return NULL


cdef const char* read_avro_int(Span* span, int64_t* out) noexcept nogil:
    """Read a number of 32 bits, as `read_avro_long` does."""
    cdef const unsigned char* start = span.p
    cdef const char* problem = read_avro_long(span, out)
    if problem == NULL and (span.p - start > 5 or out[0] != <int32_t> out[0]):
        return "a number has more than 32 bits"
    return problem


cdef const char* skip_avro_bytes(Span* span) noexcept nogil:
    """Advance `span` past bytes or text after their length, as `read_avro_long` does."""
    cdef int64_t size
    cdef const char* problem = read_avro_long(span, &size)
    if problem != NULL:
        return problem
    if size < 0:
        return "a length is negative"
    return skip_avro(span, size)


cdef const char* skip_avro(Span* span, Py_ssize_t size) noexcept nogil:
    """Advance `span` by a number of bytes, as `read_avro_long` does."""
    if skip(span, size):
        return NULL
    return TRUNCATED
