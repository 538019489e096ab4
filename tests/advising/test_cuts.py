"""The choice of the stored result: as in the paper's example, and as exhaustive search finds it."""

from __future__ import annotations

import math
from itertools import permutations
from random import Random

import pytest

from headgate.advising.costs import NEVER, CostFragment, Operator
from headgate.advising.cuts import all_cuts, choose, useful_cuts
from headgate.advising.moving import Moving, MovingSettings, decide
from headgate.advising.swaps import choose_with_swaps, may_swap, orders
from tests.seed import SEED


def saving(name: str, saved: float, as_written: float) -> Operator:
    return Operator(name, as_written, as_written - saved, is_row_wise=True)


# Figure 8.6: u6 cannot run incrementally, u4 and u5 lose by it; u7 may pass u5 and u6 but not u4, u8 may pass nothing.
U = {
    "u1": saving("u1", 15, 16),
    "u2": saving("u2", 15, 16),
    "u3": saving("u3", 20, 22),
    "u4": saving("u4", -10, 5),
    "u5": saving("u5", -40, 10),
    "u6": Operator("u6", 6, NEVER, is_row_wise=True),
    "u7": saving("u7", 20, 21),
    "u8": saving("u8", 3, 4),
}
SWAPPED = {("u5", "u7"), ("u6", "u7")}


def allowed(first: Operator, second: Operator) -> bool:
    return (first.name, second.name) in SWAPPED


def gains(names: str) -> dict[str, float]:
    flow = CostFragment(tuple(U[name] for name in names.split()))
    return {cut.behind[0]: round(cut.gain(flow.as_written, 1, 0), 6) for cut in all_cuts(flow) if cut.behind}


def test_figure_8_6() -> None:
    assert sum(each.as_written for each in U.values()) == 100
    assert gains("u1 u2 u3 u4 u5 u6 u7 u8") == {"u1": 0.15, "u2": 0.3, "u3": 0.5, "u4": 0.4, "u5": 0.0}
    assert gains("u1 u2 u3 u4 u5 u7 u6 u8")["u7"] == 0.2
    assert gains("u1 u2 u3 u4 u7 u5 u6 u8")["u7"] == 0.6
    written = CostFragment(tuple(U.values()))
    assert choose(written).cut.behind == ("u3",)
    order, choice = choose_with_swaps(written, allowed)
    assert [each.name for each in order.operators] == ["u1", "u2", "u3", "u4", "u7", "u5", "u6", "u8"]
    assert choice.cut.behind == ("u7",)
    assert math.isclose(choice.gain, 0.6)
    # Before u4, which it must not pass, it would have gained 0.7; u8 never comes before u6.
    assert all(
        names.index("u4") < names.index("u7") and names.index("u6") < names.index("u8")
        for names in ([each.name for each in order] for order in orders(written.operators, allowed))
    )


def random_flow(random: Random, depth: int = 2, prefix: str = "u") -> CostFragment:
    count = random.randint(1, 3)
    operators = []
    for number in range(count):
        never = random.random() < 0.15
        operators.append(
            Operator(
                f"{prefix}{number}",
                random.uniform(0, 10),
                NEVER if never else random.uniform(0, 12),
                random.uniform(0, 3),
                random.uniform(0, 20),
            )
        )
    branches = random.randint(2, 3) if depth and random.random() < 0.6 else 0
    return CostFragment(
        tuple(operators), tuple(random_flow(random, depth - 1, f"{prefix}{each}.") for each in range(branches))
    )


def test_the_choice_is_what_exhaustive_search_finds() -> None:
    random = Random(SEED)
    for _ in range(400):
        flow = random_flow(random)
        shared, space = random.choice([1.0, 2.0, 5.0]), random.choice([0.0, 0.1, 1.0])
        best = max(
            (cut.gain(flow.as_written, shared, space) for cut in all_cuts(flow) if cut.behind), default=-math.inf
        )
        found = choose(flow, shared=shared, space=space)
        assert (not found.cut.behind) == (best <= 0)
        assert math.isclose(found.gain, max(0.0, best), abs_tol=1e-9)
        assert len(useful_cuts(flow)) <= len(all_cuts(flow))


def test_cuts_never_keep_a_result_behind_what_cannot_run_incrementally() -> None:
    random = Random(SEED)
    for _ in range(100):
        flow = random_flow(random)
        infinite = {each.name for each in flow.walk() if each.incremental == NEVER}
        assert infinite.isdisjoint(choose(flow).cut.behind)


def brute_orders(operators: tuple[Operator, ...]) -> set[tuple[str, ...]]:
    """All orders that swaps of neighbours reach."""
    found, waiting = {operators}, [operators]
    while waiting:
        order = waiting.pop()
        for at in range(len(order) - 1):
            if may_swap(order[at], order[at + 1]):
                swapped = (*order[:at], order[at + 1], order[at], *order[at + 2 :])
                if swapped not in found:
                    found.add(swapped)
                    waiting.append(swapped)
    return {tuple(each.name for each in order) for order in found}


def test_swaps_reach_the_best_of_all_orders_and_no_other_order() -> None:
    random = Random(SEED)
    for _ in range(60):
        columns = ["a", "b", "c"]
        operators = tuple(
            Operator(
                f"u{number}",
                random.uniform(1, 10),
                NEVER if random.random() < 0.2 else random.uniform(0, 12),
                reads=frozenset(random.sample(columns, random.randint(0, 2))),
                makes=frozenset(random.sample(columns, random.randint(0, 1))),
                is_row_wise=random.random() < 0.8,
                is_fixed=random.random() < 0.1,
            )
            for number in range(5)
        )
        reachable = brute_orders(operators)
        by_name = {each.name: each for each in operators}
        assert {tuple(each.name for each in order) for order in orders(operators)} <= reachable
        best = max(choose(CostFragment(tuple(by_name[name] for name in order))).gain for order in reachable)
        assert math.isclose(choose_with_swaps(CostFragment(operators))[1].gain, best, abs_tol=1e-9)
        assert reachable <= set(permutations(by_name))


@pytest.mark.parametrize(
    ("first", "second", "swapped"),
    [
        (Operator("filter", 1, reads=frozenset("a"), is_row_wise=True), {"reads": "b"}, True),
        (Operator("project", 1, makes=frozenset("b"), is_row_wise=True), {"reads": "b"}, False),
        (Operator("project", 1, reads=frozenset("b"), is_row_wise=True), {"makes": "b"}, False),
        (Operator("limit", 1, is_row_wise=True, is_fixed=True), {"reads": "a"}, False),
        (Operator("window", 1), {"reads": "a"}, False),
    ],
)
def test_only_what_keeps_the_result_is_swapped(first: Operator, second: dict[str, str], swapped: bool) -> None:
    other = Operator("f", 1, is_row_wise=True, **{name: frozenset(value) for name, value in second.items()})  # type: ignore[arg-type]
    assert may_swap(first, other) is swapped


def test_the_chosen_cut_moves_to_the_front_as_the_update_rate_grows() -> None:
    slopes = {"load": (0.1, 6), "filter": (0.1, 16), "join": (0.2, 60)}
    seen = []
    for rate in (0.001, 0.1, 0.5, 1.0):
        table = [Operator(name, 8, fixed + slope * rate, 0.1) for name, (fixed, slope) in slopes.items()]
        choice = choose(CostFragment(tuple(table)))
        seen.append(choice.cut.behind)
    assert seen == [("join",), ("join",), ("load",), ("load",)]
    assert not choose(CostFragment((Operator("load", 8, 0.1 + 16 * 1.0),))).cut.behind


def test_a_result_moves_only_for_a_gain_that_lasts_and_pays() -> None:
    choice = choose(CostFragment((Operator("a", 10, 1),)))
    settings = MovingSettings(margin=0.1, times=2, reads=10)
    once, why = decide(Moving(()), settings, 0.0, choice, 10, 5)
    assert (once.current, why) == ((), "better 1 of 2 times in a row")
    moved, why = decide(once, settings, 0.0, choice, 10, 5)
    assert moved.current == ("a",) and why.startswith("moved: kept behind a")
    for gain, building, reason in ((0.85, 5, "margin"), (0.0, 1000, "building costs")):
        state, why = decide(once, settings, gain, choice, 10, building)
        assert state.current == () and reason in why
    assert decide(Moving(("a",)), settings, 0.9, choice, 10, 5)[1] == "the cut in use is the best one"
