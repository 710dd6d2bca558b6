"""The executor that runs handlers in processes, each driven by a thread of this process."""

from __future__ import annotations

import multiprocessing
import pickle
import sys
import threading
from contextlib import suppress
from functools import partial
from multiprocessing.context import SpawnProcess
from typing import TYPE_CHECKING, Any

from kconsumer.errors import ConfigError, WorkerProcessError
from kconsumer.parallel.attempt import timeout_error
from kconsumer.parallel.concurrency import Concurrency
from kconsumer.parallel.settings import Handler, Settings
from kconsumer.parallel.threads import ThreadExecutor
from kconsumer.parallel.work_queue import Worker, WorkQueue
from kconsumer.parallel.worker_process import READY, load_error, serve

if sys.platform == "win32":
    from multiprocessing.connection import PipeConnection as Connection
else:
    from multiprocessing.connection import Connection

if TYPE_CHECKING:
    from ctypes import c_ulonglong

EXIT_TIMEOUT_S = 5.0  # how long an ending process may take


class WorkerProcess:
    """A handler in a process of its own. Calling the object calls the handler there, and raises what it raises.

    The process is started by "spawn": a fork would copy the connections of the consumer and the locks of its threads.
    """

    def __init__(self, handler: bytes, number: int, timeout_s: float | None = None) -> None:
        self._handler = handler
        self._timeout_s = timeout_s
        self._name = f"kconsumer-handler-{number}"
        self._context = multiprocessing.get_context("spawn")
        self._lock = threading.Lock()
        self.ending = False  # changed with the lock, so that no process is started after `end`
        self._process: SpawnProcess | None = None  # these are set by `_launch`
        self._connection: Connection
        self._received: c_ulonglong  # how many records the process has received, in memory that it shares
        self._sent = 0  # how many were sent to it

    def start(self) -> None:
        """Start a process, and wait until it has imported the handler.

        Raises WorkerProcessError if it cannot, or if `end` was called.
        """
        self._launch()
        try:
            reply = self._connection.recv_bytes()
        except (EOFError, OSError):
            raise WorkerProcessError(
                f"a worker process ended ({self._exit()}) before it was ready; its standard error says why. The module "
                'of the handler must be importable, and a script must call process() under `if __name__ == "__main__":`'
            ) from None
        if reply != READY:
            raise WorkerProcessError("a worker process could not load the handler") from load_error(reply)

    def _launch(self) -> None:
        with self._lock:
            if self.ending:
                raise WorkerProcessError("the run has ended")
            connection, theirs = self._context.Pipe()
            received = self._context.Value("Q", 0, lock=False)  # a killed process would keep a lock
            with theirs:  # our copy is closed, so that the end of the process closes the pipe
                process = self._context.Process(
                    target=serve, args=(theirs, self._handler, received), name=self._name, daemon=True
                )
                process.start()
            self._connection, self._received, self._sent, self._process = connection, received, 0, process

    def __call__(self, *arguments: Any) -> None:
        """Call the handler in the process.

        If the process dies meanwhile, starts another one and raises WorkerProcessError. If it has died before it
        received the record, the next process gets it.
        """
        try:
            data = pickle.dumps(arguments, pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # __reduce__ is user code
            raise TypeError(
                f"a record cannot be sent to a worker process, because its key or value cannot be pickled: {error}"
            ) from error
        reply = None
        while reply is None:
            reply = self._call(data)
        if reply != READY:
            raise load_error(reply)

    def _call(self, data: bytes) -> bytes | None:
        """Send a record. Returns the reply, or None if another process was started that must get the record.

        Raises TimeoutError if there is no reply in time, after another process was started.
        """
        try:
            self._sent += 1
            self._connection.send_bytes(data)
            if self._timeout_s is None or self._connection.poll(self._timeout_s):
                return self._connection.recv_bytes()
        except (EOFError, OSError):
            received = self._received.value >= self._sent
            message = f"the worker process died ({self._exit()}) while it processed a record"
            if not self.ending:
                self.start()
                message += "; another one was started"
            if received or self.ending:
                raise WorkerProcessError(message) from None
            return None
        self._kill()
        self._exit()
        self.start()
        raise timeout_error(self._timeout_s)

    def end(self) -> None:
        """Kill the process, whatever it does. None is started afterwards."""
        with self._lock:
            self.ending = True
            self._kill()

    def _kill(self) -> None:
        if self._process is not None:
            with suppress(ValueError):  # it is closed
                self._process.kill()

    def close(self) -> None:
        """End the process, and release its descriptors. Only the thread that calls it may do so."""
        self.end()
        if self._process is None:
            return
        self._exit()
        with self._lock, suppress(ValueError):  # the kernel has not ended it yet
            self._process.close()

    def _exit(self) -> str:
        assert self._process is not None
        self._connection.close()
        self._process.join(EXIT_TIMEOUT_S)
        code = self._process.exitcode
        return "exit code unknown" if code is None else f"killed by signal {-code}" if code < 0 else f"exit code {code}"


class ProcessExecutor(ThreadExecutor):
    """Runs a handler in `workers` processes. Records and errors travel through pipes."""

    def __init__(self, queue: WorkQueue, settings: Settings, handler: Handler, concurrency: Concurrency) -> None:
        super().__init__(queue, settings, handler, concurrency)
        try:
            pickled = pickle.dumps(handler)
        except Exception as error:  # __reduce__ is user code
            raise ConfigError(
                f"executor='processes' sends the handler to other processes, but {handler!r} cannot be pickled "
                f"({error}): use a function at the top level of a module"
            ) from error
        timeout_s, self._timeout_s = self._timeout_s, None  # processes measure it themselves
        self._processes = [WorkerProcess(pickled, number, timeout_s) for number in range(settings.workers)]
        self._handlers: list[Any] = list(self._processes)

    def start(self) -> None:
        """Start a thread for each process. It starts the process, which may take long while the run polls."""
        for process in self._processes:
            worker = Worker()
            self._start_thread(worker, partial(self._work, worker, process))

    def _work(self, worker: Worker, handler: WorkerProcess) -> None:
        try:
            handler.start()
            self._queue.add_worker(worker)
            super()._work(worker, handler)
        except WorkerProcessError:
            if not handler.ending:
                raise
        finally:
            handler.close()

    def stop(self, timeout_s: float) -> None:
        """Wait for the threads to end, and then end the processes. Those that are not ready end at once."""
        for worker, process in zip(list(self._threads), self._processes, strict=False):
            if worker not in self._queue.workers:
                process.end()
        super().stop(timeout_s)
        for process in self._processes:
            process.end()
        super().stop(EXIT_TIMEOUT_S)
