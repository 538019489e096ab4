"""Expressions keep the user's text, so that Spark evaluates what was written."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from headgate.dataflow.graph import Node
from headgate.dataflow.reference import plain_sql
from headgate.sql.lower import lower_view
from headgate.sql.statements import CreateView, parse_statements
from tests.sql.catalogs import Table, TestCatalog

CATALOG = TestCatalog(
    {
        "s.v": Table(
            "i INT, l BIGINT, x DOUBLE, n DECIMAL(12,3), s STRING, j STRING, d DATE, ts TIMESTAMP, b BOOLEAN, "
            "arr ARRAY<INT>, m MAP<STRING,INT>, st STRUCT<a:INT,q:STRUCT<c:STRING>>, bin BINARY"
        )
    }
)

ROW = (
    "SELECT 7 AS i, 7000000000L AS l, 1.5D AS x, 12.345BD AS n, 'a-b_c%d é' AS s, '{\"k\":{\"z\":[1,2]}}' AS j, "
    "DATE '2024-02-29' AS d, TIMESTAMP '2024-02-29 13:14:15.123' AS ts, true AS b, array(3, 1, 2) AS arr, "
    "map('p', 1, 'q', 2) AS m, named_struct('a', 5, 'q', named_struct('c', 'deep')) AS st, X'1F' AS bin, "
    "TIMESTAMP '2024-01-01 00:00:00' AS __commit_at "
    "UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL"
)

EXPRESSIONS = r'''
to_date(s, 'yyyy') IS NULL AND try_to_timestamp(s) IS NULL
to_date('2024-01-05')
date_add(d, 3)
date_sub(d, i)
dateadd(MONTH, 1, d)
datediff(DAY, d, ts)
datediff(ts, d)
timestampdiff(HOUR, d, ts)
date_format(ts, 'yyyy-MM-dd HH:mm:ss.SSS')
date_trunc('MONTH', ts)
trunc(d, 'YEAR')
months_between(ts, d)
add_months(d, 1)
last_day(d)
extract(YEAR FROM d) + extract(dow FROM ts)
d + INTERVAL '1' DAY
d - INTERVAL 2 WEEKS
ts + INTERVAL '1 02:03:04' DAY TO SECOND
ts - make_interval(0, 1, 0, 2)
d BETWEEN DATE '2024-01-01' AND DATE'2024-12-31'
ts > TIMESTAMP '2020-01-01 00:00:00'
unix_timestamp(ts)
from_unixtime(1700000000)
nvl(i, -1)
nvl2(i, 'x', 'y')
ifnull(s, 'none')
nullif(i, 7)
coalesce(s, j, '?')
decode(i, 7, 'seven', 8, 'eight', 'other')
if(b, i, l)
CASE WHEN i > 3 THEN 'big' WHEN i IS NULL THEN 'none' ELSE 'small' END
CASE i WHEN 7 THEN 'a' ELSE 'b' END
split(s, '-')[1]
split_part(s, '-', 2)
regexp_extract(s, '(\\w+)-(\\w+)', 2)
regexp_extract(s, r'(\w+)-(\w+)', 1)
regexp_replace(s, '[aeiou]', '_')
s RLIKE '^a'
s REGEXP 'b'
s LIKE '%b!_c%' ESCAPE '!'
s NOT LIKE 'z%'
s ILIKE 'A%'
s LIKE ANY ('a%', 'z%')
s IN ('a', 'b') OR s NOT IN ('c', NULL)
substring(s, 2, 3)
substring(s FROM 2 FOR 3)
substr(s, 2)
left(s, 2) || right(s, 1)
concat(s, '-', i)
concat_ws(',', s, 'x', array('y'))
trim(BOTH 'a' FROM s)
trim(s)
overlay(s PLACING 'ZZ' FROM 2 FOR 1)
position('b' IN s)
locate('b', s)
upper(s) = UPPER(s)
length(s) + char_length(s)
lpad(s, 20, '*')
initcap(s)
translate(s, 'abc', 'xyz')
format_string('%s-%d', s, i)
get_json_object(j, '$.k.z[1]')
from_json(j, 'k STRUCT<z: ARRAY<INT>>').k.z[0]
to_json(named_struct('i', i, 's', s))
schema_of_json('{"a":1}')
CAST(s AS BINARY)
CAST(n AS STRING)
CAST(i AS DECIMAL(10, 2))
try_cast(s AS INT)
n::string
i::bigint + 1
(i + l)::double / 3
1.5BD * n
10L + i
3S + 2Y
1e3 + .5
1.0D / 3
2.5F
-i
- -i
+i
~i
i & 3 | 4 ^ 1
shiftleft(i, 2)
i << 1
i % 4
i DIV 2
mod(i, 4)
i / 2
i * 2 - 3 + 4
!b
NOT b AND i = 7 OR s IS NULL
i <=> NULL
i IS NOT DISTINCT FROM 7
i IS DISTINCT FROM NULL
i == 7 AND i != 8 AND i <> 9
b IS TRUE
b IS NOT FALSE
s IS NOT NULL
arr[0]
get(arr, 10)
element_at(arr, -1)
try_element_at(m, 'zz')
m['p']
m.p
st.a
st.q.c
v.st.q.c
st.q
array_contains(arr, 3)
sort_array(arr, false)
array_sort(arr, (p, q) -> CASE WHEN p < q THEN 1 WHEN p > q THEN -1 ELSE 0 END)
transform(arr, e -> e * i)
transform(arr, (e, idx) -> e + idx)
filter(arr, e -> e > 1 AND i > 0)
aggregate(arr, 0, (acc, e) -> acc + e, acc -> acc * i)
exists(arr, e -> e = 2)
forall(arr, e -> e > 0)
zip_with(arr, arr, (p, q) -> p * q)
map_filter(m, (k, val) -> val > 1)
transform_values(m, (k, val) -> concat(k, val))
map_keys(m)
size(arr) + cardinality(m)
slice(arr, 1, 2)
flatten(array(arr, arr))
sequence(1, i)
struct(i, s)
struct(i AS p, s)
struct(st.q.c)
named_struct('x', i).x
array(i, 1, 2)
map(nvl(s, 'z'), i)
greatest(i, 3, 9)
least(x, n)
round(n, 1) + bround(n, 2)
ceil(n) + floor(x)
ceil(n, 1)
abs(-i)
power(i, 2) + sqrt(x)
log(10, 100)
exp(x) > 1
hex(bin)
bin = X'1F'
sha2(s, 256)
md5(s)
crc32(s)
hash(i, s)
xxhash64(i, s)
base64(bin)
date '2024-01-01' < d
timestamp_ntz '2024-01-01 00:00:00'
d + interval '3' month
CAST(INTERVAL '1-2' YEAR TO MONTH AS STRING)
make_date(2024, 1, i)
'it''s'
'back\\slash \n \u00e9'
r'raw\n'
"double ""quoted"""
'a' 'b'
'p__x i v.i' || s
NULL
typeof(n)
width_bucket(x, 0, 10, 5)
try_divide(i, 0)
try_add(i, 1)
equal_null(i, 7)
zeroifnull(i)
nullifzero(i)
array_join(transform(arr, e -> CAST(e AS STRING)), '|')
str_to_map('a:1,b:2')
parse_url('http://x.y/z?q=1', 'HOST')
(i, s)
(i + 1) * (2)
((i))
i BETWEEN 1 AND 10 AND NOT s = 'x'
i NOT BETWEEN 1 AND 5
CASE WHEN i BETWEEN 1 AND 5 OR i IN (6, 7) THEN s || '!' END
'''

CHOSEN = EXPRESSIONS.strip().splitlines()


def test_spark_evaluates_a_lowered_expression_as_it_was_written(spark: SparkSession) -> None:
    spark.sql(ROW).createOrReplaceTempView("expression_rows")
    failures: list[str] = []
    for start in range(0, len(CHOSEN), 20):
        part = CHOSEN[start : start + 20]
        query = "SELECT " + ", ".join(f"{text} AS c{index}" for index, text in enumerate(part)) + " FROM s.v"
        (statement,) = parse_statements(f"CREATE MATERIALIZED VIEW v AS {query}", "v.sql")
        assert isinstance(statement, CreateView)
        view = lower_view(statement, CATALOG)
        assert isinstance(view.result, Node)
        written = spark.sql(query.replace("s.v", "expression_rows AS v"))
        lowered = spark.sql(plain_sql(view.result, lambda _: "expression_rows"))
        assert lowered.dtypes == written.dtypes
        for expected, actual in zip(written.collect(), lowered.collect(), strict=True):
            failures.extend(
                f"{text}: {one!r} became {other!r}"
                for text, one, other in zip(part, expected, actual, strict=True)
                if repr(one) != repr(other)
            )
    assert not failures


@pytest.mark.parametrize("text", ["i + s.v.l", "v.i", "`i`", "V.`I`", "s.v.st.q.c"])
def test_qualified_names_mean_the_same_column(text: str) -> None:
    (statement,) = parse_statements(f"CREATE MATERIALIZED VIEW v AS SELECT {text} AS c FROM s.v", "v.sql")
    assert isinstance(statement, CreateView)
    assert isinstance(lower_view(statement, CATALOG).result, Node)
