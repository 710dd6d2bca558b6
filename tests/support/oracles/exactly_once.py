"""Runs an example of examples/ whose producer, or one of its functions, kills its process at a chosen call:
python exactly_once.py EXAMPLE METHOD:CALL:before|after|none [arguments of the example]."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

PRODUCERS = ("Producer", "KafkaProducer")


def load(path: str) -> ModuleType:
    """Import a file."""
    spec = importlib.util.spec_from_file_location("example", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def killed_at(base: type, method: str, call: int, when: str) -> type:
    """Returns a subclass whose `method` kills the process in its call number `call`, before or after doing its work."""
    original: Callable[..., Any] = getattr(base, method)
    calls = 0

    def counted(self: Any, *arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call and when == "before":
            die(self)
        result = original(self, *arguments, **named)
        if calls == call:
            die(self)
        return result

    return type(base.__name__, (base,), {method: counted})


def function_killed_at(original: Callable[..., Any], call: int) -> Callable[..., Any]:
    """Returns a function that kills the process after its call number `call`."""
    calls = 0

    def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        result = original(*arguments, **named)
        if calls == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return counted


def die(producer: Any) -> None:
    """Kill this process after the log has what was produced so far: uncommitted readers see it."""
    producer.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def main(path: str, kill: str, *arguments: str) -> None:
    """Run the example."""
    module = load(path)
    if kill != "none":
        method, call, when = kill.split(":")
        if hasattr(module, method):
            setattr(module, method, function_killed_at(getattr(module, method), int(call)))
        for name in PRODUCERS:
            if hasattr(module, name):
                setattr(module, name, killed_at(getattr(module, name), method, int(call), when))
    module.main(*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
