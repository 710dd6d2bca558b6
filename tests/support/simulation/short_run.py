"""Short tests of whole consumers in virtual time: one function, which uses a simulation and its cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kconsumer.testing.batches import build_batch
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.fake_cluster import describe
from kconsumer.testing.records import Rec
from support.simulation.scheduler import Process
from support.simulation.simulation import Simulation, off_main_thread

LIMIT_MS = 60_000


def run_simulated(function: Callable[[Simulation], object], cluster: Cluster, limit_ms: float = LIMIT_MS) -> None:
    """Call a function in a simulation of this cluster, and wait for its end. Raises its exception.

    Fails if the function has not ended after `limit_ms` of virtual time.
    """

    def simulate() -> None:
        simulation = Simulation(1, cluster)
        ended: list[bool] = []
        errors: list[BaseException] = []
        simulation.scheduler.on_error = lambda _task, error: errors.append(error)

        def run() -> None:
            function(simulation)
            ended.append(True)

        simulation.spawn(Process("test"), "main", run)
        try:
            simulation.scheduler.run(limit_ms, finished=lambda: bool(ended or errors))
        finally:
            simulation.scheduler.close()
        if errors:
            raise errors[0]
        assert ended

    off_main_thread(simulate)


def append(simulation: Simulation, topic: str, values: Sequence[bytes], partition: int = 0) -> None:
    """Append a batch with these values to a partition."""
    found = simulation.cluster.partition(topic, partition)
    assert found is not None
    wall_ms = simulation.clock.wall_ms()
    found.append(build_batch([Rec(value) for value in values], timestamp=wall_ms), wall_ms)
    simulation.network.pump()


def members(simulation: Simulation, group: str) -> int:
    """Returns the number of members that the coordinator of a group knows."""
    return len(describe(simulation.cluster, group, simulation.now).members)
