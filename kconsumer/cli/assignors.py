"""`kconsumer assignors`: lists the installed assignors, and loads one to check it."""

from __future__ import annotations

import argparse
from typing import Any

from kconsumer.assignors import available, load, origin
from kconsumer.cli.table import table


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the subcommands `assignors list` and `assignors check NAME`."""
    description = "List the installed assignors, or check that one loads."
    parser = commands.add_parser("assignors", help="list installed assignors, check that one loads",
                                 description=description)  # fmt: skip
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = actions.add_parser("list", parents=[common], help="list the installed assignors without loading them",
                                 description="List the installed assignors without loading them.")  # fmt: skip
    listing.set_defaults(run=list_assignors)
    check = actions.add_parser("check", parents=[common], help="load an assignor, as a consumer would",
                               description="Load an assignor, as a consumer would.")  # fmt: skip
    check.add_argument("name", metavar="NAME", help="name, distribution::name, or package.module:Class")
    check.set_defaults(run=check_assignor)


def list_assignors(args: argparse.Namespace) -> int:
    """Print a table of the installed assignors: name, distribution, version, and target (`module:Class`)."""
    rows = [(name, info.distribution, info.version, info.target) for name, info in available().items()]
    print("\n".join(table(("NAME", "DISTRIBUTION", "VERSION", "TARGET"), rows)))
    return 0


def check_assignor(args: argparse.Namespace) -> int:
    """Load an assignor and print its origin, protocols and version. Raises the error of `load` if that fails."""
    assignor = load(args.name)
    protocols = ", ".join(protocol.name.lower() for protocol in assignor.protocols)
    print(f"{origin(assignor)} loads; protocols: {protocols}; version of its user data: {assignor.version}")
    return 0
