"""Ten OLAP queries over the shop's store_sales, in the manner of TPC-DS's ad-hoc ones; each stream asks all ten in an order of its own."""

from __future__ import annotations

from random import Random

QUERIES = {
    "revenue by store": """
        SELECT s.name, SUM(f.revenue) AS revenue, SUM(f.qty) AS qty
        FROM store_sales f JOIN shop.store s ON s.store_sk = f.store_sk
        GROUP BY s.name ORDER BY revenue DESC""",
    "best items of a season": """
        SELECT i.name, SUM(f.revenue) AS revenue
        FROM store_sales f JOIN item i ON i.__sk = f.item_sk
        WHERE f.date_sk BETWEEN 2450300 AND 2450390
        GROUP BY i.name ORDER BY revenue DESC, i.name LIMIT 100""",
    "categories by store": """
        SELECT i.category, s.name, SUM(f.revenue) AS revenue, COUNT(*) AS sales
        FROM store_sales f JOIN item i ON i.__sk = f.item_sk JOIN shop.store s ON s.store_sk = f.store_sk
        GROUP BY i.category, s.name""",
    "customers of each store": """
        SELECT store_sk, COUNT(DISTINCT customer_sk) AS customers
        FROM store_sales GROUP BY store_sk""",
    "average basket": """
        SELECT store_sk, AVG(revenue) AS basket, MAX(revenue) AS largest
        FROM (SELECT ticket, store_sk, SUM(revenue) AS revenue FROM store_sales GROUP BY ticket, store_sk)
        GROUP BY store_sk""",
    "best customers": """
        SELECT c.name, b.revenue
        FROM (SELECT customer_sk, SUM(revenue) AS revenue FROM store_sales GROUP BY customer_sk
              ORDER BY revenue DESC LIMIT 100) b
        JOIN shop.customer c ON c.customer_sk = b.customer_sk""",
    "what promotions bring": """
        SELECT promotion_sk, SUM(revenue) AS revenue, COUNT(DISTINCT ticket) AS tickets
        FROM store_sales WHERE promotion_sk < 1020 GROUP BY promotion_sk""",
    "sales by size": """
        SELECT SUM(CASE WHEN qty <= 2 THEN 1 ELSE 0 END) AS small, SUM(CASE WHEN qty BETWEEN 3 AND 5 THEN 1 ELSE 0 END) AS medium,
               SUM(CASE WHEN qty BETWEEN 6 AND 8 THEN 1 ELSE 0 END) AS large, SUM(CASE WHEN qty > 8 THEN 1 ELSE 0 END) AS bulk
        FROM store_sales WHERE store_sk IN (100, 103, 106)""",
    "best days": """
        SELECT d.sold_on, SUM(f.revenue) AS revenue
        FROM store_sales f JOIN shop.dates d ON d.date_sk = f.date_sk
        WHERE d.sold_on BETWEEN 500 AND 900 GROUP BY d.sold_on ORDER BY revenue DESC LIMIT 10""",
    "large tickets": """
        SELECT s.name, COUNT(*) AS tickets
        FROM (SELECT ticket, store_sk FROM store_sales GROUP BY ticket, store_sk
              HAVING SUM(lines) >= 10 AND SUM(revenue) > 40000) t
        JOIN shop.store s ON s.store_sk = t.store_sk GROUP BY s.name""",
}


def permutation(stream: int) -> list[str]:
    """The queries' names in the order of a stream; the same for every configuration."""
    names = list(QUERIES)
    Random(stream).shuffle(names)
    return names
