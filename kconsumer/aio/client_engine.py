"""AsyncClientEngine: an engine whose operations run in tasks of an event loop. `drive` is the runner of operations."""

from __future__ import annotations

from typing import TypeVar

from kconsumer._internal.deferred_signals import SIGNALS
from kconsumer.aio.callbacks import AsyncCallbacks
from kconsumer.aio.driver import AsyncDriver
from kconsumer.aio.turn import Turn
from kconsumer.engine.client_engine import ClientEngine
from kconsumer.engine.components import ClientComponents
from kconsumer.engine.waiting import Operation, Wait

T = TypeVar("T")


class AsyncClientEngine(ClientEngine):
    """The engine of one consumer whose methods wait in an event loop."""

    driver: AsyncDriver
    callbacks: AsyncCallbacks
    turn: Turn

    async def run_async(self, operation: Operation[T]) -> T:
        """Drive an operation in the calling task until it ends. Returns its result.

        Signal handlers are deferred while the operation works, but not while it waits.
        """
        return await drive(_deferring_signals(operation, self.components), self.driver)


async def drive(operation: Operation[T], driver: AsyncDriver) -> T:
    """Drive an operation to its end. Returns its result. Awaits each `Wait` that the operation yields.

    The task is suspended only inside these waits. If it is cancelled there, the CancelledError is raised at the `yield`
    of the operation. Between the end of the operation and the return, there is neither an await nor a call. So a poll
    that is cancelled has taken no records from the buffer.
    """
    try:
        request = next(operation)
        while True:
            try:
                await driver.wait_async(request)
            except BaseException as error:
                request = operation.throw(error)
            else:
                request = next(operation)
    except StopIteration as end:
        result: T = end.value
        return result
    except BaseException:
        operation.close()
        raise


def _deferring_signals(operation: Operation[T], components: ClientComponents) -> Operation[T]:
    """Returns an operation that does the same, and defers signal handlers except while it waits."""
    error: BaseException | None = None
    while True:
        holds = SIGNALS.hold(components.end_wait)
        try:
            request: Wait = next(operation) if error is None else operation.throw(error)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            if holds:
                SIGNALS.release()
        try:
            yield request
        except GeneratorExit:
            operation.close()
            raise
        except BaseException as raised:
            error = raised
        else:
            error = None
