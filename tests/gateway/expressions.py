"""Expressions and queries whose answers a PostgreSQL and the gateway must agree on, in text form."""

EXPRESSIONS = """
1 + 2 * 3
7 / 2
-7 / 2
7 % 3
-7 % 3
10::float8 / 4
'12'::int + 1
'1.5'::numeric(10,2)
1.005::numeric(10,2)
round(2.5)
round(-2.567, 2)
ceil(-1.5)
abs(-3)
greatest(1, 3, 2)
least(1, NULL, 2)
coalesce(NULL, 'x')
nullif(1, 1) IS NULL
CASE WHEN 1 > 2 THEN 'a' ELSE 'b' END
'a' || 'b' || 1
'it''s'
E'a\\nb'
'back\\slash'
length('Öl')
octet_length('Öl')
substring('headgate' from 2 for 3)
substring('headgate', 5)
left('headgate', 4)
right('headgate', 4)
trim('  x ')
ltrim('xxy', 'x')
btrim('xyx', 'x')
replace('aXbX', 'X', '-')
split_part('a,b,c', ',', 2)
position('g' in 'headgate')
repeat('ab', 3)
reverse('abc')
lpad('7', 3, '0')
rpad('7', 3, '0')
initcap('hello world')
md5('x')
concat('a', NULL, 'b')
concat_ws('-', 'a', NULL, 'b')
starts_with('headgate', 'head')
'Headgate' ILIKE 'head%'
'headgate' LIKE 'head\\_%'
'headgate' NOT LIKE '%x%'
'headgate' ~ '^he.*e$'
'headgate' ~* 'GATE'
'headgate' !~ 'x'
regexp_replace('a1b2', '[0-9]', '#')
regexp_replace('a1b2', '[0-9]', '#', 'g')
1 IN (1, 2)
3 NOT IN (1, 2)
2 BETWEEN 1 AND 3
NULL IS DISTINCT FROM 1
1 IS NOT DISTINCT FROM 1
true AND NOT false
't'::boolean
'off'::boolean
true::text
1::text
1.50::numeric(5,2)::text
date '2026-01-31' + 1
date '2026-03-01' - date '2026-02-01'
date '2026-01-31' + interval '1 month'
timestamp '2026-01-02 03:04:05' + interval '1 day 2 hours'
timestamptz '2026-01-02 03:04:05+02'
timestamptz '2026-01-02 03:04:05.5+00' - interval '90 minutes'
timestamptz '2026-01-02 00:00:00+00' - timestamptz '2026-01-01 12:00:00+00'
interval '3 days'
interval '1 hour 30 minutes'
date_trunc('month', timestamp '2026-05-17 10:11:12')
date_trunc('hour', timestamptz '2026-05-17 10:11:12+00')
extract(year from date '2026-05-17')
extract(dow from date '2026-05-17')
extract(isodow from date '2026-05-17')
extract(doy from date '2026-05-17')
extract(week from date '2026-05-17')
extract(quarter from date '2026-05-17')
extract(epoch from timestamptz '2026-01-01 00:00:00+00')
extract(epoch from timestamptz '2026-01-02 00:00:00+00' - timestamptz '2026-01-01 12:00:00.5+00')
extract(second from timestamp '2026-05-17 10:11:12.5')
regexp_replace('a.b.c', '\\.', '$', 'g')
regexp_replace('a1b2', '([0-9])', '<\\1>', 'g')
regexp_replace('aXbx', 'x', '', 'i')
decode('616263', 'hex')
array_length('{}'::int[], 1) IS NULL
array_position(ARRAY['a'], 'z') IS NULL
to_timestamp(1.5)
to_timestamp('2026-05-07 10:11', 'YYYY-MM-DD HH24:MI')
date '2026-01-31' - interval '1 day'
to_char(timestamp '2026-05-07 10:11:12', 'YYYY-MM-DD HH24:MI:SS')
to_char(date '2026-05-07', 'Mon DD, YYYY')
to_date('2026-05-07', 'YYYY-MM-DD')
make_date(2026, 5, 7)
timestamptz '2026-05-17 10:00:00+00' AT TIME ZONE 'Europe/Berlin'
timestamp '2026-05-17 12:00:00' AT TIME ZONE 'Europe/Berlin'
'2026-05-17'::date
'2026-05-17 10:00:00'::timestamp::date
now() > timestamptz '2020-01-01 00:00:00+00'
current_date > date '2020-01-01'
ARRAY[1, 2, 3]
ARRAY['a', NULL, 'b c']
(ARRAY[10, 20, 30])[2]
array_length(ARRAY[1, 2, 3], 1)
cardinality(ARRAY[1, 2])
2 = ANY(ARRAY[1, 2])
'b' = ANY('{a,b}')
3 <> ALL(ARRAY[1, 2])
ARRAY[1, 2] || ARRAY[3]
array_append(ARRAY[1], 2)
array_position(ARRAY['a', 'b'], 'b')
array_to_string(ARRAY['a', 'b'], ', ')
string_to_array('a,b', ',')
ARRAY[1, 2] @> ARRAY[1]
'{1,2}'::int[]
'\\xdeadbeef'::bytea
encode('abc'::bytea, 'hex')
'NaN'::float8
1e20::float8
0.1::float8 + 0.2::float8
1.0::float8
123456789.125::float8
1::smallint
9223372036854775807
12345678901234567890.5
sqrt(2.0::float8)
power(2, 3)
exp(0)
ln(1)
log(100)
sign(-2)
pi()
width_bucket(5.35, 0.024, 10.06, 5)
(SELECT max(x) FROM generate_series(1, 5) g(x))
EXISTS (SELECT 1)
2.7::int
2.5::int
-2.5::int
2.5::float8::int
3.5::float8::bigint
'12'::int
true::int
round(2.5::float8)
round(-3.5::float8)
round(7)
trunc(2.7)
trunc(-2.7)
trunc(-2.7::float8)
trunc('NaN'::float8)
ceil(1.2::float8)
floor(-1e300::float8)
ceiling(2)
round(2.5::float8)::int
left('headgate', -2)
left('headgate', -20)
right('headgate', -2)
left('headgate', 1 - 3)
substr('headgate', 0, 3)
substr('headgate', -1, 3)
substr('headgate', 3)
substring('headgate' from 0 for 2)
substr('headgate', 1 + 1, 2)
('headgate'::varchar(3))::text
('headgate'::char)::text
(12345::varchar(3))::text
(ARRAY[1, 2])[9] IS NULL
(ARRAY[1, 2])[0] IS NULL
(ARRAY[10, 20, 30])[1 + 1]
(ARRAY[10, 20, 30])[2:3]
(ARRAY[10, 20, 30])[:2]
(ARRAY[10, 20, 30])[2:]
(ARRAY[10, 20, 30])[0:9]
'7' / 2
7 / '2'
9223372036854775807 / 2
7 / 2.0
(7 / 2) / 2
-7 / 2 * 2
length('abcde') / 2
extract(year from date '2025-05-17') / 2
(date '2026-03-01' - date '2026-02-01') / 3
random() < 2
length(gen_random_uuid()::text)
char_length('abc')
strpos('headgate', 'g')
date_trunc('year', now()) < now()
2 IN (SELECT x FROM generate_series(1, 3) g(x))
"""

QUERIES = """
SELECT x, x * 2 AS double FROM generate_series(1, 3) g(x) ORDER BY x DESC
SELECT string_agg(x::text, ',' ORDER BY x) FROM generate_series(1, 3) g(x)
SELECT array_agg(x ORDER BY x DESC) FROM generate_series(1, 3) g(x)
SELECT array_agg(t ORDER BY n DESC), array_agg(n ORDER BY t, n DESC) FILTER (WHERE n < 3) FROM (VALUES (1, 'a'), (2, NULL)) v(n, t)
SELECT array_agg(x) FROM generate_series(1, 3) g(x) WHERE x > 9
SELECT count(*) FILTER (WHERE x > 1), sum(x), avg(x)::numeric(10,4), min(x), max(x) FROM generate_series(1, 4) g(x)
SELECT bool_and(x > 0), bool_or(x > 3), every(x > 1) FROM generate_series(1, 3) g(x)
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY x) FROM generate_series(1, 4) g(x)
SELECT stddev_samp(x)::numeric(10,6), variance(x)::numeric(10,6) FROM generate_series(1, 4) g(x)
SELECT count(*), sum(x), min(x), max(x) FROM generate_series(20000, -20000, -3) g(x)
SELECT count(DISTINCT x % 2) FROM generate_series(1, 4) g(x)
SELECT x % 2 AS odd, count(*) FROM generate_series(1, 5) g(x) GROUP BY 1 ORDER BY 1
SELECT x % 2, sum(x) FROM generate_series(1, 5) g(x) GROUP BY x % 2 HAVING sum(x) > 6 ORDER BY 1
SELECT DISTINCT ON (x % 2) x % 2 AS p, x FROM generate_series(1, 5) g(x) ORDER BY x % 2, x DESC
SELECT x, row_number() OVER (ORDER BY x DESC), sum(x) OVER (ORDER BY x) FROM generate_series(1, 3) g(x) ORDER BY x
SELECT x, lag(x) OVER (ORDER BY x), first_value(x) OVER (ORDER BY x) FROM generate_series(1, 3) g(x) ORDER BY x
SELECT * FROM (VALUES (1, 'a'), (2, NULL)) v(n, t) ORDER BY n
SELECT n, t FROM (VALUES (1, 'a'), (2, NULL), (3, 'b')) v(n, t) ORDER BY t, n
SELECT n, t FROM (VALUES (1, 'a'), (2, NULL), (3, 'b')) v(n, t) ORDER BY t DESC, n
SELECT n FROM (VALUES (1), (2), (3)) v(n) ORDER BY n LIMIT 1 OFFSET 1
SELECT n FROM (VALUES (1), (2), (3)) v(n) ORDER BY n FETCH FIRST 2 ROWS ONLY
SELECT a.n, b.n FROM (VALUES (1), (2)) a(n) LEFT JOIN (VALUES (2)) b(n) USING (n) ORDER BY 1
SELECT a.n FROM (VALUES (1), (2)) a(n) JOIN (VALUES (2)) b(n) ON a.n = b.n
SELECT u FROM unnest(ARRAY[3, 1]) u ORDER BY u
SELECT 1 AS a UNION ALL SELECT 2 ORDER BY a
WITH c AS (SELECT 7 AS q) SELECT q / 2, q / 2.0 FROM c
WITH c AS (SELECT 7 AS q), d AS (SELECT * FROM c) SELECT q / 2 FROM d
SELECT s.q / 2, s.r / 2 FROM (SELECT 7 AS q, 7::numeric(5,1) AS r) s
SELECT q / 2 FROM (SELECT 7 AS q UNION ALL SELECT 9223372036854775807) s ORDER BY 1
SELECT a / 2 FROM (SELECT 7, 'x') s(a, b)
SELECT x / 2 FROM generate_series(1, 3) g(x) ORDER BY x
SELECT g / 2 FROM generate_series(1, 3) g ORDER BY g
SELECT u / 2 FROM unnest(ARRAY[3, 1]) u ORDER BY u
SELECT n / 2, m / 2 FROM (VALUES (1, 1.5), (7, 2)) v(n, m) ORDER BY n
SELECT n, l.d FROM (VALUES (1), (7)) v(n), LATERAL (SELECT n / 2 AS d) l ORDER BY n
SELECT (SELECT v.n / 2 FROM (SELECT 1) s) FROM (VALUES (7)) v(n)
SELECT sum(n) / 2, count(*) / 2, avg(n)::int, max(n) / 2, sum(n) / count(*) FROM (VALUES (1), (6)) v(n)
WITH RECURSIVE t(n) AS (SELECT 7 UNION ALL SELECT n / 2 FROM t WHERE n > 1) SELECT sum(n), max(n) / 2 FROM t
SELECT sum(n) OVER (ORDER BY n) / 2, row_number() OVER (ORDER BY n) / 2 FROM (VALUES (1), (6)) v(n) ORDER BY 1
SELECT t[n], n FROM (VALUES (ARRAY['a', 'b'], 2)) v(t, n)
VALUES (1, 'a'), (2, NULL)
SELECT * FROM (VALUES (1, 'a')) v
WITH c AS (VALUES (1, 'a')) SELECT column1 / 2, column2 FROM c
SELECT column1 / 2 FROM (VALUES (7)) v
SELECT generate_series(1, 3)
SELECT d FROM generate_series(date '2026-01-01', date '2026-01-02', '1 day') g(d) ORDER BY d
SELECT 1 UNION SELECT 1
SELECT 1 EXCEPT SELECT 2
WITH t AS (SELECT 1 AS a) SELECT a + 1 AS b FROM t
WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 4) SELECT sum(n) FROM t
SELECT "Mixed", "with space" FROM (SELECT 1 AS "Mixed", 2 AS "with space") s
SELECT A.N FROM (SELECT 1 AS n) a
SELECT count(*) FROM (SELECT 1 WHERE false) s
SELECT t.n FROM (VALUES (1), (2)) t(n) WHERE NOT EXISTS (SELECT 1 FROM (VALUES (2)) s(n) WHERE s.n = t.n)
SELECT g, (SELECT max(x) FROM generate_series(1, g) h(x)) FROM generate_series(1, 2) g ORDER BY g
SELECT n, l.d FROM (VALUES (1), (2)) v(n), LATERAL (SELECT n * 2 AS d) l ORDER BY n
SELECT d::date, count(*) FROM generate_series(timestamp '2026-01-01', timestamp '2026-01-02', interval '1 day') g(d) GROUP BY 1 ORDER BY 1
"""
