from typing import Any

from kconsumer._core.arrow_columns import Columns

NAMES: dict[str, str]

def spark_columns(columns: Columns) -> Columns: ...
def spark_schema(names: tuple[str, ...]) -> Any: ...
