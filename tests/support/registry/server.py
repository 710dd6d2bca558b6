"""A schema registry over HTTP, in memory, for tests in which several processes need one.

It serves what confluent-kafka's serializers and the deserializers of kconsumer request, from confluent-kafka's own
registry for tests.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, SchemaRegistryError


def _schema(body: dict[str, Any]) -> Schema:
    references = [
        SchemaReference(part["name"], part["subject"], part["version"]) for part in body.get("references", [])
    ]
    return Schema(body["schema"], body.get("schemaType", "AVRO"), references)


def _shown(schema: Schema) -> dict[str, Any]:
    references = [vars(reference) for reference in schema.references or ()]
    named = [{name.lstrip("_"): value for name, value in reference.items()} for reference in references]
    return {"schema": schema.schema_str, "schemaType": schema.schema_type, "references": named}


def _registered(found: Any) -> dict[str, Any]:
    return {
        "subject": found.subject,
        "version": found.version,
        "id": found.schema_id,
        "guid": found.guid,
        **_shown(found.schema),
    }


def _version(client: Any, subject: str, version: str, _body: Any) -> dict[str, Any]:
    return _registered(
        client.get_latest_version(subject) if version == "latest" else client.get_version(subject, int(version))
    )


Respond = Callable[..., dict[str, Any]]
#: (method, path) -> (client, *groups of the path, body) -> response
ROUTES: dict[tuple[str, str], Respond] = {
    ("POST", r"/subjects/([^/]+)/versions"): lambda client, subject, body: _registered(
        client.register_schema_full_response(subject, _schema(body))
    ),
    ("POST", r"/subjects/([^/]+)"): lambda client, subject, body: _registered(
        client.lookup_schema(subject, _schema(body))
    ),
    ("GET", r"/subjects/([^/]+)/versions/(\w+)"): _version,
    ("GET", r"/schemas/ids/(\d+)"): lambda client, number, body: _shown(client.get_schema(int(number))),
    ("GET", r"/schemas/guids/([\w-]+)"): lambda client, guid, body: {
        "guid": guid,
        **_shown(client.get_schema_by_guid(guid)),
    },
}


class _Handler(BaseHTTPRequestHandler):
    client: Any
    requested: list[str]

    def _respond(self) -> None:
        self.requested.append(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, found = self._find(urlsplit(self.path).path, json.loads(body or b"{}"))
        content = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def __getattr__(self, name: str) -> Callable[[], None]:
        """Returns the method for do_GET and do_POST."""
        if name in ("do_GET", "do_POST"):
            return self._respond
        raise AttributeError(name)

    def _find(self, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        for (method, pattern), respond in ROUTES.items():
            match = re.fullmatch(pattern, path)
            if method == self.command and match:
                try:
                    return 200, respond(self.client, *map(unquote, match.groups()), body)
                except SchemaRegistryError as error:
                    return error.http_status_code, {"error_code": error.error_code, "message": error.error_message}
        return 404, {"error_code": 404, "message": f"no such resource: {path}"}

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Write no line for each request to stderr."""


@contextmanager
def registry_server(requested: list[str] | None = None) -> Iterator[str]:
    """Run a registry. Yields its address. Appends the path of each request to `requested`."""
    with SchemaRegistryClient.new_client({"url": "mock://"}) as client:
        handler = type("_Handler", (_Handler,), {"client": client, "requested": [] if requested is None else requested})
        with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
            thread.start()
            try:
                yield f"http://127.0.0.1:{server.server_port}"
            finally:
                server.shutdown()
                thread.join()
