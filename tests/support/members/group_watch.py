"""Records the owners of partitions, as the coordinator describes them, while a group changes."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import AbstractContextManager

from kconsumer.errors import KafkaError
from kconsumer.groups import GroupClient, GroupDescription
from support.brokers.kafka_admin import Kafka
from support.harnesses.threads import meanwhile

PERIOD_S = 0.15


class GroupWatch:
    """Descriptions of a group with members; all data of one description is of one generation."""

    def __init__(self, kafka: Kafka, group: str) -> None:
        self._kafka, self._group = kafka, group
        self._seen: list[GroupDescription] = []

    def _run(self, ended: threading.Event) -> None:
        with GroupClient(self._kafka.bootstrap_servers) as client:
            while not ended.wait(PERIOD_S):
                try:
                    found = client.describe(self._group)
                except KafkaError:
                    continue  # there is no such group yet
                if found.members and (found.type == "consumer" or found.state == "Stable"):
                    self._seen.append(found)

    def running(self) -> AbstractContextManager[None]:
        """Describe the group repeatedly while the block runs."""
        return meanwhile(self._run)

    def assert_one_owner(self) -> None:
        """Check that no description gives a partition two owners, and that there are enough descriptions."""
        assert len(self._seen) >= 5
        for found in self._seen:
            owners = Counter(tp for member in found.members for tp in member.assignment)
            assert [] == [tp for tp, count in owners.items() if count > 1], found

    def protocols(self) -> set[str]:
        """Returns the assignors that the group used."""
        return {found.protocol for found in self._seen}
