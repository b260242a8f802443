"""Who may enter the page, how often, and with how much: every request passes here first."""

import hmac
import secrets
import time
from collections import OrderedDict
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

LARGEST_MB = 25  # the largest picture that is taken
LARGEST = (LARGEST_MB + 1) * 1_000_000  # bytes of a request
WAITING = 1000  # requests under way, of all visitors; an open page keeps one
# Requests of a visitor, of which opening the page takes dozens; new visitors from one address.
PER_SECOND, AT_ONCE = 20.0, 300.0
KNOWN = 10_000  # visitors and addresses that are remembered
COOKIE = "capsviz"
STARTING = "/gradio_api/startup-events"  # Gradio's own request before the first visitor
REFUSALS = {
    HTTPStatus.UNAUTHORIZED: "Open the whole link that capsviz explore printed, with its token.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: f"Expected a picture of at most {LARGEST_MB} MB.",
    HTTPStatus.TOO_MANY_REQUESTS: "Too many requests: wait some seconds, and try again.",
}


class Gate:
    """An ASGI application around another one.

    Where there is a `token` a visitor needs it once, in the address; a signed cookie follows. The
    size of a request and the number under way are limited always, the rate only with a token.
    """

    def __init__(self, app, token: str = ""):
        self.app, self.token, self.under_way = app, token, 0
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # requests, and when

    async def __call__(self, scope, receive, send):
        """Answer a request, or refuse it in one line."""
        if scope["type"] != "http" or scope["path"] == STARTING:  # the page has no websockets
            return await self.app(scope, receive, send)
        headers = dict(scope["headers"])
        visitor, is_new = self._visitor(headers.get(b"cookie", b"").decode("latin-1")), False
        if self.token and visitor is None:
            given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
            if not _equal(given, self.token):
                return await _refuse(send, HTTPStatus.UNAUTHORIZED)
            visitor, is_new = secrets.token_urlsafe(12), True
        if self.under_way >= WAITING or (self.token and not self._takes(visitor, is_new, scope)):
            return await _refuse(send, HTTPStatus.TOO_MANY_REQUESTS)
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > LARGEST:
            return await _refuse(send, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        answer = self._marking(send, visitor) if is_new else send
        self.under_way += 1
        try:
            await self.app(scope, _limited(receive), answer)
        finally:
            self.under_way -= 1
        return None

    def _visitor(self, cookies: str) -> str | None:
        """Return the name in a cookie that was signed here; None: there is none."""
        try:
            value = SimpleCookie(cookies)[COOKIE].value
        except (CookieError, KeyError):
            return None
        name, _, signature = value.rpartition(".")
        return name if _equal(signature, self._signature(name)) else None

    def _signature(self, name: str) -> str:
        return hmac.digest(self.token.encode(), name.encode(), "sha256").hex()

    def _takes(self, visitor: str, is_new: bool, scope) -> bool:
        """Count a request: of a visitor, or of the address that a new one comes from."""
        name, now = f"from {scope['client'][0]}" if is_new else visitor, time.monotonic()
        left, then = self._left.pop(name, (AT_ONCE, now))
        left = min(AT_ONCE, left + PER_SECOND * (now - then)) - 1
        self._left[name] = max(left, 0.0), now
        if len(self._left) > KNOWN:
            self._left.popitem(last=False)
        return left >= 0

    def _marking(self, send, visitor: str):
        cookie = f"{COOKIE}={visitor}.{self._signature(visitor)}; Path=/; HttpOnly; SameSite=Strict"

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
