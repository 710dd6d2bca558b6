"""The Python blocks of docs/asyncio.md run as they are printed, on a FakeCluster; its tables are those of the class.

A program that reads for ever is ended by Ctrl-C when it has read every record.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import signal
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka.aio import AIOConsumer

from kconsumer import ConsumerRecords, RangeClient
from kconsumer.aio import AsyncConsumer
from kconsumer.testing import FakeCluster
from support.harnesses.doc_blocks import BLOCKS, ROOT, Block, run_python
from support.harnesses.event_loops import EVENT_LOOPS

PAGE = "docs/asyncio.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")
BLOCKS_OF_THE_PAGE = [block for block in BLOCKS if block.page == PAGE and block.language == "python"]
PARTITIONS, RECORDS = 2, 12


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster with the topic of the page, and a group that has read a third of it."""
    with FakeCluster() as cluster:
        cluster.create_topic("orders", partitions=PARTITIONS)
        for number in range(RECORDS):
            cluster.produce("orders", f'{{"order_id": {number}}}', partition=number % PARTITIONS, key="k")
        with RangeClient(bootstrap_servers=cluster.bootstrap_servers) as client:
            client.commit("reports", {("orders", partition): 2 for partition in range(PARTITIONS)})
        yield cluster


@pytest.fixture
def signals() -> Iterator[None]:
    """Restores the handlers of signals."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


class Expected(NamedTuple):
    """What a program does."""

    line: str  # matches the lines of its output
    lines: int  # how many there are
    commits: bool = False  # all records are committed at the end
    ends: bool = False  # without Ctrl-C


EXPECTED = {
    "asyncio": [Expected(r"[01] \d b'k' b'.*'", RECORDS)],
    "What is awaited": [Expected(r"b'k' b'.*'", RECORDS, commits=True)],
    "Several tasks, one poll": [Expected(r"b'.*'", RECORDS)],
    "Cancellation": [Expected(r"12 records", 1, commits=True, ends=True)],
    "Callbacks": [Expected(r"orders-[01] 6", PARTITIONS, commits=True)],
    "Deserializers": [Expected(r"order-[01] \{'order_id': \d+\}", RECORDS)],
    "A blocked event loop": [Expected(r"\d [0-9a-f]{128}", RECORDS)],
    "Shutdown": [Expected(r"\d b'.*'|leaving the group", RECORDS + 1, commits=True)],
    "Event loops": [Expected(r"\[.*'orders'\]", 1, ends=True), Expected(r"\d b'.*'", RECORDS, commits=True, ends=True)],
    "Ranges, topics and groups": [
        Expected(r"6 rows; continues at 6 of 6", 1, ends=True),
        Expected(r"12 records \{'reports': 8\}", 1, ends=True),
    ],
}


def section(block: Block) -> str:
    """Returns the heading above a block."""
    return re.findall(r"^#+ (.*)$", "\n".join(TEXT.splitlines()[: block.line]), re.MULTILINE)[-1]


def runs() -> list[tuple[Block, str]]:
    """Returns each block with the event loops in which it runs: all, or the one that it names itself."""
    return [
        (block, loop)
        for block in BLOCKS_OF_THE_PAGE
        for loop in (EVENT_LOOPS if "asyncio.run(" in block.text else ["its own"])
    ]


def press_ctrl_c_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the poll after the last record send SIGINT, once."""
    poll, sizes, ended = AsyncConsumer.poll, list[int](), list[AsyncConsumer]()

    async def counted(self: AsyncConsumer, *arguments: Any, **options: Any) -> ConsumerRecords:
        if sum(sizes) >= RECORDS and not ended:
            ended.append(self)
            signal.raise_signal(signal.SIGINT)
        records = await poll(self, *arguments, **options)
        sizes.append(len(records))
        return records

    monkeypatch.setattr(AsyncConsumer, "poll", counted)


@pytest.mark.parametrize(("block", "loop"), runs(), ids=lambda value: getattr(value, "name", value))
@pytest.mark.usefixtures("signals")
def test_the_program_runs(
    block: Block,
    loop: str,
    cluster: FakeCluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The program prints what it should, until Ctrl-C. Its member has left the group, and offsets are committed."""
    blocks = [other for other in BLOCKS_OF_THE_PAGE if section(other) == section(block)]
    expected = EXPECTED[section(block)][blocks.index(block)]
    if loop in EVENT_LOOPS:
        monkeypatch.setattr(asyncio, "run", EVENT_LOOPS[loop])
    if not expected.ends:
        press_ctrl_c_at_the_end(monkeypatch)
    run_python(block, {"localhost:9092": cluster.bootstrap_servers})
    lines = capsys.readouterr().out.splitlines()
    assert expected.lines == sum(re.fullmatch(expected.line, line) is not None for line in lines), lines
    groups = re.findall(r'"?group_id"?[=:] ?"(.*?)"', block.text)
    assert () == tuple(member for group in groups for member in cluster.group(group).members)
    committed = {tp.partition: position.offset for group in groups for tp, position in cluster.committed(group).items()}
    assert committed == (dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS) if expected.commits else {})


def test_every_block_is_expected() -> None:
    """Every block of the page has its row in EXPECTED."""
    found: dict[str, int] = {}
    for block in BLOCKS_OF_THE_PAGE:
        found[section(block)] = found.get(section(block), 0) + 1
    assert {name: len(rows) for name, rows in EXPECTED.items()} == found


# --- tables --------------------------------------------------------------------------------------------------------


def table(heading: str) -> list[list[str]]:
    """Returns the rows of the first table in a section."""
    lines = TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0].splitlines()
    return [line.strip("| ").split(" | ") for line in lines if line.startswith("|")][2:]


def test_the_table_of_methods_is_complete() -> None:
    """Each public method of the class is in the row that says how it is called, and in no other."""
    rows = {row[0]: set(re.findall(r"`(\w+)`", row[1])) for row in table("What is awaited")}
    # Reading a name of another client raises an AttributeError with a hint.
    names = [name for name in dir(AsyncConsumer) if not name.startswith("_") and hasattr(AsyncConsumer, name)]
    methods = {name: getattr(AsyncConsumer, name) for name in names}
    coroutines = {name for name, method in methods.items() if inspect.iscoroutinefunction(method)}
    generators = {name for name, method in methods.items() if inspect.isasyncgenfunction(method)}
    assert coroutines == rows["`await`"]
    assert generators == rows["`async for`"] - {"poll"}
    assert methods.keys() - coroutines - generators == rows["plain"]


@pytest.mark.parametrize(
    ("heading", "other"),
    [("Coming from aiokafka", AIOKafkaConsumer), ("Coming from AIOConsumer of confluent-kafka", AIOConsumer)],
)
def test_the_tables_name_methods_that_exist(heading: str, other: type) -> None:
    """Methods on the left are the other client's, those on the right ours, with or without await. None is forgotten."""
    calls = re.compile(r"(await )?\bconsumer\.(\w+)\(")
    named: set[str] = set()
    for row in table(heading):
        for column, client in zip(row, (other, AsyncConsumer), strict=True):
            for awaited, name in calls.findall(column):
                assert bool(awaited) == inspect.iscoroutinefunction(getattr(client, name)), (client, name)
        named |= {name for _, name in calls.findall(row[0])}
    same = {name for name in dir(other) if not name.startswith("_") and inspect.isfunction(getattr(other, name))}
    assert set() == same - named - {name for name in same if _same(getattr(other, name), name)} - NOT_NAMED


# Methods of other clients whose hint is in the message of the AttributeError, or that programs rarely call.
NOT_NAMED = {"last_poll_timestamp", "incremental_unassign", "cluster_id", "set_sasl_credentials"}


def _same(method: Callable[..., Any], name: str) -> bool:
    """Returns whether a method is called in the same way here."""
    ours = getattr(AsyncConsumer, name, None)
    return ours is not None and inspect.iscoroutinefunction(ours) == inspect.iscoroutinefunction(method)
