"""A PostgreSQL source looked at from outside: its tables, and whether capture would be allowed. Nothing is left behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headgate.capture.postgres.catalog import PostgresTable
from headgate.capture.postgres.connection import connect, timeline_of
from headgate.capture.postgres.log_tables import TableDefinition
from headgate.capture.postgres.problems import source_errors
from headgate.capture.postgres.slot import publish_tables, require_logged, require_server, slot_name
from headgate.capture.postgres.timestamp_tables import TimestampTable
from headgate.capture.postgres.trigger_sql import require_schema, require_trigger_privilege
from headgate.config.sources import PostgresSourceSettings
from headgate.errors import HeadgateError, Problems

_LOCK_WAIT = "2s"


@dataclass(frozen=True, slots=True)
class ExaminedDatabase:
    """What was found: the tables that can be captured, what keeps capture from working, and what works but not well."""

    tables: Mapping[str, PostgresTable]
    problems: tuple[HeadgateError, ...]
    warnings: tuple[str, ...] = ()


def examine(project: str, source: str, settings: PostgresSourceSettings) -> ExaminedDatabase:
    """Connects as capture would, reads every table's definition, and tries what capture needs."""
    problems, tables, warnings = Problems(), dict[str, PostgresTable](), list[str]()
    with problems.collected():
        settings.pace.for_method(settings.capture)
    with problems.collected(), connect(settings.dsn, application="headgate check") as connection:
        for name, table in settings.tables.items():
            definition = TableDefinition(table.table or name, name, table.key or None, table.types)
            with problems.collected(), source_errors(f"reading the definition of {definition.table}"):
                if settings.capture == "timestamp":
                    polled = TimestampTable(definition, table.updated or "", table.deleted)
                    tables[name] = polled.read(connection)
                    warnings += polled.warnings(connection, tables[name])
                else:
                    tables[name] = definition.read(connection)
        with problems.collected(), source_errors("reading the server's settings"):
            timeline_of(connection)
            if settings.capture == "log":
                require_server(connection, slot_name(project, source))
            elif settings.capture == "trigger":
                require_schema(connection)
        if settings.capture == "trigger":
            for found in tables.values():
                with problems.collected():
                    require_trigger_privilege(connection, found)
        if settings.capture == "log":
            problems += _log_problems(settings.dsn, slot_name(project, source), tables)
    return ExaminedDatabase(tables, tuple(problems), tuple(warnings))


def _log_problems(dsn: str, name: str, tables: Mapping[str, PostgresTable]) -> Problems:
    problems = Problems()
    for table in tables.values():
        with problems.collected():
            require_logged([table])
    with problems.collected():
        connect(dsn, application="headgate check", replication=True).close()
    if tables:
        # Done and taken back: the server alone knows who may publish what.
        with (
            problems.collected(),
            connect(dsn, application="headgate check", autocommit=False) as connection,
            source_errors("trying to publish the tables"),
        ):
            connection.execute("SELECT set_config('lock_timeout', %s, true)", [_LOCK_WAIT])
            publish_tables(connection, name, tables.values())
            connection.rollback()
    return problems
