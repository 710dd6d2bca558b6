"""BatchCalls: with what a handler of several records is called, and what its result means for each of them."""

from __future__ import annotations

from typing import Any

from kconsumer.parallel.attempt import Call, Failures
from kconsumer.parallel.batch_scheduler import Failure, Group
from kconsumer.parallel.batches import PartialBatchError
from kconsumer.parallel.flows import Flow
from kconsumer.parallel.scheduler import Task
from kconsumer.parallel.work_queue import Worker, WorkQueue


class BatchCalls:
    """Begins and ends batches, for all executors."""

    def __init__(self, call: Call, queue: WorkQueue, failures: Failures) -> None:
        self._call, self._queue, self._failures = call, queue, failures

    def begin(self, worker: Worker) -> BaseException | None:
        """Drop the records of the worker's batch that must not be started.

        Returns the error of a deserializer, if it has refused the only record: the batch ends with it.
        """
        kept: list[Group] = []
        for group in worker.batch:
            if group[0][0].closed or self._queue.stopping:
                self.drop([group])
            else:
                kept.append(group)
        worker.batch = kept
        if not kept:
            return None
        tracker, _, record = kept[0][0]
        return tracker.poisoned.get(record.offset)

    def arguments(self, batch: list[Group]) -> tuple[Any, ...]:
        """Returns the arguments for the handler: the list of records, and that of the attempts if it takes them."""
        each = [self._call.arguments(task) for group in batch for task in group]
        return tuple(map(list, zip(*each, strict=True)))

    def drop(self, batch: list[Group]) -> None:
        """End tasks whose records stay unfinished."""
        for group in batch:
            self._queue.drop(group[0], len(group) - 1)

    def end(self, batch: list[Group], error: BaseException | None, *, last: bool = False) -> Flow[None]:
        """Decide for each record, after the handler has returned or raised an error.

        If a record that has failed does not count as finished now, those that follow it in its group are processed
        again after it, or not at all.
        """
        count = sum(map(len, batch))
        divided = error.errors(count) if isinstance(error, PartialBatchError) else None
        errors = iter([error] * count if divided is None else divided)
        groups = [[(task, next(errors)) for task in group] for group in batch]
        undivided, counts = divided is None and count > 1, True
        self._finish_first(groups)
        for group in groups:
            while group:
                task, reason = group.pop(0)
                if reason is None:
                    self._finish(task)
                    self._queue.finish(None if group else task)
                else:
                    failure = Failure([(other, failed is not None) for other, failed in group], undivided, counts)
                    counts = False
                    if not (yield from self._failures.handle(task, reason, last=last, failure=failure)):
                        break

    def _finish_first(self, groups: list[list[tuple[Task, BaseException | None]]]) -> None:
        """Finish the records before the first failed one of each group, before any of them is handled."""
        done: list[Task | None] = []
        for group in groups:
            while group and group[0][1] is None:
                task, _ = group.pop(0)
                self._finish(task)
                done.append(None if group else task)
        if done:
            self._queue.finish(*done)

    def _finish(self, task: Task) -> None:
        tracker, _, record = task
        tracker.failures.pop(record.offset, None)
        tracker.finish(record.offset)
