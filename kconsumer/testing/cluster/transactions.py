"""The transaction coordinator: the state and producer epoch of each transactional id, and the transaction markers.

A transaction ends in two steps. First the coordinator stores whether it is committed. Then it writes a marker into each
partition of the transaction, and commits or drops the offsets that were sent to the transaction. A partition without a
leader gets its marker when it has a leader. Until all markers are written, requests of the producer fail with
CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from kconsumer._common.error_codes import Errors
from kconsumer.testing.batches import control_batch
from kconsumer.testing.cluster.releases import is_at_least
from kconsumer.testing.cluster.state import ClusterState
from kconsumer.testing.cluster.timers import NO_TIMER, Timer
from kconsumer.testing.cluster.topic import NO_LEADER, Partition

NO_PRODUCER_ID = NO_PRODUCER_EPOCH = -1
EXHAUSTED_EPOCH = 32766  # the last epoch that a producer may use
MARKER_RETRY_MS = 100.0
FIRST_IMPLICIT_PRODUCE, FIRST_ABORTABLE_PRODUCE = 12, 11  # versions of Produce
FIRST_IMPLICIT_OFFSETS, FIRST_ABORTABLE_OFFSETS = 5, 4  # versions of TxnOffsetCommit

ProducerIdAndEpoch = tuple[int, int]


class State(Enum):
    """The state of a transactional id. The values are Kafka's names."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


ENDING = (State.PREPARE_COMMIT, State.PREPARE_ABORT)
COMPLETE = (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
#: The state in which a transaction is being ended, and the state afterwards; by whether it is committed.
ENDS = {
    True: (State.PREPARE_COMMIT, State.COMPLETE_COMMIT),
    False: (State.PREPARE_ABORT, State.COMPLETE_ABORT),
}


class TransactionError(Exception):
    """Raised if the coordinator refuses a request. `code`: the error code of the response."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Transaction:
    """A transactional id and its present transaction."""

    def __init__(self, transactional_id: str, producer_id: int) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.last_epoch = NO_PRODUCER_EPOCH  # the epoch before the last increment that the producer requested
        self.previous_producer_id = NO_PRODUCER_ID  # if the epochs of that id were exhausted
        self.state = State.EMPTY
        self.timeout_ms = 0
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.groups: set[str] = set()
        self.second_version = False  # True if the last transaction ended by the rules of KIP-890
        self.started_ms = -1  # the wall-clock time at which the last transaction began
        self.timer: Timer = NO_TIMER  # aborts the transaction when it takes too long

    def __repr__(self) -> str:
        producer = f"producer {self.producer_id}, epoch {self.producer_epoch}"
        return f"<Transaction {self.transactional_id!r} {self.state.value}, {producer}>"


class Transactions:
    """The states of all transactional ids of the cluster."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._by_id: dict[str, Transaction] = {}
        self._next_producer_id = 0

    def get(self, transactional_id: str) -> Transaction | None:
        """Returns the state of a transactional id, or None if it is unknown."""
        return self._by_id.get(transactional_id)

    def all(self) -> Iterable[Transaction]:
        """Returns the states of all transactional ids."""
        return self._by_id.values()

    def new_producer_id(self) -> int:
        self._next_producer_id += 1
        return self._next_producer_id - 1

    # --- the producer's id ---

    def init_producer(
        self,
        transactional_id: str,
        timeout_ms: int,
        now: float,
        expected: ProducerIdAndEpoch = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH),
    ) -> Transaction:
        """Increment the producer epoch of a transactional id, which fences older producers. Returns its state.

        `expected`: the producer id and epoch that the producer had (KIP-360).

        Raises TransactionError if the request is refused. If a transaction is open, aborts it and raises
        TransactionError with CONCURRENT_TRANSACTIONS, so that the producer tries again.
        """
        if not 0 < timeout_ms <= self._cluster.settings.transaction_max_timeout_ms:
            raise TransactionError(Errors.INVALID_TRANSACTION_TIMEOUT)
        transaction = self._by_id.get(transactional_id)
        if transaction is None:
            transaction = self._by_id[transactional_id] = Transaction(transactional_id, self.new_producer_id())
        _check_expected(transaction, expected)
        if transaction.state is State.ONGOING:
            self._fence(transaction, now)
        if transaction.state in ENDING:
            raise TransactionError(Errors.CONCURRENT_TRANSACTIONS)
        self._next_epoch(transaction, expected)
        transaction.timeout_ms = timeout_ms
        transaction.state = State.EMPTY
        if self._is_new_release():
            transaction.started_ms = -1
        transaction.second_version = False
        return transaction

    def _is_new_release(self) -> bool:
        return all(is_at_least(broker.release, "4.0") for broker in self._cluster.brokers.values())

    def _fence(self, transaction: Transaction, now: float) -> None:
        """Abort the open transaction with a new epoch, which no producer has. Always raises TransactionError.

        The error is CONCURRENT_TRANSACTIONS.
        """
        transaction.producer_epoch += 1
        transaction.last_epoch = NO_PRODUCER_EPOCH
        self.end(transaction, now, commit=False)
        raise TransactionError(Errors.CONCURRENT_TRANSACTIONS)

    def _next_epoch(self, transaction: Transaction, expected: ProducerIdAndEpoch) -> None:
        """Set the next producer epoch, or a new producer id with epoch 0 if the epochs are exhausted.

        If the producer repeats a request that was already processed, the epoch does not change. Raises TransactionError
        if another producer has increased the epoch.
        """
        if transaction.producer_epoch >= EXHAUSTED_EPOCH and expected[1] in (NO_PRODUCER_EPOCH, EXHAUSTED_EPOCH):
            transaction.previous_producer_id = transaction.producer_id
            transaction.producer_id, transaction.producer_epoch = self.new_producer_id(), 0
            transaction.last_epoch = NO_PRODUCER_EPOCH
            return
        known, (_, epoch) = transaction.producer_epoch, expected
        if epoch == NO_PRODUCER_EPOCH or known == NO_PRODUCER_EPOCH:
            transaction.producer_epoch, transaction.last_epoch = known + 1, NO_PRODUCER_EPOCH
        elif epoch == known:
            transaction.producer_epoch, transaction.last_epoch = known + 1, known
        elif epoch != transaction.last_epoch:  # if equal, the request is repeated, and its epoch was set then
            raise TransactionError(Errors.PRODUCER_FENCED)

    # --- what belongs to a transaction ---

    def check(self, transactional_id: str, producer: ProducerIdAndEpoch) -> Transaction:
        """Returns the state of a transactional id. Raises TransactionError if the producer may not change it now."""
        transaction = self._by_id.get(transactional_id)
        if transaction is None or transaction.producer_id != producer[0]:
            raise TransactionError(Errors.INVALID_PRODUCER_ID_MAPPING)
        if transaction.producer_epoch != producer[1]:
            raise TransactionError(Errors.PRODUCER_FENCED)
        if transaction.state in ENDING:
            raise TransactionError(Errors.CONCURRENT_TRANSACTIONS)
        return transaction

    def add_partitions(self, transaction: Transaction, partitions: Iterable[Partition], now: float) -> None:
        """Add partitions to a transaction. If no transaction is open, begins one."""
        self._begin(transaction, now)
        for partition in partitions:
            transaction.partitions[partition.topic.name, partition.index] = partition

    def add_group(self, transaction: Transaction, group_id: str, now: float) -> None:
        """Add a group to a transaction that will commit offsets for it. If no transaction is open, begins one."""
        self._begin(transaction, now)
        transaction.groups.add(group_id)

    def verify_partition(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partition: Partition, version: int, now: float
    ) -> int:
        """Returns the error code of a transactional batch for a partition, or NONE.

        `version`: the version of the Produce request. From version 12 on, the partition is added to the transaction
        (KIP-890). In older versions, the partition must already be in the transaction.
        """
        try:
            transaction = self.check(transactional_id, producer)
        except TransactionError as error:
            return Errors.INVALID_PRODUCER_EPOCH if error.code == Errors.PRODUCER_FENCED else error.code
        if version >= FIRST_IMPLICIT_PRODUCE:
            self.add_partitions(transaction, [partition], now)
        elif transaction.state is not State.ONGOING or partition not in transaction.partitions.values():
            return Errors.TRANSACTION_ABORTABLE if version >= FIRST_ABORTABLE_PRODUCE else Errors.INVALID_TXN_STATE
        return Errors.NONE

    def verify_group(
        self, transactional_id: str, producer: ProducerIdAndEpoch, group_id: str, version: int, now: float
    ) -> int:
        """Returns the error code of offsets that a producer commits in its transaction, or NONE.

        `version`: the version of the TxnOffsetCommit request. From version 5 on, the group is added to the transaction
        (KIP-890). In older versions, AddOffsetsToTxn must have added this group, or another group that is stored in the
        same partition.
        """
        try:
            transaction = self.check(transactional_id, producer)
        except TransactionError as error:
            return Errors.INVALID_PRODUCER_EPOCH if error.code == Errors.PRODUCER_FENCED else error.code
        if version >= FIRST_IMPLICIT_OFFSETS:
            self.add_group(transaction, group_id, now)
            return Errors.NONE
        partition = self._cluster.coordinator_partition(group_id, "group")
        if any(partition is self._cluster.coordinator_partition(name, "group") for name in transaction.groups):
            return Errors.NONE
        return Errors.TRANSACTION_ABORTABLE if version >= FIRST_ABORTABLE_OFFSETS else Errors.INVALID_TXN_STATE

    def _begin(self, transaction: Transaction, now: float) -> None:
        """Begin a transaction, and set the timer that aborts it after its timeout. Does nothing if one is open."""
        if transaction.state is State.ONGOING:
            return
        transaction.state = State.ONGOING
        transaction.started_ms = self._cluster.wall_ms(now)
        transaction.partitions, transaction.groups = {}, set()
        deadline = now + transaction.timeout_ms
        transaction.timer = self._cluster.timers.add(deadline, lambda at: self._time_out(transaction, at))

    def _time_out(self, transaction: Transaction, now: float) -> None:
        """Abort a transaction that took too long, and fence its producer."""
        if transaction.state is State.ONGOING:
            transaction.producer_epoch += 1
            transaction.last_epoch = NO_PRODUCER_EPOCH
            self.end(transaction, now, commit=False)

    # --- the end of a transaction ---

    def end(self, transaction: Transaction, now: float, *, commit: bool, bump_epoch: bool = False) -> None:
        """Commit or abort the open transaction. `bump_epoch`: the producer uses the next epoch afterwards (KIP-890)."""
        transaction.state = ENDS[commit][0]
        transaction.second_version = bump_epoch
        transaction.timer.cancel()
        if bump_epoch:
            transaction.last_epoch = transaction.producer_epoch
            transaction.producer_epoch += 1
        marker_producer = transaction.producer_id, transaction.producer_epoch
        if bump_epoch and transaction.producer_epoch > EXHAUSTED_EPOCH:
            transaction.previous_producer_id = transaction.producer_id
            transaction.producer_id, transaction.producer_epoch = self.new_producer_id(), 0
        self._write_markers(transaction, marker_producer, now)

    def _write_markers(self, transaction: Transaction, producer: ProducerIdAndEpoch, now: float) -> None:
        """Write the missing markers of a transaction. Completes the transaction if all partitions have their markers.

        If a partition has no leader, tries again later.
        """
        commit = transaction.state is State.PREPARE_COMMIT
        for key, partition in list(transaction.partitions.items()):
            if self._cluster.partition(*key) is not partition:
                del transaction.partitions[key]  # the topic was deleted
            elif partition.leader != NO_LEADER:
                del transaction.partitions[key]
                self._write_marker(partition, producer, commit, now)
        if transaction.partitions:
            retry = now + MARKER_RETRY_MS
            transaction.timer = self._cluster.timers.add(
                retry, lambda at: self._write_markers(transaction, producer, at)
            )
            return
        self._cluster.offsets.complete(producer[0], commit=commit)
        transaction.groups.clear()
        transaction.timer = NO_TIMER
        transaction.state = ENDS[commit][1]

    def _write_marker(self, partition: Partition, producer: ProducerIdAndEpoch, commit: bool, now: float) -> None:
        wall_ms = self._cluster.wall_ms(now, self._cluster.brokers[partition.leader])
        marker = control_batch(
            "commit" if commit else "abort",
            0,
            producer_id=producer[0],
            producer_epoch=producer[1],
            timestamp=wall_ms,
        )
        partition.append(marker, wall_ms)


def _check_expected(transaction: Transaction, expected: ProducerIdAndEpoch) -> None:
    """Raise TransactionError if another producer has taken over the transactional id (KIP-360)."""
    producer_id, epoch = expected
    if epoch == NO_PRODUCER_EPOCH or transaction.producer_epoch == NO_PRODUCER_EPOCH:
        return
    if producer_id == transaction.producer_id:
        return
    if producer_id != transaction.previous_producer_id or epoch < EXHAUSTED_EPOCH:
        raise TransactionError(Errors.PRODUCER_FENCED)
