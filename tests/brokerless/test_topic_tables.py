"""TopicTable and AsyncTopicTable on FakeCluster: when they are ready, what they follow, how they fail and end."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
import urllib.request
from _thread import interrupt_main
from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple
from typing import Any

import pyarrow
import pytest

from kconsumer import RawRecord, TopicTable, health
from kconsumer._client import table_follower
from kconsumer._core.lock import Clock
from kconsumer.aio import AsyncTopicTable
from kconsumer.errors import (
    ConfigError,
    ForkedConsumerError,
    RecordDeserializationError,
    StateError,
    TableTooLargeError,
    TimeoutError,
    TopicAuthorizationError,
)
from kconsumer.testing import FakeCluster
from kconsumer.testing.cluster.compaction import compact
from support.harnesses.inside import model_of, server_of
from support.harnesses.threads import eventually

OPTIONS: dict[str, Any] = {"key_deserializer": "str", "value_deserializer": "str", "metadata_max_age_ms": 100}
READY_S = 20.0


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster with a topic of two partitions."""
    with FakeCluster() as cluster:
        cluster.create_topic("t", partitions=2)
        yield cluster


def table(cluster: FakeCluster, **options: Any) -> TopicTable[str, str]:
    """Returns a table of topic t."""
    return TopicTable("t", bootstrap_servers=cluster.bootstrap_servers, **{**OPTIONS, **options})


def follows(table: Mapping[str, str], expected: Mapping[str, str]) -> None:
    """Wait until a table has exactly these entries."""
    eventually(lambda: dict(table.items()) == expected, f"{table!r} is not {expected}")


def thread_of_table() -> threading.Thread:
    """Returns the thread of the only table."""
    [thread] = [thread for thread in threading.enumerate() if thread.name == "kconsumer-table-t"]
    return thread


# --- ready, and followed ---------------------------------------------------------------------------------------------


def test_a_table_is_read_and_followed(cluster: FakeCluster) -> None:
    """When it is ready it has what was written; later records set and delete its entries."""
    cluster.produce("t", [("a", "1"), ("b", "2"), ("a", "3"), ("c", "4"), ("b", None)])
    with table(cluster) as users:
        users.wait_ready(READY_S)
        assert {"a": "3", "c": "4"} == dict(users) == users.snapshot() == {key: users[key] for key in users}
        assert (2, True, False, None) == (len(users), "a" in users, "b" in users, users.get("b"))
        assert (["3", "4"], {"a", "c"}) == (sorted(users.values()), set(users.keys()))
        cluster.produce("t", [("a", None), ("d", "5")])
        follows(users, {"c": "4", "d": "5"})
        assert "<TopicTable of t following: 2 entries, 4 bytes, 2 partitions>" == repr(users)


def test_a_read_waits_until_the_table_is_ready(cluster: FakeCluster) -> None:
    """No read sees a part of the topic."""
    cluster.produce("t", [("a", "1")] * 3000 + [("b", "2")])
    with table(cluster, max_poll_records=100) as users:
        assert ("1", "2", True) == (users["a"], users["b"], users.ready)


def put_nothing(cluster: FakeCluster) -> dict[str, str]:
    """The topic is empty."""
    return {}


def put_markers(cluster: FakeCluster) -> dict[str, str]:
    """Both partitions end with markers, one of an aborted transaction."""
    with cluster.transaction() as transaction:
        transaction.produce("t", [("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")])
    with cluster.transaction() as transaction:
        transaction.produce("t", [("a", "aborted")])
        transaction.abort()
    return {"a": "1", "b": "2", "c": "3", "d": "4"}


def put_deleted(cluster: FakeCluster) -> dict[str, str]:
    """All records of one partition are deleted, and some of the other."""
    cluster.produce("t", [("a", "1"), ("b", "2"), ("c", "3")], partition=0)
    cluster.produce("t", [("d", "4"), ("e", "5")], partition=1)
    cluster.delete_records("t", 0, 3)
    cluster.delete_records("t", 1, 1)
    return {"e": "5"}


@pytest.mark.parametrize("put", [put_nothing, put_markers, put_deleted])
def test_topics_whose_last_offsets_have_no_records_become_ready(
    put: Callable[[FakeCluster], dict[str, str]], cluster: FakeCluster
) -> None:
    """Markers, deleted records and empty partitions keep no table from being ready."""
    expected = put(cluster)
    with table(cluster, isolation_level="read_committed") as users:
        users.wait_ready(READY_S)
        assert expected == dict(users)


def test_an_open_transaction_does_not_delay_it(cluster: FakeCluster) -> None:
    """With read_committed, a table is ready at the last stable offset, and gets the records when they are committed."""
    cluster.produce("t", [("a", "1")])
    with table(cluster, isolation_level="read_committed") as users:
        with cluster.transaction() as transaction:
            transaction.produce("t", [("a", "2")])
            users.wait_ready(READY_S)
            assert {"a": "1"} == dict(users)
        follows(users, {"a": "2"})


def test_a_log_whose_last_records_were_compacted_becomes_ready(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No fetch returns anything up to the end offset: old tombstones at the end of the log are gone."""
    monkeypatch.setattr(table_follower, "IDLE_MS", 200.0)
    settings = {"cleanup_policy": "compact", "delete_retention_ms": 0, "internal_segment_bytes": 150}
    cluster.create_topic("c", **settings)
    for row in [("a", "1"), ("b", "2"), *[(key, None) for key in ("b", "x", "y", "z")]]:
        cluster.produce("c", [row])
    [log] = [partition.log for partition in model_of(cluster).topics["c"].partitions]
    with server_of(cluster).change():
        log.roll(0)
        for _ in range(2):  # the second run deletes the tombstones
            compact(log, Clock().wall_ms() + 1_000_000)
    with TopicTable("c", bootstrap_servers=cluster.bootstrap_servers, **OPTIONS) as users:
        users.wait_ready(READY_S)
        assert {"a": "1"} == dict(users)
        cluster.produce("c", [("a", "2")])
        follows(users, {"a": "2"})


def test_wait_ready_says_what_it_waits_for(cluster: FakeCluster) -> None:
    """A topic that does not exist is named; the table becomes ready when it is created."""
    with TopicTable("late", bootstrap_servers=cluster.bootstrap_servers, **OPTIONS) as users:
        eventually(lambda: users.status().error, "the topic was not looked up")
        with pytest.raises(
            TimeoutError, match=r"not ready after 0.1 s: catching up: 0 entries.*topic late does not exist"
        ):
            users.wait_ready(0.1)
        cluster.create_topic("late")
        cluster.produce("late", [("a", "1")])
        users.wait_ready(READY_S)
        assert {"a": "1"} == dict(users)


def test_new_partitions_are_followed(cluster: FakeCluster) -> None:
    """The records of a partition that is added later are read from its beginning."""
    with table(cluster) as users:
        users.wait_ready(READY_S)
        cluster.add_partitions("t", 3)
        cluster.produce("t", [("a", "1")], partition=2)
        follows(users, {"a": "1"})


def test_a_topic_that_is_created_again_is_read_again(cluster: FakeCluster) -> None:
    """The entries of the old topic disappear, also those of a partition that the new one does not have."""
    cluster.produce("t", [("a", "1"), ("b", "1")], partition=0)
    cluster.produce("t", [("c", "1")], partition=1)
    with table(cluster) as users:
        users.wait_ready(READY_S)
        assert {"a": "1", "b": "1", "c": "1"} == dict(users)
        cluster.delete_topic("t")
        cluster.create_topic("t", partitions=1)
        cluster.produce("t", [("b", "2"), ("n", "2")])
        follows(users, {"b": "2", "n": "2"})
        assert users.ready


def test_a_position_out_of_range_reads_the_partition_again(cluster: FakeCluster) -> None:
    """What is left of the log is the table then. An entry that it no longer has is a change."""
    cluster.produce("t", [("a", "1"), ("b", "1")], partition=0)
    with table(cluster) as users:
        changes: list[Any] = []
        users.on_change(lambda key, value: changes.append((key, value)))
        users.wait_ready(READY_S)
        cluster.delete_records("t", 0, 2)
        cluster.fail_next("Fetch", "OFFSET_OUT_OF_RANGE")
        cluster.produce("t", [("a", "2")], partition=0)
        follows(users, {"a": "2"})
        eventually(lambda: len(changes) >= 4, "changes")
        assert [("a", "1"), ("b", "1"), ("a", "2"), ("b", None)] == [*dict.fromkeys(changes)]


# --- failures --------------------------------------------------------------------------------------------------------


def fail_deserializer(data: bytes) -> str:
    """Raise for one value."""
    if data == b"bad":
        raise ValueError("not a value")
    return data.decode()


FAILURES: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"value_deserializer": fail_deserializer}, RecordDeserializationError, "not a value"),
    ({"max_entries": 1}, TableTooLargeError, "more than 1 entries: increase max_entries"),
    ({"max_bytes": 3}, TableTooLargeError, "more than 3 bytes of keys and values: increase max_bytes"),
    ({"key_deserializer": json.loads}, ConfigError, "is a dict, .* choose a key_deserializer"),
]


@pytest.mark.parametrize(("options", "error", "text"), FAILURES)
@pytest.mark.parametrize("later", [False, True])
def test_a_failure_is_raised_by_wait_ready_and_by_each_read(
    options: dict[str, Any], error: type[Exception], text: str, later: bool, cluster: FakeCluster
) -> None:
    """Before the table is ready, and when it follows the topic. close() raises nothing."""
    bad = [("1", "v"), ('{"id": 1}', "bad")]
    if not later:
        cluster.produce("t", bad)
    with table(cluster, **options) as users:
        if later:
            users.wait_ready(READY_S)
            cluster.produce("t", bad)
            eventually(lambda: users.status().error, "an error")
        for read in (lambda: users.wait_ready(READY_S), lambda: users["a"], lambda: list(users), users.to_arrow):
            with pytest.raises(error, match=text):
                read()
        assert ("failed", False) == (users.status().state, users.ready)


def refuse(record: RawRecord) -> bool:
    """Raise for one value."""
    return bool(fail_deserializer(record.value or b""))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"value_deserializer": fail_deserializer}, "record_filter drops records before deserializers run"),
        ({"record_filter": refuse}, "not a value.*; a table cannot skip it$"),
    ],
)
def test_advice_is_for_tables(options: dict[str, Any], text: str, cluster: FakeCluster) -> None:
    """An error does not advise to seek, which a table cannot do."""
    cluster.produce("t", [("1", "bad")])
    with table(cluster, **options) as users, pytest.raises(RecordDeserializationError, match=text) as raised:
        users.wait_ready(READY_S)
    assert "seek" not in str(raised.value)


# --- health ----------------------------------------------------------------------------------------------------------


def test_health(cluster: FakeCluster) -> None:
    """A table is healthy while it is ready, and follows the topic. An error that ends it asks for a restart."""
    users = table(cluster, value_deserializer=fail_deserializer)
    assert (False, ("the table has not begun",), True) == astuple(users.health())
    with users, health.serve(users, 0) as server:
        eventually(lambda: users.health().ok, "a healthy table")
        with urllib.request.urlopen(f"{server.url}/ready") as response:
            assert 200 == response.status
        cluster.produce("t", [("1", "bad")])
        eventually(lambda: not users.health().live, "an error")
        assert "not a value" in users.health().reasons[0]
    gate = threading.Event()
    with table(cluster, value_deserializer=lambda _: gate.wait(READY_S)) as slow:
        eventually(lambda: slow.health().reasons[:1] and "catching up" in slow.health().reasons[0], "a reason")
        gate.set()
    assert (False, True) == (slow.health().ok, "closed" in slow.health().reasons[0])


def test_a_missing_permission_ends_it(cluster: FakeCluster) -> None:
    """An authorization error of the thread is raised by wait_ready."""
    cluster.fail_next("Fetch", "TOPIC_AUTHORIZATION_FAILED")
    with table(cluster) as users, pytest.raises(TopicAuthorizationError):
        users.wait_ready(READY_S)


def test_brokers_that_are_down_do_not_end_it(cluster: FakeCluster) -> None:
    """Reads return the last entries meanwhile."""
    cluster.produce("t", [("a", "1")])
    with table(cluster, default_api_timeout_ms=1000) as users:
        users.wait_ready(READY_S)
        cluster.kill(1)
        eventually(lambda: users.status().error is not None, "a look-up that fails")
        assert ("1", "following") == (users["a"], users.status().state)
        cluster.start(1)
        cluster.produce("t", [("a", "2")])
        follows(users, {"a": "2"})


def test_records_without_a_key_are_skipped(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    """They are counted, and one warning names the topic."""
    cluster.produce("t", [b"x", b"y", ("a", "1")])
    with table(cluster) as users:
        assert ({"a": "1"}, 2) == (dict(users), users.status().skipped)
    assert ["the table of topic t skips records without a key"] == [
        record.message for record in caplog.records if "skips" in record.message
    ]


@pytest.mark.parametrize("options", [{"group_id": "g"}, {"auto_offset_reset": "latest"}, {"max_entriess": 3}])
def test_options_that_a_table_does_not_have(options: dict[str, Any]) -> None:
    """The constructor names them, and leaves nothing to close."""
    with pytest.raises(ConfigError, match=next(iter(options))):
        TopicTable("t", bootstrap_servers="localhost:1", **options)


# --- changes ---------------------------------------------------------------------------------------------------------


def test_callbacks_get_the_entries_and_then_each_change(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    """Superseded values of before the table was ready are left out. What a callback raises is logged."""
    cluster.produce("t", [("a", "1"), ("a", "2"), ("b", "1"), ("b", None)])
    changes: list[Any] = []
    with table(cluster) as users:

        @users.on_change
        def broken(key: str, value: str | None) -> None:
            raise ValueError(f"no {key}")

        users.on_change(lambda key, value: changes.append((key, value, users.get(key))))
        users.wait_ready(READY_S)
        cluster.produce("t", [("a", "3"), ("c", "1"), ("a", None), ("z", None)], partition=0)
        eventually(lambda: len(changes) == 4, f"changes: {changes}")
        assert [("a", "2"), ("a", "3"), ("c", "1"), ("a", None)] == [change[:2] for change in changes]
        assert {"c": "1"} == dict(users)
    assert 4 == sum("callback of the table of topic t failed" in record.message for record in caplog.records)
    with pytest.raises(TypeError, match=r"coroutine function, which only kconsumer\.aio"):
        users.on_change(asyncio.sleep)  # type: ignore[arg-type]


def test_a_copy_is_of_one_moment(cluster: FakeCluster) -> None:
    """Two keys that change one after the other never differ by more than that in a copy, nor does a loop fail."""
    with table(cluster) as users:
        cluster.produce("t", [("a", "0"), ("b", "0")], partition=0)
        users.wait_ready(READY_S)
        cluster.produce("t", [pair for n in range(1, 3000) for pair in (("a", f"{n}"), ("b", f"{n}"))], partition=0)
        copy = users.snapshot()
        while copy["b"] != "2999":
            copy = users.snapshot()
            assert int(copy["a"]) - int(copy["b"]) in (0, 1)
            assert {"a", "b"} == set(users) == {key for key, _ in users.items()}


def test_columns(cluster: FakeCluster) -> None:
    """Types are those of the objects, and binary without deserializers; objects without a type are refused."""
    cluster.produce("t", [("a", '{"n": 1}')])
    with table(cluster, value_deserializer=json.loads) as users:
        columns = users.to_arrow()
        assert [{"key": "a", "value": {"n": 1}}] == pyarrow.table(columns).to_pylist()
        assert (1, ("key", "value"), 1) == (columns.num_rows, columns.columns, len(columns.to_pandas()))
    with (
        table(cluster, value_deserializer=lambda data: object()) as users,
        pytest.raises(TypeError, match=r"the values have no common Arrow type .* value_deserializer"),
    ):
        users.to_arrow()
    cluster.create_topic("empty")
    with TopicTable("empty", bootstrap_servers=cluster.bootstrap_servers) as empty:
        assert [pyarrow.binary()] * 2 == empty.to_arrow().to_pyarrow().schema.types


# --- ending ----------------------------------------------------------------------------------------------------------


def test_close_ends_the_thread_once(cluster: FakeCluster) -> None:
    """Reads and waits raise StateError afterwards; a callback may close the table, too."""
    cluster.produce("t", [("a", "1")])
    users = table(cluster)
    users.on_change(lambda key, value: users.close())
    users.start()
    thread = thread_of_table()
    thread.join(READY_S)
    users.close()
    users.close()
    for use in (users.wait_ready, users.start, lambda: users["a"]):
        with pytest.raises(StateError, match="the table of topic t is closed"):
            use()
    assert (False, "closed") == (thread.is_alive(), users.status().state)
    TopicTable("t", bootstrap_servers="localhost:1").close()


def test_close_is_bounded(cluster: FakeCluster) -> None:
    """A callback that does not return makes close() raise TimeoutError; the thread ends with the callback."""
    cluster.produce("t", [("a", "1")])
    entered, release = threading.Event(), threading.Event()
    users = table(cluster)
    users.on_change(lambda key, value: (entered.set(), release.wait()))
    users.wait_ready(READY_S)
    entered.wait()
    with pytest.raises(TimeoutError, match=r"thread of the table of topic t has not ended after 0.05 s"):
        users.close(0.05)
    release.set()
    users.close(READY_S)


def test_a_table_that_is_not_closed_warns(cluster: FakeCluster) -> None:
    """Its thread ends all the same."""
    users: Any = table(cluster)
    users.wait_ready(READY_S)
    thread = thread_of_table()
    with pytest.warns(ResourceWarning, match=r"unclosed table of topic t; use `with TopicTable"):
        del users
    thread.join(READY_S)
    assert not thread.is_alive()


def test_ctrl_c_ends_a_wait(cluster: FakeCluster) -> None:
    """KeyboardInterrupt leaves `wait_ready`, and the table continues."""
    cluster.produce("t", [("a", "1")])
    release = threading.Event()

    def interrupt(data: bytes) -> str:
        interrupt_main()
        release.wait()
        return data.decode()

    with table(cluster, value_deserializer=interrupt) as users:
        with pytest.raises(KeyboardInterrupt):
            users.wait_ready(READY_S)
        release.set()
        assert {"a": "1"} == dict(users)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of os.fork() in a process with threads
def test_a_forked_child_gets_an_error(cluster: FakeCluster) -> None:
    """The child has no thread that follows the topic. Its close() does not end the parent's table."""
    cluster.produce("t", [("a", "1")])
    with table(cluster) as users:
        users.wait_ready(READY_S)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                users["a"]
            except ForkedConsumerError:
                users.close()
                code = 0
            finally:
                os._exit(code)
        assert 0 == os.waitpid(child, 0)[1]
        cluster.produce("t", [("a", "2")])
        follows(users, {"a": "2"})


# --- asyncio ---------------------------------------------------------------------------------------------------------


def test_the_table_for_asyncio(cluster: FakeCluster) -> None:
    """The same entries; callbacks and deserializers may be coroutine functions; reads do not wait."""
    cluster.produce("t", [("a", "1"), ("b", "2"), ("a", "3"), ("b", None)])

    async def upper(data: bytes) -> str:
        await asyncio.sleep(0)
        return data.decode().upper()

    async def run() -> None:
        queue: asyncio.Queue[Any] = asyncio.Queue()

        async def changed(key: str, value: str | None) -> None:
            await queue.put((key, value))

        options = {**OPTIONS, "value_deserializer": upper}
        async with AsyncTopicTable("t", bootstrap_servers=cluster.bootstrap_servers, **options) as users:
            users.on_change(changed)
            with pytest.raises(StateError, match=r"catching up.* cannot be read yet: await wait_ready\(\) first"):
                users["a"]
            await users.wait_ready(READY_S)
            assert ({"a": "3"}, ("a", "3")) == (dict(users), await queue.get())
            await asyncio.to_thread(cluster.produce, "t", [("c", "x")])
            assert (("c", "X"), "X") == (await queue.get(), users["c"])
        await users.close()
        with pytest.raises(StateError, match="is closed"):
            users["a"]

    asyncio.run(run())


def test_failures_and_waits_for_asyncio(cluster: FakeCluster) -> None:
    """A failure is raised by wait_ready and by reads; a wait ends with its timeout."""
    cluster.produce("t", [("a", "1"), ("b", "2")])

    async def run() -> None:
        servers = cluster.bootstrap_servers
        async with AsyncTopicTable("t", bootstrap_servers=servers, max_entries=1, **OPTIONS) as users:
            with pytest.raises(TableTooLargeError):
                await users.wait_ready(READY_S)
            with pytest.raises(TableTooLargeError):
                len(users)
        async with AsyncTopicTable("none", bootstrap_servers=servers, **OPTIONS) as users:
            with pytest.raises(TimeoutError, match="table of topic none is not ready"):
                await users.wait_ready(0.1)
        await AsyncTopicTable("t", bootstrap_servers=servers, **OPTIONS).close()

    asyncio.run(run())


def test_a_cancelled_task_is_a_failure(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    """A read after the event loop has cancelled the task raises, and returns no old entries."""
    caplog.set_level(logging.CRITICAL)

    async def run() -> AsyncTopicTable[str, str]:
        users = AsyncTopicTable("t", bootstrap_servers=cluster.bootstrap_servers, **OPTIONS)
        await users.wait_ready(READY_S)
        return users

    users = asyncio.run(run())  # cancels all tasks at its end
    with pytest.raises(StateError, match="the task of the table was cancelled"):
        users.get("a")
    asyncio.run(users.close())
