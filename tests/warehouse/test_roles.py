"""Roles are kept as verifiers that any SCRAM server can use, in a private file that is read again when it changes."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import stat
from base64 import b64decode, b64encode
from pathlib import Path

import pytest

from headgate.errors import CorruptWarehouse, DefiniteError
from headgate.warehouse import roles as roles_module
from headgate.warehouse.roles import ROLES, Roles, make_verifier


def test_a_verifier_is_that_of_the_rfc() -> None:
    """The exchange in section 3 of RFC 7677: user `user`, password `pencil`."""
    salt, nonce = "W22ZaJ0SNY7soEsUEjb6gQ==", "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    verifier = make_verifier("pencil", b64decode(salt), 4096)
    found = re.fullmatch(rf"SCRAM-SHA-256\$4096:{re.escape(salt)}\$(\S+):(\S+)", verifier)
    assert found is not None
    stored, server = b64decode(found[1]), b64decode(found[2])
    exchange = f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s={salt},i=4096,c=biws,r={nonce}".encode()
    assert b64encode(hmac.digest(server, exchange, "sha256")) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    proof = b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    signature = hmac.digest(stored, exchange, "sha256")
    client = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
    assert hashlib.sha256(client).digest() == stored


def test_a_token_is_known_by_its_verifier_alone(tmp_path: Path) -> None:
    roles = Roles(tmp_path)
    token = roles.add("analyst", "read")
    content = (tmp_path / ROLES).read_text()
    assert token.partition(".")[2] not in content
    assert json.loads(content)["analyst"]["verifier"].startswith("SCRAM-SHA-256$4096:")
    assert stat.S_IMODE((tmp_path / ROLES).stat().st_mode) == 0o600
    found = Roles(tmp_path).of_token(token)
    assert found is not None and (found.name, found.can) == ("analyst", "read")
    for wrong in (
        "",
        ".",
        "analyst",
        "analyst.",
        token + "x",
        token[:-1],
        token.upper(),
        "other" + token[7:],
        "é.ü",
        "x" * 10_000,
    ):
        assert roles.of_token(wrong) is None


def test_each_permission_includes_those_before_it(tmp_path: Path) -> None:
    roles = Roles(tmp_path)
    for can in ("read", "produce", "administer"):
        roles.add(can, can)
    may = {
        name: [wanted for wanted in ("read", "produce", "administer") if role.may(wanted)]
        for name, role in roles.all().items()
    }  # type: ignore[arg-type]
    assert may == {
        "read": ["read"],
        "produce": ["read", "produce"],
        "administer": ["read", "produce", "administer"],
    }


def test_what_another_process_changes_holds_at_once(tmp_path: Path) -> None:
    here, there = Roles(tmp_path), Roles(tmp_path)
    assert here.all() == {}
    token = there.add("analyst", "read")
    assert here.of_token(token) is not None
    there.remove("analyst")
    assert here.of_token(token) is None
    other = there.add("analyst", "produce")
    assert here.of_token(token) is None
    found = here.of_token(other)
    assert found is not None and found.can == "produce"


def test_the_slow_check_is_made_once_for_a_right_token_and_each_time_for_a_wrong_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roles, made = Roles(tmp_path), []
    token = roles.add("analyst", "read")
    original = make_verifier
    monkeypatch.setattr(roles_module, "make_verifier", lambda *given: made.append(given[0]) or original(*given))
    assert all(roles.of_token(token) for _ in range(5))
    assert made == [token]
    assert roles.of_token("analyst.wrong") is roles.of_token("nobody.wrong") is None
    assert made == [token, "analyst.wrong", "nobody.wrong"]


@pytest.mark.parametrize("name", ["", "A", "1a", "a b", "a.b", "ä", "a\n", "administrator", "a" * 64, "\ud800"])
def test_a_name_that_cannot_be_one_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DefiniteError, match="cannot be named"):
        Roles(tmp_path).add(name, "read")


def test_a_role_is_not_made_twice_nor_taken_away_twice(tmp_path: Path) -> None:
    roles = Roles(tmp_path)
    roles.add("analyst", "read")
    with pytest.raises(DefiniteError, match="there is a role analyst already"):
        roles.add("analyst", "administer")
    roles.remove("analyst")
    with pytest.raises(DefiniteError, match="no role analyst"):
        roles.remove("analyst")


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"a": 1}',
        '{"a": {"can": "all", "verifier": "SCRAM-SHA-256$1:a$b:c"}}',
        '{"a": {"can": "read", "verifier": "plain"}}',
    ],
)
def test_a_damaged_file_is_named_and_lets_nobody_in(tmp_path: Path, content: str) -> None:
    file = tmp_path / ROLES
    file.parent.mkdir()
    file.write_text(content)
    with pytest.raises(CorruptWarehouse) as caught:
        Roles(tmp_path).of_token("a.b")
    assert str(file) in str(caught.value)
