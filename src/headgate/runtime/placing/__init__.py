"""Results at other platforms: which tables are placed where, shipping their changes, answering from there."""
