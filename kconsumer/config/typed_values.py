"""Types as deserializers: msgspec's structs, models of pydantic, dataclasses, TypedDicts and annotations such as
list[Order]. Values are JSON.

msgspec and pydantic are optional. An application that passes one of their types has imported the library already.
Dataclasses, TypedDicts and annotations are decoded by msgspec.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any, get_origin, is_typeddict

from kconsumer._common.extras import how_to_install
from kconsumer.errors import ConfigError


def typed_deserializer(value: Any) -> Callable[[bytes], object] | None:
    """Returns a callable that decodes JSON to a type and validates it. Returns None if `value` is no such type.

    Raises ConfigError if msgspec is not installed, or does not support the type.
    """
    pydantic: Any = sys.modules.get("pydantic")
    # Only models and pydantic's own dataclasses have this attribute.
    if pydantic is not None and isinstance(value, type) and hasattr(value, "__pydantic_validator__"):
        return _callable(pydantic.TypeAdapter(value).validate_json)
    if not _is_for_msgspec(value):
        return None
    try:
        library = importlib.import_module("msgspec")
    except ImportError:
        raise ConfigError(
            f"decoding JSON to {_name(value)} needs msgspec, which is not installed: install the extra typed"
            f" ({how_to_install('typed')}), or pass a callable (bytes) -> object"
        ) from None
    try:
        return _callable(library.json.Decoder(value).decode)
    except TypeError as error:
        raise ConfigError(f"msgspec cannot decode JSON to {_name(value)}: {error}") from None


def _is_for_msgspec(value: Any) -> bool:
    if not isinstance(value, type):
        return get_origin(value) is not None or is_typeddict(value)
    library = sys.modules.get("msgspec")
    is_struct = library is not None and issubclass(value, library.Struct)
    return is_struct or is_typeddict(value) or hasattr(value, "__dataclass_fields__") or get_origin(value) is not None


def _callable(function: Any) -> Callable[[bytes], object]:
    """Returns a callable with the bytes as its only argument: methods of these libraries have optional ones, too."""
    return lambda data: function(data)


def _name(value: Any) -> str:
    return value.__name__ if isinstance(value, type) else str(value)
