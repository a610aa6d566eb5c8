"""TLS connections that resume the session of an earlier one (RFC 8446 §2.2, ADR 0020).

A first handshake costs the API server a signature, and this process the check of a chain of certificates. The server then
sends a ticket. A later connection to the same server that shows the ticket needs neither, because both sides derive
its keys from the first session. With a server that does not know the ticket any more the handshake is a whole one.
"""

from __future__ import annotations

import asyncio
import ssl


class ResumingTls(ssl.SSLObject):
    """One side of a TLS connection that shows the ticket of its context and server, if there is one."""

    _has_begun = False

    def do_handshake(self) -> None:
        """Begin or continue the handshake. The event loop calls it each time that bytes arrive."""
        if not self._has_begun:
            self._has_begun = True
            context = self.context
            session = context.sessions.get(self.server_hostname) if isinstance(context, ResumingContext) else None
            if session is not None:
                self.session = session
        super().do_handshake()


class ResumingContext(ssl.SSLContext):
    """A context of a client that keeps the session of its last whole handshake, by the name of the server.

    It stands for an authority and a client certificate. If one of them changes there is another context, and its first
    handshake is whole.
    """

    sslobject_class = ResumingTls

    def __init__(self, *_: object) -> None:
        self.sessions: dict[str | None, ssl.SSLSession] = {}


def remember(transport: asyncio.Transport) -> None:
    """Keep the session of a connection for later ones. Call it after the first answer: tickets arrive just before.

    Only whole handshakes count, because reading a session copies it, which costs as much as resuming it saves.
    """
    tls = transport.get_extra_info("ssl_object")
    if not isinstance(tls, ResumingTls) or tls.session_reused or not isinstance(tls.context, ResumingContext):
        return
    session = tls.session
    if session is not None and session.has_ticket:
        tls.context.sessions[tls.server_hostname] = session
