"""Advising: what makes a flow with `'advise' = 'auto'` store other results.

advising:
  space: 0          # σ: what a second of building, which grows with a result's space, counts beside a second of latency
  margin: 10%       # of what the flow takes as written, by which another choice has to be better
  times: 3          # looks in a row at which it was
  reads: 100        # within which building it has to pay
  every: 10s        # between looks
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from headgate.config.fields import Count, Duration, Settings
from headgate.config.scaling import Margin


class AdvisingSettings(Settings):
    space: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    margin: Margin = 0.1
    times: Count = 3
    reads: Count = 100
    every: Duration = timedelta(seconds=10)
