"""What a query can be answered from while tables are being loaded: ranges whose first rows are there, all the way down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headgate.ranges.key_set import ALL, KeySet
from headgate.runtime.flows.flow_set import FlowSet
from headgate.runtime.stages.replica_stage import ReplicaStage


@dataclass(frozen=True, slots=True)
class LoadedPart:
    keys: Mapping[str, KeySet]
    """The keys that can be read of tables with ranges; of others all."""
    missing: Mapping[str, tuple[str, ...]]
    """Per table the ranges that a query would read and that are still to be loaded."""

    def __str__(self) -> str:
        return "; ".join(f"{table} lacks {', '.join(names)}, not loaded yet" for table, names in self.missing.items())


def loaded_part(flows: FlowSet, tables: Iterable[str], keys: Mapping[str, KeySet]) -> LoadedPart | None:
    """The part of the tables that is loaded; None where nothing of one of them is. The journal's lock is held."""
    found, missing = dict(keys), {}
    for name in tables:
        if not _lacks(flows, name, keys):
            continue
        if set(flows.stored(name)) != {name}:
            # What runs when it is asked may need all rows for each of its own.
            return None
        table = flows.table(name)
        ranges = sorted(table.holding(keys.get(name, ALL)))
        there = [number for number in ranges if not _lacks(flows, name, {name: table.range_map.keys_of([number])})]
        if table.division is None or not there:
            return None
        found[name] = table.range_map.keys_of(there)
        missing[name] = tuple(table.range_map.name(number) for number in ranges if number not in there)
    return LoadedPart(found, missing)


def _lacks(flows: FlowSet, table: str, keys: Mapping[str, KeySet]) -> bool:
    """Whether first rows are still to be read that a table, or some keys of it, derives from."""
    return any(
        stage.lacks(stage.target.range_map.keys_of(ranges))
        for stage, ranges in flows.needed_ranges([table], keys)
        if isinstance(stage, ReplicaStage)
    )
