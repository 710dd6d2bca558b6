"""A ShareConsumer that journals what becomes of its records."""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any

from kconsumer import AcknowledgeType, ShareConsumer, TopicPartition
from kconsumer.errors import KafkaError
from support.harnesses.parallel_journal import Journal


class JournalingShareConsumer(ShareConsumer):
    """A ShareConsumer that writes into the journal which records the broker has accepted for it.

    `lost` is for records whose locks this member has lost, as the logger of `kconsumer.parallel` says, and for those
    whose acceptance a broker has refused.
    """

    def __init__(self, journal: Journal, *topics: str, **settings: Any) -> None:
        super().__init__(*topics, on_acknowledge=self._on_acknowledge, **settings)
        self._journal = journal
        self._sent: dict[tuple[int, int], deque[AcknowledgeType]] = defaultdict(deque)
        logging.getLogger("kconsumer.parallel.acquired_records").addFilter(self._on_log)

    def acknowledge(self, record: Any, type: Any = AcknowledgeType.ACCEPT) -> None:  # type: ignore[override]  # noqa: A002
        """Acknowledge a record, and remember how."""
        super().acknowledge(record, type)
        self._sent[record.partition, record.offset].append(type)

    def _on_acknowledge(self, offsets: Mapping[TopicPartition, frozenset[int]], error: KafkaError | None) -> None:
        for tp, acknowledged in offsets.items():
            for offset in sorted(acknowledged):
                kind = self._sent[tp.partition, offset].popleft()  # one request after the other is for a record
                if error is not None:
                    self._journal.note("lost", tp.partition, offset)
                elif kind is AcknowledgeType.ACCEPT:
                    self._journal.note("accepted", tp.partition, offset)

    def _on_log(self, message: logging.LogRecord) -> bool:
        if message.msg.startswith("the lock of") and isinstance(message.args, tuple):
            tp, offset = message.args
            assert isinstance(tp, TopicPartition)
            assert isinstance(offset, int)
            self._journal.note("lost", tp.partition, offset)
        return True
