"""The hook listener: the one thing that a node may say over the network."""

import asyncio
import re

from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from uvicorn.protocols.http.h11_impl import H11Protocol

from daemon.api import answers
from daemon.api.ports import Desk, Refused
from daemon.api.schemas import PrologCall

_BODY_BYTES = 4096
_SIGNATURE = re.compile(r"[0-9a-f]{64}")

#: A prolog's call takes milliseconds and is repeated each second.
_CONNECTION_SECONDS = 10.0


class BriefProtocol(H11Protocol):
    """HTTP on connections that live for a short time only, whatever the other end does."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self._end = self.loop.call_later(_CONNECTION_SECONDS, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end.cancel()
        super().connection_lost(exc)


def create(desk: Desk) -> FastAPI:
    """Build the application around a desk."""
    app = FastAPI(title="stopgap hooks", openapi_url=None)
    answers.tell_errors(app)

    @app.post("/v1/hooks/prolog")
    async def _prolog(request: Request) -> Response:
        """Pass a node's word on; the desk checks the signature, this only its form."""
        signature = request.headers.get("x-stopgap-signature", "")
        if not _SIGNATURE.fullmatch(signature):
            raise Refused("the call is not signed", "run stopgap node setup for this node", 401)
        body = await answers.read_bytes(request, _BODY_BYTES)
        call = answers.parse(body, PrologCall)
        await run_in_threadpool(desk.hook, call.node, body, signature)
        return Response('{"accepted":true}', 202, media_type="application/json")

    return app
