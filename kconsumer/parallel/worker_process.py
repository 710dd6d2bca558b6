"""What runs in a worker process: the handler, for one record after the other, until the pipe is closed."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import traceback
from multiprocessing import connection as pipes
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from kconsumer.errors import WorkerProcessError
from kconsumer.parallel.attempt import refuse_deferred
from kconsumer.parallel.batches import PartialBatchError

if TYPE_CHECKING:
    from ctypes import c_ulonglong

READY = b""  # the process is ready, or a record is processed; any other reply is an error


def serve(connection: Connection, pickled: bytes, received: c_ulonglong) -> None:
    """Call the handler for each record that arrives, and reply with its error, if there is one.

    `received` counts the records, so that the parent knows whether the last one was started when this process dies.
    """
    for number in (signal.SIGINT, signal.SIGTERM):  # Ctrl-C reaches all processes of a terminal; the parent decides
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        handler = pickle.loads(pickled)
    except BaseException as error:  # the import of a module may raise anything
        connection.send_bytes(dump_error(error))
        return
    connection.send_bytes(READY)
    while True:
        try:
            data = connection.recv_bytes()
        except (EOFError, OSError):  # the parent has ended
            return
        received.value += 1
        reply = READY
        try:
            refuse_deferred("the handler", handler(*pickle.loads(data)))
        except BaseException as error:  # user code may raise anything
            reply = dump_error(error)
        connection.send_bytes(reply)


def _end_with_parent() -> None:
    """End this process when its parent has died, even while a handler runs."""
    parent = parent_process()
    if parent is not None:
        pipes.wait([parent.sentinel])
        os._exit(1)


def dump_error(error: BaseException) -> bytes:
    """Returns an error as bytes, with its traceback as a note. If it cannot be pickled, returns what it says."""
    note = f"in the worker process {os.getpid()}"
    try:
        note += ":\n" + "".join(traceback.format_exception(error)).rstrip()
        if isinstance(error, PartialBatchError):  # one error that cannot be pickled must not make all records fail
            each = [(at, one) for at, one in error.failed.items() if isinstance(one, BaseException)]
            error.failed.update((at, load_error(dump_error(one))) for at, one in each)
        error.add_note(note)
        data = pickle.dumps(error, pickle.HIGHEST_PROTOCOL)
        pickle.loads(data)
    except BaseException:  # user code may raise anything
        substitute = WorkerProcessError(f"the handler raised {type(error).__name__}, which cannot be pickled")
        substitute.add_note(note)
        data = pickle.dumps(substitute, pickle.HIGHEST_PROTOCOL)
    return data


def load_error(data: bytes) -> BaseException:
    """Returns the error in the reply of a worker process."""
    try:
        error = pickle.loads(data)
    except BaseException as unreadable:  # user code may raise anything
        error = unreadable
    return error if isinstance(error, BaseException) else WorkerProcessError(f"not an error: {error!r}")
