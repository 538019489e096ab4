"""What a project file may say about files, and what it is told otherwise."""

from __future__ import annotations

import pytest

from headgate.config import load_project
from headgate.config.files import FilesSourceSettings
from headgate.errors import ConfigError, MultipleProblems


def project(**table: object) -> dict[str, object]:
    orders = {"path": "landing", "format": "csv", **table}
    sources = {"landing": {"type": "files", "tables": {"orders": orders}}}
    return {"name": "shop", "storage": "warehouse", "sources": sources}


def test_paths_are_completed_and_one_is_enough() -> None:
    source = load_project(project(path="a/b", key=["id"])).sources["landing"]
    assert isinstance(source, FilesSourceSettings)
    (path,) = source.tables["orders"].path
    assert path.startswith("/") and path.endswith("/a/b")
    assert len(load_project(project(path=["a", "b/*.csv"])).sources["landing"].tables["orders"].path) == 2  # type: ignore[union-attr]


MISTAKES = {
    "snapshot without a key": ({"mode": "snapshot"}, "needs a key"),
    "a key that is no column": ({"columns": {"a": "int"}, "key": ["b"]}, "the key column b is not a column"),
    "an address": ({"path": "s3://bucket/a"}, "mount the storage"),
    "no path": ({"path": []}, "no path"),
    "a delimiter of two signs": ({"delimiter": "||"}, "is not a delimiter"),
    "an encoding that is none": ({"encoding": "utf-99"}, "is not an encoding"),
    "settings of another format": ({"format": "parquet", "delimiter": ";"}, "delimiter is not for parquet files"),
    "no header and no columns": ({"header": False}, "declare columns"),
    "an unknown mode": ({"mode": "merge"}, "append"),
    "an unknown key": ({"keys": ["id"]}, "did you mean key"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_its_place_and_remedy(mistake: str) -> None:
    settings, told = MISTAKES[mistake]
    with pytest.raises((ConfigError, MultipleProblems), match=told) as wrong:
        load_project(project(**settings))
    assert "sources.landing.tables.orders" in str(wrong.value)


@pytest.mark.parametrize("name", ["files", "Bad_Rows"])
def test_the_tables_of_its_own_cannot_be_declared(name: str) -> None:
    settings = {"type": "files", "tables": {name: {"path": "landing"}}}
    with pytest.raises(ConfigError, match="already"):
        load_project({"name": "shop", "storage": "warehouse", "sources": {"landing": settings}})
