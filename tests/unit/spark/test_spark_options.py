"""Options of the Spark source: names, defaults, precedence, and errors with Spark's words."""

from __future__ import annotations

import pickle

import pytest

from kconsumer.errors import ConfigError
from kconsumer.spark.offsets import EARLIEST, LATEST, Named
from kconsumer.spark.options import OPTIONS, SourceConfig, parse
from kconsumer.spark.strategy import Assign, Subscribe, SubscribePattern
from kconsumer.types import TopicPartition

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
MINIMAL = {**SERVERS, "subscribe": "orders"}
T0 = TopicPartition("t", 0)


def test_defaults_differ_between_batch_and_stream() -> None:
    """A batch reads from earliest to latest, and a stream starts at latest; other defaults are those of
    Spark's source.
    """
    batch, stream = parse(MINIMAL, "batch"), parse(MINIMAL, "stream")
    assert (Named(EARLIEST), Named(LATEST)) == (batch.starting, batch.ending)
    assert Named(LATEST) == stream.starting
    assert (True, False, 120_000, 3, 1000, 900_000) == tuple(
        stream[name]
        for name in (
            "failOnDataLoss",
            "includeHeaders",
            "kafkaConsumer.pollTimeoutMs",
            "fetchOffset.numRetries",
            "fetchOffset.retryIntervalMs",
            "maxTriggerDelay",
        )
    )
    assert "fail" == stream.on_data_loss


@pytest.mark.parametrize(
    ("option", "text", "strategy"),
    [
        ("subscribe", " a , b,a,", Subscribe(("a", "b"))),
        ("subscribePattern", "ord.*", SubscribePattern("ord.*")),
        ("assign", '{"t":[0,2]}', Assign(frozenset({T0, TopicPartition("t", 2)}))),
    ],
)
def test_strategies(option: str, text: str, strategy: object) -> None:
    """Each of the three ways to select topics is accepted; a repeated topic is read once."""
    assert strategy == parse({**SERVERS, option: text}, "batch").strategy


REFUSALS = [
    (
        {},
        "both",
        "One of the following options must be specified for Kafka source: subscribe, subscribePattern, assign",
    ),
    ({"subscribe": "a", "assign": "{}"}, "both", "Only one of the following options can be specified"),
    ({"subscribe": " , "}, "both", "No topics to subscribe to"),
    ({"subscribePattern": " "}, "both", "Pattern to subscribe is empty"),
    ({"subscribePattern": "("}, "both", "not a regular expression"),
    ({"assign": "t"}, "both", "No topicpartitions to assign"),
    ({"assign": '{"t":[0'}, "both", 'Expected e.g. {"topicA":[0,1]'),
    ({"assign": '{"t":[-1]}'}, "both", 'Expected e.g. {"topicA":[0,1]'),
    ({"startingOffsets": "soon"}, "both", 'Expected e.g. {"topicA":{"0":23,"1":-1}'),
    ({"startingOffsets": '{"t":{"0":-3}}'}, "both", "-3 of t-0 is not an offset"),
    ({"startingOffsets": '{"t":{"0":true}}'}, "both", "Expected e.g."),
    ({"startingOffsets": "latest"}, "batch", "starting offset can't be latest for batch queries"),
    ({"startingOffsets": '{"t":{"0":-1}}'}, "batch", "starting offset for t-0 can't be latest"),
    ({"endingOffsets": "earliest"}, "batch", "ending offset can't be earliest for batch queries"),
    ({"endingOffsets": '{"t":{"0":-2}}'}, "batch", "ending offset for t-0 can't be earliest"),
    ({"endingOffsets": "latest"}, "stream", "ending offset not valid in streaming queries"),
    ({"endingOffsetsByTimestamp": "{}"}, "stream", "ending timestamp not valid in streaming queries"),
    ({"endingTimestamp": "1"}, "stream", "ending timestamp not valid in streaming queries"),
    ({"startingTimestamp": "noon"}, "both", "Expected a single long value"),
    ({"startingOffsetsByTimestamp": "1"}, "both", "Expected e.g."),
    ({"startingOffsetsByTimestampStrategy": "guess"}, "both", "one of error, latest"),
    ({"minPartitions": "0"}, "both", "minPartitions must be positive"),
    ({"maxRecordsPerPartition": "-1"}, "both", "maxRecordsPerPartition must be positive"),
    ({"minPartitions": "few"}, "both", "a whole number"),
    (
        {"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"},
        "stream",
        "is higher than the maxOffsetsPerTrigger(5)",
    ),
    ({"minOffsetsPerTrigger": "6", "maxTriggerDelay": "soon"}, "stream", "a time such as"),
    ({"failOnDataLoss": "yes"}, "both", "true or false"),
    ({"includeHeaders": "1"}, "both", "true or false"),
    ({"failOnDataLoss": "true", "onDataLoss": "warn"}, "both", "set the same thing"),
    ({"onCorrupt": "deadletter"}, "both", "onCorrupt=deadletter needs deadLetterPath"),
    ({"onDataLoss": "rows"}, "both", "one of fail, warn, deadletter"),
    ({"kafka.auto.offset.reset": "latest"}, "both", "'auto.offset.reset' is not supported: set the source option"),
    ({"kafka.key.deserializer": "x"}, "both", "'key.deserializer' is not supported"),
    ({"kafka.value.deserializer": "x"}, "both", "'value.deserializer' is not supported"),
    ({"kafka.enable.auto.commit": "false"}, "both", "'enable.auto.commit' is not supported"),
    ({"kafka.interceptor.classes": "x"}, "both", "'interceptor.classes' is not supported"),
    ({"kafka.bootstrap.servers": ""}, "both", "Option 'kafka.bootstrap.servers' must be specified"),
    ({"kafka.bootstrap.servers": "nowhere"}, "both", "has no port"),
    (
        {"kafka.fetch.max.byte": "1"},
        "both",
        "fetch.max.byte is not an option of kconsumer; did you mean fetch.max.bytes",
    ),
    ({"kafka.security.providers": "x"}, "both", "it configures a JVM"),
    ({"kafka.request.timeout.ms": "long"}, "both", "request.timeout.ms='long' is not allowed"),
]


@pytest.mark.parametrize(("options", "where", "words"), REFUSALS, ids=[words[:40] for *_, words in REFUSALS])
def test_refused(options: dict[str, str], where: str, words: str) -> None:
    """Wrong options are refused with the words of Spark's source, in both modes where both have the option."""
    chosen = {"subscribe", "assign", "subscribePattern"} & options.keys()
    whole = {**SERVERS, **({} if chosen or not options else {"subscribe": "t"}), **options}
    for mode in ("batch", "stream") if where == "both" else (where,):
        with pytest.raises(ConfigError) as caught:
            parse(whole, mode)  # type: ignore[arg-type]  # one of the two words
        assert words in str(caught.value)


def test_limits_of_streams_have_no_effect_in_a_batch(caplog: pytest.LogCaptureFixture) -> None:
    """A batch with maxOffsetsPerTrigger warns and reads everything, as Spark's source does."""
    config = parse({**MINIMAL, "maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "many"}, "batch")
    assert config["maxOffsetsPerTrigger"] is None
    assert 2 == sum("no effect in batch" in record.message for record in caplog.records)


def test_client_options_of_java_keys() -> None:
    """The prefix `kafka.` is removed, Java's names become those of the client, and options that only a group needs are
    omitted.
    """
    config = parse({**MINIMAL, "kafka.group.id": "g", "kafka.fetch.max.wait.ms": "100"}, "stream")
    assert {
        "bootstrap_servers": "localhost:9092",
        "fetch_max_wait_ms": "100",
        "allow_auto_create_topics": False,
    } == config.client_options()


@pytest.mark.parametrize(("key", "scheme"), [("socks.proxy", "socks5"), ("http.proxy", "http")])
def test_a_proxy(key: str, scheme: str) -> None:
    """The address of a proxy is passed to clients, and no repr shows it, because it may contain a password."""
    config = parse({**MINIMAL, f"kafka.{key}": f"{scheme}://me:opensesame@p:1"}, "batch")
    assert f"{scheme}://me:opensesame@p:1" == config.client_options()[key.replace(".", "_")]
    assert "opensesame" not in repr(config)
    with pytest.raises(ConfigError, match=f"it takes {scheme}://"):
        parse({**MINIMAL, f"kafka.{key}": "p:1"}, "batch")


def test_configuration_pickles() -> None:
    """Executors receive the configuration that the driver checked."""
    config = parse({**MINIMAL, "startingOffsets": '{"orders":{"0":3}}'}, "stream")
    copy: SourceConfig = pickle.loads(pickle.dumps(config))
    assert config == copy


def test_pattern_searches_and_leaves_internal_topics_out() -> None:
    """The pattern may match a part of the name; only topics that brokers mark as internal are omitted."""
    counts = {"orders-eu": [0, 1], "reorder": [0], "payments": [0], "__consumer_offsets": [0], "__order": [0]}
    chosen = SubscribePattern("order|offsets").choose(counts)
    assert {"orders-eu", "reorder", "__order"} == {tp.topic for tp in chosen}


def test_every_option_says_what_it_means() -> None:
    """Every option has a description, from which the documentation is generated."""
    assert [] == [row.name for row in OPTIONS.values() if not row.meaning or not row.takes]
