"""The tests of the API that run on AsyncConsumer, too, and those of them that do not, with the reason of each."""

from __future__ import annotations

from support.brokers.fake_kafka_tests import entry_names

INTERRUPT = "Ctrl-C cancels the task of the call, and close() continues in its own task until the event loop ends"
THREADS = "uses a consumer on one thread after another; an AsyncConsumer belongs to one event loop"

#: Modules of tests/integration whose tests run on a BlockingConsumer, which is an AsyncConsumer.
ON_ASYNCIO = {
    "test_api_callbacks.py",
    "test_api_commits.py",
    "test_api_flow.py",
    "test_api_iteration.py",
    "test_api_lookups.py",
    "test_api_membership.py",
    "test_api_positions.py",
    "test_api_records.py",
    "test_api_static_members.py",
    "test_api_subscriptions.py",
    "test_consumer_protocol.py",
}

#: Tests of these modules that do not.
ONLY_SYNCHRONOUS: dict[str, str] = {
    "test_api_membership.py::test_interrupt_during_close_leaves_nothing_behind": INTERRUPT,
    "test_api_static_members.py::test_a_duplicate_takes_the_place_of_a_member_that_is_alive": THREADS,
    "test_api_static_members.py::test_a_join_that_unsubscribe_abandoned_does_not_fence_the_successor": THREADS,
    "test_api_static_members.py::test_partitions_withheld_from_a_static_member_that_closes_find_an_owner": THREADS,
}


def runs_on_asyncio(node_id: str) -> bool:
    """Returns True if a test, given by its id in pytest, also runs on an AsyncConsumer."""
    names = entry_names(node_id)
    return names[0] in ON_ASYNCIO and not any(name in ONLY_SYNCHRONOUS for name in names)
