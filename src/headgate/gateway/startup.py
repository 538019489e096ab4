"""How a connection begins: TLS, who the client is, and what it set from the beginning."""

from __future__ import annotations

import hashlib
import hmac
import ssl
from dataclasses import dataclass

from pygwire import ConnectionPhase
from pygwire.messages import (
    AuthenticationOk,
    AuthenticationSASL,
    AuthenticationSASLContinue,
    AuthenticationSASLFinal,
    CancelRequest,
    GSSEncRequest,
    NegotiateProtocolVersion,
    SASLInitialResponse,
    SASLResponse,
    SSLRequest,
    StartupMessage,
)

from headgate.gateway.problems import PROTOCOL, FatalProblem
from headgate.gateway.scram import MECHANISM, ScramExchange
from headgate.gateway.transport import Transport
from headgate.warehouse.roles import ADMINISTRATOR, Can, Role, Roles, make_verifier

_VERSION = 196_608
_SALT = 16


@dataclass(frozen=True, slots=True)
class WireClient:
    """Who connected."""

    user: str
    can: Can
    parameters: dict[str, str]
    settings: dict[str, str]
    """Those of its role."""


async def negotiated(transport: Transport, tls: ssl.SSLContext | None) -> StartupMessage | CancelRequest:
    """The message that begins the session, after TLS if the client wants it and there is a certificate."""
    for _ in range(3):
        message = await transport.startup()
        match message:
            case SSLRequest():
                await transport.raw(b"N" if tls is None else b"S")
                if tls is not None:
                    await transport.start_tls(tls)
            case GSSEncRequest():
                await transport.raw(b"N")
            case StartupMessage() | CancelRequest():
                return message
    raise FatalProblem(PROTOCOL, "the connection does not begin")


class Authenticator:
    """Who may connect: as HTTP has it, everyone while there is no token and no role, else whoever has a token."""

    def __init__(self, token: str, is_open: bool) -> None:
        self._is_open = is_open
        # The service's own token is no password that someone chose; its verifier needs no salt of its own.
        self._administrator = make_verifier(token, hashlib.sha256(token.encode()).digest()[:_SALT])
        self._secret = hashlib.sha256(b"unknown" + token.encode()).digest()

    async def authenticated(self, transport: Transport, message: StartupMessage, roles: Roles) -> WireClient:
        parameters = message.params
        user = parameters.get("user", "")
        if not user:
            raise FatalProblem("28000", "no PostgreSQL user name specified in startup packet")
        if message.protocol_version != _VERSION or any(name.startswith("_pq_.") for name in parameters):
            transport.put(NegotiateProtocolVersion(0, [name for name in parameters if name.startswith("_pq_.")]))
        known = roles.all()
        if self._is_open and not known:
            transport.put(AuthenticationOk())
            return WireClient(user, "administer", parameters, {})
        role = known.get(user)
        await self._scram(transport, user, self._verifier(user, role))
        if role is None:
            return WireClient(user, "administer", parameters, {})
        return WireClient(user, role.can, parameters, dict(role.settings))

    def _verifier(self, user: str, role: Role | None) -> str:
        if role is not None:
            return role.verifier
        if user == ADMINISTRATOR:
            return self._administrator
        # Like that of a role, and the same whenever it is asked for, so that names cannot be found out.
        salt = hmac.digest(self._secret, user.encode(), "sha256")
        return make_verifier(salt.hex(), salt[:_SALT])

    async def _scram(self, transport: Transport, user: str, verifier: str) -> None:
        transport.put(AuthenticationSASL([MECHANISM]))
        await transport.flush()
        first = await transport.message(ConnectionPhase.AUTHENTICATING_SASL_INITIAL)
        if not isinstance(first, SASLInitialResponse) or first.mechanism != MECHANISM:
            raise FatalProblem(PROTOCOL, "client selected an invalid SASL authentication mechanism")
        exchange = ScramExchange(verifier)
        transport.put(AuthenticationSASLContinue(exchange.challenge(bytes(first.data))))
        await transport.flush()
        final = await transport.message(ConnectionPhase.AUTHENTICATING_SASL_CONTINUE)
        if not isinstance(final, SASLResponse):
            raise FatalProblem(PROTOCOL, "expected a SASL response")
        proof = exchange.proof(bytes(final.data))
        if proof is None:
            raise FatalProblem(
                "28P01",
                f'password authentication failed for user "{user}"',
                hint=f"the user is a role and the password its token; {ADMINISTRATOR} has the service's own token",
            )
        transport.put(AuthenticationSASLFinal(proof), AuthenticationOk())
