"""`kconsumer work`: runs a handler as a service, by `kconsumer.parallel`.

The first SIGINT or SIGTERM ends the run in order: no more records are started, handlers that run are waited for, and
what is finished is committed. The second one ends the process at once, without a commit. Nothing is loaded again while
the command runs.
"""

from __future__ import annotations

import argparse
import builtins
import contextlib
import functools
import importlib
import inspect
import logging
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from kconsumer import Consumer, errors
from kconsumer.cli.arguments import UsageError, add_connection, with_settings

if TYPE_CHECKING:
    from kconsumer import ShareConsumer
    from kconsumer.parallel import Processor, Retry, ShareProcessor, Summary

FAILED, ABANDONED = 1, 4
CLOSE_S = 5.0
READY_INTERVAL_S = 0.1  # how often a member of a share group checks whether it is ready
STOPPING = b"kconsumer: ending in order; a second signal ends at once\n"
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
DEFAULTS = {"allow_auto_create_topics": False}

log = logging.getLogger(__name__)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def _delays(text: str) -> tuple[float, ...]:
    delays = tuple(map(_number, text.split(",")))
    if not all(0 <= delay < math.inf for delay in delays):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers of seconds of at least 0")
    return delays


# Arguments of Processor: argument, name there, attributes of the argument. Those not given have the defaults there,
# and Processor checks the values.
ARGUMENTS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("--workers", "workers", {"type": int, "metavar": "N", "help": "how many records at a time (default: 8)"}),
    ("--executor", "executor", {"choices": ("threads", "processes", "asyncio"),
     "help": "what runs the handler (default: asyncio for a coroutine function, and threads for others)"}),
    ("--order", "order", {"choices": ("partition", "key", "none"),
     "help": "which records are processed one after the other (default: partition)"}),
    ("--max-in-flight", "max_in_flight", {"type": int, "metavar": "N",
     "help": "how many records are taken that run or could run (default: 1000)"}),
    ("--handler-timeout", "handler_timeout_s", {"type": _number, "metavar": "SECONDS",
     "help": "how long an attempt may take (default: no limit)"}),
    ("--rate-limit", "rate_limit", {"type": _number, "metavar": "N",
     "help": "how many attempts are begun per second (default: no limit)"}),
    ("--drain-timeout", "drain_timeout_s", {"type": _number, "metavar": "SECONDS",
     "help": "how long handlers are waited for at the end, and before partitions are revoked (default: 20)"}),
    ("--commit-interval", "commit_interval_s", {"type": _number, "metavar": "SECONDS",
     "help": "how often offsets are committed (default: 1)"}),
)  # fmt: skip
RETRY: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("--attempts", "attempts", {"type": int, "metavar": "N",
     "help": "how often a record is tried whose handler raises (default: 3)"}),
    ("--backoff", "backoff_s", {"type": _number, "metavar": "SECONDS",
     "help": "the wait before the second attempt; it doubles with each further one (default: 0.1)"}),
    ("--retry", "delays", {"type": _delays, "metavar": "SECONDS,…",
     "help": "the wait before each further attempt, such as 1,10,60 for four attempts, in place of these two"}),
    ("--retry-on", "on", {"action": "append", "metavar": "ERROR",
     "help": "try again only after errors of this class, MODULE:CLASS or a built-in one; may be repeated"}),
    ("--retry-never", "never", {"action": "append", "metavar": "ERROR",
     "help": "do not try again after errors of this class; may be repeated"}),
)  # fmt: skip
BATCH: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("--batch", "max_records", {"type": int, "metavar": "N",
     "help": "call the handler with lists of up to N records"}),
    ("--batch-wait", "max_wait_s", {"type": _number, "metavar": "SECONDS",
     "help": "how long a worker waits for N records (default: 0)"}),
)  # fmt: skip
ALL_ADDRESSES = "0.0.0.0"
# What has no meaning for a share group: name, argument, and why.
NOT_SHARED = (
    ("start", "--from", "it begins where its setting share.auto.offset.reset says (kconsumer groups configs)"),
    (
        "commit_interval_s",
        "--commit-interval",
        "it has no offsets, and each record is acknowledged when it is finished",
    ),
)


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the subcommand `work MODULE:HANDLER --topic TOPIC -g GROUP …`."""
    parser = commands.add_parser(
        "work",
        parents=[common],
        help="run a function for each record, as a service",
        description="Call a function of a Python module for each record of topics, for several records at a time, "
        "until SIGTERM or Ctrl-C.",
        epilog="The module is imported from the current directory or from an installed package. The first signal ends "
        "the command in order: records that run are finished and committed, within --drain-timeout. The second one "
        "ends it at once. Logs go to stderr.\n\n"
        f"Exit codes: 0 ended by a signal, in order; 1 an error, such as that of a handler with --on-failure stop; "
        f"2 a wrong command line, or no such handler; {ABANDONED} ended by a signal, but handlers had not returned "
        "after --drain-timeout; 130 and 143 ended at once by a second SIGINT or SIGTERM.\n\n"
        "Examples:\n"
        "  kconsumer work shop.orders:handle --topic orders -g billing -b localhost:9092\n"
        "  kconsumer work shop:handle --topic orders -g billing -F kafka.properties\n"
        "  kconsumer work shop:insert --topic orders -g rows --batch 500 --retry 1,10,60\n"
        "  kconsumer work shop:send --topic mails -g mails --share --retry-on OSError",
    )
    add = parser.add_argument
    add("handler", metavar="MODULE:HANDLER",
        help="a function or coroutine function that takes a record, or with --batch a list")  # fmt: skip
    add_connection(parser)
    add("--topic", dest="topics", action="append", required=True, metavar="TOPIC",
        help="a topic to read; may be repeated")  # fmt: skip
    add("-g", "--group", required=True, metavar="GROUP", help="the group to be a member of")
    add("--share", action="store_true", help="the group is a share group, which has no --order")
    add("--from", dest="start", choices=("earliest", "latest"), default=argparse.SUPPRESS,
        help="where to begin in partitions without a committed offset (default: earliest)")  # fmt: skip
    for argument, name, attributes in (*ARGUMENTS, *BATCH, *RETRY):
        add(argument, dest=name, default=argparse.SUPPRESS, **attributes)
    add("--on-failure", default="stop", metavar="stop|skip|MODULE:FUNCTION",
        help="what follows the last attempt: end the command (default), skip the record, or call a function with the "
        "record and the error, such as an object of kconsumer.parallel.DeadLetters")  # fmt: skip
    add("--ready-file", type=Path, metavar="FILE",
        help="a file that exists from the first assignment of partitions until the command ends")  # fmt: skip
    add("--health-port", type=int, metavar="PORT",
        help="serve /live and /ready by HTTP for probes; 0: at a free port, which the log names")  # fmt: skip
    add("--health-host", default=ALL_ADDRESSES, metavar="ADDRESS",
        help=f"where --health-port listens (default: {ALL_ADDRESSES}, which is all IPv4 addresses)")  # fmt: skip
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Process records until a signal or an error. Returns the exit code."""
    if not args.debug:
        logging.basicConfig(level=logging.INFO, format=LOG_FORMAT, force=True)
    with _signals() as signals:
        sys.path.insert(0, "")  # as `python -m` does
        arguments = _arguments(args)
        consumer = _consumer(args)
        try:
            try:
                processor = _processor(consumer, arguments)
            except TypeError as error:  # such as a coroutine function with executor="threads"
                raise UsageError(str(error)) from None
            signals.end_by(processor.stop)
            with _serving(args, processor):
                return _process(args, consumer, processor)
        finally:
            if args.ready_file is not None:
                args.ready_file.unlink(missing_ok=True)
            consumer.close(timeout=CLOSE_S)


def _consumer(args: argparse.Namespace) -> Consumer | ShareConsumer:
    """Returns the consumer. Raises UsageError for an argument that has no meaning for its kind of group."""
    if not args.share:
        settings = {"auto_offset_reset": getattr(args, "start", "earliest"), "enable_auto_commit": False}
        return Consumer.from_config(with_settings(args, {"group_id": args.group, **settings}, DEFAULTS))
    for name, argument, reason in NOT_SHARED:
        if hasattr(args, name):
            raise UsageError(f"{argument} has no meaning for a share group: {reason}")
    if getattr(args, "order", "none") != "none":
        raise UsageError(f"--order {args.order}: the records of a share group have no order")
    from kconsumer import ShareConsumer  # imported when used: other commands start sooner

    settings = {"group_id": args.group, "share_acknowledgement_mode": "explicit"}
    return ShareConsumer.from_config(with_settings(args, settings, DEFAULTS))


def _processor(consumer: Consumer | ShareConsumer, arguments: dict[str, Any]) -> Processor | ShareProcessor:
    from kconsumer.parallel import Processor, ShareProcessor

    if isinstance(consumer, Consumer):
        return Processor(consumer, **arguments)
    return ShareProcessor(consumer, **{"order": "none", **arguments})


def _arguments(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the arguments of Processor. Raises UsageError if a function does not exist, ConfigError for a value."""
    from kconsumer.parallel import Batch

    found, batch = _given(args, ARGUMENTS), _given(args, BATCH)
    if batch:
        if "max_records" not in batch:
            raise UsageError("--batch-wait needs --batch")
        found["batch"] = Batch(**batch)
    handler = _load(args.handler)
    found.setdefault("executor", "asyncio" if inspect.iscoroutinefunction(handler) else "threads")
    failure = args.on_failure if args.on_failure in ("stop", "skip") else _load(args.on_failure)
    return {"handler": handler, "retry": _retry(args), "on_failure": failure, **found}


def _given(args: argparse.Namespace, table: tuple[tuple[str, str, dict[str, Any]], ...]) -> dict[str, Any]:
    return {name: getattr(args, name) for _, name, _ in table if hasattr(args, name)}


def _retry(args: argparse.Namespace) -> Retry:
    from kconsumer.parallel import Retry

    found = _given(args, RETRY)
    delays: tuple[float, ...] | None = found.pop("delays", None)
    if delays is not None:
        if not found.keys().isdisjoint(("attempts", "backoff_s")):
            raise UsageError("--retry says how often, and after which times: leave out --attempts and --backoff")
        found |= {"attempts": len(delays) + 1, "backoff_s": lambda failures: delays[failures - 1]}
    for name in ("on", "never"):
        found[name] = tuple(map(_load_error, found.get(name, ())))
    return Retry(**found)


def _load_error(text: str) -> type[Exception]:
    """Returns the class of errors that `MODULE:NAME`, or the name of a built-in one, names."""
    found: object = _load(text) if ":" in text else getattr(builtins, text, None)
    if isinstance(found, type) and issubclass(found, Exception):
        return found
    raise UsageError(f"{text} is not a class of errors: give MODULE:CLASS, or a built-in one such as ConnectionError")


def _load(text: str) -> Callable[..., Any]:
    """Returns the callable that `MODULE:NAME` names. An error inside the module is raised as it is."""
    module, _, name = text.partition(":")
    if not module or not name:
        raise UsageError(f"{text!r} is not of the form MODULE:NAME")
    try:
        found = functools.reduce(getattr, name.split("."), importlib.import_module(module))
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise UsageError(f"{text}: no module {error.name} is in {os.getcwd()} or installed") from None
    except AttributeError as error:
        if getattr(error, "name", None) not in name.split("."):
            raise
        raise UsageError(f"{text}: {error}") from None
    if not callable(found):
        raise UsageError(f"{text} is not a function, but of the type {type(found).__name__}")
    return found


def _serving(
    args: argparse.Namespace, processor: Processor | ShareProcessor
) -> contextlib.AbstractContextManager[object]:
    """Returns the server of --health-port, if there is one. Raises UsageError if it cannot listen."""
    if args.health_port is None:
        if args.health_host != ALL_ADDRESSES:
            raise UsageError("--health-host needs --health-port")
        return contextlib.nullcontext()
    from kconsumer.health import serve  # imported when used

    try:
        return serve(processor, args.health_port, args.health_host)
    except (OSError, OverflowError) as error:
        raise UsageError(f"--health-port {args.health_port}: {error}") from None


@contextlib.contextmanager
def _subscribed(
    args: argparse.Namespace, consumer: Consumer | ShareConsumer, processor: Processor | ShareProcessor
) -> Iterator[None]:
    """Subscribe, and create the file of --ready-file when the member has partitions."""

    def on_assign(consumer: Any, partitions: object) -> None:
        if args.ready_file is not None:
            args.ready_file.touch()

    def touch_when_ready() -> None:
        while not ended.wait(READY_INTERVAL_S):
            if processor.health().ok:
                args.ready_file.touch()
                return

    ended = threading.Event()
    if isinstance(consumer, Consumer):
        consumer.subscribe(args.topics, on_assign=on_assign)
        yield
        return
    consumer.subscribe(args.topics)
    thread = threading.Thread(target=touch_when_ready, daemon=True)
    if args.ready_file is not None:  # a share consumer has no callbacks of assignments
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if thread.ident is not None:
            thread.join()


def _process(
    args: argparse.Namespace, consumer: Consumer | ShareConsumer, processor: Processor | ShareProcessor
) -> int:
    try:
        with _subscribed(args, consumer, processor):
            log.info("%s processes %s as a member of the group %s", args.handler, ", ".join(args.topics), args.group)
            summary = processor.run()
    except errors.KafkaError:
        log.info("ended by an error: %s", _figures(processor.summary()))
        raise
    except Exception:
        log.exception("ended by an error of the handler: %s", _figures(processor.summary()))
        return FAILED
    log.info("ended in order: %s", _figures(summary))
    return ABANDONED if summary.abandoned else 0


def _figures(summary: Summary) -> str:
    names = ("processed", "failed", "retries", "restored", "abandoned")
    return ", ".join(f"{name} {getattr(summary, name)}" for name in names)


class _Signals:
    """Handles SIGINT and SIGTERM. The default action of SIGTERM does not exist for the first process of a container."""

    def __init__(self) -> None:
        self._caught = False
        self._stop: Callable[[], None] | None = None

    def end_by(self, stop: Callable[[], None]) -> None:
        """Call `stop` at the first signal, or now if it has arrived already."""
        self._stop = stop
        if self._caught:
            stop()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self._caught:
            os._exit(128 + number)
        self._caught = True
        os.write(2, STOPPING)  # not `sys.stderr`, one of whose writes the signal may have interrupted
        if self._stop is not None:
            self._stop()


@contextlib.contextmanager
def _signals() -> Iterator[_Signals]:
    signals = _Signals()
    previous = {number: signal.signal(number, signals) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
