"""Who may enter the page, and with how much: every request passes here first."""

from __future__ import annotations

import hmac
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

LARGEST_MB = 25  # the largest picture that is taken
LARGEST = (LARGEST_MB + 1) * 1_000_000  # bytes of a request
WAITING = 1000  # requests under way, of all visitors; an open page keeps one
COOKIE = "capsviz"
STARTING = "/gradio_api/startup-events"  # Gradio's own request before the first visitor
REFUSALS = {
    HTTPStatus.UNAUTHORIZED: "Open the whole link that capsviz explore printed, with its token.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: f"Expected a picture of at most {LARGEST_MB} MB.",
    HTTPStatus.TOO_MANY_REQUESTS: "Too many requests: wait some seconds, and try again.",
}


class Gate:
    """An ASGI application around another one.

    Where there is a `token` a visitor needs it once, in the address; a cookie follows that only its
    owner can make. The size of a request and the number under way are limited.
    """

    def __init__(self, app, token: str = ""):
        self.app, self.token, self.under_way = app, token, 0
        self.ticket = hmac.digest(token.encode(), COOKIE.encode(), "sha256").hex()

    async def __call__(self, scope, receive, send):
        """Answer a request, or refuse it in one line."""
        if scope["type"] != "http" or scope["path"] == STARTING:  # the page has no websockets
            return await self.app(scope, receive, send)
        headers, answer = dict(scope["headers"]), send
        if self.token and not self._is_known(headers.get(b"cookie", b"").decode("latin-1")):
            given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
            if not _equal(given, self.token):
                return await _refuse(send, HTTPStatus.UNAUTHORIZED)
            answer = self._marking(send)
        if self.under_way >= WAITING:
            return await _refuse(send, HTTPStatus.TOO_MANY_REQUESTS)
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > LARGEST:
            return await _refuse(send, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        self.under_way += 1
        try:
            await self.app(scope, _limited(receive), answer)
        finally:
            self.under_way -= 1
        return None

    def _is_known(self, cookies: str) -> bool:
        try:
            return _equal(SimpleCookie(cookies)[COOKIE].value, self.ticket)
        except (CookieError, KeyError):
            return False

    def _marking(self, send):
        cookie = f"{COOKIE}={self.ticket}; Path=/; HttpOnly; SameSite=Strict"

        async def marked(message):
            if message["type"] == "http.response.start":
                headers = [*message["headers"], (b"set-cookie", cookie.encode())]
                message = {**message, "headers": headers}
            await send(message)

        return marked


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def _limited(receive):
    """Return what receives a body as `receive` does, and ends it where it grows too long."""
    got = 0

    async def limited():
        nonlocal got
        message = await receive()
        got += len(message.get("body", b""))
        return {"type": "http.disconnect"} if got > LARGEST else message

    return limited


async def _refuse(send, status: HTTPStatus) -> None:
    head = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": int(status), "headers": head})
    await send({"type": "http.response.body", "body": REFUSALS[status].encode()})
