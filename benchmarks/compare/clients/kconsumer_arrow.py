"""kconsumer with default options and poll_arrow(), which creates columns and no record objects."""

from __future__ import annotations

from importlib.metadata import version

from meter import Meter


def main() -> None:
    """Read the topic once."""
    meter = Meter()
    with meter.kconsumer() as consumer:
        while not meter.done:
            meter.add(len(consumer.poll_arrow(1.0)), 0)
        meter.report(version("kconsumer"))


main()
