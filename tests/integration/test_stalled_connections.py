"""Connections that stay open without traffic, as behind a broken firewall, are closed in time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kconsumer import Consumer, TopicPartition
from kconsumer.errors import KafkaError
from support.brokers.kafka import DEFAULT_VERSION, KafkaCluster
from support.brokers.kafka_admin import wait_until
from support.brokers.proxy import STALLED, Link, Proxy
from support.harnesses.polling import Recorder, poll_until, polled, tps

WAIT_S = 60


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    """A proxy in front of the broker."""
    with Proxy() as made:
        yield made


@pytest.fixture(scope="module")
def behind_proxy(proxy: Proxy) -> Iterator[KafkaCluster]:
    """A broker that clients reach through the proxy."""
    with KafkaCluster(DEFAULT_VERSION, proxy=proxy.listen_for) as cluster:
        yield cluster


def coordinator_link(proxy: Proxy, consumer: Consumer) -> Link:
    """Returns the connection that carries heartbeats: the one that is used while no fetch is in flight."""
    consumer.pause(*consumer.assignment())
    consumer.poll(1)

    def used() -> Link | None:
        before = {link: link.sent_up for link in proxy.links()}
        consumer.poll(1)
        found = [link for link, sent in before.items() if link.sent_up > sent]
        return found[0] if len(found) == 1 else None

    link: Link = wait_until(used, WAIT_S, "heartbeats")
    return link


@pytest.mark.classic_protocol
def test_silent_coordinator_connection_ends_with_the_session_timeout(
    proxy: Proxy, behind_proxy: KafkaCluster, topic_name: str, engine: dict[str, Any]
) -> None:
    """A member whose connection to the coordinator stalls reaches it again after session_timeout_ms, not after
    request_timeout_ms.

    The heartbeat in flight gets no response and the session times out. Then the client must stop waiting for the
    response, and the next heartbeat must not use the same connection. Whether the member has to join again depends on
    which side checks the clock first, the coordinator or the member.
    """
    cluster = behind_proxy
    cluster.create_topic(topic_name)
    assigned: list[object] = []
    with Consumer(
        bootstrap_servers=cluster.proxied_servers,
        group_id=topic_name,
        session_timeout_ms=6_000,
        request_timeout_ms=2_000 * WAIT_S,
        enable_auto_commit=False,
        **engine,
    ) as consumer:
        consumer.subscribe([topic_name], on_assign=lambda _, partitions: assigned.append(partitions))
        wait_until(lambda: consumer.poll(0.2) or assigned, WAIT_S, "the first assignment")
        proxy.set_conditions(STALLED, coordinator_link(proxy, consumer))

        def heard() -> bool:
            consumer.poll(0.2)
            try:
                consumer.commit({TopicPartition(topic_name, 0): 0}, timeout=0.5)
            except KafkaError:
                return False
            return True

        assert not heard()
        wait_until(heard, WAIT_S, "a commit by another connection")


@pytest.mark.classic_protocol
def test_silent_fetch_connection_ends_with_the_request_timeout(
    proxy: Proxy, behind_proxy: KafkaCluster, topic_name: str, engine: dict[str, Any]
) -> None:
    """A reader whose connections all stall continues over new ones after request_timeout_ms."""
    cluster = behind_proxy
    cluster.create_topic(topic_name)
    cluster.produce(topic_name, [b"before"], partition=0)
    with Consumer(
        bootstrap_servers=cluster.proxied_servers, auto_offset_reset="earliest", request_timeout_ms=2_000, **engine
    ) as consumer:
        consumer.assign([TopicPartition(topic_name, 0)])
        read = [record.value for record in wait_until(lambda: consumer.poll(0.2), WAIT_S, "the first record")]
        for link in proxy.links():
            proxy.set_conditions(STALLED, link)
        cluster.produce(topic_name, [b"after"], partition=0)
        read += [record.value for record in wait_until(lambda: consumer.poll(0.2), WAIT_S, "the second record")]
        assert [b"before", b"after"] == read


@pytest.mark.consumer_protocol
@pytest.mark.network_thread
def test_fenced_while_on_revoke_runs(proxy: Proxy, behind_proxy: KafkaCluster, topic_name: str) -> None:
    """A member is disconnected and fenced while its on_revoke runs. on_lost is called with all its partitions except
    those that on_revoke was called with.
    """
    cluster = behind_proxy
    everything = tps(cluster.create_topic(topic_name, 4), 0, 1, 2, 3)
    options: dict[str, Any] = {"group_id": topic_name, "group_protocol": "consumer"}
    others = Recorder()

    def be_fenced(consumer: Consumer, _: tuple[TopicPartition, ...]) -> None:
        if own.count("revoked") > 1:
            return  # the call when the member leaves
        proxy.set_climate(STALLED)
        wait_until(lambda: set(everything) <= given(), WAIT_S, "the other member to get everything")
        proxy.calm()
        wait_until(lambda: consumer.group_metadata().generation_id < 1, WAIT_S, "the member to hear of it")

    def given() -> set[TopicPartition]:
        return {tp for kind, partitions in others.calls for tp in partitions if kind == "assigned"}

    own = Recorder(revoked=be_fenced)
    with (
        Consumer(bootstrap_servers=cluster.proxied_servers, **options) as consumer,
        Consumer(bootstrap_servers=cluster.bootstrap_servers, **options) as other,
    ):
        consumer.subscribe([topic_name], listener=own)
        poll_until(consumer, lambda: len(consumer.assignment()) == 4)
        own.calls.clear()  # an earlier assignment may have been empty
        other.subscribe([topic_name], listener=others)
        with polled(other):
            poll_until(consumer, lambda: own.count("lost"), WAIT_S)
            (_, gone), (_, rest) = own.calls[:2]
            assert ["revoked", "lost"] == own.kinds[:2]
            assert everything == tuple(sorted(gone + rest))
            assert gone
            assert rest
            poll_until(consumer, lambda: len(consumer.assignment()) == 2, WAIT_S)
