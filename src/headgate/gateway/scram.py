"""SCRAM-SHA-256 (RFC 5802, 7677), the server's side, against the verifiers of the roles."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from base64 import b64decode, b64encode
from binascii import Error as Base64Error

from headgate.gateway.problems import PROTOCOL, FatalProblem

MECHANISM = "SCRAM-SHA-256"
_VERIFIER = re.compile(r"SCRAM-SHA-256\$(\d+):([^$]+)\$([^:]+):(.+)")
_FIRST = re.compile(r"(?P<gs2>[ny],,)(?P<bare>(?:n=[^,]*),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+))", re.ASCII)
_FINAL = re.compile(r"(?P<without>c=(?P<binding>[^,]+),r=(?P<nonce>[^,]+)),p=(?P<proof>[A-Za-z0-9+/=]+)", re.ASCII)


class ScramExchange:
    """One exchange: the first message is answered by a challenge, the final one by the server's own proof."""

    def __init__(self, verifier: str) -> None:
        found = _VERIFIER.fullmatch(verifier)
        assert found is not None
        self._iterations, self._salt = int(found[1]), found[2]
        self._stored, self._server = b64decode(found[3]), b64decode(found[4])
        self._said = ""
        self._gs2 = ""
        self._nonce = ""

    def challenge(self, first: bytes) -> bytes:
        found = _FIRST.fullmatch(_text(first))
        if found is None:
            raise FatalProblem(PROTOCOL, "malformed SCRAM message")
        self._gs2 = found["gs2"]
        self._nonce = found["nonce"] + secrets.token_urlsafe(18)
        answer = f"r={self._nonce},s={self._salt},i={self._iterations}"
        self._said = f"{found['bare']},{answer}"
        return answer.encode()

    def proof(self, final: bytes) -> bytes | None:
        """The server's proof; None when the client's is wrong."""
        found = _FINAL.fullmatch(_text(final))
        if found is None or found["nonce"] != self._nonce or _decoded(found["binding"]) != self._gs2.encode():
            raise FatalProblem(PROTOCOL, "malformed SCRAM message")
        said = f"{self._said},{found['without']}".encode()
        signature = hmac.digest(self._stored, said, "sha256")
        given = _decoded(found["proof"])
        if len(given) != len(signature):
            return None
        key = bytes(one ^ other for one, other in zip(given, signature, strict=True))
        if not hmac.compare_digest(hashlib.sha256(key).digest(), self._stored):
            return None
        return b"v=" + b64encode(hmac.digest(self._server, said, "sha256"))


def _text(message: bytes) -> str:
    try:
        return message.decode("ascii")
    except UnicodeDecodeError:
        raise FatalProblem(PROTOCOL, "malformed SCRAM message") from None


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except Base64Error:
        raise FatalProblem(PROTOCOL, "malformed SCRAM message") from None
