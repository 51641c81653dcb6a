"""The API on the unix socket: each handler validates, calls the desk and answers."""

import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter
from fastapi import APIRouter, Depends, FastAPI, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from daemon.api import answers, syntax
from daemon.api.identity import Peer, caller_of
from daemon.api.ports import Caller, Desk, Refused
from daemon.api.schemas import (
    JobRequest,
    JobView,
    NodeView,
    PanicRequest,
    PanicView,
    SetupRequest,
    VacateRequest,
)

T = TypeVar("T")

#: Most of a request's body: an environment and a command of their largest sizes, escaped.
_BODY_BYTES = 1 << 21
#: Calls that take seconds to minutes, and followers of logs, at the same time.
_SLOW_CALLS = 64

_Job = Annotated[int, Path(ge=1, le=2**63 - 1)]


def _desk(request: Request) -> Desk:
    desk: Desk = request.app.state.desk
    return desk


def _caller(request: Request) -> Caller:
    peer: Peer = request.state.peer
    return caller_of(peer, request.app.state.admin_group)


def _node(node: str) -> str:
    try:
        return syntax.node_name(node)
    except ValueError as exc:
        raise Refused(f"{node[:80]!r} {exc}", "stopgap nodes lists them", 404) from None


async def _job_request(request: Request) -> JobRequest:
    return await answers.read(request, JobRequest, _BODY_BYTES)


async def _vacate_request(request: Request) -> VacateRequest:
    return await answers.read(request, VacateRequest, 1024)


async def _panic_request(request: Request) -> PanicRequest:
    return await answers.read(request, PanicRequest, _BODY_BYTES)


async def _setup_request(request: Request) -> SetupRequest:
    return await answers.read(request, SetupRequest, 1024)


_DeskDep = Annotated[Desk, Depends(_desk)]
_Who = Annotated[Caller, Depends(_caller)]
_Node = Annotated[str, Depends(_node)]

jobs = APIRouter(prefix="/v1/jobs")
nodes = APIRouter(prefix="/v1/nodes")
status = APIRouter(prefix="/v1/status")
panics = APIRouter(prefix="/v1/panic")


def create(desk: Desk, admin_group: str) -> FastAPI:
    """Build the application around a desk."""
    app = FastAPI(title="stopgap", openapi_url=None)
    app.state.desk = desk
    app.state.admin_group = admin_group
    app.state.slow = None
    for router in (jobs, nodes, status, panics):
        app.include_router(router)
    answers.tell_errors(app)
    return app


@jobs.post("")
def _submit(
    desk: _DeskDep, who: _Who, wanted: Annotated[JobRequest, Depends(_job_request)]
) -> Response:
    return answers.one(desk.submit(who, wanted), 201)


@jobs.get("")
def _jobs(
    desk: _DeskDep,
    who: _Who,
    *,
    all_users: Annotated[bool, Query(alias="all")] = False,
    ended: bool = False,
    user: Annotated[str, Query(max_length=64)] = "",
) -> Response:
    found = desk.jobs(who, all_users=all_users or bool(user), include_ended=ended)
    return answers.many(JobView, [job for job in found if user in ("", job.user)])


@jobs.get("/{job}")
def _show(desk: _DeskDep, who: _Who, job: _Job) -> Response:
    return answers.one(desk.job(who, job))


@jobs.post("/{job}/cancel")
def _cancel(desk: _DeskDep, who: _Who, job: _Job) -> Response:
    return answers.one(desk.cancel(who, job), 202)


@jobs.post("/{job}/hold")
def _hold(desk: _DeskDep, who: _Who, job: _Job) -> Response:
    return answers.one(desk.hold(who, job), 202)


@jobs.post("/{job}/release")
def _release(desk: _DeskDep, who: _Who, job: _Job) -> Response:
    return answers.one(desk.release(who, job), 202)


@jobs.get("/{job}/logs")
async def _logs(
    request: Request, desk: _DeskDep, who: _Who, job: _Job, *, follow: bool = False
) -> Response:
    chunks = await _slowly(request, functools.partial(desk.logs, who, job, follow=follow))
    # The first item is fetched before the answer begins: a refusal has a status then.
    first = await _slowly(request, functools.partial(next, chunks, None))
    return StreamingResponse(_stream(request, first, chunks), media_type="application/octet-stream")


async def _stream(
    request: Request, chunk: bytes | None, chunks: Iterator[bytes]
) -> AsyncIterator[bytes]:
    try:
        while chunk is not None:
            if chunk:
                yield chunk
            chunk = await _slowly(request, functools.partial(next, chunks, None))
    finally:
        close = getattr(chunks, "close", None)
        if close is not None:
            # At shutdown its thread may still be in it; then it ends with the process.
            with contextlib.suppress(ValueError):
                close()


async def _slowly(request: Request, call: Callable[[], T]) -> T:
    """Run what may block for long in a thread that quick calls do not wait for."""
    state = request.app.state
    if state.slow is None:  # it belongs to the running loop, which create() did not know
        state.slow = CapacityLimiter(_SLOW_CALLS)
    if state.slow.available_tokens < 1:
        raise Refused("the daemon is busy with long calls", "try again in a minute", 503)
    return await anyio.to_thread.run_sync(call, limiter=state.slow)


@status.get("")
def _status(desk: _DeskDep) -> Response:
    return answers.one(desk.status())


@nodes.get("")
def _nodes(desk: _DeskDep) -> Response:
    return answers.many(NodeView, desk.nodes())


@nodes.post("/{node}/drain")
def _drain(desk: _DeskDep, who: _Who, node: _Node) -> Response:
    return answers.one(desk.drain(who, node))


@nodes.post("/{node}/undrain")
def _undrain(desk: _DeskDep, who: _Who, node: _Node) -> Response:
    return answers.one(desk.undrain(who, node))


@nodes.post("/{node}/gone")
def _gone(desk: _DeskDep, who: _Who, node: _Node) -> Response:
    return answers.one(desk.gone(who, node))


@nodes.post("/{node}/vacate")
async def _vacate(
    request: Request,
    desk: _DeskDep,
    who: _Who,
    node: _Node,
    wanted: Annotated[VacateRequest, Depends(_vacate_request)],
) -> Response:
    call = functools.partial(desk.vacate, who, node, wanted.seconds)
    return answers.one(await _slowly(request, call))


@panics.post("")
async def _panic(
    desk: _DeskDep, who: _Who, wanted: Annotated[PanicRequest, Depends(_panic_request)]
) -> Response:
    names = [_node(name) for name in wanted.nodes]
    call = functools.partial(desk.calm if wanted.over else desk.panic, who, names)
    # A thread of its own: it never waits for those who follow logs.
    found = await anyio.to_thread.run_sync(call, limiter=CapacityLimiter(1))
    return answers.many(PanicView, found)


@nodes.post("/{node}/setup")
async def _setup(
    request: Request,
    desk: _DeskDep,
    who: _Who,
    node: _Node,
    wanted: Annotated[SetupRequest, Depends(_setup_request)],
) -> Response:
    call = functools.partial(desk.setup, who, node, dry_run=wanted.dry_run)
    return answers.one(await _slowly(request, call))


@nodes.post("/{node}/probe")
async def _probe(request: Request, desk: _DeskDep, who: _Who, node: _Node) -> Response:
    return answers.one(await _slowly(request, functools.partial(desk.probe, who, node)))
