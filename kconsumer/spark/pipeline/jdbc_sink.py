"""Writes micro-batches to a table of a database, each exactly once.

A micro-batch is written to a staging table by as many tasks as it has. One transaction then stores its number in the
table `kconsumer_progress`, and copies the rows into the target; for upserts, it first deletes the rows with their keys.
If the number there is not lower, an earlier attempt has been committed, and the transaction does nothing. So the target
never has a part of a micro-batch, or one of them twice, even if two drivers run the same micro-batch at the same time.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from typing import Any

from kconsumer.config.kinds import reveal
from kconsumer.errors import ConfigError
from kconsumer.spark.pipeline.batch_sink import Batch, PipelineError
from kconsumer.spark.pipeline.settings import DELETED, Sink

__all__ = ["JdbcSink", "driver_class", "run_plan"]

PROGRESS = "kconsumer_progress"
# The class of the driver for the beginning of a URL, if the option `driver` does not name another one.
DRIVERS = {
    "jdbc:postgresql:": "org.postgresql.Driver",
    "jdbc:mysql:": "com.mysql.cj.jdbc.Driver",
    "jdbc:mariadb:": "org.mariadb.jdbc.Driver",
}


def run_plan(frame: Any) -> None:
    """Run the plan of a micro-batch whose rows are not needed.

    Its tasks store the state of aggregates. Without that, the next micro-batch of the query fails.
    """
    frame.write.format("noop").mode("overwrite").save()


def driver_class(sink: Sink) -> str | None:
    """Returns the class of the driver of a sink, or None if it is known neither by an option nor by the URL."""
    for name, value in sink.options.items():
        if name.lower() == "driver":
            return value
    return next((driver for prefix, driver in DRIVERS.items() if (sink.url or "").startswith(prefix)), None)


class JdbcSink:
    """Appends to a table of a database. The first micro-batch creates the table if it does not exist."""

    runs_all = False

    def __init__(self, spark: Any, sink: Sink) -> None:
        assert sink.table is not None
        assert sink.url is not None
        self._spark, self._table, self._files, self._key = spark, sink.table, sink.files, sink.key
        self._options = {name: _revealed(name, value) for name, value in sink.options.items()} | {"url": sink.url}
        driver = driver_class(sink)
        if driver is not None:
            self._options["driver"] = driver
        schema, dot, _ = sink.table.rpartition(".")
        self._schema = schema + dot  # of the target, in which the sink keeps its own tables
        self._swept = False

    def write(self, frame: Any, batch: Batch) -> None:
        """Write the rows, unless the database has a micro-batch of the query with this number or a later one."""
        stages = f"kconsumer_stage_{_word(batch.query)}_"
        with self._connection() as connection:
            if not self._swept:  # staging tables of drivers that died
                for name in self._tables(connection, stages):
                    self._execute(connection, f"DROP TABLE {self._schema}{name}")
            self._swept = True
            done = self._done(connection, batch.query)
            if done < 0 < batch.number:  # the first micro-batch has stored its number
                raise PipelineError(
                    f"{self._schema}{PROGRESS} in the database has none of the earlier micro-batches; keep sink.url, or"
                    " use another run.checkpoint"
                )
            if done >= batch.number:
                run_plan(frame)
                return
        if not self.exists():
            self._append(frame.limit(0).drop(DELETED), self._table)
        stage = f"{self._schema}{stages}{uuid.uuid4().hex[:8]}"
        with self._connection() as connection:
            columns = ", ".join(self._quoted(name) for name in frame.columns if name != DELETED)
            more = f", 0 AS {self._quoted(DELETED)}" if self._key else ""
            self._execute(connection, f"CREATE TABLE {stage} AS SELECT {columns}{more} FROM {self._table} WHERE 1 = 0")
            try:
                self._append(frame if self._files is None else frame.coalesce(self._files), stage)
                self._copy(connection, stage, columns, batch)
            finally:
                self._execute(connection, f"DROP TABLE {stage}")

    def _copy(self, connection: Any, stage: str, columns: str, batch: Batch) -> None:
        """Store the number of the micro-batch and copy its rows, both or nothing."""
        connection.setAutoCommit(False)
        try:
            where = f"query = '{batch.query}' AND batch < {batch.number}"
            if self._execute(connection, f"UPDATE {self._schema}{PROGRESS} SET batch = {batch.number} WHERE {where}"):
                kept = self._replace(connection, stage) if self._key else ""
                self._execute(connection, f"INSERT INTO {self._table} ({columns}) SELECT {columns} FROM {stage}{kept}")
            connection.commit()
        except BaseException:
            connection.rollback()
            raise
        finally:
            connection.setAutoCommit(True)

    def _replace(self, connection: Any, stage: str) -> str:
        """Delete the rows with the keys of a micro-batch. Returns the condition of those that are written instead."""
        names = [self._quoted(name) for name in self._key]
        same = " AND ".join(f"{stage}.{name} = {self._table}.{name}" for name in names)
        self._execute(connection, f"DELETE FROM {self._table} WHERE EXISTS (SELECT 1 FROM {stage} WHERE {same})")
        return f" WHERE {self._quoted(DELETED)} = 0"

    def _done(self, connection: Any, query: str) -> int:
        """Returns the number of the newest micro-batch of a query, -1 if there is none.

        Creates the table of these numbers, and the row of the query.
        """
        table = f"{self._schema}{PROGRESS}"
        if not self._tables(connection, PROGRESS):
            columns = "query VARCHAR(64) PRIMARY KEY, batch BIGINT NOT NULL"
            try:
                self._execute(connection, f"CREATE TABLE {table} ({columns})")
            except Exception:
                # The queries `rows` and `windows` may both find no table. Then one of them creates it first.
                if not self._tables(connection, PROGRESS):
                    raise
        found = connection.createStatement().executeQuery(f"SELECT batch FROM {table} WHERE query = '{query}'")
        if found.next():
            return int(found.getLong(1))
        self._execute(connection, f"INSERT INTO {table} (query, batch) VALUES ('{query}', -1)")
        return -1

    def exists(self) -> bool:
        """Returns whether the target exists."""
        with self._connection() as connection:
            return bool(self._tables(connection, self._table.rpartition(".")[2].strip('"`'), whole=True))

    def read(self) -> Any:
        """Returns the target as a DataFrame."""
        return self._spark.read.format("jdbc").options(**self._options, dbtable=self._table).load()

    def alter(self, name: str, kind: str, *, new: bool) -> None:
        """Add a column of a type of Spark to the target, or give a column this type."""
        jvm = self._spark._jvm.org.apache.spark.sql
        dialect = self._dialect()
        made = jvm.execution.datasources.jdbc.JdbcUtils.getJdbcType(jvm.types.DataType.fromDDL(kind), dialect)
        query = dialect.getAddColumnQuery if new else dialect.getUpdateColumnTypeQuery
        with self._connection() as connection:
            self._execute(connection, query(self._table, name, made.databaseTypeDefinition()))

    # --- JDBC ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _connection(self) -> Iterator[Any]:
        """A connection of Spark's own provider, which knows the drivers of the session. Each statement commits."""
        jvm = self._spark._jvm
        jdbc = jvm.org.apache.spark.sql.execution.datasources.jdbc
        parameters = jvm.PythonUtils.toScalaMap({**self._options, "dbtable": self._table})
        connection = self._dialect().createConnectionFactory(jdbc.JDBCOptions(parameters)).apply(-1)
        try:
            yield connection
        finally:
            connection.close()

    def _append(self, frame: Any, table: str) -> None:
        frame.write.format("jdbc").options(**self._options, dbtable=table).mode("append").save()

    def _quoted(self, name: str) -> str:
        return str(self._dialect().quoteIdentifier(name))

    def _dialect(self) -> Any:
        """Returns Spark's object for the SQL of the database."""
        return self._spark._jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(self._options["url"])

    def _tables(self, connection: Any, name: str, *, whole: bool = False) -> list[str]:
        """Returns the tables of the target's schema whose name is `name` or begins with it, whatever its case.

        With `whole`, only a table with exactly this name.
        """
        schema = self._schema.rstrip(".").strip('"`') or connection.getSchema()
        found, listed = [], connection.getMetaData().getTables(connection.getCatalog(), schema, None, None)
        while listed.next():
            found.append(str(listed.getString("TABLE_NAME")))
        listed.close()
        if whole:
            return [each for each in found if each.lower() == name.lower()]
        return [each for each in found if each.lower().startswith(name.lower())]

    def _execute(self, connection: Any, statement: str) -> int:
        """Run a statement. Returns the number of rows that it changed."""
        running = connection.createStatement()
        try:
            return int(running.executeUpdate(statement))
        finally:
            running.close()


def _revealed(name: str, value: str) -> str:
    """Returns the value of an option. A password may be a reference, `env:NAME` or `file:PATH`."""
    try:
        return (reveal(value) or "") if name.lower() == "password" else value
    except ValueError as error:
        raise ConfigError(f"sink.options.{name}: {error}") from None


def _word(query: str) -> str:
    """Returns the beginning of a query's id as a part of a table's name."""
    return "".join(letter for letter in query if letter.isalnum())[:16].lower()
