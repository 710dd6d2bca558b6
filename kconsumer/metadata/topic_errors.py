"""Topics and partitions with errors in metadata: topics that do not exist or may not be read, missing partitions.

`MetadataManager` stores what a response contains. This module decides which warnings are logged, which errors the user
gets, and how `partition_states()` describes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kconsumer._common.deferred_calls import get_logger
from kconsumer._common.error_codes import Errors
from kconsumer._internal.managers import FOREVER
from kconsumer.errors import KafkaError, error_for
from kconsumer.metadata.topic_requests import topic_error
from kconsumer.state.assignment import Assignment
from kconsumer.state.cluster import Cluster, MetadataUpdate
from kconsumer.types import TopicPartition

_log = get_logger(__name__)

REPORTED = (Errors.INVALID_TOPIC_EXCEPTION, Errors.TOPIC_AUTHORIZATION_FAILED)  # of topics; `take` returns them
TOPIC_ERROR_RECHECK_MS = 3000.0  # so that a permission that was granted is noticed soon; Java waits for the maximum age


class TopicErrors:
    """The errors of topics in the last response, and the partitions that are assigned but do not exist."""

    def __init__(self, cluster: Cluster, assignment: Assignment) -> None:
        self.codes: dict[str, int] = {}  # by topic
        self._cluster = cluster
        self._assignment = assignment
        self._warned: frozenset[str] = frozenset()
        self._warned_partitions: frozenset[TopicPartition] = frozenset()
        self._unraised: dict[str, int] = {}

    # --- responses ---------------------------------------------------------------------------------------

    def store(self, update: MetadataUpdate, now: float) -> float:
        """Store the errors of a response. Returns when topics with errors must be requested again (ms)."""
        if update.full:
            self.codes = dict(update.topic_errors)
        else:
            unchanged = {t: code for t, code in self.codes.items() if t not in update.topics}
            self.codes = unchanged | update.topic_errors
        self._warn_unknown_topics()
        self._warn_missing_partitions()
        self._unraised = {t: code for t, code in self.codes.items() if code in REPORTED}
        may_end = any(code != Errors.INVALID_TOPIC_EXCEPTION for code in self.codes.values())
        return now + TOPIC_ERROR_RECHECK_MS if may_end else FOREVER

    def _warn_unknown_topics(self) -> None:
        unknown = self.unknown_topics()
        for topic in sorted(unknown - self._warned):
            _log.warning(
                "topic %s does not exist; metadata is requested again from time to time", topic, extra={"topic": topic}
            )
        self._warned = unknown

    def _warn_missing_partitions(self) -> None:
        """Log a warning for each assigned partition that does not exist.

        The warning for a partition is repeated only if the partition has existed since the last warning.
        """
        missing = frozenset(filter(self._cluster.lacks, self._assignment.assigned()))
        for tp in sorted(missing - self._warned_partitions):
            _log.warning("%s; metadata is requested again from time to time", self.missing_partition(tp))
        self._warned_partitions = missing

    # --- errors for the user -----------------------------------------------------------------------------

    @property
    def has_unraised(self) -> bool:
        """True if `take` has not returned the errors of the last response."""
        return bool(self._unraised)

    def take(self, wanted: Callable[[str], bool]) -> KafkaError | None:
        """Returns the error to raise for topics without permission or with illegal names, or None, and clears it.

        Topics for which `wanted(topic)` is False do not matter.
        """
        unraised, self._unraised = self._unraised, {}
        unraised = {topic: code for topic, code in unraised.items() if wanted(topic)}
        return topic_error(unraised) if unraised else None

    def mark_raised(self, topics: Iterable[str]) -> None:
        """Remove the errors of these topics, because the caller raises them already. `take` then does not return
        them."""
        for topic in topics:
            self._unraised.pop(topic, None)

    def unknown_topics(self) -> frozenset[str]:
        """Returns the wanted topics that do not exist according to the last response."""
        return frozenset(t for t, code in self.codes.items() if code == Errors.UNKNOWN_TOPIC_OR_PARTITION)

    def unreported(self) -> KafkaError | None:
        """Returns an error that `take` does not return and that is no warning about an unknown topic, or None."""
        unknown = self.unknown_topics()
        for topic, code in self.codes.items():
            if code not in REPORTED and topic not in unknown:
                return error_for(code, f"topic {topic}")
        return None

    # --- descriptions ------------------------------------------------------------------------------------

    def code_of(self, topic: str) -> int:
        """Returns the error code of this topic in the last response; 0 if there is none."""
        return self.codes.get(topic, 0)

    def topic_problem(self, topic: str) -> str:
        """Returns a text for `partition_states()` that describes the topic's error; empty if there is none."""
        code = self.code_of(topic)
        if code == Errors.UNKNOWN_TOPIC_OR_PARTITION:
            return f"topic {topic} does not exist"
        return str(error_for(code, f"topic {topic}")) if code else ""

    def missing_partition(self, tp: TopicPartition) -> str:
        """Returns an error text if the topic exists without this partition, else an empty text."""
        cluster, topic = self._cluster, tp.topic
        if not cluster.lacks(tp):
            return ""
        count = cluster.listed_count(topic)
        numbers = f"{count} partitions (0 to {count - 1})" if count > 1 else "1 partition (0)"
        return f"topic {topic} has {numbers}, there is no {tp}"

    def problem_with(self, tp: TopicPartition) -> str:
        """Returns a text that describes the error of the partition or its topic; empty if there is none."""
        return self.topic_problem(tp.topic) or self.missing_partition(tp)

    def problem_error(self, tp: TopicPartition) -> KafkaError | None:
        """Returns the error of the partition or its topic, or None if there is none."""
        text = self.problem_with(tp)
        code = self.code_of(tp.topic) or Errors.UNKNOWN_TOPIC_OR_PARTITION
        return error_for(code, text) if text else None
