# Written by `python -m kconsumer.schema.stubs`; the tables are in headers.py.

from kconsumer.schema.dsl import Message

class RequestHeader(Message):
    request_api_key: int
    request_api_version: int
    correlation_id: int
    client_id: str | None
    def __init__(
        self,
        *,
        request_api_key: int = ...,
        request_api_version: int = ...,
        correlation_id: int = ...,
        client_id: str | None = ...,
    ) -> None: ...

class ResponseHeader(Message):
    correlation_id: int
    def __init__(
        self,
        *,
        correlation_id: int = ...,
    ) -> None: ...
