"""One policy per part: a pure function of (settings, observation, now) that gives a change of size and the reason."""
