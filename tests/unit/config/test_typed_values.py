"""Types as values of the options value_deserializer and key_deserializer."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import msgspec
import pydantic.dataclasses
import pytest

from kconsumer.config.options import ConsumerConfig
from kconsumer.errors import ConfigError


@dataclasses.dataclass
class Order:
    number: int


@pydantic.dataclasses.dataclass
class Checked:
    number: int = pydantic.Field(gt=0)


class WithBytes:
    """A class that is neither: it is called with the bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data


def configured(given: Any) -> Any:
    """Returns the deserializer that the option results in."""
    return ConsumerConfig(bootstrap_servers="a:1", value_deserializer=given).value_deserializer


def test_dataclasses() -> None:
    """A dataclass is decoded by msgspec, and one of pydantic by pydantic."""
    assert Order(1) == configured(Order)(b'{"number": 1}')
    assert Checked(1) == configured(Checked)(b'{"number": 1}')
    with pytest.raises(pydantic.ValidationError):
        configured(Checked)(b'{"number": 0}')
    assert [Order(1)] == configured(list[Order])(b'[{"number": 1}]')


def test_other_callables_stay_as_they_are() -> None:
    """Classes and functions that are no such types are called with the bytes."""
    for given in (WithBytes, bytes.decode, int, Order(1).__eq__):
        assert given is configured(given) or given == configured(given)


def test_types_that_msgspec_does_not_support() -> None:
    """The error names the type."""
    with pytest.raises(ConfigError, match=r"msgspec cannot decode JSON to .*: Type unions may not"):
        configured(Order | msgspec.defstruct("Other", ["number"]))


@pytest.mark.parametrize("given", [Order, list[int]])
def test_msgspec_is_named_if_it_is_missing(monkeypatch: pytest.MonkeyPatch, given: Any) -> None:
    """The error names the package, the extra, and how to install it."""
    monkeypatch.setitem(sys.modules, "msgspec", None)
    with pytest.raises(ConfigError, match=r"needs msgspec, .*pip install '.\[typed\]' in a checkout of kconsumer"):
        configured(given)
