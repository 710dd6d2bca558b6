"""`kconsumer groups`: tables, JSON, exit codes and --watch, with a fake client."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, Self

import pytest

from kconsumer import TopicPartition, cli
from kconsumer.cli import groups, watch
from kconsumer.errors import error_for
from kconsumer.groups.types import GroupDescription, GroupListing, GroupMember, GroupOffset
from kconsumer.types import Node

T0, T1, T2 = (TopicPartition("t", partition) for partition in range(3))
ONE = GroupMember("m-1", None, "c", "/h", (T0, T1))
GROUP = GroupDescription("g", "classic", "Stable", "consumer", "range", Node(1, "b", 9), members=(ONE,))
OFFSETS = {
    T0: GroupOffset(3, 0, 10, 7, "m-1"),
    T1: GroupOffset(None, 0, 5, None, "m-1"),
    T2: GroupOffset(8, 0, 10, 2),
}


class FakeClient:
    """A client with one group, which stores its calls."""

    asked: list[Any]

    def __init__(self, options: dict[str, object]) -> None:
        self.options = options
        self.asked = []

    def list(self, *, states: Iterable[str], types: Iterable[str]) -> list[GroupListing]:
        self.asked.append((list(states), list(types)))
        return [GroupListing("g", "classic", "Stable", "consumer"), GroupListing("old", None, None, "")]

    def describe(self, group: str) -> GroupDescription:
        if group != "g":
            raise error_for(69, f"group {group!r}")
        return GROUP

    def describe_all(self, **filters: object) -> Sequence[GroupDescription]:
        self.asked.append(filters)
        return [GROUP]

    def all_offsets(self, found: Sequence[GroupDescription]) -> Sequence[dict[TopicPartition, GroupOffset]]:
        return [OFFSETS for _ in found]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.asked.append("closed")


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Callable[[], FakeClient]:
    """Install the fake client; returns a function that returns the latest one."""
    made: list[FakeClient] = []

    def connect(options: dict[str, object]) -> FakeClient:
        made.append(FakeClient(options))
        return made[-1]

    monkeypatch.setattr(groups, "connect", connect)
    return lambda: made[-1]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Returns exit code, stdout and stderr of `kconsumer groups …`."""
    code = cli.main(["groups", *arguments, "-b", "broker:9092"])
    out, err = capsys.readouterr()
    return code, out, err


def test_list(client: Callable[[], FakeClient], capsys: pytest.CaptureFixture[str]) -> None:
    """Filters are accepted in any spelling; a field that an old broker does not send is a dash, or null."""
    code, out, _ = run(capsys, "list", "--state", "preparing-rebalance", "--state", "STABLE", "--type", "Classic")
    assert (0, [["g", "classic", "Stable", "consumer"], ["old", "-", "-", "-"]]) == (
        code,
        [line.split() for line in out.splitlines()[1:]],
    )
    assert [(["PreparingRebalance", "Stable"], ["classic"]), "closed"] == client().asked
    code, out, _ = run(capsys, "list", "--json")
    assert {"group": "old", "type": None, "state": None, "protocol_type": ""} == json.loads(out.splitlines()[1])


@pytest.mark.usefixtures("client")
def test_describe(capsys: pytest.CaptureFixture[str]) -> None:
    """The state of the group is followed by its partitions; JSON has both, and the members."""
    _, out, _ = run(capsys, "describe", "g")
    lines = [line.split() for line in out.splitlines()]
    assert ["g", "classic", "Stable", "range", "b:9", "(id", "1)", "1", "-", "9"] == lines[1]
    assert [
        ["t", "0", "3", "0", "10", "7", "m-1", "/h", "c"],
        ["t", "1", "-", "0", "5", "-", "m-1", "/h", "c"],
        ["t", "2", "8", "0", "10", "2", "-", "-", "-"],
    ] == lines[4:]
    _, out, _ = run(capsys, "describe", "g", "-f", "json")
    described = json.loads(out)
    assert (9, [None, None], 3) == (
        described["lag"],
        [described["group_epoch"], described["assignment_epoch"]],
        len(described["offsets"]),
    )
    assert [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}] == described["members"][0]["assignment"]


@pytest.mark.usefixtures("client")
def test_members_and_offsets(capsys: pytest.CaptureFixture[str]) -> None:
    """There is one line per member and one per partition, in both formats."""
    _, out, _ = run(capsys, "members", "g")
    assert ["g", "m-1", "-", "c", "/h", "-", "2", "t(0,1)"] == out.splitlines()[1].split()
    _, out, _ = run(capsys, "members", "--json")
    assert ("g", "m-1") == (json.loads(out)["group"], json.loads(out)["member"])
    _, out, _ = run(capsys, "offsets", "g", "--json")
    assert [3, None, 8] == [json.loads(line)["committed"] for line in out.splitlines()]
    _, out, _ = run(capsys, "offsets")
    assert 4 == len(out.splitlines())


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize(("limit", "expected"), [("9", 0), ("8", 3), ("0", 3)])
def test_max_lag(capsys: pytest.CaptureFixture[str], limit: str, expected: int) -> None:
    """The exit code is 3 if the known lag exceeds the limit; stderr names the partition with the largest lag."""
    code, out, err = run(capsys, "lag", "--max-lag", limit)
    assert (expected, ["g", "Stable", "1", "3", "1", "9", "7", "t-0"]) == (code, out.splitlines()[1].split())
    expected_line = f"kconsumer: group 'g' lags by 9 records (largest lag: 7 in t-0); the limit is {limit}\n"
    assert (expected_line if expected else "") == err


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["lag", "none"], 1, "group 'none' does not exist"),
        (["lag", "g", "--state", "Stable"], 2, "filter all groups"),
        (["lag", "--watch", "--max-lag", "1"], 2, "--watch never exits"),
        (["lag", "--state", "happy"], 2, "'happy' is not one of Stable"),
        (["lag", "--watch", "soon"], 2, "not a number of seconds"),
        (["lag", "--max-lag", "-1"], 2, "--max-lag"),
        (["lag", "-X", "bootstrap_servers=x"], 2, "sets this option already"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_commands(capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, text: str) -> None:
    """A wrong command gives one line on stderr, and the exit code of an error or of wrong usage."""
    found, out, err = run(capsys, *arguments)
    assert (code, "", True) == (found, out, text in err)


class Terminal(io.StringIO):
    """A terminal of 20 columns and 5 lines."""

    def isatty(self) -> bool:
        return True

    @staticmethod
    def size() -> tuple[int, int]:
        """Returns columns and lines."""
        return 20, 5


def test_a_screen_is_painted_over() -> None:
    """A view is painted from the top, each line erased to its end, without scrolling; hidden lines are counted."""
    terminal = Terminal()
    screen = watch.Screen(terminal, terminal.size)
    screen.paint(["one", "x" * 30], "title")
    assert "\x1b[Htitle\x1b[K\n\x1b[K\none\x1b[K\n" + "x" * 20 + "\x1b[K\n\x1b[J" == terminal.getvalue()
    terminal.seek(terminal.truncate(0))
    screen.paint(["1", "2", "3"], "title")
    assert "\x1b[Htitle\x1b[K\n\x1b[K\n1\x1b[K\n… 2 more lines\x1b[K\n\x1b[J" == terminal.getvalue()


def test_watch_repeats_until_ctrl_c(
    client: Callable[[], FakeClient], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The view is queried again and again on one connection, which Ctrl-C closes; the exit code is 130."""
    pauses = iter([None, None])

    class Pause:
        def wait(self, seconds: float) -> None:
            assert 0.5 == seconds
            if next(pauses, "end") == "end":
                raise KeyboardInterrupt

    monkeypatch.setattr(watch, "threading", SimpleNamespace(Event=Pause))
    code, out, err = run(capsys, "lag", "--watch", "0.5", "--json")
    assert (130, 3, "") == (code, len(out.splitlines()), err)
    assert [{"states": [], "types": []}] * 3 + ["closed"] == client().asked
