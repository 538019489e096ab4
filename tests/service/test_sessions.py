"""Named sessions are kept for a while."""

from __future__ import annotations

import asyncio
from typing import cast

from headgate.scheduling.session import Session
from headgate.service.limits import ServiceLimits
from headgate.service.sessions import NamedSessions


def new_session() -> Session:
    return cast(Session, object())


def test_a_name_gives_the_same_session_until_it_was_left_alone_for_long() -> None:
    now = 0.0
    sessions = NamedSessions(ServiceLimits(), lambda: now)
    first = sessions.get("a", new_session)
    now = 590.0
    assert sessions.get("a", new_session) is first
    assert sessions.get("b", new_session) is not first
    now = 1180.0
    assert sessions.get("a", new_session) is first
    now = 1781.0
    assert sessions.get("a", new_session) is not first
    assert len(sessions) == 1


def test_the_one_that_was_used_longest_ago_makes_room() -> None:
    sessions = NamedSessions(ServiceLimits(sessions=2), lambda: 0.0)
    first, second = sessions.get("a", new_session), sessions.get("b", new_session)
    assert sessions.get("a", new_session) is first
    sessions.get("c", new_session)
    assert sessions.get("a", new_session) is first
    assert sessions.get("b", new_session) is not second


def test_one_that_is_in_use_is_not_forgotten() -> None:
    async def check() -> None:
        now = 0.0
        sessions = NamedSessions(ServiceLimits(sessions=1), lambda: now)
        busy = sessions.get("a", new_session)
        async with busy.turn:
            now = 10_000.0
            sessions.get("b", new_session)
            assert sessions.get("a", new_session) is busy

    asyncio.run(check())
