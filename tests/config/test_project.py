"""A project file loads as written, or says which line is wrong and what to do."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from headgate.config import Project, load_project
from headgate.errors import ConfigError, HeadgateError, MultipleProblems

WHOLE = """\
name: shop
storage: ./warehouse
libraries:
  - glob: {include: flows/**}
spark: {spark.master: "local[2]", spark.sql.ansi.enabled: true, spark.cores.max: 4}
freshness: {max_staleness: 10m, deadline: 30s, when_stale: serve}
sources:
  shop_db:
    type: memory
    tables:
      purchases:
        columns: {purc_id: bigint, total: "decimal(10,2)"}
        key: [purc_id]
retention: {jobs: 5}
limits: {overlay_bytes: 64MiB, stream_bytes: 1048576, spark_load_bytes: 2GiB}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "flows" / "deep").mkdir(parents=True)
    (tmp_path / "flows" / "item.sql").write_text("SELECT 1")
    (tmp_path / "flows" / "deep" / "sales.sql").write_text("SELECT 1")
    (tmp_path / "flows" / "notes.txt").write_text("not a flow")
    return tmp_path


def load(folder: Path, text: str) -> Project:
    file = folder / "headgate.yml"
    file.write_text(text, encoding="utf-8")
    return load_project(file)


def problems(folder: Path, text: str) -> list[HeadgateError]:
    (folder / "headgate.yml").write_text(text)
    with pytest.raises((ConfigError, MultipleProblems)) as raised:
        load_project(folder / "headgate.yml")
    error = raised.value
    return list(error.problems) if isinstance(error, MultipleProblems) else [error]


def problem(folder: Path, text: str) -> HeadgateError:
    """The first of them."""
    return problems(folder, text)[0]


def test_a_whole_project_loads(folder: Path) -> None:
    project = load(folder, WHOLE)
    assert project.name == "shop"
    assert project.storage == str(folder / "warehouse")
    assert [file.name for file in project.flow_files] == ["sales.sql", "item.sql"]
    assert project.spark == {"spark.master": "local[2]", "spark.sql.ansi.enabled": "true", "spark.cores.max": "4"}
    assert project.freshness.max_staleness == timedelta(minutes=10)
    assert project.freshness.deadline == timedelta(seconds=30)
    assert project.freshness.when_stale == "serve"
    assert project.sources["shop_db"].tables["purchases"].columns == {"purc_id": "bigint", "total": "decimal(10,2)"}
    assert project.sources["shop_db"].tables["purchases"].key == ("purc_id",)
    assert project.retention.jobs == 5
    assert (project.limits.overlay_bytes, project.limits.stream_bytes) == (64 << 20, 1 << 20)
    assert project.limits.spark_load_bytes == 2 << 30


def test_a_folder_stands_for_its_project_file(folder: Path) -> None:
    load(folder, WHOLE)
    assert load_project(folder).name == "shop"


def test_a_dict_has_the_same_keys_and_defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    project = load_project({"name": "shop", "storage": "warehouse"})
    assert project.storage == str(tmp_path / "warehouse")
    assert project.freshness.max_staleness == timedelta(0)
    assert project.freshness.deadline is None
    assert project.retention.jobs == 20
    assert project.flow_files == ()


def test_an_object_store_uri_is_kept(folder: Path) -> None:
    assert load(folder, "name: shop\nstorage: file:///data/the%20shop\n").storage == "/data/the shop"


def test_a_project_cannot_be_changed(folder: Path) -> None:
    project = load(folder, WHOLE)
    with pytest.raises(ValidationError):
        project.name = "other"


def test_a_file_library_names_one_file(folder: Path) -> None:
    project = load(
        folder, "name: a\nstorage: w\nlibraries: [{file: {path: flows/item.sql}}, {glob: {include: flows/*}}]\n"
    )
    assert project.flow_files == (folder / "flows" / "item.sql",)


def test_variables_are_filled_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_STORE", "/data: x")
    monkeypatch.delenv("SHOP_JOBS", raising=False)
    project = load(
        folder,
        "name: ${SHOP_NAME:-shop}\nstorage: ${SHOP_STORE}/w\n"
        "retention: {jobs: '${SHOP_JOBS:-7}'}\nspark: {a: '$${b}'}\n",
    )
    assert project.name == "shop"
    assert project.storage == "/data: x/w"
    assert project.retention.jobs == 7
    assert project.spark == {"a": "${b}"}


def test_a_variable_that_is_not_set_is_named_with_its_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHOP_STORE", raising=False)
    error = problem(folder, "name: shop\nstorage: ${SHOP_STORE}\n")
    assert str(error) == (
        f"{folder}/headgate.yml:2: the environment variable SHOP_STORE is not set"
        " (set it, or give a default: ${SHOP_STORE:-default})"
    )


@pytest.mark.parametrize(
    "storage", ["s3://bucket/shop", "S3A://bucket/shop", "hdfs://name:8020/shop", "file://host/shop"]
)
def test_storage_that_is_not_a_local_folder_is_refused_with_its_line(folder: Path, storage: str) -> None:
    error = problem(folder, f"name: shop\nstorage: {storage}\n")
    assert str(error) == (
        f"{folder}/headgate.yml:2: storage: {storage} is not a local folder (give the path of a folder on this machine or on"
        " a shared file system; object stores are not supported as storage)"
    )


TABLE = "sources:\n  s:\n    type: memory\n    tables:\n      t:\n"


@pytest.mark.parametrize(
    ("text", "line", "what", "hint"),
    [
        ("freshness:\n  max_stalenes: 1s\n", 4, "unknown key freshness.max_stalenes", "did you mean max_staleness?"),
        ("fresness: {}\n", 3, "unknown key fresness", "did you mean freshness?"),
        ("libraries:\n  - blob: {include: a}\n", 4, "unknown key libraries.0.blob", "did you mean glob?"),
        ("quux: 1\n", 3, "unknown key quux", "the known keys are name, storage"),
        ("freshness:\n  deadline: 10\n", 4, "freshness.deadline: the duration 10 has no unit", "30s"),
        ("freshness:\n  deadline: soon\n", 4, "'soon' is not a duration", "30s"),
        ("freshness:\n  when_stale: never\n", 4, "freshness.when_stale cannot be 'never'", "'fail', 'serve' or 'wait'"),
        ("freshness: 10m\n", 3, "freshness must be a mapping", "max_staleness"),
        ("gateway:\n  port: 70000\n", 4, "gateway.port is too large", "the most is 65535"),
        ("gateway: false\n", 3, "gateway must be a mapping", "the known keys are enabled, host, port"),
        ("service:\n  answer_rows: 0\n", 4, "service.answer_rows is too small", "the least is 1"),
        ("service:\n  answer_bytes: much\n", 4, "'much' is not a size", "64MiB"),
        ("retention:\n  jobs: 0\n", 4, "retention.jobs is too small", "the least is 1"),
        ("retention:\n  jobs: yes\n", 4, "true is not a number", "whole number"),
        ("retention:\n  jobs: many\n", 4, "must be a whole number", "whole number"),
        ("limits:\n  overlay_bytes: 5 parsecs\n", 4, "'5 parsecs' is not a size", "64MiB"),
        ("libraries:\n  - glob:\n      include: nothing/*.sql\n", 5, "nothing/*.sql matches no .sql file", "/nothing"),
        ("libraries:\n  - file:\n      path: no.sql\n", 5, "there is no file no.sql", "no.sql"),
        ("libraries:\n  - {}\n", 4, "either a glob or a file", "flows/**"),
        ("libraries: flows\n", 3, "libraries must be a list", "- item"),
        ("sources:\n  s:\n    type: oracle\n    tables: {}\n", 5, "sources.s.type cannot be 'oracle'", "'memory'"),
        ("sources:\n  s:\n    tables: {}\n", 4, "the key sources.s.type is missing", "add type:"),
        ("sources:\n  s:\n    type: memory\n    tables: {}\n", 6, "no tables", "declare at least one"),
        ("sources:\n  2s: {type: memory}\n", 4, "'2s' is not a name", "letters"),
        (f"{TABLE}        columns: {{}}\n        key: [a]\n", 8, "no columns", "Spark SQL type"),
        (f"{TABLE}        columns: {{a: ''}}\n        key: [a]\n", 8, "has no type", "bigint"),
        (f"{TABLE}        columns: {{a: int, A: int}}\n        key: [a]\n", 8, "differ only in case", "rename"),
        (f"{TABLE}        columns: {{a: decimal(10,2)}}\n        key: [a]\n", 8, "is not a", "quote a type"),
        (
            f"{TABLE}        columns:\n          __a: int\n        key: [__a]\n",
            9,
            "two underscores",
            "belong to headgate",
        ),
        (f"{TABLE}        columns: {{a: int}}\n        key: [b]\n", 9, "key column b is not a column", "columns are a"),
        (f"{TABLE}        columns: {{a: int}}\n        key: []\n", 9, "has no key", "key: [id]"),
        (f"{TABLE}        columns: {{a: int}}\n        key: [a, a]\n", 9, "column a twice", "once"),
        (f"{TABLE}        columns: {{no: int}}\n        key: [a]\n", 8, "no is not a text key", 'quote it: "no"'),
        ("name: other\n", 3, "the key name stands here twice", "first given in line 1"),
        ("spark: {a: [1]}\n", 3, "a Spark setting is a text or a number", "configuration"),
        ("spark: {a: 1\n", 4, "not valid YAML", "indentation"),
        ("spark:\n\t- a\n", 4, "not valid YAML", "indentation"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_a_hint(folder: Path, text: str, line: int, what: str, hint: str) -> None:
    error = problem(folder, f"name: shop\nstorage: w\n{text}")
    assert what in error.what
    assert error.where is not None
    assert (error.where.file, error.where.line) == (str(folder / "headgate.yml"), line)
    assert error.hint is not None
    assert hint in error.hint


def test_all_of_several_mistakes_are_named_in_the_order_of_the_file(folder: Path) -> None:
    found = problems(folder, "name: shop\nstorrage: w\nfreshness: {deadline: 3}\n")
    assert [each.where and each.where.line for each in found] == [1, 2, 3]
    assert [each.what for each in found] == [
        "the key storage is missing",
        "unknown key storrage",
        "freshness.deadline: the duration 3 has no unit",
    ]


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"there is no project file nowhere/headgate.yml .*create it"):
        load_project("nowhere/headgate.yml")


def test_a_folder_without_a_project_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a folder"):
        load_project(tmp_path)


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n"])
def test_an_empty_file_is_named(folder: Path, text: str) -> None:
    error = problem(folder, text)
    assert "the project file is empty" in error.what
    assert error.hint == "it needs at least name and storage"


@pytest.mark.parametrize("text", ["- a\n", "just text\n", "3\n"])
def test_a_file_that_is_not_a_mapping_is_named(folder: Path, text: str) -> None:
    assert "not a mapping" in problem(folder, text).what


def test_a_file_that_is_not_text_is_named(folder: Path) -> None:
    (folder / "headgate.yml").write_bytes(b"name: \xff\xfe")
    with pytest.raises(ConfigError, match="UTF-8"):
        load_project(folder / "headgate.yml")


def test_a_mistake_in_a_dict_is_located_by_its_path() -> None:
    with pytest.raises(ConfigError) as caught:
        load_project({"name": "a", "storage": "w", "freshness": {"max_staleness": 10}})
    assert str(caught.value.where) == "freshness.max_staleness"
    with pytest.raises(ConfigError) as caught:
        load_project(
            {"name": "a", "storage": "w", "sources": {"s": {"type": "memory", "tables": {"t": {"key": ["a"]}}}}}
        )
    assert str(caught.value.where) == "sources.s.tables.t.columns"


def test_merged_and_repeated_yaml_values_are_understood(folder: Path) -> None:
    project = load(
        folder,
        "name: a\nstorage: w\nsources:\n  one: &one\n    type: memory\n    tables: {t: {columns: {a: int}, key: [a]}}\n"
        "  two:\n    <<: *one\n  three: *one\n",
    )
    assert project.sources["two"] == project.sources["three"] == project.sources["one"]
