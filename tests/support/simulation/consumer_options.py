"""The options with which the members of a scenario open their consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kconsumer import HeaderFilter
from support.simulation.scenario import Member, Program, Scenario
from support.simulation.settings import (
    GROUP,
    HEADER,
    HEARTBEAT_INTERVAL_MS,
    MAX_POLL_INTERVAL_MS,
    PASSWORD,
    POLL_TIMEOUT_S,
    SELECTED,
    USER,
)

if TYPE_CHECKING:
    from support.simulation.members import MemberProcess

MANUAL = (Program.COMMIT, Program.COMMIT_ASYNC, Program.COMMIT_IN_CALLBACK, Program.PARALLEL)  # without auto-commit
OF_GROUPS = ("group_id", "group_protocol", "max_poll_interval_ms", "enable_auto_commit")
DEFERRED = (Program.CANCEL,)  # programs with a deserializer that is a coroutine function
UNUSUAL_DESERIALIZERS = (Program.SLOW_DESERIALIZER, Program.RAISE_IN_PLUGIN, Program.INTERRUPT)
UPGRADES = (["range"], ["cooperative-sticky", "range"], ["cooperative-sticky"])  # the assignors, in their order
UPGRADED = 0.75  # the part of the run after which the last upgrade begins


def consumer_options(member: MemberProcess) -> dict[str, Any]:
    """Returns the options of the next consumer of a member."""
    plan, scenario = member.plan, member.scenario
    protocol = plan.protocol
    if plan.program is Program.CHANGE_PROTOCOL and member.consumers % 2 == 0:
        protocol = "consumer" if protocol == "classic" else "classic"
    options: dict[str, Any] = {
        "group_id": GROUP,
        "client_id": member.name,
        "group_protocol": protocol,
        "auto_offset_reset": scenario.reset,
        "fetch_max_wait_ms": scenario.fetch_max_wait_ms,
        "max_poll_interval_ms": MAX_POLL_INTERVAL_MS,
        "max_poll_records": 7,
        "enable_auto_commit": plan.program not in MANUAL,
        "consumer_timeout_ms": int(POLL_TIMEOUT_S * 1000),
        "default_api_timeout_ms": scenario.api_timeout_ms,
    }
    if plan.program is Program.PARALLEL:
        del options["consumer_timeout_ms"]  # else its runs would end when there are no records
    if scenario.transactions:
        options["isolation_level"] = "read_committed"
    if plan.program is Program.STORE:
        options["enable_auto_offset_store"] = False
    if scenario.filtered:
        compiled = HeaderFilter(HEADER, SELECTED)
        options["record_filter"] = compiled if member.name[-1] in "02468" else lambda record: compiled(record)
    if scenario.reset == "latest":
        options["auto_offset_reset_new_partitions"] = "earliest"
    if plan.program in UNUSUAL_DESERIALIZERS:
        options["value_deserializer"] = member.deserialize
    if plan.program in DEFERRED:
        options["value_deserializer"] = member.deserialize_later
    if plan.program is Program.RAISE_IN_PLUGIN:
        options["interceptors"] = [member.interceptor]
    if plan.program is Program.CLOSE_IN_CALLBACK:
        options["on_commit"] = member.on_commit
    if plan.program is Program.READ_ALONE:
        options = {key: options[key] for key in options if key not in OF_GROUPS} | {"engine": _engine(plan)}
    elif plan.static:
        options["group_instance_id"] = member.instance
    if scenario.tls:
        options["security_protocol"] = "SSL"
    if scenario.sasl:
        options |= {
            "security_protocol": "SASL_SSL" if scenario.tls else "SASL_PLAINTEXT",
            "sasl_mechanism": scenario.sasl,
            "sasl_plain_username": USER,
            "sasl_plain_password": PASSWORD,
        }
    if protocol == "classic" and plan.program is not Program.READ_ALONE:
        options |= {
            "engine": _engine(plan),
            "assignors": [plan.assignor],
            "session_timeout_ms": scenario.session_timeout_ms,
            "heartbeat_interval_ms": HEARTBEAT_INTERVAL_MS,
        }
        if plan.program is Program.UPGRADE:
            options["assignors"] = UPGRADES[_upgrades(member.simulation.now, scenario)]
    return options


def _engine(plan: Member) -> str:
    """Returns the option `engine`."""
    return "threaded" if plan.engine == "asyncio" else plan.engine


def _upgrades(now: float, scenario: Scenario) -> int:
    """Returns how many upgrades have begun."""
    return min(len(UPGRADES) - 1, int((len(UPGRADES) - 1) * now / (UPGRADED * scenario.duration_ms)))


def upgrade_ends_ms(now: float, scenario: Scenario) -> float:
    """Returns when the next upgrade begins."""
    return (_upgrades(now, scenario) + 1) * UPGRADED * scenario.duration_ms / (len(UPGRADES) - 1)
