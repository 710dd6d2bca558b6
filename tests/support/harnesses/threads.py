"""Run functions in another thread, once or while a block runs; wait for a condition that another thread changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def elsewhere(action: Callable[[], object]) -> BaseException | None:
    """Run an action in another thread. Returns the error that it raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return raised[0] if raised else None


@contextmanager
def meanwhile(work: Callable[[threading.Event], object]) -> Iterator[None]:
    """While the block runs, run a function in another thread; its argument is an event that is set when the block has
    ended.
    """
    ended = threading.Event()
    thread = threading.Thread(target=work, args=(ended,))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def eventually(condition: Callable[[], object], what: str) -> None:
    """Wait until the condition is true, which another thread changes. Fails after 20 s."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.001)  # checks without a pause would block that thread where threads rarely switch
