-- Large volume customer. The specification's "first 100 rows" is the reader's LIMIT, not part of the query.
SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) AS sum_quantity
FROM tpch.customer, tpch.orders, tpch.lineitem
WHERE o_orderkey IN (
        SELECT l_orderkey
        FROM tpch.lineitem
        GROUP BY l_orderkey
        HAVING sum(l_quantity) > 300
    )
    AND c_custkey = o_custkey
    AND o_orderkey = l_orderkey
GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
ORDER BY o_totalprice DESC, o_orderdate
