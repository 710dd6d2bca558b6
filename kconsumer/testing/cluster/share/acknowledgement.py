"""Acknowledges the records of a share partition, or releases all records of a member.

Follows Kafka's `SharePartition.acknowledge`. If one batch of a request is refused, none has an effect, but for renewed
locks.
"""

from __future__ import annotations

from typing import NamedTuple

from kconsumer._common.error_codes import Errors
from kconsumer.testing.cluster.requests import GroupError
from kconsumer.testing.cluster.share.dead_letters import DeadLetter
from kconsumer.testing.cluster.share.in_flight import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    NO_MEMBER,
    InFlightBatch,
    RecordState,
)
from kconsumer.testing.cluster.share.partition import EXHAUSTED, Change, SharePartition

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
REJECTED = "Offset rejected by client."
STATES = {GAP: ARCHIVED, ACCEPT: ACKNOWLEDGED, RELEASE: AVAILABLE, REJECT: ARCHIVED}


class AckBatch(NamedTuple):
    """Consecutive records that are acknowledged."""

    first: int
    last: int
    types: list[int]  # one for all records, or one for each

    def type_of(self, offset: int) -> int:
        """Returns the type of acknowledgement of a record."""
        return self.types[0] if len(self.types) == 1 else self.types[offset - self.first]


class Acknowledgement:
    """One request of a member that acknowledges records of a share partition."""

    def __init__(self, share: SharePartition, member_id: str, now: float) -> None:
        self._share, self._member_id, self._now = share, member_id, now
        self._limit = share.setting("delivery.count.limit")
        self._changes: list[Change] = []
        self._given_up: list[DeadLetter] = []
        self._before: list[RecordState] = []  # the states before the changes

    def run(self, batches: list[AckBatch]) -> None:
        """Acknowledge records. Raises GroupError, and changes nothing, if one of them cannot be acknowledged."""
        try:
            for batch in batches:
                if batch.last >= self._share.start:
                    self._acknowledge(batch)
        except GroupError:
            for (_, _, state), before in zip(self._changes, self._before, strict=True):
                state.restore(before)
            raise
        self._share.commit(self._changes, self._given_up, self._now)

    def release(self) -> None:
        """Release all records that the member has acquired. Those before the start offset are archived."""
        share = self._share
        for batch in share.batches:
            mine = batch.offsets is None and batch.state.member_id == self._member_id
            if mine and batch.first < share.start <= batch.last:
                batch.split()
            for first, last, state in batch.parts():
                if state.state == ACQUIRED and state.member_id == self._member_id:
                    self._change(first, last, state, ARCHIVED if last < share.start else AVAILABLE)
        share.commit(self._changes, self._given_up, self._now)

    def _acknowledge(self, batch: AckBatch) -> None:
        """Acknowledge one batch. Raises GroupError if a record cannot be acknowledged."""
        if RENEW in batch.types and not self._share.allows_renewal:
            raise GroupError(Errors.INVALID_RECORD_STATE, "The group does not allow to renew acquisition locks.")
        for known in self._find(batch):
            if known.last < self._share.start:
                continue
            if known.offsets is None:
                self._check_owner(known.state)
            whole = known.is_within(batch.first, batch.last) and len(batch.types) == 1
            if known.offsets is None and whole and known.first >= self._share.start:
                self._apply(known.first, known.last, known.state, batch.types[0])
            else:
                self._acknowledge_parts(known, batch)

    def _find(self, batch: AckBatch) -> list[InFlightBatch]:
        """Returns the batches in flight with the records of an acknowledgement.

        Raises GroupError if there are none, or if the acknowledgement has records after them.
        """
        share = self._share
        floor = share.floor(batch.first)
        if floor is None and batch.first < share.start <= batch.last:
            floor = share.floor(share.start)
        if floor is None:
            raise GroupError(Errors.INVALID_RECORD_STATE, "The records are not in flight.")
        found = [known for known in share.batches if floor.first <= known.first <= batch.last]
        if batch.last > found[-1].last:
            raise GroupError(Errors.INVALID_REQUEST, "The acknowledgement has records after those in flight.")
        return found

    def _acknowledge_parts(self, known: InFlightBatch, batch: AckBatch) -> None:
        """Acknowledge single records of a batch in flight. Raises GroupError if one cannot be acknowledged."""
        for offset, state in known.split().items():
            if max(batch.first, self._share.start) <= offset <= batch.last:
                self._check_owner(state)
                self._apply(offset, offset, state, batch.type_of(offset))

    def _check_owner(self, state: RecordState) -> None:
        """Raise GroupError with INVALID_RECORD_STATE if the member has not acquired records."""
        if state.member_id == NO_MEMBER or state.state != ACQUIRED:
            raise GroupError(Errors.INVALID_RECORD_STATE, "The records are not acquired.")
        if state.member_id != self._member_id:
            raise GroupError(Errors.INVALID_RECORD_STATE, "Another member has acquired the records.")

    def _apply(self, first: int, last: int, state: RecordState, ack_type: int) -> None:
        """Change the state of records as the type of acknowledgement says."""
        if ack_type == RENEW:
            state.deadline = self._share.lock_until(self._now)
        else:
            self._change(first, last, state, STATES[ack_type])
            if ack_type == REJECT:
                self._given_up.append(DeadLetter(first, last, state.count, REJECTED))

    def _change(self, first: int, last: int, state: RecordState, new: int) -> None:
        self._before.append(state.copy())
        self._changes.append((first, last, state))
        if state.finish(new, self._limit):
            self._given_up.append(DeadLetter(first, last, state.count, EXHAUSTED))
