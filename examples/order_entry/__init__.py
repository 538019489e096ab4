"""The demo: an order-entry database goes on selling while readers with different bounds ask its warehouse."""
