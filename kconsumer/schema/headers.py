"""What precedes each message: request headers v1 and v2, response headers v0 and v1.

The codec writes and reads headers by itself, as it does so for every message; these tables say the same thing
for whoever wants a header as a message.
"""

from __future__ import annotations

from kconsumer.schema.dsl import INT16, INT32, STRING, F, struct

# In v2, client_id keeps its two-byte length although the header has tagged fields: a broker must be able to
# read it before it knows whether it knows the request's version. So neither header has a plan of its own
# flexibility.
RequestHeader = struct(
    "RequestHeader",
    F("request_api_key", INT16),
    F("request_api_version", INT16),
    F("correlation_id", INT32),
    F("client_id", STRING, null="1+", default=None),
)

ResponseHeader = struct("ResponseHeader", F("correlation_id", INT32))
