"""Acquired records and their acknowledgements.

`AcquiredBatch` has the records of one partition that one poll has returned, until each of them is acknowledged.
`PartitionAcknowledgements` are acknowledgements on their way to the broker, and `Commit` waits for their results.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple

from kconsumer._common.error_codes import Errors
from kconsumer._core.decode import RecordRun, run_of
from kconsumer._internal.managers import FOREVER, Promise
from kconsumer.errors import BrokerError, KafkaError, StateError
from kconsumer.share.session import TopicIdPartition
from kconsumer.share.types import GAP, AcknowledgeType
from kconsumer.share.uniform_offsets import UniformOffsets, values_of
from kconsumer.types import TopicPartition

if TYPE_CHECKING:
    from kconsumer._core.decode import ConsumerRecord, ShareRecord

MIN_UNIFORM_RUN = 10
"""From this many equal types on, a run of offsets is sent as a batch of its own, with one type for all of them."""


class LockTime(NamedTuple):
    """When the records that a request has acquired or renewed are surely locked, in ms.

    The broker locks records at some time between the request and the response, which may take longer than a lock. So
    the lock counts from the time when the request was sent.
    """

    since: float = 0.0  # when the request was sent
    until: float = FOREVER


ALWAYS = LockTime()


class AcknowledgementBatch(NamedTuple):
    """A range of offsets with its acknowledge types: one type for all of them, or one type for each."""

    first_offset: int
    last_offset: int
    types: list[int]


def to_batches(types: Mapping[int, int]) -> list[AcknowledgementBatch]:
    """Returns the acknowledgements `types` (offset -> acknowledge type) as batches without gaps."""
    if isinstance(types, UniformOffsets):
        return [AcknowledgementBatch(types.offsets[0], types.offsets[-1], [types.value])]
    batches: list[AcknowledgementBatch] = []
    offsets = sorted(types)
    kinds = set(types.values())
    if len(kinds) == 1 and offsets[-1] - offsets[0] + 1 == len(offsets):
        return [AcknowledgementBatch(offsets[0], offsets[-1], list(kinds))]
    for _, numbered in groupby(enumerate(offsets), key=lambda pair: pair[1] - pair[0]):
        mixed: list[tuple[int, int]] = []
        for kind, run in groupby([(offset, types[offset]) for _, offset in numbered], key=lambda pair: pair[1]):
            same = list(run)
            if len(same) < MIN_UNIFORM_RUN:
                mixed += same
                continue
            _add_batch(batches, mixed)
            batches.append(AcknowledgementBatch(same[0][0], same[-1][0], [kind]))
        _add_batch(batches, mixed)
    return batches


def merged_batches(acknowledgements: Sequence[Mapping[int, int]]) -> list[AcknowledgementBatch]:
    """Returns acknowledgements of one partition as batches. Of two for the same offset, the later one counts."""
    if len(acknowledgements) == 1:
        return to_batches(acknowledgements[0])
    if all(isinstance(types, UniformOffsets) for types in acknowledgements):
        batches = sorted(batch for types in acknowledgements for batch in to_batches(types))
        if all(before.last_offset < after.first_offset for before, after in pairwise(batches)):
            return batches
    merged: dict[int, int] = {}
    for types in acknowledgements:
        merged.update(types)
    return to_batches(merged)


def _add_batch(batches: list[AcknowledgementBatch], pairs: list[tuple[int, int]]) -> None:
    """Append the `pairs` of offset and type as one batch, and clear them."""
    if pairs:
        kinds = [kind for _, kind in pairs]
        batches.append(AcknowledgementBatch(pairs[0][0], pairs[-1][0], kinds[:1] if len(set(kinds)) == 1 else kinds))
        pairs.clear()


class RequestKind(enum.Enum):
    """Acknowledgements of different kinds are sent in different requests.

    Brokers refuse all acknowledgements of a partition in a request if they refuse one of them.
    """

    ORDINARY = "the records are surely locked"
    RENEWAL = "the group may refuse renewals"
    LATE = "the locks of the records may have expired"


def is_refusal(error: KafkaError) -> bool:
    """Returns True if this error of a renewal says that the group does not allow any, if the record is locked."""
    return isinstance(error, BrokerError) and error.code == Errors.INVALID_RECORD_STATE


class Commit:
    """The results of the acknowledgements of one call of `commit`."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline  # ms; retriable errors are retried until then
        self.promise: Promise[dict[TopicPartition, KafkaError | None]] = Promise()
        self.results: dict[TopicPartition, KafkaError | None] = {}
        self._left: Counter[TopicPartition] = Counter()  # how many results of each partition are missing

    def add(self, tp: TopicPartition) -> None:
        """Wait for one more result of a partition."""
        self._left[tp] += 1

    def unfinished(self) -> frozenset[TopicPartition]:
        """Returns the partitions whose results are missing."""
        return frozenset(self._left)

    def complete(self, tp: TopicPartition, error: KafkaError | None) -> None:
        """Set a result of a partition. The first error counts. The promise is done with the last result."""
        self.results[tp] = self.results.get(tp) or error
        self._left -= Counter([tp])
        if not self._left:
            self.promise.set_result(self.results)


class AcquiredBatch:
    """The records of one partition that a poll has returned, and what was said about them."""

    __slots__ = (
        "_all_have_types",
        "_locked_until",
        "_renewed_until",
        "node_id",
        "partition",
        "records",
        "refused",
        "renewed",
        "renewing",
        "run",
        "topic_partition",
        "types",
    )

    def __init__(
        self,
        node_id: int,
        partition: TopicIdPartition,
        topic_partition: TopicPartition,
        locked_until: float = FOREVER,
    ) -> None:
        self.node_id = node_id  # the broker that delivered the records; only this one may acknowledge them
        self.partition = partition
        self.topic_partition = topic_partition
        #: Records without an acknowledgement, by offset. Those of `run` are None.
        self.records: dict[int, ShareRecord | None] | UniformOffsets[None] = {}
        self.run: RecordRun | None = None  # all records, of which no object exists yet; only in implicit mode
        self.types: dict[int, int] | UniformOffsets[int] = {}  # acknowledgements that were not taken yet
        self._all_have_types = False  # True: no record is without an acknowledgement
        #: Records whose renewal was not confirmed yet. None: the record stays in `records` meanwhile.
        self.renewing: dict[int, ShareRecord | None] = {}
        self.renewed: dict[int, ShareRecord] = {}  # records that the next poll returns again
        #: True: a deserializer has refused the only record, which no poll has returned. It is released by default.
        self.refused = False
        self._locked_until = locked_until  # ms; locks do not expire earlier
        self._renewed_until: dict[int, float] = {}  # the same for renewed locks, by offset

    @property
    def has_renewals(self) -> bool:
        """True if records are being renewed, or were renewed and have not been returned again."""
        return bool(self.renewing or self.renewed)

    @property
    def done(self) -> bool:
        """True if nothing is left to acknowledge, to send or to return again."""
        return not (self.records or self.types or self.has_renewals)

    def take_run(self, run: RecordRun, offsets: range) -> None:
        """Let this batch have the records of a run, which have these offsets."""
        self.run = run
        self.records = UniformOffsets(offsets, None)

    def add_records(self, records: Mapping[int, ShareRecord]) -> None:
        """Let this batch have these records, too, by offset."""
        self.records = {**self.records, **records}

    def returned(self) -> RecordRun:
        """Returns the records for the user. There must be some."""
        run, self.run = self.run, None
        return run_of([record for record in self.records.values() if record is not None]) if run is None else run

    def contains(self, record: ConsumerRecord) -> bool:
        """Returns True if this very object is a record of this batch that can be acknowledged.

        After a leader change, another batch may have the record of the same offset, delivered by the new leader.
        """
        return self.records.get(record.offset) is record

    def acknowledge(self, offset: int, kind: AcknowledgeType) -> bool:
        """Set the acknowledgement of a record. Returns False if no record of this batch has this offset.

        A later call replaces an acknowledgement that was not sent yet.
        """
        if offset not in self.records:
            return False
        if isinstance(self.types, UniformOffsets):
            self.types = dict(self.types)
        self.types[offset] = kind
        return True

    def set_all(self, kind: int, offsets: Iterable[int] | None = None) -> None:
        """Set the acknowledgement of those of these offsets that have none yet. The default are all records."""
        self._all_have_types |= offsets is None
        if offsets is None and not self.types and isinstance(self.records, UniformOffsets):
            self.types = UniformOffsets(self.records.offsets, kind)
            return
        chosen = dict.fromkeys(self.records if offsets is None else offsets, kind)
        self.types = {**chosen, **self.types} if self.types else chosen

    def unacknowledged(self) -> list[int]:
        """Returns the offsets of the records without an acknowledgement."""
        return [offset for offset in self.records if offset not in self.types]

    def take(self, now: float = 0.0) -> list[PartitionAcknowledgements]:
        """Returns the acknowledgements to send, by their kinds. They are no longer part of this batch."""
        if not self.types:
            return []
        types, self.types = self.types, {}
        taken = [PartitionAcknowledgements(self, part, kind) for kind, part in self._by_kind(types, now)]
        for each in taken:
            if each.renews:
                self.renewing.update((offset, self.records[offset]) for offset in each.types)
        if self._all_have_types:
            self.records = {}
            self._all_have_types = False
        else:
            self.records = {offset: record for offset, record in self.records.items() if offset not in types}
        return taken

    def _by_kind(self, types: Mapping[int, int], now: float) -> list[tuple[RequestKind, Mapping[int, int]]]:
        """Returns acknowledgements, divided by the requests that may contain them."""
        kinds = values_of(types)
        if AcknowledgeType.RENEW not in kinds and not self._renewed_until:
            return [(RequestKind.LATE if self._locked_until <= now else RequestKind.ORDINARY, types)]
        parts: dict[RequestKind, dict[int, int]] = {kind: {} for kind in RequestKind}
        for offset, kind in types.items():
            if kind == AcknowledgeType.RENEW:
                parts[RequestKind.RENEWAL][offset] = kind
            else:
                late = self.locked_until(offset) <= now
                parts[RequestKind.LATE if late else RequestKind.ORDINARY][offset] = kind
        return [(kind, part) for kind, part in parts.items() if part]

    def locked_until(self, offset: int) -> float:
        """Returns the time (ms) until which a record is surely locked."""
        return self._renewed_until.get(offset, self._locked_until)

    def take_renewals(self, now: float, lead_ms: float) -> PartitionAcknowledgements | None:
        """Returns renewals of the locks that end within `lead_ms`, or None. The records stay in this batch.

        Locks that may have expired, and those of acknowledged records, are not renewed.
        """
        due = {
            offset: int(AcknowledgeType.RENEW)
            for offset in self.unacknowledged()
            if offset not in self.renewing and now < self.locked_until(offset) <= now + lead_ms
        }
        if not due:
            return None
        self.renewing.update(dict.fromkeys(due))
        taken = PartitionAcknowledgements(self, due, RequestKind.RENEWAL)
        taken.internal = True
        return taken

    def lost(self, now: float) -> list[ShareRecord]:
        """Returns the records without an acknowledgement whose locks may have expired, and are not being renewed."""
        if self._locked_until > now and not self._renewed_until:
            return []
        waiting = ((offset, self.records[offset]) for offset in self.unacknowledged() if offset not in self.renewing)
        return [record for offset, record in waiting if record is not None and self.locked_until(offset) <= now]

    def next_renewal(self, now: float, lead_ms: float) -> float:
        """Returns the time (ms) when `take_renewals` returns something, if nothing changes.

        A lock that may have expired has no part in it. Otherwise a run would poll without a pause while this batch has
        a record that was lost, and that the group has delivered to this member again in another batch.
        """
        until = (self.locked_until(offset) for offset in self.unacknowledged() if offset not in self.renewing)
        return min((each for each in until if each > now), default=FOREVER) - lead_ms

    def renewals_done(self, offsets: Iterable[int], error: KafkaError | None, lock: LockTime = ALWAYS) -> None:
        """Handle the result of a renewal. Records that were not renewed are lost to this consumer.

        They are lost, too, if the lock may have expired before the renewal was sent. Another member may have accepted
        the record since, and brokers report success for the renewal of a record before their start offset.
        """
        for offset in offsets:
            record = self.renewing.pop(offset, None)
            if error is None and lock.since < self.locked_until(offset):
                self._renewed_until[offset] = lock.until
                if record is not None:
                    self.renewed[offset] = record
            elif error is not None and not is_refusal(error):
                self._renewed_until[offset] = 0.0  # such as the end of the share session, which releases the record

    def drop_expired(self, now: float) -> None:
        """Drop renewed records whose locks have expired since: the group may have delivered them again."""
        for offset in [offset for offset in self.renewed if self._renewed_until[offset] <= now]:
            del self.renewed[offset]

    def take_renewed(self) -> Iterator[ShareRecord]:
        """Returns the renewed records, which can be acknowledged again from now on."""
        renewed, self.renewed = self.renewed, {}
        self.records = {**self.records, **renewed}
        self._all_have_types = False
        return iter(renewed.values())


class PartitionAcknowledgements:
    """Acknowledgements of one partition, on their way to the broker that delivered the records."""

    __slots__ = ("batch", "commit", "deadline", "internal", "kind", "last_error", "types")

    def __init__(
        self, batch: AcquiredBatch, types: Mapping[int, int], kind: RequestKind = RequestKind.ORDINARY
    ) -> None:
        self.batch = batch
        self.types = types
        self.kind = kind
        self.internal = False  # True: the user has not set these acknowledgements, and is not notified of the results
        self.deadline = float("inf")  # ms; not retried after this time
        self.commit: Commit | None = None
        self.last_error: KafkaError | None = None  # why the last attempt failed

    def attempt_failed(self, error: KafkaError | None) -> None:
        """Store the error of an attempt that is made again."""
        self.last_error = error
        if self.commit is not None:
            self.commit.promise.attempt_failed(error)

    @property
    def renews(self) -> bool:
        return self.kind is RequestKind.RENEWAL

    @property
    def node_id(self) -> int:
        """The broker that delivered the records."""
        return self.batch.node_id

    @property
    def partition(self) -> TopicIdPartition:
        """The partition by topic id."""
        return self.batch.partition

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition by topic name."""
        return self.batch.topic_partition

    @property
    def offsets(self) -> frozenset[int]:
        """The offsets of the acknowledged records, without gaps."""
        return frozenset(offset for offset, kind in self.types.items() if kind != GAP)

    def complete(self, error: KafkaError | None, lock: LockTime = ALWAYS) -> None:
        """Report the result to the batch and to the commit. `lock`: when renewed records are locked."""
        if self.renews:
            self.batch.renewals_done(self.types, error, lock)
        if self.commit is not None:
            self.commit.complete(self.topic_partition, error)

    def __repr__(self) -> str:
        return f"<PartitionAcknowledgements of {len(self.types)} offsets of {self.topic_partition}>"


def check_acknowledged(batches: Iterable[AcquiredBatch]) -> None:
    """Raise StateError if records have no acknowledgement. The message names the first of them."""
    missing = {batch.topic_partition: offsets for batch in batches if (offsets := batch.unacknowledged())}
    if not missing:
        return
    tp, offsets = next(iter(missing.items()))
    count = sum(map(len, missing.values()))
    raise StateError(
        f"{count} record{'s' * (count != 1)} of the last poll {'are' if count != 1 else 'is'} not acknowledged, the"
        f" first at offset {offsets[0]} of {tp}; with share_acknowledgement_mode='explicit' acknowledge each record"
        " before the next poll"
    )


def not_acquired(tp: TopicPartition, offset: int) -> StateError:
    """Returns the error of an acknowledgement of a record that this consumer does not have."""
    return StateError(
        f"the record at offset {offset} of {tp} cannot be acknowledged: it was acknowledged and sent before, or it is"
        " not of the last poll of this consumer"
    )


def offsets_of(records: Iterable[ConsumerRecord]) -> dict[TopicPartition, set[int]]:
    """Returns the offsets of records in each partition."""
    offsets: dict[TopicPartition, set[int]] = {}
    for record in records:
        offsets.setdefault(record.topic_partition, set()).add(record.offset)
    return offsets
