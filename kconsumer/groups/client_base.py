"""GroupClientBase: what the two classes named GroupClient share. `kconsumer.groups` blocks, and `kconsumer.aio.groups`
awaits. The operations of both are those of `queries.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from kconsumer.config.options import ConsumerConfig
from kconsumer.engine.access_guard import AccessGuard
from kconsumer.errors import ConfigError

if TYPE_CHECKING:
    from kconsumer.engine.base import Engine

CLOSE_MS = 5_000.0


class GroupClientBase(ABC):
    """The part of a client for groups that does not depend on how its methods wait."""

    @classmethod
    def from_config(cls, mapping: Mapping[str, Any]) -> Self:
        """Returns a client with the options of a mapping, as described at `Consumer.from_config`.

        Keys are dotted Java names or snake_case names. Values are typed or text.
        """
        client = cls.__new__(cls)
        client._set_up(mapping)
        return client

    def _set_up(self, options: Mapping[str, Any]) -> None:
        from kconsumer.groups.queries import GroupQueries  # imported late, because it imports the whole engine

        names = {key.replace(".", "_") for key in options}
        defaults = {} if "allow_auto_create_topics" in names else {"allow_auto_create_topics": False}
        config = ConsumerConfig.from_mapping({**options, **defaults})
        if config.group_id is not None:
            raise ConfigError(
                "group_id is not an option of GroupClient, which joins no group; give the name to its methods"
            )
        self._config = config
        self._engine = self._create_engine(config)
        self._queries = GroupQueries(self._engine)
        self._clock = self._engine.components.clock
        self._guard = self._create_guard()

    def __repr__(self) -> str:
        servers = ",".join(f"{host}:{port}" for host, port in self._config.bootstrap_servers)
        return f"<GroupClient {self._config.client_id!r} of {servers}>"

    @abstractmethod
    def _create_engine(self, config: ConsumerConfig) -> Engine:
        """Returns the engine of this client."""

    def _create_guard(self) -> AccessGuard:
        """Returns the guard that decides which thread may call a method."""
        parts = self._engine.components
        return AccessGuard(parts.step, parts.end_wait)
