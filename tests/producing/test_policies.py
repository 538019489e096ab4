"""When lazy commits become visible."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from headgate.errors import ConfigError
from headgate.producing import AtOnce, Every, LoadAware, OnDemand, dbapi
from tests.producing.shelf import START, Shelf, table
from tests.waiting import PATIENCE

LOG = table("log", "id long")
QUICK = timedelta(milliseconds=2)


class Told(OnDemand):
    """Hears the reasons."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.heard = threading.Event()

    def flushed(self, reason: str) -> None:
        self.reasons.append(reason)
        self.heard.set()


class WhenReady(Told):
    """A user's own policy."""

    def __init__(self) -> None:
        super().__init__()
        self.is_ready = threading.Event()

    def should_flush(self) -> bool:
        return self.is_ready.is_set()


@pytest.fixture
def shelf() -> Shelf:
    return Shelf(LOG)


def test_by_default_nothing_is_lazy(shelf: Shelf) -> None:
    with shelf.connection(policy=AtOnce()) as connection:
        connection.cursor().execute("INSERT INTO log VALUES (1)")
        connection.commit()
        assert connection.archives == 0
        assert connection._watcher is None


def test_a_users_policy_decides_and_hears(shelf: Shelf) -> None:
    policy = WhenReady()
    with shelf.connection(policy=policy, check_every=QUICK) as connection:
        for number in range(3):
            connection.cursor().execute("INSERT INTO log VALUES (%s)", (number,))
            connection.commit()
        assert connection.archives == 3
        policy.is_ready.set()
        assert policy.heard.wait(PATIENCE)
        assert connection.archives == 0
    assert policy.reasons == ["policy"]


def test_demands_and_materializing_and_closing_flush(shelf: Shelf) -> None:
    policy = Told()
    with shelf.connection(policy=policy) as connection:
        cursor = connection.cursor()
        for number in range(3):
            cursor.execute("INSERT INTO log VALUES (%s)", (number,))
            connection.commit()
        shelf.demand(START + timedelta(seconds=2))
        assert connection.archives == 1
        connection.commit(materialize=True)
        assert (connection.archives, shelf.materialized) == (0, 1)
        cursor.execute("INSERT INTO log VALUES (9)")
    assert policy.reasons == ["demand", "materialize", "close"]


def test_an_error_of_the_policy_is_raised_by_the_next_commit(shelf: Shelf) -> None:
    asked = threading.Event()

    class Broken(OnDemand):
        def should_flush(self) -> bool:
            asked.set()
            raise ZeroDivisionError("no load")

    connection = shelf.connection(policy=Broken(), check_every=QUICK)
    connection.cursor().execute("INSERT INTO log VALUES (1)")
    connection.commit()
    assert asked.wait(PATIENCE)
    with pytest.raises(dbapi.OperationalError, match="no load"):
        connection.close()
    assert shelf.archives == 0
    assert connection.is_closed


def test_every_interval() -> None:
    now = [0.0]
    policy = Every("30s", seconds=lambda: now[0])
    assert not policy.should_flush()
    now[0] = 30
    assert policy.should_flush()
    policy.flushed("policy")
    assert not policy.should_flush()
    now[0] = 61
    assert policy.should_flush()


def test_a_loaded_machine_flushes_later() -> None:
    now, load = [0.0], [0.9]
    policy = LoadAware(below=0.7, within="20s", load=lambda: load[0], seconds=lambda: now[0])
    assert not policy.should_flush()
    load[0] = 0.6
    assert policy.should_flush()
    load[0], now[0] = 2.0, 20.0
    assert policy.should_flush()
    policy.flushed("demand")
    assert not policy.should_flush()
    assert LoadAware(below=1e9).should_flush()


def test_a_policy_without_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match="would never flush"):
        LoadAware(below=0)
    with pytest.raises(ConfigError, match=r"no unit|not a duration"):
        Every("soon")
