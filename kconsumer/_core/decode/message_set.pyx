"""Finds the records of message sets v0 and v1. message_set.pxd shows the layout.

Compressed messages are in the value of another message, which is called the wrapper. This module decides which messages
are returned together, whether their offsets are absolute or relative to the wrapper's offset, and which checksums are
verified. The decisions are those of Java's decoder. fetch.pyx decompresses wrappers and creates the errors.

Java treats each uncompressed message as a batch. Here, consecutive messages with the same format and the same kind of
timestamp form one segment, so that no object is needed for each message.
"""

from libc.stdint cimport INT64_MAX, uint32_t, uint64_t


cdef enum:
    MAX_MESSAGES_AT_ONCE = 1024   # in a segment of uncompressed messages, which are all checked before any is returned


cdef struct Message:
    int64_t offset
    int magic
    int attributes
    Span covered             # the bytes that the crc covers
    uint32_t crc


cdef enum Next:
    NEXT_MESSAGE
    NEXT_END                 # no bytes, or a message that was cut off
    NEXT_BAD


cdef bint read_outer(Span message, BatchHeader* header) noexcept nogil:
    """Set the fields of `header` that `next_batch` has not set, as if the message were a batch.

    The format of the message is `header.magic`. Sets `header.body` to the value of the message. If the value is null,
    sets the two pointers of `header.body` to NULL. Returns False if the message is malformed.
    """
    cdef Record record
    cdef const unsigned char* p = message.p
    if header.size < (MIN_V0_SIZE if header.magic == 0 else MIN_V1_SIZE):
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
    """Read the header of the message at the front of `data`. Returns what was found.

    Advances `data` past the message if NEXT_MESSAGE is returned. Otherwise `data` does not change.
    """
    cdef const unsigned char* p = data.p
    cdef int32_t size
    if remaining(data) < CRC_AT:
        return NEXT_END
    size = <int32_t> kc_load_be32(p + 8)
    if size < MIN_V0_SIZE:
        return NEXT_BAD
    if remaining(data) - CRC_AT < size:
        return NEXT_END
    out.magic = p[MAGIC_AT]
    if out.magic > 1 or (out.magic == 1 and size < MIN_V1_SIZE):
        return NEXT_BAD
    out.offset = <int64_t> kc_load_be64(p)
    out.crc = kc_load_be32(p + CRC_AT)
    out.attributes = p[ATTRIBUTES_AT]
    data.p = p + CRC_AT + size
    out.covered.p = p + MAGIC_AT
    out.covered.end = data.p
    return NEXT_MESSAGE


cdef const char* message_defect(const Message* message, int64_t offset, int64_t floor, bint check_crcs) except? NULL:
    """Returns a description of the error in a message with the absolute offset `offset`, or NULL if it is valid.

    If `check_crcs` is True, verifies the checksum of a message at or above the offset `floor`. A message below `floor`
    will not be returned to the user, so its checksum is not verified.
    """
    cdef uint32_t crc = 0
    if offset < 0 or offset == INT64_MAX:
        return "its offset is not a valid offset"
    if check_crcs and offset >= floor:
        crc32_of(message.covered.p, remaining(&message.covered), &crc)
        if crc != message.crc:
            return "the checksum stored with the message is not the checksum of the message"
    return NULL


cdef int find_uncompressed(Span* data, int64_t floor, bint check_crcs, Messages* out) except -1:
    """Find the uncompressed messages at the front of `data` and advance `data` past them.

    Stops before a message that is compressed, is invalid, has another format or kind of timestamp than the first one,
    or does not have a higher offset than the previous one. The caller has checked that the first message is complete,
    well-formed and uncompressed. If the first message has an invalid offset or checksum, sets `out.defect` and does not
    advance `data`. Checksums are verified as in `message_defect`.
    """
    cdef Span rest = data[0]
    cdef Span parts
    cdef Message first, message
    cdef Record record
    out.span.p = out.span.end = data.p
    out.count = 0
    out.base_offset = 0
    out.defect = NULL
    if next_message(&rest, &first) != NEXT_MESSAGE:
        return 0  # never, as the caller has checked
    out.first_offset = out.last_offset = first.offset
    out.defect = message_defect(&first, first.offset, floor, check_crcs)
    if out.defect != NULL:
        return 0
    while True:
        out.count += 1
        out.span.end = rest.p
        data[0] = rest
        parts = rest
        if out.count == MAX_MESSAGES_AT_ONCE or next_message(&rest, &message) != NEXT_MESSAGE:
            return 0
        if (
            message.magic != first.magic
            or not read_message(&parts, message.magic, &record)
            or message.attributes & CODEC
            or (message.magic == 1 and (message.attributes ^ first.attributes) & LOG_APPEND_TIME)
            or message.offset <= out.last_offset
            or message_defect(&message, message.offset, floor, check_crcs) != NULL
        ):
            return 0
        out.last_offset = message.offset


cdef int find_wrapped(Span plain, const BatchHeader* wrapper, int64_t floor, bint check_crcs, Messages* out) except -1:
    """Find the messages in `plain`, the decompressed value of a wrapper. A partial message at the end is ignored.

    In format 1 the offsets of the messages are relative: the last message has the wrapper's offset. Some producers
    write wrappers with offset 0. Then the offsets of the messages are used as they are. Sets `out.defect` if a message
    is invalid. Checksums are verified as in `message_defect`.
    """
    cdef Span rest = plain
    cdef Message message
    out.span.p = out.span.end = plain.p
    out.count = 0
    out.base_offset = 0
    out.defect = scan_messages(&rest, wrapper.magic, out)
    if out.defect == NULL and wrapper.magic == 1 and wrapper.base_offset != 0:
        if wrapper.base_offset < out.last_offset:
            out.defect = "the offset of the wrapper is below one inside it"
        else:
            out.base_offset = <int64_t> (<uint64_t> wrapper.base_offset - <uint64_t> out.last_offset)
    if out.defect != NULL:
        out.first_offset = wrapper.base_offset
        return 0
    rest.end = rest.p
    rest.p = plain.p
    while next_message(&rest, &message) == NEXT_MESSAGE:
        if message.attributes & CODEC:
            out.defect = "a compressed message inside a compressed message"
        else:
            out.defect = message_defect(&message, offset_at(out.base_offset, message.offset), floor, check_crcs)
        if out.defect != NULL:
            return 0
        out.count += 1
        out.span.end = rest.p
    return 0


cdef const char* scan_messages(Span* plain, int magic, Messages* out) noexcept nogil:
    """Advance `plain` past its last complete message, and set the first and last offset of `out`.

    Returns a description of the error if `plain` is not a sequence of messages of format `magic`, otherwise NULL.
    """
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
