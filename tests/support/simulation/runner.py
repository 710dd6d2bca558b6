"""Runs many scenarios in several processes, and sums up their results."""

from __future__ import annotations

import datetime
import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace

from support.simulation.generate import generate
from support.simulation.run import run_scenario
from support.simulation.scenario import HOUR_MS, Scenario
from support.simulation.transition_coverage import Transition, TransitionCoverage

SEEDS_PER_DAY = 100_000
SPARSE_FETCH_MAX_WAIT_MS = 20_000
SPARSE_RECORD_INTERVAL_MS = 60_000.0


@dataclass(frozen=True)
class Result:
    """What one run showed."""

    seed: int
    hours: float  # virtual
    took_s: float  # real
    violations: tuple[str, ...]
    transitions: frozenset[Transition]


@dataclass
class Summary:
    """The sum of many runs."""

    runs: int = 0
    hours: float = 0.0
    failed: list[Result] = field(default_factory=list)
    transitions: set[Transition] = field(default_factory=set)

    def add(self, result: Result) -> None:
        """Add the result of one run."""
        self.runs += 1
        self.hours += result.hours
        self.transitions |= result.transitions
        if result.violations:
            self.failed.append(result)


def first_seed(day: datetime.date) -> int:
    """Returns the first seed of a day. Each day has seeds of its own, so that each day runs other scenarios."""
    return day.toordinal() * SEEDS_PER_DAY


def scenario_of(seed: int, hours: float, *, sparse: bool = False) -> Scenario:
    """Returns a generated scenario. A sparse one has few records and long fetches, so it runs several times faster.

    A coordinator lookup may wait for the Fetch before it on the same connection. If Fetches took longer than the
    session timeout, members would be removed from the group while the lookup waits.
    """
    scenario = generate(seed, hours * HOUR_MS)
    if not sparse:
        return scenario
    return replace(
        scenario,
        fetch_max_wait_ms=min(SPARSE_FETCH_MAX_WAIT_MS, scenario.session_timeout_ms // 2),
        record_interval_ms=max(scenario.record_interval_ms, SPARSE_RECORD_INTERVAL_MS),
    )


def run_one(scenario: Scenario) -> Result:
    """Run a scenario. An exception of the run is a violation."""
    began = time.perf_counter()
    with TransitionCoverage() as coverage:
        try:
            violations = run_scenario(scenario).violations
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            violations = (f"exception: {error!r} at {where.filename}:{where.lineno}",)
    took_s = time.perf_counter() - began
    return Result(scenario.seed, scenario.duration_ms / HOUR_MS, took_s, violations, frozenset(coverage.seen))


def run_each(scenarios: Iterable[Scenario], jobs: int) -> Iterator[Result]:
    """Run scenarios in `jobs` processes. Yields each result when it is there."""
    if jobs == 1:
        yield from map(run_one, scenarios)
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as executor:
        for future in as_completed([executor.submit(run_one, scenario) for scenario in scenarios]):
            yield future.result()


def run_all(
    scenarios: Iterable[Scenario], jobs: int, report: Callable[[str], None], *, every_s: float = 30.0
) -> Summary:
    """Run scenarios, and report violations and the progress. Returns the summary."""
    summary = Summary()
    began = reported = time.perf_counter()
    for result in run_each(scenarios, jobs):
        summary.add(result)
        for violation in result.violations:
            report(f"seed {result.seed}: {violation}")
        now = time.perf_counter()
        if now - reported > every_s:
            reported = now
            report(progress(summary, now - began))
    report(progress(summary, time.perf_counter() - began))
    return summary


def progress(summary: Summary, seconds: float) -> str:
    """Returns a line about the runs so far."""
    speed = summary.hours / seconds
    return (
        f"{summary.runs} runs, {summary.hours:,.1f} virtual hours in {seconds:,.0f} s ({speed:.3f} virtual hours per "
        f"second), {len(summary.failed)} with violations"
    )
