"""ShareProcessor: a run with a ShareConsumer. The thread that calls `run` polls; handlers run elsewhere."""

from __future__ import annotations

from typing import Any

from kconsumer.config.options import ConsumerConfig
from kconsumer.errors import ConfigError
from kconsumer.parallel.flows import run_flow
from kconsumer.parallel.settings import Summary
from kconsumer.parallel.share_run import ShareRun
from kconsumer.share.consumer import ShareConsumer


class ShareProcessor(ShareRun):
    """A run of `process` with a ShareConsumer that can be stopped and watched from other threads.

    The consumer needs `share_acknowledgement_mode="explicit"`, and the records have no order. A record whose handler
    has returned is accepted. After its last attempt it is rejected, or with on_failure="stop" released. Records that
    were not started when the run ends are released. The acquisition locks of records whose handlers take long are
    renewed.
    """

    def run(self) -> Summary:
        """Process records until the run ends. Raises what `process` raises.

        A ShareProcessor runs once: another call raises StateError.
        """
        self._prepare()
        return run_flow(self._run())

    def _check(self, consumer: Any) -> None:
        if not isinstance(consumer, ShareConsumer):
            raise TypeError(f"ShareProcessor takes a kconsumer.ShareConsumer, not {type(consumer).__name__}")
        check_explicit(consumer._config)


def check_explicit(config: ConsumerConfig) -> None:
    """Raise ConfigError if a run cannot use a share consumer with this configuration."""
    if config.share_acknowledgement_mode != "explicit":
        raise ConfigError(
            "process() acknowledges each record when it is finished: give share_acknowledgement_mode='explicit' to the "
            "consumer"
        )
