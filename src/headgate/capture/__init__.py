"""Sources in: captured transactions and the durable log that holds them."""
