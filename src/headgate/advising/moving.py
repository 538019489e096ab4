"""Whether to move the stored result: only for a gain that lasts, and that pays for building the new one."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.advising.cuts import Choice


@dataclass(frozen=True, slots=True)
class MovingSettings:
    margin: float = 0.1
    """By how much the gain has to be better, so that costs that waver do not move it to and fro."""
    times: int = 3
    """How often in a row the same cut has to be the better one."""
    reads: float = 100.0
    """In how many reads the move has to pay."""


@dataclass(frozen=True, slots=True)
class Moving:
    """What was decided so far: the cut that is in use, and one that has been better lately."""

    current: tuple[str, ...]
    better: tuple[str, ...] | None = None
    times: int = 0


def decide(
    state: Moving, settings: MovingSettings, current_gain: float, choice: Choice, as_written: float, building: float
) -> tuple[Moving, str]:
    """The state after another look, and why; its `current` is another one when the result is to be moved.

    `current_gain` is that of the cut in use at the costs of now, `building` what it costs to build the new one. Gains are those of
    one read: λ is 1.
    """
    wanted = choice.cut.behind
    if wanted == state.current:
        return Moving(state.current), "the cut in use is the best one"
    ahead = choice.gain - current_gain
    if ahead <= settings.margin:
        return Moving(state.current), f"another cut gains {ahead:.2f} more, not above the margin of {settings.margin:g}"
    saved = ahead * as_written * settings.reads
    if saved <= building:
        return Moving(state.current), f"building costs {building:.3g}, {settings.reads:g} reads would save {saved:.3g}"
    times = state.times + 1 if state.better == wanted else 1
    if times < settings.times:
        return Moving(state.current, wanted, times), f"better {times} of {settings.times} times in a row"
    return Moving(wanted), f"moved: {choice.reason}"
