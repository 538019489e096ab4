"""Queries over the shop's tables, by what they exercise. Written so that Spark's own answer has no free choice."""

from __future__ import annotations

PLAIN = [
    "SELECT * FROM s.t",
    "SELECT t.*, a + 1 AS a1 FROM s.t",
    "SELECT * EXCEPT (b, c) FROM s.t",
    "SELECT a AS x, b FROM s.t WHERE a > 1 AND b IS NOT NULL OR c = 'x'",
    "SELECT s.t.a, t.b FROM s.t",
    "SELECT A, T.B FROM s.t",
    "SELECT a + 1 AS p, p * 2 AS q FROM s.t",
    "SELECT __commit_at AS since, a FROM s.t",
    "SELECT *, __commit_at AS since FROM s.t WHERE __commit_at IS NOT NULL",
    "SELECT t.*, u.e FROM s.t JOIN s.u ON t.a = u.a AND t.__commit_at >= u.__commit_at",
    "SELECT * FROM (SELECT *, __sk AS sk FROM item) JOIN s.k ON a = item_id AND sk > 0",
    "SELECT DISTINCT a, b FROM s.t",
    "SELECT ALL a FROM s.t WHERE true",
    "SELECT a FROM s.t WHERE 1 = 0",
    "SELECT a, b FROM s.t ORDER BY a DESC, b",
    "SELECT count(*) AS n, c FROM s.t GROUP BY c -- why\n HAVING /* because */ count(*) > 1",
    "SELECT id, r.x, r.y.z AS deep, n.r.x + 1 AS more, IF(size(l) > 0, l[0], -1) AS first, m['p'] AS p FROM s.n",
    "SELECT struct(id, r.x AS rx, l) AS s, to_json(struct(n.id)) AS j, named_struct('i', id).i AS i FROM s.n",
    "SELECT id, transform(l, v -> v + id) AS shifted, filter(l, v -> v > 1) AS big, exists(l, v -> v = id - 1) AS has "
    "FROM s.n",
    "SELECT `id` AS `odd name`, `n`.`l` FROM s.n",
]

JOINS = [
    "SELECT t.a, u.e FROM s.t JOIN s.u ON t.a = u.a",
    "SELECT t.a, u.e FROM s.t, s.u WHERE t.a = u.a AND t.b > 1 AND u.e < 4",
    "SELECT t.a, k.g FROM s.t JOIN s.k ON t.a = k.a AND k.g > 1",
    "SELECT t.a, u.e FROM s.t LEFT JOIN s.u ON t.a = u.a",
    "SELECT t.a, u.e FROM s.t LEFT JOIN s.u ON t.a = u.a AND u.e > 2 AND t.b > 1",
    "SELECT t.a, u.e FROM s.t LEFT JOIN s.u ON t.a = u.a AND t.b < u.e",
    "SELECT t.a, u.e FROM s.t LEFT JOIN s.u ON t.a = u.a WHERE u.e IS NULL AND t.b = 1",
    "SELECT t.a, u.e FROM s.t RIGHT JOIN s.u ON t.a = u.a AND t.b = 2",
    "SELECT t.a, u.a AS ua, t.b, u.e FROM s.t FULL JOIN s.u ON t.a = u.a",
    "SELECT t.a, u.a AS ua, u.e FROM s.t FULL OUTER JOIN s.u ON t.a = u.a AND t.b < u.e WHERE coalesce(t.b, 1) = 1",
    "SELECT t.a, k.g FROM s.t CROSS JOIN s.k",
    "SELECT t.a, t.b FROM s.t LEFT SEMI JOIN s.u ON t.a = u.a AND u.e > 1",
    "SELECT t.a, t.b FROM s.t LEFT ANTI JOIN s.u ON t.a = u.a AND u.e > t.b",
    "SELECT * FROM s.t JOIN s.u USING (a)",
    "SELECT a, t.a AS ta, u.a AS ua, e FROM s.t LEFT JOIN s.u USING (a)",
    "SELECT a, e FROM s.t RIGHT JOIN s.u USING (a)",
    "SELECT * FROM s.t FULL JOIN s.u USING (a)",
    "SELECT * FROM s.u NATURAL JOIN s.k",
    "SELECT * FROM s.u JOIN s.k USING (a) JOIN s.empty USING (a)",
    "SELECT a, e, g FROM s.t LEFT JOIN s.u USING (a) LEFT JOIN s.k USING (a)",
    "SELECT x.a, y.b FROM s.t x JOIN s.t y ON x.a = y.b",
    "SELECT x.a, y.a AS ya, z.a AS za FROM s.k x, s.k y, s.k z WHERE x.a = y.g AND y.a = z.g",
    "SELECT t.a, u.e, k.g FROM s.t, s.k, s.u WHERE u.a = t.a AND k.a = u.e",
    "SELECT t.a, u.e FROM s.t JOIN s.u ON t.a + 1 = u.a * 2 AND upper(t.c) = upper(u.f)",
    "SELECT t.a, u.e FROM s.t JOIN s.u ON t.a <=> u.a",
    "SELECT t.a, u.e FROM s.t JOIN s.u ON t.a < u.a AND t.b = 1",
    "SELECT t.a, u.e FROM s.t, s.u WHERE (t.a = u.a AND t.b = 1 AND u.e = 2) OR (t.a = u.a AND t.b = 2 AND u.e = 1)",
    "SELECT e.a, k.a AS ka, u.a AS ua FROM s.empty e, s.k RIGHT JOIN s.u ON k.a = u.a",
    "SELECT k.a, u.a AS ua, t.b FROM s.k LEFT JOIN (s.u JOIN s.t ON u.a = t.a) ON k.a = u.e",
    "SELECT q.a, q.n FROM (SELECT a, count(*) AS n FROM s.t GROUP BY a) q JOIN s.k ON q.a = k.a",
    "SELECT q.x, q.y FROM (SELECT a, b FROM s.t) AS q (x, y) WHERE q.x > 2",
    "SELECT k.a, g FROM s.k LEFT JOIN s.empty ON k.a = empty.a",
    "SELECT k.a, e.b FROM s.k FULL JOIN s.empty e ON k.a = e.a",
    "SELECT t.a FROM s.t LEFT JOIN s.k ON t.a = k.a LEFT JOIN s.u ON u.a = k.g AND u.e = 3",
]

_VALID = "i.__start_at <= {at} AND ({at} < i.__end_at OR i.__end_at IS NULL)"

LOOKUPS = [
    (
        "SELECT t.a, i.name, i.__sk AS sk FROM s.t JOIN item FOR SYSTEM_TIME AS OF t.at i ON i.item_id = t.a",
        "SELECT t.a, i.name, coalesce(i.__sk, -1L) AS sk FROM s.t LEFT JOIN item i ON i.item_id = t.a AND "
        + _VALID.format(at="t.at"),
    ),
    (
        "SELECT t.a, i.name, i.__sk AS sk FROM s.t LEFT JOIN item FOR SYSTEM_TIME AS OF t.at AS i ON i.item_id = t.a",
        "SELECT t.a, i.name, i.__sk AS sk FROM s.t LEFT JOIN item i ON i.item_id = t.a AND " + _VALID.format(at="t.at"),
    ),
    (
        "SELECT t.a, i.name FROM s.t LEFT JOIN item i TIMESTAMP AS OF t.at + INTERVAL 5 HOURS ON i.item_id = t.a + 1",
        "SELECT t.a, i.name FROM s.t LEFT JOIN item i ON i.item_id = t.a + 1 AND "
        + _VALID.format(at="t.at + INTERVAL 5 HOURS"),
    ),
    (
        "SELECT i.name, sum(t.d) AS d FROM s.t JOIN s.u ON u.a = t.a "
        "LEFT JOIN item FOR SYSTEM_TIME AS OF t.at i ON i.item_id = u.e WHERE t.b > 1 GROUP BY i.name",
        "SELECT i.name, sum(t.d) AS d FROM s.t JOIN s.u ON u.a = t.a "
        f"LEFT JOIN item i ON i.item_id = u.e AND {_VALID.format(at='t.at')} WHERE t.b > 1 GROUP BY i.name",
    ),
]
"""Lookups and the joins that they mean."""

SUBQUERIES = [
    "SELECT a, b FROM s.t WHERE a IN (SELECT a FROM s.u)",
    "SELECT a, b FROM s.t WHERE a IN (SELECT e FROM s.u WHERE u.a = t.b)",
    "SELECT a, b FROM s.t WHERE (a, b) IN (SELECT a, e FROM s.u)",
    "SELECT a, b FROM s.t WHERE a NOT IN (SELECT a FROM s.u)",
    "SELECT a, b FROM s.t WHERE a NOT IN (SELECT a FROM s.u WHERE a IS NOT NULL AND a > 3)",
    "SELECT a, b FROM s.t WHERE a NOT IN (SELECT a FROM s.empty)",
    "SELECT a, b FROM s.t WHERE a NOT IN (SELECT e FROM s.u WHERE u.a = t.b AND e > 1)",
    "SELECT a, b FROM s.t WHERE (a, b) NOT IN (SELECT a, e FROM s.u)",
    "SELECT a, b FROM s.t WHERE EXISTS (SELECT 1 FROM s.u WHERE u.a = t.a AND u.e > t.b)",
    "SELECT a, b FROM s.t WHERE NOT EXISTS (SELECT * FROM s.u WHERE u.a = t.a)",
    "SELECT a, b FROM s.t WHERE NOT EXISTS (SELECT * FROM s.u WHERE u.a = t.a AND t.b > 2)",
    "SELECT a, b FROM s.t WHERE EXISTS (SELECT * FROM s.u) AND NOT EXISTS (SELECT * FROM s.empty)",
    "SELECT a, b FROM s.t WHERE EXISTS (SELECT a FROM s.u WHERE u.a = t.a GROUP BY u.a, u.f HAVING count(*) > 1)",
    "SELECT a, b FROM s.t WHERE b > 3 OR EXISTS (SELECT 1 FROM s.u WHERE u.a = t.a AND u.e = 2)",
    "SELECT a, b FROM s.t WHERE b > 3 OR a IN (SELECT a FROM s.k WHERE g > 1)",
    "SELECT a, b FROM s.t WHERE b > 3 OR a NOT IN (SELECT e FROM s.u)",
    "SELECT a, b FROM s.t WHERE b > 3 OR NOT (a IN (SELECT e FROM s.u WHERE u.a = t.b))",
    "SELECT a, a IN (SELECT e FROM s.u WHERE u.a = t.b) AS found FROM s.t",
    "SELECT a, EXISTS (SELECT 1 FROM s.u WHERE u.a = t.a) AS found FROM s.t",
    "SELECT a, a NOT IN (SELECT e FROM s.u WHERE u.a = t.b) AS missing FROM s.t",
    "SELECT a, b FROM s.t WHERE NOT (b = 1 OR a IN (SELECT e FROM s.u WHERE e > 2))",
    "SELECT a, b FROM s.t WHERE NOT (b = 1 AND a IN (SELECT e FROM s.u))",
    "SELECT a, b FROM s.t WHERE a = (SELECT max(a) FROM s.u)",
    "SELECT a, b FROM s.t WHERE b > (SELECT avg(e) FROM s.u WHERE u.a = t.a)",
    "SELECT a, b FROM s.t WHERE 2 * b >= 1 + (SELECT sum(e) FROM s.u WHERE u.a = t.a AND u.e > 1)",
    "SELECT a, (SELECT count(*) FROM s.u WHERE u.a = t.a) AS n FROM s.t",
    "SELECT a, b FROM s.t WHERE (SELECT count(*) FROM s.u WHERE u.a = t.a) = 0",
    "SELECT a, (SELECT coalesce(sum(e), -1) FROM s.u WHERE u.a = t.a) AS n FROM s.t",
    "SELECT a, (SELECT count(*) + 1 FROM s.u WHERE u.a = t.a HAVING count(*) > 2) AS n FROM s.t",
    "SELECT a, (SELECT max(e) FROM s.u WHERE u.a < t.a) AS n FROM s.t",
    "SELECT a, (SELECT count(e) FROM s.u WHERE u.a < t.a AND u.e > t.b) AS n FROM s.t",
    "SELECT a, (SELECT g FROM s.k WHERE k.a = t.a) AS g FROM s.t",
    "SELECT a, (SELECT max(g) FROM s.k) + b AS g FROM s.t",
    "SELECT a, (SELECT g FROM s.k WHERE k.a = 2) AS g FROM s.t",
    "SELECT a, count(*) AS n FROM s.t GROUP BY a HAVING count(*) > (SELECT avg(e) FROM s.u)",
    "SELECT a, count(*) AS n FROM s.t GROUP BY a HAVING a IN (SELECT a FROM s.k)",
    "SELECT a FROM s.t WHERE a IN (SELECT a FROM s.u WHERE e IN (SELECT g FROM s.k))",
    "SELECT a FROM s.t WHERE a IN (SELECT a FROM s.u UNION SELECT a FROM s.k)",
    "SELECT a FROM s.t WHERE a IN (SELECT DISTINCT a FROM s.u WHERE e > 1)",
    "SELECT a FROM s.t WHERE a IN (SELECT max(a) FROM s.u GROUP BY f)",
    "SELECT a FROM s.t WHERE EXISTS (SELECT 1 FROM s.u WHERE u.a = t.a OR u.e = t.b)",
    "SELECT a FROM s.t WHERE b = 1 OR EXISTS (SELECT 1 FROM s.u WHERE u.a < t.a)",
    "SELECT CASE WHEN a IN (SELECT a FROM s.k) THEN 'known' ELSE 'new' END AS state FROM s.t",
    "SELECT sum(CASE WHEN a IN (SELECT a FROM s.k) THEN 1 ELSE 0 END) AS known FROM s.t",
    "SELECT a FROM s.t WHERE EXISTS (SELECT 1 FROM s.u WHERE u.a = t.a LIMIT 1)",
]

AGGREGATES = [
    "SELECT count(*) AS n, sum(b) AS s, avg(b) AS m, min(c) AS lo, max(c) AS hi FROM s.t",
    "SELECT count(*) AS n, sum(b) AS s, avg(b) AS m FROM s.empty",
    "SELECT a, count(*) AS n FROM s.empty GROUP BY a",
    "SELECT a, b, sum(d) AS s FROM s.t GROUP BY a, b",
    "SELECT a + 1 AS x, sum(d) AS s FROM s.t GROUP BY a + 1",
    "SELECT a + 1 AS x, sum(d) AS s FROM s.t GROUP BY x",
    "SELECT a + 1 AS x, sum(d) AS s FROM s.t GROUP BY 1",
    "SELECT a % 2 AS x, b, sum(d) / count(*) AS s FROM s.t GROUP BY ALL",
    "SELECT (a + 1) * 2 AS x, sum(b) FILTER (WHERE c = 'x') AS s FROM s.t GROUP BY a + 1",
    "SELECT upper(c) AS u, length(UPPER(c)) AS l, count(*) AS n FROM s.t GROUP BY Upper( c )",
    "SELECT a, sum(b) AS s FROM s.t GROUP BY a HAVING s > 3 AND max(d) > 0",
    "SELECT a, sum(b) AS b FROM s.t GROUP BY a HAVING sum(b) > 3",
    "SELECT a, sum(b) AS b FROM s.t GROUP BY a HAVING b > 3",
    "SELECT a + 1 AS a, count(*) AS n FROM s.t GROUP BY a HAVING a > 2",
    "SELECT a, max(b) AS m, m + 1 AS next FROM s.t GROUP BY a HAVING next > 2",
    "SELECT a, count(DISTINCT b) AS n FROM s.t GROUP BY a",
    "SELECT count(DISTINCT b, c) AS n, sum(DISTINCT b) AS s FROM s.t",
    "SELECT a, count(DISTINCT b) AS n, sum(d) AS s, sum(DISTINCT b) AS q FROM s.t GROUP BY a",
    "SELECT a, count(DISTINCT b + 1) AS n FROM s.t GROUP BY a",
    "SELECT stddev(b) AS s, variance(b) AS v, stddev_pop(b) AS p, var_pop(b) AS w, count_if(b > 2) AS c FROM s.t",
    "SELECT a, bool_and(b > 1) AS x, bool_or(b > 1) AS y, any(b > 2) AS z, every(b > 0) AS w FROM s.t GROUP BY a",
    "SELECT sum(a) + sum(b) * 2 AS x, sum(a) AS y FROM s.t",
    "SELECT 'all' AS label, count(*) AS n FROM s.t GROUP BY 'all'",
    "SELECT t.c, sum(u.e * t.b) AS s FROM s.t JOIN s.u ON t.a = u.a GROUP BY t.c",
    "SELECT a, b, count(*) AS n, grouping(a) AS ga, grouping_id(a, b) AS g FROM s.t GROUP BY ROLLUP (a, b)",
    "SELECT a, b, sum(d) AS s FROM s.t GROUP BY CUBE (a, b)",
    "SELECT a, b, sum(d) AS s FROM s.t GROUP BY GROUPING SETS ((a), (b), ())",
    "SELECT a, c, sum(a) AS s FROM s.t GROUP BY a, ROLLUP (c)",
    "SELECT max(n) AS m FROM (SELECT a, count(*) AS n FROM s.t GROUP BY a)",
    "SELECT a FROM s.t GROUP BY a",
    "SELECT count(t.a, t.b) AS n FROM s.t",
    "SELECT DISTINCT count(*) AS n FROM s.t GROUP BY a",
]

SET_OPERATIONS = [
    "SELECT a FROM s.t UNION ALL SELECT e FROM s.u",
    "SELECT a, b FROM s.t UNION SELECT a, e FROM s.u",
    "SELECT a, b FROM s.t INTERSECT SELECT a, e FROM s.u",
    "SELECT a, b FROM s.t INTERSECT ALL SELECT a, e FROM s.u",
    "SELECT a, b FROM s.t EXCEPT SELECT a, e FROM s.u",
    "SELECT a FROM s.t EXCEPT ALL SELECT a FROM s.u",
    "SELECT a FROM s.t MINUS SELECT a FROM s.k",
    "SELECT a FROM s.k UNION SELECT a FROM s.u INTERSECT SELECT e FROM s.u",
    "(SELECT a FROM s.k UNION ALL SELECT a FROM s.u) EXCEPT SELECT e FROM s.u",
    "SELECT a, NULL AS b FROM s.k UNION ALL SELECT a, e FROM s.u ORDER BY 1",
    "WITH x AS (SELECT a, b FROM s.t WHERE b > 1) SELECT p.a, q.b FROM x p JOIN x q ON p.a = q.a",
    "WITH x (n) AS (SELECT a FROM s.t), y AS (SELECT n, count(*) AS c FROM x GROUP BY n) "
    "SELECT * FROM y WHERE c = (SELECT max(c) FROM y)",
    "WITH x AS (SELECT a FROM s.t) SELECT * FROM x WHERE a IN (SELECT a FROM x WHERE a > 2)",
    "SELECT * FROM (WITH t AS (SELECT a FROM s.u) SELECT a FROM t) z",
]

WINDOWS = [
    "SELECT a, b, row_number() OVER (PARTITION BY a ORDER BY b, c, d, at) AS n FROM s.t",
    "SELECT a, b, rank() OVER (PARTITION BY a ORDER BY b DESC NULLS LAST) AS r, dense_rank() OVER (PARTITION BY a "
    "ORDER BY b) AS q FROM s.t",
    "SELECT a, sum(b) OVER (PARTITION BY a) AS s, sum(b) OVER (PARTITION BY a ORDER BY b) AS t FROM s.t",
    "SELECT a, sum(b + 1) OVER (PARTITION BY a % 2, c ORDER BY b, d, at ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s "
    "FROM s.t",
    "SELECT a, lag(b, 1, -1) OVER w AS p, lead(b) OVER w AS n FROM s.t "
    "WINDOW w AS (PARTITION BY a ORDER BY b, c, d, at)",
    "SELECT a, b, d FROM s.t QUALIFY row_number() OVER (PARTITION BY a ORDER BY d, b, c, at) <= 2",
    "SELECT a, d FROM (SELECT a, d, row_number() OVER (PARTITION BY a ORDER BY d DESC, b, c, at) AS rn FROM s.t) "
    "WHERE rn = 1",
    "SELECT a, count(*) AS n, rank() OVER (PARTITION BY a % 2 ORDER BY count(*)) AS r FROM s.t GROUP BY a",
    "SELECT a, sum(sum(b)) OVER (PARTITION BY a % 2) AS s FROM s.t GROUP BY a",
    "SELECT a, b, first_value(b) OVER (PARTITION BY a ORDER BY b) AS f, last_value(b) OVER (PARTITION BY a ORDER BY b) "
    "AS l FROM s.t",
    "SELECT a, b, last_value(b) OVER (PARTITION BY a ORDER BY b, c, d, at ROWS BETWEEN UNBOUNDED PRECEDING AND "
    "UNBOUNDED FOLLOWING) AS l, ntile(3) OVER (PARTITION BY a ORDER BY b, c, d, at) AS q FROM s.t",
    "SELECT a, max(b) FILTER (WHERE c = 'x') OVER (PARTITION BY a) AS m FROM s.t",
    "SELECT a, b - avg(b) OVER (PARTITION BY a) AS x FROM s.t",
    "SELECT a, sum(b) OVER (PARTITION BY a ORDER BY b RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS s FROM s.t",
    "SELECT a, lag(b) IGNORE NULLS OVER (PARTITION BY a ORDER BY b, c, d, at) AS p FROM s.t",
    "SELECT a FROM s.t t WHERE b IN (SELECT e FROM (SELECT e, rank() OVER (PARTITION BY a ORDER BY e) AS r FROM s.u) q "
    "WHERE q.r = 1)",
]

GENERATORS = [
    "SELECT id, v FROM s.n LATERAL VIEW explode(l) x AS v",
    "SELECT id, v FROM s.n LATERAL VIEW OUTER explode(l) x AS v WHERE id > 1",
    "SELECT id, k, v FROM s.n LATERAL VIEW explode(m) x AS k, v",
    "SELECT id, x.pos, x.col FROM s.n LATERAL VIEW posexplode(l) x",
    "SELECT id, explode(l) AS v FROM s.n",
    "SELECT id, explode_outer(l) FROM s.n",
    "SELECT id, posexplode(l) FROM s.n",
    "SELECT v, count(*) AS n FROM s.n LATERAL VIEW explode(l) x AS v GROUP BY v",
]

FRAGMENTS = [
    "SELECT *, __commit_at AS since FROM s.t TABLESAMPLE (100 PERCENT) WHERE __commit_at IS NOT NULL",
    "SELECT x.* EXCEPT (c) FROM s.t TABLESAMPLE (100 PERCENT) x WHERE __commit_at IS NOT NULL",
    "SELECT a, b FROM s.t ORDER BY a, b, c, d, at LIMIT 5",
    "SELECT a, sum(b) AS s FROM s.t GROUP BY a ORDER BY sum(d) DESC, a LIMIT 2",
    "SELECT a, count(*) AS n FROM s.t GROUP BY a ORDER BY 2 DESC, 1 LIMIT 3 OFFSET 1",
    "SELECT DISTINCT a FROM s.t ORDER BY a LIMIT 2",
    "SELECT t.a, u.e FROM s.t JOIN s.u ON t.a = u.a WHERE t.at < now() AND t.b > 1",
    "SELECT a, row_number() OVER (ORDER BY a, b, c, d, at) AS n FROM s.t",
    "SELECT a, size(collect_list(b)) AS n FROM s.t GROUP BY a HAVING count(*) > 1 ORDER BY a",
    "SELECT a, array_sort(collect_set(t.b)) AS s FROM s.t GROUP BY t.a",
    "SELECT 1 AS one, 'x' AS x",
    "VALUES (1, 'a'), (2, 'b')",
    "SELECT a, b FROM (SELECT a, b FROM s.t ORDER BY a, b, c, d, at LIMIT 4) q WHERE a > 0",
    "WITH few AS (SELECT a, b FROM s.t ORDER BY a, b, c, d, at LIMIT 4), all_u AS (SELECT a, e FROM s.u) "
    "SELECT few.a, all_u.e FROM few JOIN all_u ON few.a = all_u.a",
    "SELECT a FROM s.t UNION ALL (SELECT e FROM s.u ORDER BY e LIMIT 3)",
    "SELECT a FROM s.t WHERE a > (SELECT e FROM s.u ORDER BY e DESC LIMIT 1)",
    "SELECT x.a FROM s.t x WHERE EXISTS (SELECT 1 FROM (SELECT a FROM s.u ORDER BY a LIMIT 3) y WHERE y.a = x.a)",
    "SELECT t.a FROM s.t TABLESAMPLE (100 PERCENT) WHERE t.b = 1",
    "SELECT `1` AS one, `2` AS two FROM (SELECT a, b FROM s.t) PIVOT (count(b) FOR a IN (1, 2))",
    "SELECT top.a, k.g FROM top JOIN s.k ON top.a = k.a",
    "SELECT * FROM top",
    "SELECT t.a, v.x FROM s.t, LATERAL (SELECT t.a + 1 AS x) v",
    "SELECT q.a, q.b FROM s.t JOIN (VALUES (1, 2)) AS q (a, b) ON q.a = t.a",
    "SELECT a, count(*) FROM s.t WHERE at < current_timestamp() GROUP BY a",
    "SELECT a, max(at) < now() AS past FROM s.t GROUP BY a",
    "WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT n FROM r JOIN s.k ON k.a = n",
]

EQUIVALENTS = [
    (
        "SELECT a, (SELECT sum(e + t.b) FROM s.u WHERE u.a = t.a) AS n FROM s.t",
        "SELECT a, (SELECT sum(e) FROM s.u WHERE u.a = t.a) + "
        "(SELECT count(e) FROM s.u WHERE u.a = t.a) * b AS n FROM s.t",
    ),
    (
        "SELECT a, count(*) AS n, (SELECT max(e) FROM s.u WHERE u.a = t.a) AS m FROM s.t GROUP BY a",
        "SELECT a, n, (SELECT max(e) FROM s.u WHERE u.a = q.a) AS m "
        "FROM (SELECT a, count(*) AS n FROM s.t GROUP BY a) q",
    ),
    (
        "SELECT a, sum(b) AS n FROM s.t WHERE EXISTS (SELECT 1 FROM s.k WHERE k.a = t.a AND EXISTS "
        "(SELECT 1 FROM s.u WHERE u.a = k.a AND u.e = t.b)) GROUP BY a",
        "SELECT a, sum(b) AS n FROM s.t WHERE EXISTS (SELECT 1 FROM s.k JOIN s.u ON u.a = k.a "
        "WHERE k.a = t.a AND u.e = t.b) GROUP BY a",
    ),
    (
        "SELECT a, b FROM s.t WHERE EXISTS (SELECT 1 FROM s.u WHERE u.a = t.a AND u.e > 2 "
        "UNION ALL SELECT 1 FROM s.k WHERE k.g = t.b)",
        "SELECT a, b FROM s.t WHERE EXISTS (SELECT 1 FROM s.u WHERE u.a = t.a AND u.e > 2) "
        "OR EXISTS (SELECT 1 FROM s.k WHERE k.g = t.b)",
    ),
    (
        "SELECT a, b FROM s.t WHERE b NOT IN (SELECT g FROM s.k WHERE k.a = t.a OR EXISTS "
        "(SELECT 1 FROM s.u WHERE u.e = t.a AND u.a = k.a))",
        "SELECT a, b FROM s.t WHERE NOT EXISTS (SELECT 1 FROM "
        "(SELECT k.a AS ka, g, e FROM s.k LEFT JOIN s.u ON u.a = k.a) q "
        "WHERE (ka = t.a OR e = t.a) AND (t.b = g OR t.b IS NULL OR g IS NULL))",
    ),
]
"""Queries that Spark does not accept, and others that mean the same."""

INCREMENTAL = PLAIN + JOINS + SUBQUERIES + AGGREGATES + SET_OPERATIONS + WINDOWS + GENERATORS
