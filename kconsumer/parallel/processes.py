"""The executor that runs handlers in processes, each driven by a thread of this process."""

from __future__ import annotations

import multiprocessing
import pickle
import sys
from multiprocessing.context import SpawnProcess
from typing import Any

from kconsumer._core.record import ConsumerRecord
from kconsumer.errors import ConfigError, WorkerProcessError
from kconsumer.parallel.concurrency import Concurrency
from kconsumer.parallel.settings import Handler, Settings
from kconsumer.parallel.threads import ThreadExecutor
from kconsumer.parallel.work_queue import WorkQueue
from kconsumer.parallel.worker_process import READY, load_error, serve

if sys.platform == "win32":
    from multiprocessing.connection import PipeConnection as Connection
else:
    from multiprocessing.connection import Connection

EXIT_TIMEOUT_S = 5.0  # how long an ending process may take


class WorkerProcess:
    """A handler in a process of its own. Calling the object calls the handler there, and raises what it raises.

    The process is started by "spawn": a fork would copy the connections of the consumer and the locks of its threads.
    """

    def __init__(self, handler: bytes, number: int) -> None:
        self._handler = handler
        self._name = f"kconsumer-handler-{number}"
        self._ending = False
        self._process: SpawnProcess  # set by `start`, as the next one
        self._connection: Connection

    def start(self) -> None:
        """Start a process. It is ready after `wait_until_ready`."""
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, self._handler), name=self._name, daemon=True)
        self._process.start()
        theirs.close()  # so that the end of the process closes the pipe

    def wait_until_ready(self) -> None:
        """Wait until the process has imported the handler. Raises WorkerProcessError if it cannot."""
        try:
            reply = self._connection.recv_bytes()
        except (EOFError, OSError):
            raise WorkerProcessError(
                f"a worker process ended ({self._exit()}) before it was ready; its standard error says why. The module "
                'of the handler must be importable, and a script must call process() under `if __name__ == "__main__":`'
            ) from None
        if reply != READY:
            raise WorkerProcessError("a worker process could not load the handler") from load_error(reply)

    def __call__(self, record: ConsumerRecord) -> None:
        """Call the handler in the process.

        If the process dies meanwhile, starts another one and raises WorkerProcessError.
        """
        try:
            data = pickle.dumps(record, pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # __reduce__ is user code
            raise TypeError(
                f"a record cannot be sent to a worker process, because its key or value cannot be pickled: {error}"
            ) from error
        try:
            self._connection.send_bytes(data)
            reply = self._connection.recv_bytes()
        except (EOFError, OSError):
            message = f"the worker process died ({self._exit()}) while it processed a record"
            if not self._ending:
                self.start()
                self.wait_until_ready()
                message += "; another one was started"
            raise WorkerProcessError(message) from None
        if reply != READY:
            raise load_error(reply)

    def end(self) -> None:
        """Kill the process, whatever it does."""
        self._ending = True
        self._process.kill()

    def _exit(self) -> str:
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
        self._processes = [WorkerProcess(pickled, number) for number in range(settings.workers)]
        self._started: list[WorkerProcess] = []
        self._handlers: list[Any] = list(self._processes)

    def start(self) -> None:
        """Start all processes, and then the threads that drive them."""
        for process in self._processes:
            process.start()
            self._started.append(process)
        for process in self._processes:
            process.wait_until_ready()
        super().start()

    def stop(self, timeout_s: float) -> None:
        """Wait for the threads to end, and then end the processes."""
        super().stop(timeout_s)
        for process in self._started:
            process.end()
        super().stop(EXIT_TIMEOUT_S)
