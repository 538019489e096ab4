-- A slowly changing dimension: every transaction that changes an item makes a version with a surrogate key of its own.
CREATE STREAMING TABLE item;
CREATE FLOW item_changes AS AUTO CDC INTO item FROM shop.item_s KEYS (item_id) STORED AS SCD TYPE 2;
