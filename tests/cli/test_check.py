"""`headgate check` tells all that is wrong with a project, each mistake once, and what each flow reads and how it is kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headgate
from headgate.cli.check import report_lines
from headgate.cli.checking import CheckedProject, check_project
from headgate.cli.exits import failure_lines
from headgate.config.project import load_project
from headgate.errors import MultipleProblems
from headgate.runtime.spark.sessions import SparkSessions

CONFIG = """\
name: shop
storage: ./warehouse
libraries: [{glob: {include: flows/**}}]
sources:
  db:
    type: memory
    tables:
      sales: {columns: {id: bigint, item: string, price: "decimal(10,2)", sold_at: timestamp}, key: [id]}
      items: {columns: {item: string, name: string}, key: [item]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "headgate.yml").write_text(CONFIG)
    (tmp_path / "flows").mkdir()
    return tmp_path


def check(folder: Path, *, with_spark: bool = False, **flows: str) -> CheckedProject:
    for name, text in flows.items():
        (folder / "flows" / f"{name}.sql").write_text(text)
    return check_project(folder / "headgate.yml", with_spark=with_spark)


def test_the_graph_tells_what_is_incremental_and_why_not(folder: Path) -> None:
    report = check(
        folder,
        a="""
        CREATE MATERIALIZED VIEW top AS SELECT * FROM revenue ORDER BY total DESC LIMIT 3;
        CREATE MATERIALIZED VIEW revenue AS
        SELECT i.name, SUM(s.price) AS total FROM db.sales s JOIN db.items i ON i.item = s.item GROUP BY i.name;
        CREATE STREAMING TABLE item_history;
        CREATE FLOW items AS AUTO CDC INTO item_history FROM db.items KEYS (item) STORED AS SCD TYPE 2;
        CREATE MATERIALIZED VIEW versions AS SELECT item, __start_at AS since FROM item_history;
        """,
    )
    assert report.problems == ()
    found = {flow.name: flow for flow in report.flows}
    assert list(found) == ["revenue", "top", "item_history", "versions"]
    assert found["revenue"].reads == ("db.sales", "db.items")
    assert found["revenue"].how == "incremental"
    assert found["top"].how == "partly incremental"
    assert "LIMIT" in found["top"].reasons[0]
    assert found["item_history"].how == "dimension of type 2, incremental"
    text = "\n".join(report_lines(report))
    assert "flow top ← revenue: partly incremental" in text
    assert text.endswith("ok: nothing is wrong")


def test_every_mistake_is_told_and_what_depends_on_one_is_not_blamed(folder: Path) -> None:
    report = check(
        folder,
        one="CREATE MATERIALIZED VIEW a AS SELECT nothing FROM db.sales;\n",
        two="CREATE MATERIALIZED VIEW b AS SELECT * FROM db.sails;\n",
        three="CREATE MATERIALIZED VEW c AS SELECT 1;\n",
        four="CREATE MATERIALIZED VIEW d AS SELECT * FROM a;\nCREATE MATERIALIZED VIEW fine AS SELECT id FROM db.sales;\n",
        five="CREATE STREAMING TABLE lonely;\n",
        six="CREATE MATERIALIZED VIEW e AS SELECT FROM WHERE;\n",
    )
    told = {Path(str(problem.where).split(":")[0]).stem: problem for problem in report.problems}
    assert set(told) == {"one", "two", "three", "five", "six"}
    assert len(report.problems) == 5
    assert "nothing" in told["one"].what
    assert "sales" in str(told["two"].hint)
    found = {flow.name: flow for flow in report.flows}
    assert (found["d"].how, found["d"].reasons) == ("not checked", ("it reads a",))
    assert found["fine"].how == "incremental"
    assert "\n".join(report_lines(report)).endswith("5 problems found")


def test_flows_in_a_circle_or_of_one_name_are_told(folder: Path) -> None:
    report = check(
        folder, a="CREATE MATERIALIZED VIEW a AS SELECT * FROM b;", b="CREATE MATERIALIZED VIEW b AS SELECT * FROM a;"
    )
    assert ["circle" in problem.what for problem in report.problems] == [True]


def test_all_mistakes_of_the_project_file_are_told(tmp_path: Path) -> None:
    (tmp_path / "headgate.yml").write_text(
        "name: shop 1\nstorage: w\nfreshnes: {}\nretention: {jobs: 0}\n"
        "sources:\n  db: {type: memory, tables: {t: {columns: {a: bigint}, key: [b]}}}\n"
    )
    report = check_project(tmp_path / "headgate.yml", with_spark=False)
    assert [problem.where and problem.where.line for problem in report.problems] == [1, 3, 4, 6]
    assert all(problem.hint for problem in report.problems)
    assert report.name is None


def test_a_storage_that_cannot_be_written_is_told(folder: Path) -> None:
    (folder / "warehouse").write_text("a file")
    report = check(folder, a="CREATE MATERIALIZED VIEW a AS SELECT id FROM db.sales;")
    assert ["storage folder" in problem.what for problem in report.problems] == [True]


def test_a_database_that_does_not_answer_leaves_its_flows_unchecked(folder: Path) -> None:
    with (folder / "headgate.yml").open("a") as file:
        file.write(
            "  pg: {type: postgres, dsn: 'host=127.0.0.1 port=1 user=a dbname=b connect_timeout=2', tables: {orders: }}\n"
        )
    report = check(
        folder,
        a="CREATE MATERIALIZED VIEW a AS SELECT id FROM db.sales;\nCREATE MATERIALIZED VIEW o AS SELECT * FROM pg.orders;",
    )
    assert [type(problem).__name__ for problem in report.problems] == ["SourceUnreachable"]
    assert [(flow.name, flow.how) for flow in report.flows] == [("a", "incremental"), ("o", "not checked")]
    assert "pg.orders (could not be looked at)" in "\n".join(report_lines(report))


def test_spark_tells_wrong_types(folder: Path, spark: SparkSession) -> None:
    (folder / "headgate.yml").write_text(CONFIG + "      odd: {columns: {id: bigint, size: bigger}, key: [id]}\n")
    report = check(
        folder,
        a="CREATE MATERIALIZED VIEW a AS SELECT sold_at + id AS x FROM db.sales;",
        b="CREATE MATERIALIZED VIEW b AS SELECT id, nonsense(price) AS y FROM db.sales;",
        c="CREATE MATERIALIZED VIEW c AS SELECT item, MIN(price) AS least FROM db.sales GROUP BY item;",
        d="CREATE MATERIALIZED VIEW d AS SELECT size FROM db.odd;",
        with_spark=True,
    )
    told = [f"{problem.where}: {problem.what}" for problem in report.problems]
    assert len(told) == 3
    assert "the column size of db.odd has the type bigger" in told[0]
    assert "a.sql:1" in told[1]
    assert "nonsense" in told[2]
    found = {flow.name: flow for flow in report.flows}
    assert [flow.how for flow in found.values()] == ["not checked", "not checked", "incremental", "not checked"]
    assert "recomputed" in found["c"].reasons[0]
    assert found["d"].reasons == ("it reads db.odd",)


def test_nothing_is_written(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    (folder / "flows" / "a.sql").write_text("CREATE MATERIALIZED VIEW a AS SELECT id FROM db.sales;")
    check(folder)
    assert sorted(folder.rglob("*")) == sorted([*before, folder / "flows" / "a.sql"])


def test_all_mistakes_of_a_project_file_are_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    file = tmp_path / "headgate.yml"
    file.write_text(
        "name: shop\nstorage: ${NOT_SET}\nstorrage: x\nretention: {jobs: many}\nsources:\n  db: {type: memry}\n"
        'freshness: {deadline: "${ALSO_NOT_SET}"}\n'
    )
    report = check_project(file, with_spark=False)
    told = [(problem.where and problem.where.line, problem.what) for problem in report.problems]
    assert told == [
        (2, "the environment variable NOT_SET is not set"),
        (3, "unknown key storrage"),
        (4, "retention.jobs must be a whole number, not 'many'"),
        (6, "sources.db.type cannot be 'memry'"),
        (7, "the environment variable ALSO_NOT_SET is not set"),
    ]
    # Opening the warehouse says the same.
    with pytest.raises(MultipleProblems, match=r"^5 problems\n") as raised:
        load_project(file)
    assert [str(problem) for problem in raised.value.problems] == [str(problem) for problem in report.problems]
    file.write_text("name: shop\nname: shop\n1: x\nstorage: y\nstorage: z\n")
    assert [problem.where and problem.where.line for problem in check_project(file).problems] == [2, 3, 5]


MISTAKES = {
    "one": "CREATE MATERIALIZED VIEW a AS SELECT nothing FROM db.sales;\nCREATE MATERIALIZED VEW x AS SELECT 1;\n"
    "CREATE MATERIALIZED VIEW y TBLPROPERTIES ('target_lag' = 'soon') AS SELECT id FROM db.sales;\n",
    "two": "CREATE MATERIALIZED VIEW b AS SELECT * FROM db.sails;\nCREATE MATERIALIZED VIEW b AS SELECT id FROM db.sales;\n"
    "CREATE MATERIALIZED VIEW c AS SELECT * FROM d;\nCREATE MATERIALIZED VIEW d AS SELECT * FROM c;\n"
    "CREATE MATERIALIZED VIEW e AS SELECT * FROM a;\nCREATE STREAMING TABLE lonely;\n",
}


def test_opening_tells_all_mistakes_of_all_flow_files_as_checking_does(
    folder: Path, spark_sessions: SparkSessions
) -> None:
    report = check(folder, with_spark=True, **MISTAKES)
    with pytest.raises(MultipleProblems, match=r"^7 problems\n") as raised:
        headgate.open(folder)
    told = [
        (problem.where and Path(problem.where.file).stem, problem.where and problem.where.line)
        for problem in raised.value.problems
    ]
    assert sorted(told) == [("one", 1), ("one", 2), ("one", 3), ("two", 1), ("two", 2), ("two", 3), ("two", 6)]
    assert {str(problem) for problem in report.problems} == {str(problem) for problem in raised.value.problems}
    lines = failure_lines(raised.value)
    assert lines[0] == "error: 7 problems" and sum(line.startswith("error: ") for line in lines) == 8
