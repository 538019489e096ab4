"""One owner at a time: a second one is refused, one that takes over is safe from the one it replaced."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import headgate
from headgate.errors import Fenced, WarehouseBusy
from tests.faults import shop
from tests.faults.conftest import MakeShop
from tests.faults.processes import check_nothing_left, start


class Owner:
    """An owner in another process."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self.child = child
        assert self._line() == "open"

    def does(self, word: str) -> str:
        assert self.child.stdin is not None
        self.child.stdin.write(f"{word}\n")
        self.child.stdin.flush()
        return self._line()

    def _line(self) -> str:
        assert self.child.stdout is not None
        return self.child.stdout.readline().strip()


@contextmanager
def owner_of(folder: Path) -> Iterator[Owner]:
    child = start("tests.faults.owning", folder)
    try:
        yield Owner(child)
        child.communicate()
        assert child.returncode == 0
    finally:
        child.kill()
        child.wait()


@pytest.mark.slow
def test_a_paused_owner_comes_back_to_nothing(make_shop: MakeShop, expected: dict[int, shop.Content]) -> None:
    folder = make_shop()
    with owner_of(folder) as former:
        assert former.does("commit") == "done"
        assert former.does("refresh") == "done"
        with pytest.raises(WarehouseBusy, match=rf"process {former.child.pid} since .*can take over"):
            headgate.open(shop.project(folder))
        former.child.send_signal(signal.SIGSTOP)
        with headgate.open(shop.project(folder), takeover=True) as warehouse:
            assert shop.content(warehouse) == expected[4]
            former.child.send_signal(signal.SIGCONT)
            for word in ("materialize", "commit", "refresh"):
                assert former.does(word).startswith("Fenced: another process has taken over")
            shop.run(warehouse)
            assert former.does("materialize").startswith("Fenced")
            warehouse.materialize()
            assert former.does("commit").startswith("Fenced")
            check_nothing_left(folder, warehouse)
            assert shop.content(warehouse) == expected[shop.TRANSACTIONS]
    with headgate.open(shop.project(folder)) as warehouse:
        assert shop.position(warehouse) == shop.TRANSACTIONS
        assert shop.content(warehouse) == expected[shop.TRANSACTIONS]


@pytest.mark.parametrize("step", ["before-commit", "after-commit", "after-ledger"])
def test_an_owner_replaced_in_the_middle_of_a_step_harms_nothing(
    make_shop: MakeShop, expected: dict[int, shop.Content], step: str
) -> None:
    folder = make_shop()
    successors: list[headgate.Warehouse] = []
    is_armed = False

    def replaced(found: str) -> None:
        if is_armed and found == step and not successors:
            successors.append(headgate.open(shop.project(folder), takeover=True))

    with headgate.open(shop.project(folder), step=replaced) as former:
        shop.commit(former, 4)
        former.refresh()
        is_armed = True
        with pytest.raises(Fenced):
            former.materialize()
    (warehouse,) = successors
    shop.run(warehouse)
    warehouse.materialize()
    assert shop.content(warehouse) == expected[shop.TRANSACTIONS]
    check_nothing_left(folder, warehouse)
    warehouse.close()


def test_a_transaction_is_not_acknowledged_once_another_owns_the_warehouse(make_shop: MakeShop) -> None:
    folder = make_shop()
    with headgate.open(shop.project(folder)) as former:
        with pytest.raises(Fenced), former.source("shop").transaction() as transaction:
            shop.fill(transaction, 4)
            successor = headgate.open(shop.project(folder), takeover=True)
        assert shop.position(successor) == shop.LOADED
        shop.commit(successor, 4)
        successor.close()
    with headgate.open(shop.project(folder)) as again:
        assert shop.position(again) == 4
