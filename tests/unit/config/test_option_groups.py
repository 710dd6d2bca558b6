"""Option groups have fields with the names and types of the options that they contain."""

from __future__ import annotations

from typing import get_type_hints

import pytest

from kconsumer.config.option_groups import OptionGroup
from kconsumer.config.options import OPTIONS, ConsumerConfig

GROUPS = OptionGroup.__subclasses__()


@pytest.mark.parametrize("group", GROUPS)
def test_every_field_is_an_option_of_the_same_type(group):
    """Each field of a group has the name and the annotation of an option."""
    assert len(GROUPS) == 8
    types = get_type_hints(ConsumerConfig)
    for name, annotation in get_type_hints(group).items():
        if name == "read_committed":  # the isolation level as a bool
            assert annotation is bool
        else:
            assert name in OPTIONS
            assert annotation == types[name]


@pytest.mark.parametrize("group", GROUPS)
def test_select_takes_the_values_of_the_configuration(group):
    """Each field has the value of the option of its name."""
    config = ConsumerConfig(
        bootstrap_servers="localhost:9092",
        group_id="g",
        isolation_level="read_committed",
        retry_backoff_ms=7,
        fetch_min_bytes=7,
    )
    selected = config.select(group)
    assert vars(selected) == {name: getattr(config, name) for name in get_type_hints(group)}
    assert 7 in vars(selected).values()
    assert "=7" in repr(selected)


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_is_immutable(group):
    """Fields of a group cannot be set."""
    selected = ConsumerConfig(bootstrap_servers="localhost:9092", retry_backoff_ms=7, fetch_min_bytes=7).select(group)
    with pytest.raises(AttributeError, match=f"^a {group.__name__} is immutable"):
        selected.retry_backoff_ms = 8
    assert 8 not in vars(selected).values()
