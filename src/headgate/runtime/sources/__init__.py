"""Sources as the engine opens them: their stream logs, their positions in a cut, large first loads, progress."""
