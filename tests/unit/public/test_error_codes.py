"""The table of error codes, the exception class of each code, and the tables that map codes to actions."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path

import pytest

from kconsumer._common.error_codes import CODES, ErrorCode, Errors, is_retriable
from kconsumer._common.error_tables import ErrorAction, ErrorTable
from kconsumer.errors import BrokerError, error_class, error_for

PACKAGE = Path(__file__).parents[3] / "kconsumer"
TABLES = ["coordinator", "coordinator/consumer_protocol", "offsets", "fetching"]


class Action(ErrorAction):
    """Two actions."""

    RETRY = "retry"
    RAISE = "raise"


def test_a_row_is_its_number() -> None:
    """The int code of a response is a key of `CODES` and equals the member of `Errors`."""
    assert 6 == Errors.NOT_LEADER_OR_FOLLOWER
    assert ("NOT_LEADER_OR_FOLLOWER", True) == (CODES[6].name, CODES[6].retriable)
    assert CODES[6] is Errors.NOT_LEADER_OR_FOLLOWER
    assert "action" == {Errors.NOT_LEADER_OR_FOLLOWER: "action"}[6]


def test_every_member_is_in_the_table() -> None:
    """Members have distinct numbers and Kafka's names."""
    members = {name: row for name, row in vars(Errors).items() if isinstance(row, ErrorCode)}
    assert members == {row.name: row for row in CODES.values()}
    assert len(CODES) == len(members)


def test_no_code_is_missing() -> None:
    """The table has every code of Kafka 4.4."""
    assert {-1, *range(1, 137)} == set(CODES)


@pytest.mark.parametrize("code", CODES, ids=lambda code: CODES[code].name)
def test_classes_agree_with_the_table(code: int) -> None:
    """An error class is retriable exactly if the codes that map to it are."""
    error = error_for(code, "somewhere")
    assert CODES[code].retriable == error.retriable == is_retriable(code)
    assert type(error) is error_class(code)
    assert CODES[code].name == error.name
    assert f"somewhere: {error.name} ({CODES[code].meaning})" == str(error)


def test_an_unknown_code_is_not_retriable() -> None:
    """A code of a newer broker becomes a BrokerError with its number."""
    error = error_for(31_000)
    assert (False, BrokerError, 31_000) == (is_retriable(31_000), type(error), error.code)
    assert "UNKNOWN_ERROR_CODE_31000" in str(error)


def test_errors_carry_plain_integers() -> None:
    """`error.code` is an int, whatever type was passed to `error_for`, and survives pickling."""
    error = pickle.loads(pickle.dumps(error_for(Errors.GROUP_ID_NOT_FOUND, "group g")))
    assert (int, 69) == (type(error.code), error.code)


def test_a_table_has_defaults() -> None:
    """A code without a row has the default action; retriable codes may have another default."""
    table = ErrorTable({Errors.NOT_COORDINATOR: Action.RAISE}, default=Action.RAISE, default_retriable=Action.RETRY)
    assert [Action.RAISE, Action.RETRY, Action.RAISE] == [table[16], table[7], table[31_000]]
    assert Action.RAISE is ErrorTable({Errors.NOT_COORDINATOR: Action.RETRY}, default=Action.RAISE)[7]
    assert [16] == list(table), "a lookup adds no row"


@pytest.mark.parametrize("package", TABLES)
def test_action_tables_use_names(package: str) -> None:
    """No table of actions has an integer for a code."""
    name = "heartbeat.py" if "protocol" in package else "error_actions.py"
    tree = ast.parse((PACKAGE / package / name).read_text())
    keys = [key for node in ast.walk(tree) if isinstance(node, ast.Dict) for key in node.keys]
    assert keys
    assert [] == [key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, int)]
