"""A job's log as one stream, across nodes, while it is still being written."""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator

from daemon.acts.ending import log_pieces
from daemon.acts.tools import Tools
from daemon.core.types import PLACED, TERMINAL, Epoch, Job, JobId, SegmentRef
from daemon.core.verdict import Piece
from migration.base import Engine, EngineError

#: A reader that went away is noticed when something is sent to it.
_BEAT_SECONDS = 1.0


def log_of(tools: Tools, job_id: JobId) -> Iterator[bytes]:
    """Yield what the job has printed so far; what has not been kept yet is still on its node."""
    refs = {segment.epoch: segment.ref for segment in tools.store.segments(job_id)}
    for piece in log_pieces(tools, job_id):
        if tools.spool.has_log(job_id, piece.epoch, until=piece.until):
            yield from tools.spool.log(job_id, piece.epoch, until=piece.until)
        elif piece.epoch in refs:
            yield from _on_its_node(tools, refs[piece.epoch])


def follow(tools: Tools, job_id: JobId) -> Iterator[bytes]:
    """Yield what the job prints until it has ended; b"" when there is nothing new."""
    sent: dict[Epoch, int] = {}
    while True:
        job = tools.store.job(job_id)
        if job is None:
            return
        ended = job.state in TERMINAL
        pieces = log_pieces(tools, job_id)
        for piece in pieces:
            yield from _rest(tools, job, piece, sent)
            if not _is_kept(tools, job_id, piece):
                # What follows must not overtake what is still to come of this one.
                break
        if ended and all(_is_kept(tools, job_id, piece) for piece in log_pieces(tools, job_id)):
            return
        yield b""
        tools.clock.wait(0.2)


def _is_kept(tools: Tools, job_id: JobId, piece: Piece) -> bool:
    return tools.spool.has_log(job_id, piece.epoch, until=piece.until)


def _rest(tools: Tools, job: Job, piece: Piece, sent: dict[Epoch, int]) -> Iterator[bytes]:
    """Yield what of a segment's output has not been sent yet."""
    epoch = piece.epoch
    ref = _live(job, epoch)
    if _is_kept(tools, job.id, piece):
        source = tools.spool.log(job.id, epoch, until=piece.until)
    elif ref is not None:
        source = _pump(tools.engine, ref, lambda: _is_live(tools, ref))
    else:
        return
    skip = sent.get(epoch, 0)
    for chunk in source:
        fresh = chunk[skip:]
        skip = max(0, skip - len(chunk))
        sent[epoch] = sent.get(epoch, 0) + len(fresh)
        if fresh or not chunk:
            yield fresh


def _live(job: Job, epoch: Epoch) -> SegmentRef | None:
    if job.state in PLACED and job.segment is not None and job.segment.epoch == epoch:
        return job.segment.ref
    return None


def _is_live(tools: Tools, ref: SegmentRef) -> bool:
    job = tools.store.job(ref.job)
    return job is not None and _live(job, ref.epoch) is not None


def _on_its_node(tools: Tools, ref: SegmentRef) -> Iterator[bytes]:
    """Yield what an engine has of a log, or what has been kept since it was asked."""
    sent = 0
    try:
        for chunk in tools.engine.logs(ref):
            sent += len(chunk)
            yield chunk
    except EngineError:
        until = None
        if not tools.spool.has_log(ref.job, ref.epoch):
            # Its node is away: what was kept at its last checkpoint is better than nothing.
            until = tools.spool.kept_until(ref.job, ref.epoch)
        for chunk in tools.spool.log(ref.job, ref.epoch, until=until):
            yield chunk[sent:]
            sent = max(0, sent - len(chunk))


def _pump(engine: Engine, ref: SegmentRef, live: Callable[[], bool]) -> Iterator[bytes]:
    """Read a stream that may be silent for hours, with a beat in between."""
    chunks: queue.Queue[bytes | None] = queue.Queue(maxsize=64)
    left = threading.Event()
    reader = threading.Thread(
        target=_fill, args=(engine, ref, chunks, left), name=f"follow-{ref.job}", daemon=True
    )
    reader.start()
    try:
        while True:
            try:
                chunk = chunks.get(timeout=_BEAT_SECONDS)
            except queue.Empty:
                if not live():
                    return
                chunk = b""
            if chunk is None:
                return
            yield chunk
    finally:
        left.set()


def _fill(
    engine: Engine, ref: SegmentRef, chunks: queue.Queue[bytes | None], left: threading.Event
) -> None:
    """Move an engine's stream into the queue until it ends or the reader has left."""
    with contextlib.suppress(EngineError):
        for chunk in engine.logs(ref, follow=True):
            if not _offer(chunks, chunk, left):
                return
    _offer(chunks, None, left)


def _offer(chunks: queue.Queue[bytes | None], chunk: bytes | None, left: threading.Event) -> bool:
    while not left.is_set():
        with contextlib.suppress(queue.Full):
            chunks.put(chunk, timeout=_BEAT_SECONDS)
            return True
    return False
