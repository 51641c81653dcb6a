"""A desk in memory: the port's promises, kept in the smallest way."""

import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from daemon.api.admission import admit
from daemon.api.ports import Caller, Refused
from daemon.api.schemas import (
    ClaimView,
    DrainView,
    EventView,
    GoneView,
    JobChange,
    JobDetail,
    JobRequest,
    JobView,
    NodeView,
    PanicView,
    ProbeView,
    SegmentView,
    SetupView,
    ShadowView,
    StatusView,
    VacateView,
)
from daemon.config import JobsSection
from daemon.core.types import JobState, NodeState, Outcome

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LIMITS = JobsSection(allow_root=True, max_cpus=4, max_memory_mib=8192)


class Counter:
    """Jobs as they were submitted; one node; what a test says they printed."""

    def __init__(self, limits: JobsSection = LIMITS) -> None:
        self.limits = limits
        self.found: dict[int, JobDetail] = {}
        self.owners: dict[int, int] = {}
        self.callers: list[Caller] = []
        self.environments: list[dict[str, str]] = []
        self.printed = [b"one\n", b"\xff\x00two\n"]
        self.hooks: list[tuple[str, bytes, str]] = []
        self.drained = False
        self.may_go_on = threading.Event()
        self.open_logs: list[int] = []

    def reset(self) -> None:
        """Forget everything that was asked."""
        for kept in (self.found, self.owners, self.callers, self.environments, self.hooks):
            kept.clear()
        self.printed = [b"one\n", b"\xff\x00two\n"]
        self.drained = False
        self.may_go_on.clear()

    def submit(self, caller: Caller, request: JobRequest) -> JobDetail:
        admit(caller, request, self.limits, unended=len(self.found))
        number = len(self.found) + 1
        self.callers.append(caller)
        self.environments.append(request.env)
        self.owners[number] = caller.uid
        self.found[number] = JobDetail(
            id=number,
            name=request.name,
            user=caller.name,
            state=JobState.QUEUED,
            cpus=request.cpus,
            mem_mib=request.mem_mib,
            submitted=NOON,
            image=request.image,
            command=list(request.command),
            checkpoint=request.checkpoint,
            mounts=list(request.mounts),
            workdir=request.workdir,
            time_seconds=request.time_seconds,
            output=request.output,
            checkpoint_every_seconds=request.checkpoint_every_seconds,
            after_crash=request.after_crash,
            results=list(request.results),
            events=[EventView(time=NOON, event="submitted", state=JobState.QUEUED)],
        )
        return self.found[number]

    def jobs(self, caller: Caller, *, all_users: bool, include_ended: bool) -> list[JobView]:
        return [
            job
            for job in self.found.values()
            if (all_users or self.owners[job.id] == caller.uid)
            and (include_ended or job.ended is None)
        ]

    def job(self, caller: Caller, job: int) -> JobDetail:
        if job not in self.found:
            raise Refused(f"there is no job {job} of yours", "stopgap queue lists them", 404)
        return self.found[job]

    def logs(self, caller: Caller, job: int, *, follow: bool) -> Iterator[bytes]:
        self.job(caller, job)
        return self._printed(follow=follow)

    def _printed(self, *, follow: bool) -> Iterator[bytes]:
        self.open_logs.append(1)
        try:
            yield from self.printed
            while follow and not self.may_go_on.wait(0.05):
                yield b""
            if follow:
                yield b"last\n"
        finally:
            self.open_logs.pop()

    def cancel(self, caller: Caller, job: int) -> JobChange:
        before = self.job(caller, job)
        again = before.state is JobState.CANCELLED
        self.end(job, JobState.CANCELLED)
        return self._change(job, "already_cancelled" if again else "cancelled")

    def hold(self, caller: Caller, job: int) -> JobChange:
        self.job(caller, job)
        return self._change(job, "held")

    def release(self, caller: Caller, job: int) -> JobChange:
        self.job(caller, job)
        return self._change(job, "already_released")

    def end(self, job: int, state: JobState, exit_code: int | None = None) -> None:
        """Have a job ended."""
        done = {
            "state": state,
            "ended": NOON,
            "started": NOON,
            "exit_code": exit_code,
            "node": "n1",
        }
        segment = SegmentView(
            epoch=1, node="n1", started=NOON, ended=NOON, outcome=Outcome(state.value)
        )
        self.found[job] = self.found[job].model_copy(update={**done, "segments": [segment]})

    def _change(self, job: int, result: str) -> JobChange:
        return JobChange.model_validate({**self.found[job].model_dump(), "result": result})

    def status(self) -> StatusView:
        return StatusView(
            summary="filling 1 of 1 idle nodes",
            healthy=True,
            version="0",
            instance="test",
            batch="slurm",
            batch_version="23.11.4",
            batch_answered=NOON,
            batch_age_seconds=12.3,
            batch_seconds=0.017,
            jobs={JobState.QUEUED: len(self.found)},
            nodes={NodeState.IDLE: 1},
            problems=["n2 does not answer"],
            shadow=ShadowView(since=NOON, starts=3, running=2, evictions={"n1": 1}),
        )

    def nodes(self) -> list[NodeView]:
        claim = ClaimView(source="planned", at=NOON)
        node = NodeView(
            name="n1", state=NodeState.IDLE, cpus=4, memory_mib=4096, claims=[claim], jobs=[1]
        )
        return [node]

    def drain(self, caller: Caller, node: str) -> DrainView:
        self._admin(caller, node)
        result = "already_drained" if self.drained else "drained"
        self.drained = True
        return DrainView.model_validate({"node": node, "drained": True, "result": result})

    def undrain(self, caller: Caller, node: str) -> DrainView:
        self._admin(caller, node)
        self.drained = False
        return DrainView(node=node, drained=False, result="undrained")

    def gone(self, caller: Caller, node: str) -> GoneView:
        self._admin(caller, node)
        return GoneView(node=node, result="gone", jobs=[1])

    def vacate(self, caller: Caller, node: str, seconds: float) -> VacateView:
        self._admin(caller, node)
        return VacateView(node=node, processes=0, evicted=2, seconds=seconds)

    def panic(self, caller: Caller, nodes: Sequence[str]) -> list[PanicView]:
        for node in nodes:
            self._admin(caller, node)
        return [
            PanicView(node="n1", result="panic", empty=True, evicted=2, killed=1, seconds=2.31),
            PanicView(node="n2", result="panic", empty=False, reason="no answer", seconds=20.0),
        ][: len(nodes) or 2]

    def calm(self, caller: Caller, nodes: Sequence[str]) -> list[PanicView]:
        for node in nodes:
            self._admin(caller, node)
        return [PanicView(node=node, result="over") for node in nodes]

    def setup(self, caller: Caller, node: str, *, dry_run: bool) -> SetupView:
        self._admin(caller, node)
        return SetupView(node=node, dry_run=dry_run, changed=True, steps=["place the shim"])

    def probe(self, caller: Caller, node: str) -> ProbeView:
        self._admin(caller, node)
        fit = node == "n1"
        reason = "" if fit else "CRIU is missing"
        said = {"incremental": "yes"}
        return ProbeView(node=node, fit=fit, reason=reason, rounds=3, fingerprint=said)

    def hook(self, node: str, body: bytes, signature: str) -> None:
        if not signature.startswith("a"):
            raise Refused("the call is not signed with this node's key", "", 401)
        self.hooks.append((node, body, signature))

    def _admin(self, caller: Caller, node: str) -> None:
        self.callers.append(caller)
        if not caller.is_admin:
            raise Refused("only administrators may do this", "ask one", 403)
        if node not in {"n1", "n2"}:
            raise Refused(f"there is no node {node}", "stopgap nodes lists them", 404)
