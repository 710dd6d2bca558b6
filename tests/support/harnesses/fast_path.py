"""Forces polls of all consumers to the general path, or counts the responses that the fast path processes."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kconsumer.engine.fast_path import FastPathControl


class FastPathUse:
    """The use of the fast path by all consumers of this process."""

    def __init__(self, *, on: bool) -> None:
        self.on = on  # False: all polls run on the general path
        self.responses = 0  # the number of responses that the fast path has processed


@contextmanager
def fast_path_use(*, on: bool) -> Iterator[FastPathUse]:
    """Count the responses that the fast path processes. With `on=False`, it is never armed."""
    use, settle = FastPathUse(on=on), FastPathControl.settle
    counted: weakref.WeakKeyDictionary[FastPathControl, int] = weakref.WeakKeyDictionary()

    def count(control: FastPathControl) -> None:
        use.responses += control.path.responses - counted.get(control, 0)
        counted[control] = control.path.responses
        settle(control)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FastPathControl, "settle", count)
        if not on:
            patch.setattr(FastPathControl, "arm", lambda _control, _now: False)
        yield use
