"""Reads Prometheus' text format 0.0.4, as strictly as Prometheus does."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"')
_ESCAPED = re.compile(r"\\(.)")
_SUFFIXES = ("_bucket", "_sum", "_count")


@dataclass
class Family:
    kind: str
    text: str
    samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = field(default_factory=dict)

    def value(self, suffix: str = "", **labels: str) -> float:
        (found,) = [
            value
            for (name, said), value in self.samples.items()
            if name.endswith(suffix) and said == frozenset(labels.items())
        ]
        return found


def read_metrics(page: str) -> dict[str, Family]:
    assert page.endswith("\n")
    families: dict[str, Family] = {}
    text = ""
    for line in page.splitlines():
        if line.startswith("# HELP "):
            _, _, name, text = line.split(" ", 3)
        elif line.startswith("# TYPE "):
            _, _, kind_of, kind = line.split(" ")
            assert kind_of == name and kind in ("counter", "gauge", "histogram") and kind_of not in families
            families[kind_of] = Family(kind, text)
        else:
            _read_sample(line, families[name], name)
    return families


def _read_sample(line: str, family: Family, of: str) -> None:
    start = _NAME.match(line)
    assert start, line
    labels: dict[str, str] = {}
    rest = line[start.end() :]
    if rest.startswith("{"):
        rest = rest[1:]
        while not rest.startswith("}"):
            label = _LABEL.match(rest)
            assert label and label[1] not in labels, line
            labels[label[1]] = _ESCAPED.sub(lambda found: {"n": "\n"}.get(found[1], found[1]), label[2])
            rest = rest[label.end() :].removeprefix(",")
        rest = rest[1:]
    suffixes = _SUFFIXES if family.kind == "histogram" else ("",)
    assert start[0] in [of + suffix for suffix in suffixes], line
    assert family.kind != "counter" or of.endswith("_total"), line
    place = (start[0], frozenset(labels.items()))
    assert rest.startswith(" ") and place not in family.samples, line
    family.samples[place] = float(rest[1:])
