"""What may be run as a query, as seen by someone who tries to get more than rows of tables."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from headgate.errors import DefiniteError
from headgate.sql.allowed_functions import ALLOWED, REFUSED, TABLE_FUNCTIONS
from headgate.sql.guard import require_select

GETENV = "'java.lang.System', 'getenv', 'HOME'"

QUERIES = [
    "SELECT 1",
    "SELECT 1;",
    " -- a note\n (SELECT 1)",
    "VALUES (1, 'a'), (2, 'b')",
    "FROM t SELECT a",
    "WITH a(x) AS (SELECT 1), b AS (SELECT x FROM a) SELECT * FROM b JOIN shop.orders o USING (x)",
    "WITH RECURSIVE r(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT * FROM r",
    "SELECT a FROM t UNION ALL SELECT b FROM u EXCEPT SELECT c FROM v ORDER BY 1 LIMIT 3",
    "SELECT (SELECT max(x) FROM t), a IN (SELECT b FROM u), EXISTS (SELECT 1 FROM v) FROM w",
    "SELECT * FROM u, LATERAL (SELECT u.a), t LATERAL VIEW explode(a) e AS b",
    "SELECT * FROM range(10) AS r(i) CROSS JOIN explode(array(1, 2)) AS e(x)",
    "SELECT /*+ BROADCAST(a), REPARTITION(3) */ * FROM a",
    "SELECT * FROM t TABLESAMPLE (10 PERCENT)",
    "SELECT sum(x) FILTER (WHERE a) OVER (PARTITION BY b ORDER BY c) FROM t",
    "SELECT sum(x) OVER w FROM t WINDOW w AS (PARTITION BY a)",
    "SELECT * FROM x PIVOT (sum(a) FOR b IN (1, 2))",
    "SELECT CAST(a AS DECIMAL(10, 2)), try_cast(b AS INT), c::date, DATE '2024-01-01', INTERVAL 3 DAYS FROM t",
    "SELECT transform(a, x -> x + 1), filter(a, x -> x > 1), if(a, b, c), left(d, 1), `abs`(-1), date_add(DAY, 1, d) FROM t",
    "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY x), count(DISTINCT y), first(z) IGNORE NULLS FROM t",
    "SELECT from_xml(a, 'b INT'), schema_of_xml('<a/>'), from_json(a, 'b INT', map('mode', 'FAILFAST')) FROM t",
    "SELECT current_date, now(), current_user, 'it''s', \"a\\\"b\", r'a\\d', `a``b` FROM t",
    "SELECT a.b.c, t.`x/y`, t.`my.column` FROM t",
    "SELECT 'reflect(1)', 'DROP TABLE t; USING \"x\"' AS reflect, `java_method` FROM t -- reflect('a')",
    "SELECT transform FROM t /* parquet.`/x`; INSERT INTO t */",
    "SELECT json.a, text.b FROM json JOIN text.orders AS text ON true",
    "SELECT t.table, stream, identifier, map FROM t stream",
    "SELECT a FROM t GROUP BY CUBE(a), ROLLUP(b), GROUPING SETS ((a), (b)) HAVING count(*) > 1",
    "SELECT * EXCEPT (a) FROM t AS x(a, b) WHERE a LIKE ANY ('x', 'y')",
]

REFUSALS = [
    ("", "no query"),
    ("-- nothing", "no query"),
    ("SELECT 1; SELECT 2", "one statement"),
    ("SELECT 1; DROP TABLE t", "one statement"),
    *(
        (statement, "only a query")
        for statement in (
            "INSERT INTO t SELECT 1",
            "CREATE TABLE t AS SELECT 1",
            "CREATE FUNCTION f AS 'x'",
            "DROP TABLE t",
            "USE x",
            "EXPLAIN SELECT 1",
            "CACHE TABLE t",
            "SHOW TABLES",
            "DESCRIBE t",
            "CALL f()",
            "MERGE INTO t USING s ON true WHEN MATCHED THEN DELETE",
            "SET spark.sql.x = 1",
            "SET VAR x = 1",
            "DECLARE x INT",
            "EXECUTE IMMEDIATE 'SELECT 1'",
            "BEGIN SELECT 1; END",
            "ADD JAR '/x.jar'",
            "LOAD DATA INPATH '/x' INTO TABLE t",
            "REFRESH TABLE t",
            "/* SELECT */ TRUNCATE TABLE t",
            "TABLE t",
            "MAP a USING 'cat' FROM t",
        )
    ),
    ("WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a", "query"),
    ("FROM t INSERT INTO x SELECT *", "query"),
    ("SELECT * FROM parquet.`/x`", "files"),
    ("SELECT * FROM `text`.`relative`", "files"),
    ("SELECT * FROM delta.`s3://bucket/x`", "files"),
    ("SELECT * FROM binaryFile.`/etc/passwd`", "files"),
    ("SELECT * FROM `org.apache.spark.sql.execution.datasources.text`.`x`", "files"),
    ("SELECT * FROM `file:/x`", "files"),
    ("SELECT a IN (SELECT value FROM csv.`/x`) FROM t", "files"),
    ("SELECT * FROM a.b.c", "catalogs"),
    ("SELECT * FROM spark_catalog.default.t", "catalogs"),
    ("SELECT * FROM a.b.c.d", "catalogs|named"),
    ("SELECT * FROM IDENTIFIER('a.b')", "IDENTIFIER"),
    (f"SELECT IDENTIFIER('reflect')({GETENV})", "IDENTIFIER"),
    ("SELECT * FROM (TABLE secret)", "TABLE"),
    ("SELECT (TABLE secret)", "TABLE"),
    ("SELECT 1 WHERE EXISTS (TABLE date)", "TABLE"),
    (f"SELECT reflect({GETENV})", "Java"),
    (f"SELECT `ReFlect`({GETENV})", "Java"),
    (f"SELECT java_method\n/* x */ ({GETENV})", "Java"),
    (f"SELECT a FROM t ORDER BY try_reflect({GETENV})", "Java"),
    (f"SELECT * FROM t LATERAL VIEW explode(array(reflect({GETENV}))) e AS x", "Java"),
    (f"WITH a AS (SELECT reflect({GETENV})) SELECT * FROM a", "Java"),
    (f"SELECT system.builtin.reflect({GETENV})", "Java"),
    ("SELECT system.builtin.abs(1)", "several parts"),
    ("SELECT spark_catalog.default.mine(1)", "several parts"),
    ("SELECT mine(1)", "no function"),
    ("SELECT ab(1)", "no function"),
    ("SELECT TRANSFORM(a, b) USING 'cat' AS (x) FROM t", "program"),
    ("FROM t MAP a USING 'cat' AS x", "program"),
    ('SELECT * FROM (FROM t REDUCE a USING "cat" AS x)', "program"),
    ("SELECT * FROM read_files('/x')", "stand for a table"),
    ("SELECT * FROM python_worker_logs()", "cannot be called"),
    ("SELECT * FROM mine(TABLE(t))", "TABLE|stand for"),
    ("SELECT from_avro(a, 'x', map('avroSchemaUrl', '/x')) FROM t", "files"),
    ("SELECT from_protobuf(a, 'x', '/x') FROM t", "files"),
    ("SELECT from_xml(a, 'b INT', map('rowValidationXSDPath', '/x')) FROM t", "options"),
    ("SELECT schema_of_xml(a, options => map('rowValidationXSDPath', '/x')) FROM t", "options"),
    ("SELECT xpath_string('<!DOCTYPE a SYSTEM \"http://host/x\"><a/>', '/a')", "network"),
    ("SELECT input_file_name() FROM t", "snapshot"),
    ("SELECT :x", "parameters"),
    ("SELECT ?", "parameters"),
    ("SELECT '${env:HOME}'", r"\$\{"),
    ("SELECT 1 -- ${spark.master}", r"\$\{"),
    ("SELECT $$ a $$", "parameters|read"),
    ("FROM t |> WHERE a > 1", "pipe"),
    ("SELECT * FROM t WITH ('a' = 'b')", "read this SQL"),
    ("SELECT 'x", "quote"),
    # Comments and quotes that Spark and the parser read differently, with code that only one of them sees.
    (f"SELECT 1 -- \\\n '\n , reflect({GETENV}) -- '", "two ways"),
    ("SELECT 1 -- \\\n , secret FROM t", "two ways"),
    (f"SELECT /* /*+ */ reflect({GETENV}) /* */ 1 */", "two ways"),
    ("SELECT /* /* */ reflect(a, b) /* */ */ 1 FROM t", "two ways"),
    ("SELECT /*+ f('*/') */ 1 -- '", "two ways"),
    ("SELECT 1.r'\\', reflect(a, b) --'", "two ways|several parts|Java|no function"),
    ("SELECT {# reflect(a, b) #} 1", "two ways"),
    ("SELECT /*+ A */ /*+ reflect(a, b) */ 1", "two ways|read this SQL"),
]


@pytest.mark.parametrize("text", QUERIES)
def test_a_query_over_named_tables_may_run(text: str) -> None:
    require_select(text)


@pytest.mark.parametrize(("text", "reason"), REFUSALS)
def test_everything_else_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(DefiniteError, match=reason) as refusal:
        require_select(text)
    assert refusal.value.hint
    assert refusal.value.where is not None


def test_a_refusal_names_the_line() -> None:
    with pytest.raises(DefiniteError, match="query:3:3: the function reflect"):
        require_select("SELECT a,\n  b,\n  reflect('x', 'y')\nFROM t")
    with pytest.raises(DefiniteError, match=r"query:2:6: there are no catalogs"):
        require_select("SELECT a\nFROM x.y.z")


def test_a_query_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(DefiniteError, match="more than 50 levels"):
        require_select("SELECT " + "(" * 5000 + "1" + ")" * 5000)


def test_every_function_of_spark_was_looked_at(spark: SparkSession) -> None:
    registered = {row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}
    named = {name for name in registered if name.replace("_", "a").isalnum()}
    assert named - ALLOWED - REFUSED.keys() == set(), "new functions of Spark: allow or refuse them"
    assert ALLOWED & REFUSED.keys() == set()
    assert TABLE_FUNCTIONS <= ALLOWED
    assert (ALLOWED | REFUSED.keys()) - named == {"timestampadd", "timestampdiff", "try_cast"}
