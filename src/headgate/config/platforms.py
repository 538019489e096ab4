"""What a project file may say about a platform: a database beside Spark that keeps copies of results."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from headgate.config.fields import Name, Settings, refuse

SPARK = "spark"
"""The platform that every warehouse has."""


def _schema_name(name: str) -> str:
    if name.startswith("pg_") or name == "information_schema":
        raise refuse(f"{name} is a schema of PostgreSQL's own", "give another name: headgate makes the schema")
    return name


class PostgresPlatformSettings(Settings):
    """A PostgreSQL database to which the tables that are placed there are shipped."""

    type: Literal["postgres"]
    dsn: Annotated[str, Field(repr=False)]
    schema_: Annotated[Name, AfterValidator(_schema_name)] = Field(default="headgate", alias="schema")
    """The database's schema that holds the tables; it is made if it is not there, and belongs to one warehouse."""
