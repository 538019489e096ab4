"""Named roles: who may do what with a warehouse, each with a token of its own.

    _headgate/roles.json    {"analyst": {"can": "read", "verifier": "SCRAM-SHA-256$4096:<salt>$<StoredKey>:<ServerKey>"}}

A token is `name.secret` and is nowhere stored. Its verifier (RFC 5802 and 7677, written as PostgreSQL does) can check the token, also
in a SCRAM exchange with the name as user and the token as password, but the token cannot be made from it. The file is private to the
warehouse's user all the same. Whoever has the file open sees a change at the next check.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

from headgate.errors import CorruptWarehouse, DefiniteError, EnvironmentProblem, Location
from headgate.warehouse.ledger import HOME

Can = Literal["read", "produce", "administer"]
CAN: tuple[Can, ...] = get_args(Can)
"""What a role can be allowed; each includes those before it."""

ROLES = Path(HOME) / "roles.json"
ADMINISTRATOR = "administrator"
"""Who has the service's own token; no role has this name."""

ITERATIONS = 4096
_SALT_BYTES = 16
_LONGEST_TOKEN = 500
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}", re.ASCII)
_VERIFIER = re.compile(r"SCRAM-SHA-256\$([0-9]{1,9}):([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+):([A-Za-z0-9+/=]+)")


@dataclass(frozen=True, slots=True)
class Role:
    name: str
    can: Can
    verifier: str
    settings: Mapping[str, str] = field(default_factory=dict)
    """What its connections begin with: settings of PostgreSQL's endpoint."""

    def may(self, wanted: Can) -> bool:
        return CAN.index(self.can) >= CAN.index(wanted)


def make_verifier(token: str, salt: bytes, iterations: int = ITERATIONS) -> str:
    """What checks a token, in PostgreSQL's form."""
    salted = hashlib.pbkdf2_hmac("sha256", token.encode(), salt, iterations)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    texts = [b64encode(part).decode() for part in (salt, stored, server)]
    return "SCRAM-SHA-256${}:{}${}:{}".format(iterations, *texts)


class Roles:
    """The roles of the warehouse in a storage folder; may be used by several threads."""

    def __init__(self, storage: str | Path) -> None:
        self._file = Path(storage) / ROLES
        self._seen: tuple[object, Mapping[str, Role]] = (None, {})
        self._key = secrets.token_bytes(32)
        self._checked: dict[str, bytes] = {}
        """By role a keyed hash of the token that was found right, so that the slow check is made once."""

    def all(self) -> Mapping[str, Role]:
        """Every role by its name, as the file has them now."""
        try:
            found = self._file.stat()
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as error:
            raise self._unreadable(error) from None
        mark = (found.st_ino, found.st_mtime_ns, found.st_size)
        if self._seen[0] != mark:
            self._seen = (mark, self._read())
        return self._seen[1]

    def add(self, name: str, can: Can) -> str:
        """Makes a role and gives its token, which cannot be had again."""
        if not _NAME.fullmatch(name) or name == ADMINISTRATOR:
            raise DefiniteError(
                f"a role cannot be named {name[:80]!r}",
                hint=f"use up to 63 small letters, digits, - and _, beginning with a letter; {ADMINISTRATOR} is the "
                "name of who has the service's own token",
            )
        if name in self.all():
            raise DefiniteError(
                f"there is a role {name} already", hint=f"for a new token: `headgate role remove {name}`, then add it"
            )
        token = f"{name}.{secrets.token_urlsafe(32)}"
        self._write({**self.all(), name: Role(name, can, make_verifier(token, secrets.token_bytes(_SALT_BYTES)))})
        return token

    def remove(self, name: str) -> None:
        """Takes a role away; its token is worth nothing from now on."""
        roles = dict(self.all())
        if roles.pop(name, None) is None:
            raise DefiniteError(f"there is no role {name}", hint=f"there are {', '.join(roles) or 'none'}")
        self._write(roles)

    def set(self, name: str, setting: str, value: str | None) -> None:
        """Changes what a role's connections begin with; None takes the setting away."""
        roles = dict(self.all())
        role = roles.get(name)
        if role is None:
            raise DefiniteError(f"there is no role {name}", hint=f"there are {', '.join(roles) or 'none'}")
        kept = {key: each for key, each in role.settings.items() if key != setting}
        roles[name] = replace(role, settings=kept if value is None else {**kept, setting: value})
        self._write(roles)

    def of_token(self, token: str) -> Role | None:
        """The role whose token this is."""
        if len(token) > _LONGEST_TOKEN:
            return None
        role = self.all().get(token.partition(".")[0])
        if role is None:
            # As long as a role's check takes, so that names cannot be found out.
            make_verifier(token, bytes(_SALT_BYTES))
            return None
        known, quick = (
            self._checked.get(role.name),
            hmac.digest(self._key, f"{role.verifier}\n{token}".encode(), "sha256"),
        )
        if known is None or not hmac.compare_digest(known, quick):
            if not _fits(token, role.verifier):
                return None
            self._checked[role.name] = quick
        return role

    def _read(self) -> dict[str, Role]:
        try:
            found = json.loads(self._file.read_text(encoding="utf-8"))
            roles = {
                name: Role(name, body["can"], body["verifier"], body.get("settings", {}))
                for name, body in found.items()
            }
            if all(_is_sound(role) for role in roles.values()):
                return roles
        except OSError as error:
            raise self._unreadable(error) from None
        except (ValueError, LookupError, TypeError, AttributeError):
            pass
        raise CorruptWarehouse(
            "the file of roles cannot be understood",
            where=Location(str(self._file)),
            hint="remove it and add the roles again: `headgate role add`",
        )

    def _write(self, roles: Mapping[str, Role]) -> None:
        body = {role.name: _body(role) for role in roles.values()}
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Readable by its owner alone from the beginning; readers see all of it or what was there before.
            descriptor, written = tempfile.mkstemp(dir=self._file.parent, prefix=".roles-")
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                json.dump(body, stream, indent=2)
                stream.flush()
                os.fsync(descriptor)
            Path(written).replace(self._file)
        except OSError as error:
            raise EnvironmentProblem(
                f"the roles cannot be written: {error.strerror}",
                where=Location(str(self._file)),
                hint="run this as the user who runs the service",
            ) from None

    def _unreadable(self, error: OSError) -> EnvironmentProblem:
        return EnvironmentProblem(
            f"the roles cannot be read: {error.strerror}",
            where=Location(str(self._file)),
            hint="run this as the user who runs the service",
        )


def _is_sound(role: Role) -> bool:
    settings = all(isinstance(text, str) for pair in role.settings.items() for text in pair)
    return role.can in CAN and _VERIFIER.fullmatch(role.verifier) is not None and settings


def _body(role: Role) -> dict[str, object]:
    settings = {"settings": dict(role.settings)} if role.settings else {}
    return {"can": role.can, "verifier": role.verifier, **settings}


def _fits(token: str, verifier: str) -> bool:
    parts = _VERIFIER.fullmatch(verifier)
    assert parts is not None
    made = make_verifier(token, b64decode(parts[2]), int(parts[1]))
    return hmac.compare_digest(made, verifier)
