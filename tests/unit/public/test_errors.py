"""Errors keep their attributes when they are copied or pickled."""

from __future__ import annotations

import copy
import pickle

import pytest

from kconsumer import errors
from kconsumer.errors import KafkaError
from kconsumer.types import OffsetAndMetadata, TopicPartition

TP = TopicPartition("a", 3)
SPECIAL: dict[type[KafkaError], KafkaError] = {
    error.__class__: error
    for error in (
        errors.CorruptRecordError("bad", topic="a", partition=3, offset=7),
        errors.BatchTooLargeError("big", topic_partition=TP, offset=7, next_offset=9, limit=5),
        errors.RecordTooLargeError("big", topic_partition=TP, offset=7),
        errors.RecordDeserializationError(
            "odd", topic_partition=TP, offset=7, key=b"k", value=b"v", headers=(("h", b""),)
        ),
        errors.RecordFilterError("odd", topic_partition=TP, offset=7, origin="filter"),
        errors.NoOffsetForPartitionError("none", (TP,)),
        errors.OffsetOutOfRangeError("out", {TP: 7}),
        errors.LogTruncationError("cut", {TP: 7}, {TP: OffsetAndMetadata(5, "", 2)}),
        errors.TopicAuthorizationError("no", topics=frozenset({"a"})),
        errors.InvalidTopicError("?", topics=frozenset({"?"})),
    )
}


KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, KafkaError)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_errors_pickle(kind: type[KafkaError]) -> None:
    """Every error is equal after pickling and copying."""
    error = SPECIAL.get(kind) or kind("what happened")
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert kind is type(twin)
        assert (str(error), error.args, error.__dict__) == (str(twin), twin.args, twin.__dict__)
