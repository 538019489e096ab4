"""Settings that can be changed while the warehouse is open, and who changed them.

A setting has the dotted name that it has in the project file: `sources.shop.pace.w`, `limits.overlay_bytes`. A change is
checked as the project file is, recorded in the ledger, and holds from then on, also after a restart, until it is reset or
the project file says something else about the same setting: then the file wins.

The project itself never changes: each change makes another one of the file's and of all changes that hold.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from pathlib import Path
from threading import RLock
from typing import Any, Literal, Protocol, runtime_checkable

from headgate.capture.source import Source
from headgate.config.document import locate_key, read_value
from headgate.config.durations import format_duration
from headgate.config.fields import Settings
from headgate.config.gears import DEFAULT_W, GearSettings
from headgate.config.live import LiveProject
from headgate.config.project import check_project
from headgate.config.settings import Project
from headgate.config.sources import PACED
from headgate.errors import ConfigError, DefiniteError, MultipleProblems
from headgate.runtime.tables.journal import Journal
from headgate.runtime.tables.records import SETTING
from headgate.runtime.upkeep.upkeep import Upkeep

Value = Any
"""As the project file would have it: durations as text, sizes in bytes, lists and mappings plain."""

_GROUPS = ("freshness", "retention", "background")
_SINGLE = ("limits.overlay_bytes", "limits.stream_bytes")
_ALLOWED = {
    "w": "a number from 0, for fresh answers, to 1, for the source's own throughput;"
    ' or by time of day: [{from: "08:00", to: "18:00", w: 0.8}]',
    "gears": "a list from the shortest period to the longest: [{period: 20ms, workers: 2}, {period: 320ms}]",
}
_THE_FILE = "the project file"


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a setting."""

    at: datetime
    who: str
    name: str
    before: Value
    after: Value
    kind: Literal["change", "reset", "superseded"]
    """`reset` went back to what the project file says; `superseded` is the file's own change, which ended an earlier one."""
    holds: bool
    """Whether the setting is what it is because of this change."""


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A setting about which the project file says something else than before."""

    name: str
    before: Value = None
    after: Value = None
    needs_restart: bool = False
    """Then its values are not told: some are secrets."""


@runtime_checkable
class Paced(Protocol):
    """A source that is captured at a pace."""

    def change_pace(self, pace: GearSettings) -> None: ...


class Tuning:
    """The settings of an open warehouse; may be used from any thread."""

    def __init__(self, settings: LiveProject, journal: Journal, sources: Mapping[str, Source], upkeep: Upkeep) -> None:
        self._settings = settings
        self._journal = journal
        self._sources = sources
        self._upkeep = upkeep
        self._file = settings.current
        self._lock = RLock()
        self._changed: dict[str, Value] = {}
        self._resume()

    def current(self) -> dict[str, Value]:
        """Every setting that can be changed, by name, as it is now."""
        project = self._settings.current
        return {name: _value(project, name) for name in _names(project)}

    def change(self, name: str, value: Value, who: str = "a program") -> Change:
        """Changes a setting, at once; a text is read as the project file would read it."""
        with self._lock:
            self._require(name)
            before = _value(self._settings.current, name)
            changed = {**self._changed, name: _read(name, value)}
            project = self._project(changed)
            changed[name] = after = _value(project, name)
            self._record(name, before, after, who, "change")
            self._changed = changed
            self._apply(project)
            return self.changes()[-1]

    def reset(self, name: str, who: str = "a program") -> Change | None:
        """Goes back to what the project file says; None when nobody had changed it."""
        with self._lock:
            self._require(name)
            if name not in self._changed:
                return None
            before = _value(self._settings.current, name)
            changed = {other: value for other, value in self._changed.items() if other != name}
            self._record(name, before, _value(self._file, name), who, "reset")
            self._changed = changed
            self._apply(self._project(changed))
            return self.changes()[-1]

    def file_changes(self, project: Project) -> tuple[SettingChange, ...]:
        """What the project file says otherwise now, apart from where its flows are."""
        known = [name for name in _names(project) if name in _names(self._file)]
        found = [
            SettingChange(name, _value(self._settings.current, name), _value(project, name))
            for name in known
            if _value(project, name) != _value(self._file, name)
        ]
        before, after = (dict(_leaves(each)) for each in (self._file, project))
        others = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        new = {f"sources.{name}" for name in self._file.sources.keys() ^ project.sources.keys()}
        kept = [name for name in others if ".".join(name.split(".")[:2]) not in new and not _is_among(name, known)]
        return (*found, *(SettingChange(name, needs_restart=True) for name in sorted({*new, *kept})))

    def take_file(self, project: Project) -> None:
        """Goes on with what the project file says now, as far as that can change while the warehouse is open."""
        with self._lock:
            file = self._file.model_copy(update={"libraries": project.libraries})
            changed = dict(self._changed)
            for change in self.file_changes(project):
                if not change.needs_restart:
                    file = _with(file, change.name, change.after)
                    if changed.pop(change.name, None) is not None:
                        self._record(change.name, change.before, change.after, _THE_FILE, "superseded")
            self._file, self._changed = file, changed
            self._apply(self._project(changed))

    def changes(self) -> list[Change]:
        """Who changed what, when, from and to what, the latest last."""
        entries = self._journal.setting_changes()
        latest = {entry.body["name"]: entry for entry in entries}
        return [
            Change(
                entry.at,
                entry.body["who"],
                entry.body["name"],
                entry.body["before"],
                entry.body["after"],
                entry.body["kind"],
                entry is latest[entry.body["name"]] and entry.body["kind"] == "change",
            )
            for entry in entries
        ]

    def _resume(self) -> None:
        """Takes up what was changed before; what the file says otherwise since then ends a change."""
        self._changed, ended = left_changes(self._journal, self._file)
        for change in ended:
            self._record(change.name, change.before, change.after, _THE_FILE, "superseded")
        if self._changed:
            self._apply(self._project(self._changed))

    def _record(self, name: str, before: Value, after: Value, who: str, kind: str) -> None:
        file = _value(self._file, name) if name in _names(self._file) else None
        body = {"name": name, "before": before, "after": after, "file": file, "who": who, "kind": kind}
        self._journal.record([(SETTING, body)])

    def _apply(self, project: Project) -> None:
        """Goes on with other settings. Most parts read them when they need them, these are told."""
        self._settings.current = project
        for name, source in self._sources.items():
            source.log.limit_bytes = project.limits.stream_bytes
            settings = project.sources[name]
            if isinstance(settings, PACED) and isinstance(source, Paced):
                source.change_pace(settings.pace)
        # Fewer jobs may be retained.
        self._upkeep.release()

    def _project(self, changed: Mapping[str, Value]) -> Project:
        return _with_all(self._file, changed)

    def _require(self, name: str) -> None:
        known = _names(self._file)
        if name in known:
            return
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"these can be changed: {', '.join(known)}"
        raise DefiniteError(f"{name} is not a setting that can be changed while the warehouse is open", hint=hint)


def left_changes(journal: Journal, file: Project) -> tuple[dict[str, Value], tuple[SettingChange, ...]]:
    """Changes of a former owner: those that still hold, by name, and those that the project file ends, which says otherwise now."""
    known = _names(file)
    held: dict[str, Value] = {}
    ended: list[SettingChange] = []
    for name, body in {entry.body["name"]: entry.body for entry in journal.setting_changes()}.items():
        if body["kind"] == "change":
            stands = _value(file, name) if name in known else None
            if name in known and stands == body["file"] and _fits(file, {**held, name: body["after"]}):
                held[name] = body["after"]
            else:
                ended.append(SettingChange(name, body["after"], stands))
    return held, tuple(ended)


def _fits(file: Project, changed: Mapping[str, Value]) -> bool:
    """Whether recorded values are still such that the settings may have."""
    try:
        _with_all(file, changed)
    except ConfigError:
        return False
    return True


def _with_all(project: Project, changed: Mapping[str, Value]) -> Project:
    for name, value in changed.items():
        project = _with(project, name, value)
    return project


def _names(project: Project) -> list[str]:
    found = [f"{group}.{field}" for group in _GROUPS for field in type(getattr(project, group)).model_fields]
    found += _SINGLE
    for name, source in project.sources.items():
        if isinstance(source, PACED):
            found += [f"sources.{name}.pace.{field}" for field in GearSettings.model_fields]
    return found


def _leaves(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    """Every value below, by its dotted name."""
    if isinstance(value, (Settings, Mapping)):
        for below, found in value if isinstance(value, Settings) else value.items():
            yield from _leaves(found, f"{name}.{below}" if name else str(below))
    elif name != "libraries":
        yield name, value


def _is_among(name: str, settings: Collection[str]) -> bool:
    """Whether a value is, or is part of, one of the settings."""
    return any(name == known or name.startswith(f"{known}.") or known.startswith(f"{name}.") for known in settings)


def _value(project: Project, name: str) -> Value:
    head, *rest = name.split(".")
    if head == "sources":
        source = project.sources[rest[0]]
        assert isinstance(source, PACED)
        found: object = getattr(source.pace.for_method(source.capture), rest[-1])
        return _plain_w(found) if rest[-1] == "w" else _plain(found)
    found = getattr(project, head)
    for part in rest:
        found = getattr(found, part)
    return _plain(found)


def _plain_w(periods: Any) -> Value:
    """One number where the weight is the same all day."""
    if not periods:
        return DEFAULT_W
    return periods[0].w if periods[0].start == periods[0].end else _plain(periods)


def _plain(value: object) -> Value:
    match value:
        case timedelta():
            return format_duration(value)
        case time():
            return value.strftime("%H:%M")
        case Settings():
            fields = type(value).model_fields
            return {fields[name].alias or name: _plain(found) for name, found in value}
        case tuple() | list():
            return [_plain(item) for item in value]
        case _:
            return value


def _read(name: str, value: Value) -> Value:
    if not isinstance(value, str):
        return value
    try:
        return read_value(value, name)
    except ConfigError as error:
        raise _refused(
            name, f"{value[:100]!r} cannot be read: {error.what}", "write it as in the project file"
        ) from None


def _with(project: Project, name: str, value: Value) -> Project:
    """The project with one value put in its place, checked as a file is."""
    path = name.split(".")
    try:
        changed = check_project(_put(project, path, value), locate_key, Path.cwd())
        source = changed.sources[path[1]] if path[0] == "sources" else None
        if isinstance(source, PACED):
            # Each method of capture has gears of its own.
            source.pace.for_method(source.capture)
        return changed
    except (ConfigError, MultipleProblems) as error:
        first = error.problems[0] if isinstance(error, MultipleProblems) else error
        raise _refused(name, first.what, first.advice) from None


def _put(whole: Settings | Mapping[str, object], path: list[str], value: Value) -> dict[str, object]:
    found = dict(whole)
    below = found[path[0]]
    if len(path) > 1:
        assert isinstance(below, (Settings, Mapping))
        value = _put(below, path[1:], value)
    return {**found, path[0]: value}


def _refused(name: str, what: str, hint: str | None) -> ConfigError:
    said = what if what.startswith(name) else f"{name}: {what}"
    return ConfigError(said, hint=_ALLOWED.get(name.rpartition(".")[2], hint))
