"""A pytest plugin that hides what only Linux has, so that its tests run as on other systems (`tox -e portable`).

There is no `epoll`, so kconsumer and asyncio wait with `select`. `SO_RCVLOWAT` is not set, as on a system that does not
report a socket whose buffer is full. There is no `MSG_PEEK` and no `fork`, nor a call after it; tests that fork skip
themselves. The plugin is loaded before kconsumer is imported.
"""

from __future__ import annotations

import os
import select
import selectors
import socket

import pytest

for name in [each for each in dir(select) if each.lower().startswith("epoll")]:
    delattr(select, name)
del selectors.EpollSelector, socket.MSG_PEEK, os.fork
os.register_at_fork = lambda **_: None
selectors.DefaultSelector = selectors.SelectSelector  # type: ignore[assignment,misc]


def pytest_configure() -> None:
    """Let no transport set SO_RCVLOWAT."""
    from kconsumer.net.transport import TcpTransport

    TcpTransport.set_low_water = lambda self, count: None  # type: ignore[method-assign]


SKIPPED = {
    "test_a_response_in_many_parts_is_read_few_times": "without SO_RCVLOWAT, each part is read",
    "test_kafka_python": "its thread selects sockets that another one closes",
    "[kafka-python-": "as test_kafka_python",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what cannot pass there."""
    for item in items:
        for part, reason in SKIPPED.items():
            if part in item.nodeid:
                item.add_marker(pytest.mark.skip(reason=reason))
