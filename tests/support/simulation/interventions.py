"""What other threads and signal handlers do to the consumer of a member, at random times."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kconsumer import Consumer
from support.simulation.scenario import MINUTE_MS, Program

if TYPE_CHECKING:
    from support.simulation.members import MemberProcess


class Interruption(KeyboardInterrupt):
    """The exception of a signal handler."""


def wake_up(member: MemberProcess, consumer: Consumer) -> None:
    """Call `wakeup`, as another thread."""
    member.simulation.record(member.name, "is woken up")
    member.wakeups += 1
    consumer.wakeup()


def interrupt(member: MemberProcess, consumer: Consumer) -> None:
    """Send a signal whose handler raises an exception."""

    def handler() -> None:
        raise Interruption

    _send(member, consumer, handler)


def close(member: MemberProcess, consumer: Consumer) -> None:
    """Send a signal whose handler closes the consumer."""
    _send(member, consumer, partial(member.close_in_call, consumer))


def _send(member: MemberProcess, consumer: Consumer, handler: Callable[[], None]) -> None:
    """Send a signal. Between two calls, its handler would run in the application, which is not of interest."""
    if member.calling in ("poll", "unsubscribe", "commit"):
        member.simulation.record(member.name, "gets a signal")
        member.simulation.signals.send(member.process, handler, consumer._engine.components.end_wait)


INTERVENTIONS: dict[Program, tuple[Callable[[MemberProcess, Consumer], None], float]] = {
    Program.WAKE_UP: (wake_up, 10_000.0),
    Program.INTERRUPT: (interrupt, 30_000.0),
    Program.CLOSE_IN_HANDLER: (close, MINUTE_MS),
}
"""By program: what happens, and the mean time between two times (ms)."""


def schedule(member: MemberProcess, consumer: Consumer) -> None:
    """Let something happen to a consumer again and again, until it is closed, if the member's program is of this kind.

    Near the end of the run there are only wakeups, so that the last records are processed.
    """
    if member.plan.program not in INTERVENTIONS:
        return
    happen, mean_ms = INTERVENTIONS[member.plan.program]
    simulation = member.simulation

    def run() -> None:
        ends = member.catching_up and happen is not wake_up
        if member.consumer is consumer and member.alive and not ends:
            happen(member, consumer)
            schedule(member, consumer)

    simulation.scheduler.call_at(simulation.now + simulation.random.expovariate(1 / mean_ms), run)
