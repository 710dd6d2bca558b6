"""Each mutation of the simulation finds the code that it changes, so that `make check` sees one that became void."""

from __future__ import annotations

import pytest

from simulation.mutation import Mutation
from simulation.mutations import MUTATIONS
from simulation.share_mutations import MUTATIONS as SHARE_MUTATIONS


@pytest.mark.parametrize("mutation", [*MUTATIONS, *SHARE_MUTATIONS], ids=lambda mutation: mutation.name)
def test_the_code_that_a_mutation_changes_exists(mutation: Mutation) -> None:
    """A mutation finds its function and its text, and can be taken back."""
    with mutation.applied():
        pass
