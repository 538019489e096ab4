"""A new project over a PostgreSQL database: what its catalog has, how to capture it, a first flow, and what is missing."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Literal

from headgate.capture.postgres.problems import SourceSetup
from headgate.cli.postgres_source import examine
from headgate.cli.postgres_tables import Database, Findings, FoundTable, plain_name
from headgate.cli.proposal import first_flow
from headgate.cli.starter import HEAD, project_files
from headgate.config.sources import PostgresSourceSettings, PostgresTableSettings
from headgate.errors import HeadgateError


@dataclass(frozen=True, slots=True)
class Proposal:
    """The project's files by their paths, what capture still lacks, and the variable that is to hold the password."""

    files: dict[str, str]
    problems: tuple[HeadgateError, ...]
    variable: str | None


def propose(name: str, dsn: str) -> Proposal:
    """Looks at the database; nothing is left behind there."""
    with Database(dsn) as database:
        findings = database.findings()
    if not findings.tables:
        raise SourceSetup(
            f"the database {findings.database} has no table that can be captured",
            hint="; ".join(f"{each.what} ({each.hint})" for each in findings.left_out) or "create a table first",
        )
    source = plain_name(findings.database)
    variable = f"{source.upper()}_PASSWORD" if findings.has_password else None
    flow = first_flow(source, findings)
    sql = f"-- A proposal, to be changed: {flow.about}.\n{flow.sql}"
    config = HEAD.format(name=name) + source_text(source, findings, variable)
    settings = PostgresSourceSettings(
        type="postgres",
        dsn=dsn,
        capture=capture_method(findings)[0],
        tables={each.called: PostgresTableSettings(table=each.definition.qualified) for each in findings.tables},
    )
    return Proposal(project_files(name, config, flow.name, sql), examine(name, source, settings).problems, variable)


def capture_method(findings: Findings) -> tuple[Literal["log", "trigger"], str]:
    """How the database is best captured as it is set up now, and why."""
    if findings.wal_level != "logical":
        return "trigger", f"wal_level is {findings.wal_level}; with logical, log would cost writers nothing"
    if not findings.may_replicate:
        return "trigger", "the role may not replicate; with ALTER ROLE … REPLICATION, log would cost writers nothing"
    return "log", "the server's log, which costs writers nothing; trigger and timestamp ask less of the server"


def source_text(source: str, findings: Findings, variable: str | None) -> str:
    """The part of the project file about the database."""
    words = [f"{key}={_word(value)}" for key, value in findings.parameters]
    if variable is not None:
        words.append(f"password='${{{variable}}}'")
    method, why = capture_method(findings)
    kept = [
        "    retained_wal: 20GiB           # beyond it the slot is dropped, so that the server's disk does not fill"
    ]
    lines = [
        "",
        "sources:",
        f"  {source}:",
        "    type: postgres",
        f"    dsn: {json.dumps(' '.join(words), ensure_ascii=False)}",
        f"    {f'capture: {method}':<29} # {why}",
        *(kept if method == "log" else []),
        "    tables:",
        *(_table_line(table) for table in findings.tables),
        *(f"      # left out: {problem.what} ({problem.hint})" for problem in findings.left_out),
    ]
    return "\n".join(lines) + "\n"


def _table_line(table: FoundTable) -> str:
    at = table.definition.qualified
    # Its own name is enough where the catalog finds the table by it.
    said = "" if at == f"public.{table.called}" else f" {{table: {json.dumps(at, ensure_ascii=False)}}}"
    return f"      {f'{table.called}:{said}':<27} # key {', '.join(table.definition.key)}; about {table.rows:,} rows"


def _word(value: str) -> str:
    """The value as a DSN takes it, in a file where `${` would begin a variable."""
    if not re.fullmatch(r"[^\s'\\]+", value):
        value = "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return value.replace("${", "$${")
