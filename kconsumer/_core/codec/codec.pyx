"""The Python interface of the codec: it encodes and decodes single messages, and complete requests and responses.

Decides the headers of requests and responses. The plans of `kconsumer.schema` define the fields of messages.
decoder.pyx and encoder.pyx define how values are encoded.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, uint32_t
from libc.stdlib cimport free

from kconsumer._core.wire cimport Slice, Span, kc_store_be32, read_i16, read_i32, take

from kconsumer.errors import ProtocolError


cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL


cdef class Format:
    """One version of the request or the response of an API."""

    cdef Program program
    cdef int16_t key            # the key of the API
    cdef bint has_header_tags   # the header ends with tagged fields


# (API, version) -> Format. An API object has no equal, so the Formats of APIs with the same key are not confused.
cdef dict request_formats = {}
cdef dict response_formats = {}


cdef Format request_format(object api, int16_t version):
    """Returns the format of a request. Raises ValueError if `api` does not support the version."""
    cdef tuple key = (api, version)
    cdef Format found = <Format> request_formats.get(key)
    if found is None:
        found = new_format(api, api.request_plan(version), api.request_header_version(version) >= 2)
        request_formats[key] = found
    return found


cdef Format response_format(object api, int16_t version):
    """Returns the format of a response. Raises ValueError if `api` does not support the version."""
    cdef tuple key = (api, version)
    cdef Format found = <Format> response_formats.get(key)
    if found is None:
        found = new_format(api, api.response_plan(version), api.response_header_version(version) >= 1)
        response_formats[key] = found
    return found


cdef Format new_format(object api, object plan, bint has_header_tags):
    cdef Format result = Format.__new__(Format)
    result.program = program_of(plan)
    result.key = api.key
    result.has_header_tags = has_header_tags
    return result


def decode(plan, buffer, Py_ssize_t offset=0, *, bint allow_trailing=False):
    """Decode the message that begins at index `offset` of `buffer`. Returns the message. `plan` describes its fields.

    A field of kind "records" becomes a Slice, which keeps `buffer` alive. All other values are copied. Raises
    ProtocolError if the message is malformed. Unless `allow_trailing` is True, also raises it if there are bytes after
    the message.
    """
    cdef Source source
    cdef Program program = program_of(plan)
    cdef Slice whole = Slice(buffer)
    open_source(whole, offset, &source)
    message = read_message(program, &source)
    if not allow_trailing:
        finish(program, &source)
    return message


def encode(plan, message):
    """Returns the encoded message. `plan` describes its fields.

    Raises TypeError for a value of a wrong type, and ValueError or OverflowError for a value that cannot be encoded.
    """
    cdef Target target
    target.data, target.size, target.capacity = NULL, 0, 0
    try:
        write_message(program_of(plan), message, &target)
        return PyBytes_FromStringAndSize(<const char*> target.data, target.size)
    finally:
        free(target.data)


def encode_request(api, int16_t version, int32_t correlation_id, client_id, message):
    """Returns the bytes of a complete request: size, header, message.

    Raises ValueError if `api` does not support the version, and the errors of `encode`.
    """
    cdef Target target
    cdef Format format = request_format(api, version)
    target.data, target.size, target.capacity = NULL, 0, 0
    try:
        write_i32(&target, 0)
        write_i16(&target, format.key)
        write_i16(&target, version)
        write_i32(&target, correlation_id)
        write_client_id(client_id, &target)
        if format.has_header_tags:
            write_uvarint(&target, 0)
        write_message(format.program, message, &target)
        return sized(&target)
    finally:
        free(target.data)


cdef int write_client_id(object client_id, Target* target) except -1:
    """Write the client id: a nullable string with a two-byte length, also in flexible headers."""
    cdef const char* text
    cdef Py_ssize_t size = 0
    if client_id is None:
        return write_i16(target, -1)
    text = PyUnicode_AsUTF8AndSize(client_id, &size)
    if size > (1 << 15) - 1:
        raise ValueError(f"a client id of {size} bytes does not fit on the wire")
    write_i16(target, <int16_t> size)
    return write_raw(target, text, size)


cdef bytes sized(Target* target):
    """Store the size of the message in the first four bytes. Returns all written bytes."""
    if target.size - 4 > (1 << 31) - 1:
        raise ValueError(f"a message of {target.size - 4} bytes does not fit on the wire")
    kc_store_be32(target.data, <uint32_t> (target.size - 4))
    return PyBytes_FromStringAndSize(<const char*> target.data, target.size)


def decode_response(api, int16_t version, frame):
    """Decode a response, whose size prefix was removed. Returns `(correlation_id, message)`.

    Raises ProtocolError for malformed bytes, and ValueError if `api` does not support the version.
    """
    cdef Source source
    cdef Format format = response_format(api, version)
    cdef int32_t correlation_id = 0
    cdef Slice whole = Slice(frame)
    open_source(whole, 0, &source)
    if not read_i32(&source.span, &correlation_id):
        malformed(format.program, NULL, &source, "the bytes end within the header")
    if format.has_header_tags:
        read_tags(format.program, None, &source)
    message = read_message(format.program, &source)
    finish(format.program, &source)
    return correlation_id, message


# --- what a broker does, for tests --------------------------------------------------------------------

def decode_request(apis, frame, *, bint allow_trailing=False):
    """Decode a request, whose size prefix was removed. Returns `(api, version, correlation_id, client_id, message)`.

    `apis` maps API keys to APIs, like `kconsumer.schema.APIS`. Raises ProtocolError for malformed bytes, for an
    unknown API or version, and for bytes after the message unless `allow_trailing` is True.
    """
    cdef Source source
    cdef Format format
    cdef int16_t key = 0, version = 0
    cdef int32_t correlation_id = 0
    cdef Slice whole = Slice(frame)
    open_source(whole, 0, &source)
    if not (read_i16(&source.span, &key) and read_i16(&source.span, &version)):
        raise ProtocolError("a request without a header")
    api = apis.get(key)
    if api is None or not api.min_version <= version <= api.max_version:
        raise ProtocolError(f"a request with API key {key} and version {version}, which is unknown")
    format = request_format(api, version)
    if not read_i32(&source.span, &correlation_id):
        malformed(format.program, NULL, &source, "the bytes end within the header")
    client_id = read_client_id(format.program, &source)
    if format.has_header_tags:
        read_tags(format.program, None, &source)
    message = read_message(format.program, &source)
    if not allow_trailing:
        finish(format.program, &source)
    return api, version, correlation_id, client_id, message


cdef object read_client_id(Program program, Source* source):
    cdef int16_t size = 0
    cdef Span part = source.span
    if not read_i16(&source.span, &size) or size < -1 or size >= 0 and not take(&source.span, size, &part):
        malformed(program, NULL, source, "the bytes end within the client id")
    if size < 0:
        return None
    try:
        return PyUnicode_DecodeUTF8(<const char*> part.p, size, NULL)
    except UnicodeDecodeError:
        malformed(program, NULL, source, "a client id that is not UTF-8")


def encode_response(api, int16_t version, int32_t correlation_id, message):
    """Returns the bytes of a complete response: size, header, message."""
    cdef Target target
    cdef Format format = response_format(api, version)
    target.data, target.size, target.capacity = NULL, 0, 0
    try:
        write_i32(&target, 0)
        write_i32(&target, correlation_id)
        if format.has_header_tags:
            write_uvarint(&target, 0)
        write_message(format.program, message, &target)
        return sized(&target)
    finally:
        free(target.data)
