"""The command of developers: runs simulations, shows and draws their histories, and shrinks scenarios that fail.

tools/kconsumer-simulate run --hours 100 --jobs 2 --coverage
tools/kconsumer-simulate show 4711 --until 600000
tools/kconsumer-simulate diagram 4711 --from 60000 --to 65000
tools/kconsumer-simulate shrink 4711
"""

from __future__ import annotations

import argparse
import datetime
import math
import os
import sys
from collections.abc import Sequence

from support.simulation.diagram import history_of, sequence_diagram, window
from support.simulation.runner import first_seed, run_all, scenario_of
from support.simulation.scenario import Scenario
from support.simulation.shrink import as_test, describe, shrink
from support.simulation.transition_coverage import UNREACHABLE, all_transitions, unseen


def seed_range(text: str) -> range:
    """Parse "7" or "1..100". Returns the seeds."""
    first, dots, last = text.partition("..")
    return range(int(first), int(last if dots else first) + 1)


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


def chosen(arguments: argparse.Namespace, seed: int) -> Scenario:
    """Returns the scenario of a seed, with the options of the command line."""
    return scenario_of(seed, arguments.length, sparse=arguments.sparse)


def run(arguments: argparse.Namespace) -> int:
    """Run scenarios. Returns 1 if one of them violates a rule."""
    seeds: range | None = arguments.seeds
    if seeds is None:
        first = first_seed(datetime.date.today())
        seeds = range(first, first + math.ceil(arguments.hours / arguments.length))
    say(f"seeds {seeds[0]}..{seeds[-1]}, {arguments.length:g} virtual hours each, {arguments.jobs} processes")
    summary = run_all((chosen(arguments, seed) for seed in seeds), arguments.jobs, say)
    if arguments.coverage:
        missing = unseen(summary.transitions)
        say(f"{len(summary.transitions)} of {len(all_transitions())} transitions happened")
        for machine, old, new in missing:
            say(f"  never: {machine}: {old} -> {new}")
        for (machine, old, new), reason in UNREACHABLE.items():
            say(f"  unreachable: {machine}: {old} -> {new}: {reason}")
    if summary.failed:
        say(f"seeds with violations: {' '.join(str(seed) for seed in sorted(r.seed for r in summary.failed))}")
    return 1 if summary.failed else 0


def show(arguments: argparse.Namespace) -> int:
    """Print the history of a run."""
    scenario = chosen(arguments, arguments.seed)
    say(repr(scenario))
    for entry in history_of(scenario, arguments.until, requests=arguments.requests):
        print(entry)
    return 0


def diagram(arguments: argparse.Namespace) -> int:
    """Print a sequence diagram of a part of a run."""
    history = history_of(chosen(arguments, arguments.seed), arguments.to, requests=True)
    say(sequence_diagram(window(history, arguments.start, arguments.to)))
    return 0


def shrink_seed(arguments: argparse.Namespace) -> int:
    """Print a small scenario with the violations of a large one. Returns 1 if there was nothing to shrink."""
    scenario = chosen(arguments, arguments.seed)
    say(describe(scenario))
    smaller = shrink(scenario, report=say, max_runs=arguments.runs)
    if smaller == scenario:
        say("no smaller scenario violates the same rule")
        return 1
    say(as_test(smaller))
    return 0


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    top = argparse.ArgumentParser(prog="kconsumer-simulate", description=(__doc__ or "").partition("\n")[0])
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--length", type=float, default=1.0, help="virtual hours of each run (1)")
    common.add_argument("--sparse", action="store_true", help="few records and long fetches, which is faster")

    command = commands.add_parser("run", parents=[common], help="run many scenarios")
    command.add_argument("--hours", type=float, default=100.0, help="virtual hours of all runs (100), without --seeds")
    command.add_argument("--seeds", type=seed_range, help="for example 1..100; default: seeds of today")
    command.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (one per core)")
    command.add_argument("--coverage", action="store_true", help="print the transitions that never happened")
    command.set_defaults(function=run)

    command = commands.add_parser("show", parents=[common], help="print the history of a run")
    command.add_argument("seed", type=int)
    command.add_argument("--until", type=float, help="stop at this virtual time (ms)")
    command.add_argument("--requests", action="store_true", help="show requests and responses, too")
    command.set_defaults(function=show)

    command = commands.add_parser("diagram", parents=[common], help="print a sequence diagram in Mermaid's language")
    command.add_argument("seed", type=int)
    command.add_argument("--from", dest="start", type=float, required=True, help="virtual time in ms")
    command.add_argument("--to", type=float, required=True, help="virtual time in ms")
    command.set_defaults(function=diagram)

    command = commands.add_parser("shrink", parents=[common], help="reduce a scenario that violates a rule")
    command.add_argument("seed", type=int)
    command.add_argument("--runs", type=int, default=200, help="try at most this many scenarios (200)")
    command.set_defaults(function=shrink_seed)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns its exit code."""
    options = parser().parse_args(arguments)
    result: int = options.function(options)
    return result


if __name__ == "__main__":
    sys.exit(main())
