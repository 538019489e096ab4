"""What a project says about freshness."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pydantic import ValidationError

from headgate.config.settings import FreshnessSettings


@pytest.mark.parametrize(("value", "expected"), [("10m", timedelta(minutes=10)), ("any", "any"), (" Any", "any")])
def test_a_bound_is_a_duration_or_any(value: str, expected: object) -> None:
    assert FreshnessSettings.model_validate({"max_staleness": value}).max_staleness == expected


@pytest.mark.parametrize("value", ["anything", 10, None, True])
def test_nothing_else_is_a_bound(value: object) -> None:
    with pytest.raises(ValidationError):
        FreshnessSettings.model_validate({"max_staleness": value})
