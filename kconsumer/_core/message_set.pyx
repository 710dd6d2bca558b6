"""Finds the records of message sets v0 and v1; the layout is drawn in message_set.pxd.

Decides what belongs together, which offsets are relative to what, and whose checksum counts, all as Java's
decoder was seen to do. Decompressing a wrapper, and what to say when something is wrong, are the business of
`fetch`.

Uncompressed messages are each a batch of their own to Java. Here as many as can be read in the same way are one
piece, so that they cost no object each.
"""

from libc.stdint cimport INT64_MAX, uint32_t, uint64_t

from kconsumer._core.batch cimport CODEC, LOG_APPEND_TIME, offset_at
from kconsumer._core.crc cimport crc32_of


cdef enum:
    MOST_AT_ONCE = 1024      # uncompressed messages in one piece: they are all checked before the first is given out


cdef struct Message:
    int64_t offset
    int magic
    int attributes
    Span covered             # what the crc is of
    uint32_t crc


cdef enum Next:
    NEXT_MESSAGE
    NEXT_END                 # nothing, or the beginning of a message that was cut off
    NEXT_BAD


cdef bint read_outer(Span message, BatchHeader* header) noexcept nogil:
    """Fill in what format 2 has in its header from a message of format `header.magic`; False if it is malformed.

    The body is the value; of a null value it has neither beginning nor end.
    """
    cdef Record record
    cdef const unsigned char* p = message.p
    if header.size < (LEAST_V0 if header.magic == 0 else LEAST_V1):
        return False
    if not read_message(&message, header.magic, &record):
        return False
    header.leader_epoch = -1
    header.attributes = p[ATTRIBUTES_AT]
    header.last_offset_delta = 0
    header.max_timestamp = header.base_timestamp = record.timestamp_delta
    header.producer_id = -1
    header.body.p = header.body.end = NULL
    if record.value_size >= 0:
        header.body.p = record.value
        header.body.end = record.value + record.value_size
    return True


cdef Next next_message(Span* data, Message* out) noexcept nogil:
    """Read the header of the message at the front of `data` and move `data` past it.

    `data` stays where it is unless the answer is NEXT_MESSAGE.
    """
    cdef const unsigned char* p = data.p
    cdef int32_t size
    if remaining(data) < CRC_AT:
        return NEXT_END
    size = <int32_t> kc_load_be32(p + 8)
    if size < LEAST_V0:
        return NEXT_BAD
    if remaining(data) - CRC_AT < size:
        return NEXT_END
    out.magic = p[MAGIC_AT]
    if out.magic > 1 or (out.magic == 1 and size < LEAST_V1):
        return NEXT_BAD
    out.offset = <int64_t> kc_load_be64(p)
    out.crc = kc_load_be32(p + CRC_AT)
    out.attributes = p[ATTRIBUTES_AT]
    data.p = p + CRC_AT + size
    out.covered.p = p + MAGIC_AT
    out.covered.end = data.p
    return NEXT_MESSAGE


cdef const char* trouble_with(const Message* message, int64_t offset, int64_t floor, bint check_crcs) except? NULL:
    """What is wrong with a message of that offset; NULL if nothing. Of one that will not be given out the checksum
    does not matter."""
    cdef uint32_t crc = 0
    if offset < 0 or offset == INT64_MAX:
        return "an offset that cannot be"
    if check_crcs and offset >= floor:
        crc32_of(message.covered.p, remaining(&message.covered), &crc)
        if crc != message.crc:
            return "the checksum stored with the message is not the checksum of the message"
    return NULL


cdef int find_uncompressed(Span* data, int64_t floor, bint check_crcs, Messages* out) except -1:
    """The uncompressed messages at the front of `data`, up to one that is to be read in another way, is malformed,
    or does not have a higher offset. Moves `data` past them.

    The first message is known to be whole, well-formed and uncompressed.
    """
    cdef Span rest = data[0]
    cdef Span parts
    cdef Message first, message
    cdef Record record
    next_message(&rest, &first)
    out.span.p = out.span.end = data.p
    out.count = 0
    out.base_offset = 0
    out.first_offset = out.last_offset = first.offset
    out.trouble = trouble_with(&first, first.offset, floor, check_crcs)
    if out.trouble != NULL:
        return 0
    while True:
        out.count += 1
        out.span.end = rest.p
        data[0] = rest
        parts = rest
        if out.count == MOST_AT_ONCE or next_message(&rest, &message) != NEXT_MESSAGE:
            return 0
        if (
            message.magic != first.magic
            or not read_message(&parts, message.magic, &record)
            or message.attributes & CODEC
            or (message.magic == 1 and (message.attributes ^ first.attributes) & LOG_APPEND_TIME)
            or message.offset <= out.last_offset
            or trouble_with(&message, message.offset, floor, check_crcs) != NULL
        ):
            return 0
        out.last_offset = message.offset


cdef int find_wrapped(Span plain, const BatchHeader* wrapper, int64_t floor, bint check_crcs, Messages* out) except -1:
    """The messages that a wrapper was decompressed to; a partial one at the end is dropped.

    In format 1 their offsets are relative: the last one's is the wrapper's own. Offset 0 of a wrapper says nothing
    about it, for some producers write that.
    """
    cdef Span rest = plain
    cdef Message message
    out.span.p = out.span.end = plain.p
    out.count = 0
    out.base_offset = 0
    out.trouble = look_through(&rest, wrapper.magic, out)
    if out.trouble == NULL and wrapper.magic == 1 and wrapper.base_offset != 0:
        if wrapper.base_offset < out.last_offset:
            out.trouble = "the offset of the wrapper is below one inside it"
        else:
            out.base_offset = <int64_t> (<uint64_t> wrapper.base_offset - <uint64_t> out.last_offset)
    if out.trouble != NULL:
        out.first_offset = wrapper.base_offset
        return 0
    rest.end = rest.p
    rest.p = plain.p
    while next_message(&rest, &message) == NEXT_MESSAGE:
        if message.attributes & CODEC:
            out.trouble = "a compressed message inside a compressed message"
        else:
            out.trouble = trouble_with(&message, offset_at(out.base_offset, message.offset), floor, check_crcs)
        if out.trouble != NULL:
            return 0
        out.count += 1
        out.span.end = rest.p
    return 0


cdef const char* look_through(Span* plain, int magic, Messages* out) noexcept nogil:
    """Move `plain` to where its last whole message ends, and note the first and last offset. Returns what makes all
    of it unreadable, or NULL."""
    cdef Message message
    cdef Next found
    cdef bint any_found = False
    while True:
        found = next_message(plain, &message)
        if found == NEXT_BAD:
            return "a message inside it has an impossible size or format"
        if found == NEXT_END and any_found:
            return NULL
        if found == NEXT_END:
            return "a compressed message without messages inside"
        if message.magic != magic:
            return "a message inside it has another format than its wrapper"
        if not any_found:
            out.first_offset = message.offset
            any_found = True
        out.last_offset = message.offset
