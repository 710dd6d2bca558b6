"""What the arguments of FakeCluster's faults may be: names of APIs and errors."""

from __future__ import annotations

from collections.abc import Mapping

from kconsumer.error_codes import CODES, Errors
from kconsumer.errors import BrokerError, error_class
from kconsumer.schema.dsl import Api

ErrorLike = str | int | type[BrokerError] | BrokerError


def api_of(apis: Mapping[int, Api], api: str | int | Api) -> Api:
    """Returns an API by its name ("Fetch", "offset_commit"), its key, or itself. Raises ValueError if there is none."""
    if isinstance(api, Api):
        return api
    if isinstance(api, str):
        found = next((row for row in apis.values() if _plain(row.name) == _plain(api)), None)
    else:
        found = apis.get(api)
    if found is None:
        names = ", ".join(sorted(row.name for row in apis.values()))
        raise ValueError(f"the cluster has no API {api!r}; there are {names}")
    return found


def error_code_of(error: ErrorLike) -> int:
    """Returns the code of an error, given as Kafka's name, as a number, or as an exception or its class.

    Raises ValueError if there is no such error, or if the exception class is that of several codes.
    """
    if isinstance(error, BrokerError):
        return _known(error.code, error)
    if isinstance(error, type):
        return _code_of_class(error)
    if isinstance(error, str):
        code = next((code for code, row in CODES.items() if row.name == error.upper()), None)
        return _known(code, error)
    return _known(error, error)


def _code_of_class(cls: type) -> int:
    """Returns the only code for which an exception class is raised."""
    codes = [row for row in CODES.values() if error_class(row) is cls]
    if len(codes) != 1:
        names = ", ".join(row.name for row in codes) or "none"
        raise ValueError(f"{cls.__name__} does not stand for one error code: name one of its codes ({names})")
    return int(codes[0])


def _known(code: int | None, error: ErrorLike) -> int:
    if isinstance(code, bool) or code not in CODES or code == Errors.NONE:
        raise ValueError(f"{error!r} is not an error of Kafka; use a name such as 'NOT_LEADER_OR_FOLLOWER'")
    return code


def _plain(name: str) -> str:
    return name.replace("_", "").lower()
