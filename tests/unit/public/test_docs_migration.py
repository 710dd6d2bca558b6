"""The pages of docs/coming-from: their tables name methods that exist, and the defaults of the installed clients."""

from __future__ import annotations

import ctypes
import importlib.util
import inspect
import json
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import pytest

from kconsumer import Consumer, ConsumerRecord, ConsumerRecords
from kconsumer.config.options import OPTIONS, canonical_name

ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests" / "unit" / "config" / "data" / "option_defaults.json"
DEFAULTS: dict[str, dict[str, Any]] = json.loads(DATA.read_text(encoding="utf-8"))
OWNERS = {"consumer": Consumer, "record": ConsumerRecord, "records": ConsumerRecords}
NAMED = re.compile(r"\b(consumer|message|records?)\.(\w+)")
# Names that the tables leave out: what a program cannot call usefully, and setters for tests.
NOT_NAMED = {
    "DEFAULT_CONFIG", "DEFAULT_SESSION_TIMEOUT_MS_PRE_KIP_735", "cluster_id", "latency", "delivery_count",
    "deserialized_key", "deserialized_value", "set_error", "set_headers", "set_key", "set_topic", "set_value",
}  # fmt: skip
# Options whose default depends on the client or on other options, and that no page compares.
NOT_COMPARED = {
    "client_id", "enable_auto_commit", "sasl_kerberos_service_name", "sasl_kerberos_principal", "consumer_timeout_ms",
    "metrics_reporters", "bootstrap_servers",
}  # fmt: skip


@pytest.fixture(scope="module")
def kafka_consumer() -> Any:
    """The class of kafka-python, which warns when it is imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import KafkaConsumer
    return KafkaConsumer


def rows(page: str) -> Iterator[tuple[str, str]]:
    """Yield the cells of the table of calls."""
    text = (ROOT / "docs" / "coming-from" / f"{page}.md").read_text(encoding="utf-8")
    for line in text.split("\n## Calls\n")[1].split("\n## ")[0].splitlines():
        if line.startswith("|"):
            cells = re.split(r"(?<!\\)\|", line.strip("|"))
            yield cells[0], cells[1]


@pytest.mark.parametrize("page", ["confluent-kafka", "kafka-python", "java"])
def test_our_methods_exist(page: str) -> None:
    """Methods and fields on the right exist, also where the row says that they are the same."""
    for theirs, ours in rows(page):
        for owner, name in NAMED.findall(theirs if "the same" in ours and "consumer." not in ours else ours):
            assert hasattr(OWNERS[owner], name), f"{owner}.{name}"


@pytest.mark.parametrize("page", ["confluent-kafka", "kafka-python"])
def test_their_methods_are_all_named(page: str, kafka_consumer: type) -> None:
    """Each public method of the client is on the left, and every name on the left exists there."""
    classes: dict[str, type] = {"consumer": confluent_kafka.Consumer, "message": confluent_kafka.Message}
    if page == "kafka-python":
        classes = {"consumer": kafka_consumer}
    named: dict[str, set[str]] = {owner: set() for owner in classes}
    for theirs, _ in rows(page):
        for owner, name in NAMED.findall(theirs):
            named[owner].add(name)
    for owner, cls in classes.items():
        public = {name for name in dir(cls) if not name.startswith("_")}
        assert (set(), set()) == (public - named[owner] - NOT_NAMED, named[owner] - public)


def test_differences_from_java_are_shown_by_tests() -> None:
    """The tests that docs/java_differences.py names exist."""
    spec = importlib.util.spec_from_file_location("java_differences", ROOT / "docs" / "java_differences.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    named = [test.split("::") for test in module.tests()]
    missing = [
        f"{file}::{function}"
        for file, function in named
        if not re.search(rf"^def {function}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert [] == missing


# --- defaults ------------------------------------------------------------------------------------------------------


def librdkafka() -> dict[str, object]:
    """Returns the defaults of the librdkafka inside confluent-kafka, read from its library."""
    [path] = (Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka*.so*")
    library = ctypes.CDLL(str(path))
    library.rd_kafka_conf_new.restype = ctypes.c_void_p
    library.rd_kafka_conf_dump.restype = ctypes.POINTER(ctypes.c_char_p)
    library.rd_kafka_conf_dump.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]
    library.rd_kafka_conf_dump_free.argtypes = [ctypes.POINTER(ctypes.c_char_p), ctypes.c_size_t]
    library.rd_kafka_conf_destroy.argtypes = [ctypes.c_void_p]
    configuration, count = library.rd_kafka_conf_new(), ctypes.c_size_t()
    words = library.rd_kafka_conf_dump(configuration, ctypes.byref(count))
    texts = [words[index].decode() if words[index] else "" for index in range(count.value)]
    library.rd_kafka_conf_dump_free(words, count)
    library.rd_kafka_conf_destroy(configuration)
    return dict(zip(texts[::2], texts[1::2], strict=True))


def installed(client: str, kafka_consumer: Any) -> dict[str, object]:
    """Returns the defaults of an installed client, with the names of assignors in place of their classes."""
    if client == "confluent-kafka":
        return librdkafka()
    if client == "kafka-python":
        found: dict[str, object] = dict(kafka_consumer.DEFAULT_CONFIG)
    else:
        parameters = inspect.signature(aiokafka.AIOKafkaConsumer.__init__).parameters
        found = {name: parameter.default for name, parameter in parameters.items()}
    strategy: Any = found["partition_assignment_strategy"]
    return {**found, "partition_assignment_strategy": [assignor.name for assignor in strategy]}


def text(value: object) -> str:
    """Returns a default in a form in which those of different clients can be compared."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return "" if value is None else str(value).lower()


@pytest.mark.parametrize("client", sorted(DEFAULTS.keys() - {"java"}))  # test_java_names.py compares Java's
def test_defaults_of_the_installed_client(client: str, kafka_consumer: Any) -> None:
    """The defaults in the page are those of the installed client, and none that differs from ours is missing."""
    theirs = installed(client, kafka_consumer)
    assert {name: text(value) for name, value in DEFAULTS[client].items()} == {
        name: text(theirs[name]) for name in DEFAULTS[client]
    }
    different = {
        name
        for name, value in theirs.items()
        if (option := canonical_name(name)) in OPTIONS.keys() - NOT_COMPARED
        and text(OPTIONS[option].default) != text(value)
    }
    assert different == DEFAULTS[client].keys() - {"consumer_timeout_ms"}
