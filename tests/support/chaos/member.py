"""One member of a chaos run as a process of its own: `python member.py '{"member": "Member(…)", …}'`.

It runs a program of the simulation with a real consumer, writes its event log to standard output, and closes its
consumer and ends when its standard input is closed.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parents[2]))

from simulation.mutations import MUTATIONS
from simulation.share_mutations import MUTATIONS as SHARE_MUTATIONS
from support.chaos.real_world import EventLog, RealWorld
from support.simulation import interventions
from support.simulation.members import MemberProcess
from support.simulation.observers import LoggedExceptions
from support.simulation.scenario import Member, Program, Scenario, Workers
from support.simulation.share_members import ShareMemberProcess
from support.simulation.share_scenario import ShareMember, ShareScenario

STATUS_S = 2.0


def main() -> int:
    """Run one member from its JSON argument."""
    settings = json.loads(sys.argv[1])
    faulthandler.register(signal.SIGUSR1)
    logging.basicConfig(level="INFO", stream=sys.stderr, format="%(asctime)s %(name)s %(message)s")
    names = {kind.__name__: kind for kind in (Member, Program, Scenario, Workers, ShareMember, ShareScenario)}
    plan, scenario = (eval(settings[name], {}, names) for name in ("member", "scenario"))
    if defect := os.environ.get("KCONSUMER_CHAOS_MUTATION"):  # which the run must find
        next(mutation for mutation in (*MUTATIONS, *SHARE_MUTATIONS) if mutation.name == defect).apply()
    world, log = RealWorld(settings), EventLog(sys.stdout, settings["origin_s"])
    simulation, journal, name = cast("Any", world), cast("Any", log), settings["name"]
    member: MemberProcess | ShareMemberProcess
    if isinstance(plan, ShareMember):
        member = ShareMemberProcess(simulation, journal, scenario, plan, name)
    else:
        member = MemberProcess(simulation, journal, scenario, plan, name, name)
    logging.getLogger("kconsumer").addHandler(LoggedExceptions(journal, simulation))

    def stop_at_end_of_input() -> None:
        sys.stdin.read()
        if isinstance(member, ShareMemberProcess):
            member.ends_ms = world.now
            if member.consumer is not None:
                member.consumer.wakeup()
            return
        member.plan = replace(plan, stop_ms=world.now)
        if member.consumer is not None:
            interventions.wake_up(member, member.consumer)

    threading.Thread(target=stop_at_end_of_input, daemon=True).start()
    threading.Thread(target=_report_use, args=(log,), daemon=True).start()
    member.alive = True
    log.write("started")
    member.main()
    log.write("closed")
    return 0


def _report_use(log: EventLog) -> None:
    """Report again and again what the process uses: anonymous memory (kB), descriptors, threads."""
    while True:
        memory = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
        log.write("use", int(memory.split()[1]), len(os.listdir("/proc/self/fd")) - 1, threading.active_count())
        threading.Event().wait(STATUS_S)


if __name__ == "__main__":
    sys.exit(main())
