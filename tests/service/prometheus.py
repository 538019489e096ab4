"""Reads a page of metrics in Prometheus' text format."""

from __future__ import annotations

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families


class Family:
    def __init__(self, metric: Metric) -> None:
        self.kind = metric.type
        self.samples = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in metric.samples}
        assert len(self.samples) == len(metric.samples)

    def value(self, suffix: str = "", **labels: str) -> float:
        (found,) = [
            value
            for (name, said), value in self.samples.items()
            if name.endswith(suffix) and said == frozenset(labels.items())
        ]
        return found


def read_metrics(page: str) -> dict[str, Family]:
    """The families by the name that their TYPE line has."""
    return {
        f"{metric.name}_total" if metric.type == "counter" else metric.name: Family(metric)
        for metric in text_string_to_metric_families(page)
    }
