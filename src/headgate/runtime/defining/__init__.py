"""Which flows there shall be: planned, built, replaced and archived."""
