"""HEAD on every path that serves GET: the headers of GET, without its body (RFC 9110, section 9.3.2)."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadAsGet:
    """ASGI middleware that answers HEAD as GET, because FastAPI's routes serve only the methods they name."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def without_body(message: Message) -> None:
            # the server compares the body with Content-Length unless the method is HEAD
            scope["method"] = "HEAD"
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        scope["method"] = "GET"  # not in a copy of the scope: the router puts the route into it, for metrics
        try:
            await self._app(scope, receive, without_body)
        finally:
            scope["method"] = "HEAD"
