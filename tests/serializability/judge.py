"""The judge: says what is wrong with a history, from the events alone. It knows nothing of headgate but its promises.

What a writer committed is one list, in order, so the last number that an answer shows of each writer says exactly what the
answer must be: every part of it is compared with that state of the databases. What was acknowledged when says how
fresh it is: every promise of the receipt is compared with that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from tests.serializability.history import Event

SLACK = 2.0
"""Seconds by which a deadline may be missed on a busy machine."""
TICK = 0.001
"""Seconds that rounding may take from an instant."""

Seen = dict[tuple[str, int], int]
"""By database and writer the last number that is in."""


@dataclass(frozen=True)
class Verdict:
    problems: tuple[str, ...]
    counts: Counter[str]
    """How often what happened, so that a run which shows nothing is seen."""


@dataclass
class Transfers:
    """One writer's transfers, in order."""

    acknowledged: list[float] = field(default_factory=list)
    moved: list[dict[int, int]] = field(default_factory=lambda: [{}])
    """By number, how far each branch has moved since the beginning."""

    def add(self, event: Event) -> None:
        assert event["number"] == len(self.moved), f"transfer {event['number']} is out of order"
        after = dict(self.moved[-1])
        for branch, change in event["moved"]:
            after[branch] = after.get(branch, 0) + change
        self.moved.append(after)
        self.acknowledged.append(event["acknowledged_at"])

    def before(self, at: float) -> int:
        """How many were acknowledged before an instant."""
        return bisect_left(self.acknowledged, at)


def judge(events: Iterable[Event]) -> Verdict:
    """All that is wrong."""
    return _Judge(list(events)).verdict()


class _Judge:
    def __init__(self, events: Sequence[Event]) -> None:
        self._world = next(event for event in events if event["event"] == "world")
        self._shift: float = self._world["clock_shift"]
        self._transfers: dict[tuple[str, int], Transfers] = defaultdict(Transfers)
        for event in events:
            if event["event"] == "commit":
                self._transfers[event["database"], event["writer"]].add(event)
        self._answers = [event for event in events if event["event"] == "answer"]
        self._refusals = [event for event in events if event["event"] == "refusal"]
        self._counts = Counter(event["event"] for event in events)
        self._first: dict[tuple[str, int], int] = {}

    def verdict(self) -> Verdict:
        problems: list[str] = []
        seen: list[tuple[Event, Seen]] = []
        for answer in self._answers:
            shown = self._seen(answer)
            seen.append((answer, shown))
            found = [*self._content(answer, shown), *self._freshness(answer, shown), *self._receipt(answer)]
            problems += [f"{_who(answer)}: {what}" for what in found]
            self._count(answer)
        problems += self._jobs(seen)
        for session in sorted({answer["session"] for answer in self._answers}):
            problems += _going_back([pair for pair in seen if pair[0]["session"] == session])
        for refusal in self._refusals:
            problems += [f"{_who(refusal)}: {what}" for what in _refused(refusal)]
        return Verdict(tuple(problems), self._counts)

    def _count(self, answer: Event) -> None:
        receipt = answer["receipt"]
        self._counts[f"bound {answer['bound']}"] += 1
        for name in ("missed", "shared_cut", "closed_job"):
            self._counts[name] += receipt[name]
        self._counts["untouched"] += not any(source["sampled"] for source in receipt["sources"])

    # what an answer shows

    def _seen(self, answer: Event) -> Seen:
        read = {source["name"] for source in answer["receipt"]["sources"]}
        seen = {writer: 0 for writer in self._transfers if writer[0] in read}
        for part, name, key, last, _ in answer["rows"]:
            if part == "history":
                seen[name, key] = last
        return seen

    def _content(self, answer: Event, seen: Seen) -> Iterator[str]:
        if answer["again"] is not None and answer["again"] != answer["rows"]:
            yield "the same answer read twice gave other rows"
        for place, last in seen.items():
            if last >= len(self._transfers[place].moved):
                yield f"{place} shows transfer {last}, which nobody committed"
                return
        databases = {source["name"] for source in answer["receipt"]["sources"]}
        for row, times in Counter(map(tuple, answer["rows"])).items():
            part, name, key, one, two = row
            if name not in databases:
                yield f"{name} is shown but not among the receipt's sources"
                continue
            if part == "differing":
                if one:
                    yield f"{name}: the same table twice in one query differed in {one} rows"
                continue
            expected = self._expected(part, name, key, one, seen)
            if (one, two) != expected:
                yield f"torn: {part} {key} of {name} is {one, two} (shown {times} times), but at {seen} it was {expected}"
        yield from self._wholes(answer)

    def _expected(self, part: str, name: str, key: int, one: int, seen: Seen) -> tuple[int, int]:
        every, kept = self._world["owner_every"], self._world["kept"]
        if part == "branches":
            moved = sum(
                self._transfers[place].moved[last].get(key, 0) for place, last in seen.items() if place[0] == name
            )
            return self._world["branches"][str(key)] + moved, self._world["accounts"]
        last = seen[name, key]
        if part == "history":
            return last, last if kept is None else min(last, kept)
        version = last - last % every
        if part == "first":
            # The history of a dimension begins with the first load, and stays.
            return self._first.setdefault((name, key), one), 0
        return version, version if part == "owner" else 1

    def _wholes(self, answer: Event) -> Iterator[str]:
        """All rows of every part are there, and a database's total is the same in every state of it."""
        shown: dict[tuple[str, str], list[list[int]]] = defaultdict(list)
        for part, name, key, one, _ in answer["rows"]:
            shown[part, name].append([key, one])
        branches, writers = len(self._world["branches"]), range(1, self._world["writers"] + 1)
        keys = {"branches": range(branches), "differing": range(1)}
        for (part, name), times in Counter(map(tuple, answer["shows"])).items():
            rows = shown[part, name]
            if part != "history" and sorted(key for key, _ in rows) != sorted([*keys.get(part, writers)] * times):
                yield f"torn: {part} of {name} has the rows {rows}"
            total = sum(self._world["branches"].values()) * times
            if part == "branches" and sum(one for _, one in rows) != total:
                yield f"torn: the branches of {name} add up to {sum(one for _, one in rows)}, not to {total}"

    # how fresh it is

    def _freshness(self, answer: Event, seen: Seen) -> Iterator[str]:
        receipt = answer["receipt"]
        arrived = self._at(receipt["arrived_at"])
        if not answer["began_at"] - TICK <= arrived <= answer["ended_at"] + TICK:
            yield f"arrived at {arrived}, but it was asked from {answer['began_at']} to {answer['ended_at']}"
        promises = {name: [] for name, _ in seen} | {source["name"]: [] for source in receipt["sources"]}
        everywhere = [("its data_timestamp", self._at(receipt["data_timestamp"]))]
        if answer["bound"] is not None and not receipt["missed"]:
            everywhere.append((f"a bound of {answer['bound']} s", arrived - answer["bound"]))
            if answer["bound"] == 0:
                everywhere.append(("a bound of 0", answer["began_at"]))
        for source in receipt["sources"]:
            promises[source["name"]] = [*everywhere, (f"a lag of {source['lag']} s", arrived - source["lag"])]
        for (database, writer), last in seen.items():
            transfers = self._transfers[database, writer]
            for why, since in promises[database]:
                needed = transfers.before(since - TICK)
                if last < needed:
                    late = since - transfers.acknowledged[last]
                    yield (
                        f"stale: {why} promises transfer {needed} of {database} {writer}, but it ends at {last};"
                        f" the next was acknowledged {late:.3f} s before"
                    )

    def _at(self, instant: str) -> float:
        """An instant of headgate's clock on the machine's."""
        return datetime.fromisoformat(instant).timestamp() - self._shift

    # whether the receipt is in itself right

    def _receipt(self, answer: Event) -> Iterator[str]:
        receipt, bound = answer["receipt"], answer["bound"]
        said = (receipt["bound"]["max_staleness"], receipt["bound"]["deadline"], receipt["bound"]["when_stale"])
        if said != (bound, answer["deadline"], answer["when_stale"]):
            yield f"the receipt's bound is {said}"
        if receipt["job"] != answer["job"]:
            yield f"the receipt is of job {receipt['job']}, the answer of {answer['job']}"
        behind = self._at(receipt["arrived_at"]) - self._at(receipt["data_timestamp"])
        lag = max(source["lag"] for source in receipt["sources"])
        if abs(max(0.0, behind) - receipt["staleness"]) > TICK or abs(max(0.0, behind) - lag) > TICK:
            yield f"staleness {receipt['staleness']} and lag {lag}, but it lies {behind} s behind"
        if receipt["missed"]:
            if answer["when_stale"] != "serve" or not receipt["why_missed"]:
                yield "missed its bound without being asked to serve what there is, or without saying why"
        elif bound is not None and behind > bound + TICK:
            yield f"missed its bound of {bound} s by {behind - bound:.3f} s and does not say so"
        waited = receipt["waited"]
        if answer["deadline"] is not None and answer["when_stale"] != "wait":
            until = waited["capture"] + waited["queue"] + waited["spark"]
            if until > answer["deadline"] + SLACK:
                yield f"waited {until:.3f} s with a deadline of {answer['deadline']} s"
        if waited["total"] > answer["ended_at"] - answer["began_at"] + SLACK:
            yield f"says that it waited {waited['total']} s, which is longer than it took"
        yield from self._clocks(answer)

    def _clocks(self, answer: Event) -> Iterator[str]:
        """The sources' clocks are the machine's, headgate's is shifted."""
        receipt = answer["receipt"]
        for source in receipt["sources"]:
            offset, error = source["clock_offset"], source["clock_error"]
            if offset is None:
                if not any(source["name"] in note for note in receipt["notes"]):
                    yield f"says neither the clock of {source['name']} nor that it is unknown"
                continue
            if abs(offset + self._shift) > error + TICK:
                yield f"the clock of {source['name']} is {-self._shift} s off, the receipt says {offset} ± {error}"
            wide = max(answer["bound"] or 1.0, error)
            if answer["bound"] is not None and abs(self._shift) > wide + TICK:
                if not any(source["name"] in warning for warning in receipt["warnings"]):
                    yield f"does not warn that the clock of {source['name']} is {-self._shift} s off"
                self._counts["clock warnings"] += 1

    # answers together

    def _jobs(self, answers: Sequence[tuple[Event, Seen]]) -> Iterator[str]:
        """A job is one state of all sources, and later jobs hold more."""
        states: dict[tuple[str, str, int], dict[int, int]] = defaultdict(dict)
        for answer, seen in answers:
            found = {("transfers", *place): last for place, last in seen.items()}
            for source in answer["receipt"]["sources"]:
                found["position", source["name"], 0] = source["position"]
            for place, value in found.items():
                known = states[place].setdefault(answer["job"], value)
                if known != value:
                    yield f"{_who(answer)}: job {answer['job']} had {known} {place}, now {value}"
        for place, by_job in states.items():
            values = [by_job[job] for job in sorted(by_job)]
            if values != sorted(values):
                yield f"{place} of later jobs is less than of earlier ones"
        self._counts["jobs"] = len({answer["job"] for answer, _ in answers})


def _going_back(answers: Sequence[tuple[Event, Seen]]) -> Iterator[str]:
    """In a session, who asks after an answer came sees at least what that showed."""
    done = sorted(answers, key=lambda pair: pair[0]["ended_at"])
    newest, passed = 0, 0
    reached: Seen = {}
    for answer, seen in sorted(answers, key=lambda pair: pair[0]["began_at"]):
        while passed < len(done) and done[passed][0]["ended_at"] < answer["began_at"]:
            newest = max(newest, done[passed][0]["job"])
            for place, last in done[passed][1].items():
                reached[place] = max(last, reached.get(place, 0))
            passed += 1
        # Only who asks for what there is goes back, and is told.
        is_told = answer["receipt"]["missed"] and "the session has seen job" in answer["receipt"]["why_missed"]
        if answer["job"] < newest and not is_told:
            yield f"{_who(answer)}: goes back to job {answer['job']}, its session has seen job {newest}"
            for place, last in seen.items():
                if last < reached.get(place, 0):
                    yield f"{_who(answer)}: goes back to transfer {last} of {place}, its session has seen {reached[place]}"


def _refused(refusal: Event) -> Iterator[str]:
    nothing = refusal["when_stale"] == "serve" and "there is no snapshot that all of" in refusal["what"]
    if (refusal["when_stale"] != "fail" and not nothing) or refusal["deadline"] is None:
        yield "refused, though it did not ask for that"
    elif refusal["ended_at"] - refusal["began_at"] < refusal["deadline"] - TICK:
        yield f"refused before its deadline of {refusal['deadline']} s"


def _who(event: Event) -> str:
    return f"{event['reader']} ({event['session']}) {event['query']} at {event['began_at']:.3f}"
