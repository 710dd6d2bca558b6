"""The example in assignors/README.md works as printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from kconsumer.assignors import Assignor, Subscription, assign
from kconsumer.testing.assignors import AssignorCompliance
from support.oracles.assignor_groups import plain_view

TEXT = (Path(__file__).parents[2] / "assignors" / "README.md").read_text()
BLOCK = next(block for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL) if "(Assignor)" in block)


EXAMPLE: dict[str, Any] = {"__name__": "example"}
exec(BLOCK, EXAMPLE)  # the test runs the page's text


def weighted(weight: int | None = None) -> Assignor:
    """Returns an instance of the example's class."""
    return EXAMPLE["WeightedAssignor"](weight)  # type: ignore[no-any-return]  # a class made from text


class TestExample(AssignorCompliance):
    """The compliance suite passes, with balance for equal weights."""

    balanced = True

    def make(self) -> Assignor:
        """Returns an assignor with the default weight."""
        return weighted()


def test_the_example_is_about_as_long_as_promised() -> None:
    """The example has about thirty lines, as the page says."""
    assert len(BLOCK.splitlines()) <= 34


def test_the_example_weighs() -> None:
    """A member of weight 3 gets three times as many partitions as one of weight 1."""
    members = {
        name: Subscription(("t",), user_data=weighted(weight).subscription_user_data(frozenset("t")))
        for name, weight in (("big", 3), ("small", 1))
    }
    given = assign(weighted(), plain_view(t=8), members)
    assert [6, 2] == [len(given[name].partitions) for name in members]
