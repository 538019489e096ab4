-- What was sold under which name: each line item sees the item as it was called when the line was committed.
CREATE MATERIALIZED VIEW store_sales AS
SELECT p.store, l.item_id, i.name AS item, COUNT(*) AS lines, SUM(l.qty) AS qty, SUM(l.qty * l.price) AS revenue
FROM shop.purchases p
JOIN shop.lineitems l ON l.purc_id = p.purc_id
JOIN item FOR SYSTEM_TIME AS OF l.__commit_at i ON i.item_id = l.item_id
GROUP BY p.store, l.item_id, i.name;
