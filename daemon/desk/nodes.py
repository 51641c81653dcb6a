"""The daemon and its nodes, for those who run them; and the calls of their prologs."""

from datetime import timedelta

from daemon.acts import probing
from daemon.api.ports import Caller, Refused
from daemon.api.schemas import (
    DrainView,
    GoneView,
    NodeView,
    ProbeView,
    PrologCall,
    SetupView,
    StatusView,
    VacateView,
)
from daemon.core.saving import Quota
from daemon.core.types import (
    Claim,
    ClaimSource,
    NodeName,
    Outcome,
)
from daemon.desk import views
from daemon.desk.parts import Parts
from migration.base import EngineError, Fingerprint


class NodeDesk(Parts):
    """Answers about the daemon and its nodes."""

    __slots__ = ()

    def status(self) -> StatusView:
        """Sum the daemon's state up."""
        found = self.pulse.status(self._store.evictions())
        pauses = list(Quota(self._store.live_jobs(), self.policy).pauses())
        return found.model_copy(update={"problems": found.problems + pauses})

    def nodes(self) -> list[NodeView]:
        """List the nodes in order of their names."""
        return views.node_views(self.tools.observer.look(), self.policy)

    def drain(self, caller: Caller, node: str) -> DrainView:
        """Close the node to jobs; those that run there are evicted."""
        name = self._node(caller, node)
        already = self.tools.observer.record_of(name).drained is not None
        if not already:
            self.tools.observer.set_drained(name, drained=True)
        return DrainView(
            node=node, drained=True, result="already_drained" if already else "drained"
        )

    def undrain(self, caller: Caller, node: str) -> DrainView:
        """Open the node again."""
        name = self._node(caller, node)
        if self.tools.observer.panicked(name):
            raise Refused(
                f"panic was called on {node}, and is not over", f"stopgap panic --over {node}", 409
            )
        drained = self.tools.observer.record_of(name).drained is not None
        if drained:
            self.tools.observer.set_drained(name, drained=False)
        return DrainView(
            node=node, drained=False, result="undrained" if drained else "already_undrained"
        )

    def gone(self, caller: Caller, node: str) -> GoneView:
        """Take an administrator's word that the node is dead: its jobs go on elsewhere."""
        name = self._node(caller, node, known=False)
        refs = self.tools.observer.refs_on(name)
        snapshot = self.tools.observer.look()
        engine = snapshot.engines.get(name)
        if not refs and (snapshot.cluster is None or name not in snapshot.cluster.nodes):
            raise Refused(f"there is no node {node}", "stopgap nodes lists them", 404)
        if engine is not None and engine.reachable:
            raise Refused(
                f"the engine of {node} answers, so the node is not dead",
                f"stopgap vacate --node {node} empties it, stopgap node drain keeps it empty",
                409,
            )
        already = self.tools.observer.record_of(name).gone is not None
        if not already:
            self.tools.observer.set_gone(name, gone=True)
        return GoneView(
            node=node,
            result="already_gone" if already else "gone",
            jobs=sorted(ref.job for ref in refs),
        )

    def vacate(self, caller: Caller, node: str, seconds: float) -> VacateView:
        """Have the node emptied, kill what is left after that time, return when it is empty."""
        name = self._node(caller, node)
        clock = self.tools.clock
        began, start = clock.now(), clock.monotonic()
        refs = self.tools.observer.refs_on(name)
        self.tools.observer.notice(
            Claim(
                node=name,
                source=ClaimSource.OPERATOR,
                at=began,
                deadline=began + timedelta(seconds=seconds),
                detail=f"vacated by {caller.name}",
            )
        )
        limit = seconds + self.config.engine.timeout_seconds
        while self.tools.observer.refs_on(name):
            if clock.monotonic() - start > limit:
                raise Refused(
                    f"{node} is not empty after {limit:.0f} s",
                    "stopgap nodes and the daemon's log say what is in the way",
                    503,
                )
            clock.wait(0.05)
        try:
            left = sum(cgroup.processes for cgroup in self.tools.engine.census(name).segments)
        except EngineError as exc:
            raise Refused(f"{node} could not be looked at: {exc}", "try again", 503) from exc
        saved = {
            (segment.job, segment.epoch)
            for ref in refs
            for segment in self._store.segments(ref.job)
            if segment.outcome is Outcome.EVICTED
        }
        evicted = sum((ref.job, ref.epoch) in saved for ref in refs)
        if left:
            raise Refused(f"{left} processes are left on {node}", "the daemon's log says why", 503)
        return VacateView(
            node=node,
            processes=0,
            evicted=evicted,
            killed=len(refs) - evicted,
            seconds=round(clock.monotonic() - start, 3),
        )

    def setup(self, caller: Caller, node: str, *, dry_run: bool) -> SetupView:
        """Place the shim on the node and register it, or tell what would be done."""
        name = self._node(caller, node, known=False)
        try:
            done = self.workshop.setup(name, dry_run=dry_run)
        except EngineError as exc:
            raise Refused(f"{node} was not set up: {exc}", "correct it and try again", 503) from exc
        if done.changed and not dry_run:
            self.tools.observer.distrust(name, "set up anew", until=self.tools.clock.now())
            self.pulse.wake()
        return SetupView(node=node, dry_run=dry_run, changed=done.changed, steps=list(done.steps))

    def probe(self, caller: Caller, node: str) -> ProbeView:
        """Run the canary on the node, which gets no job and no other canary meanwhile."""
        name = self._node(caller, node, known=False)
        self.tools.observer.begin((), name)
        try:
            fingerprint = self.workshop.fingerprint(name)
            found = self.workshop.probe(name)
            probing.keep(self.tools, name, found, fingerprint)
        except EngineError as exc:
            raise Refused(f"{node} was not probed: {exc}", "correct it and try again", 503) from exc
        finally:
            self.tools.observer.end((), name, (name,))
        return ProbeView(
            node=node,
            fit=found.passed,
            reason=found.reason,
            rounds=found.rounds,
            seconds=round(found.seconds, 3),
            fingerprint=_texts(fingerprint, self.config.checkpoints.compress),
        )

    def hook(self, node: str, body: bytes, signature: str) -> None:
        """Take a prolog's word that the node is wanted now."""
        now = self.tools.clock.now()
        if not self.guard.is_new(NodeName(node), body, signature, now=now):
            return
        call = PrologCall.model_validate_json(body)
        self.tools.observer.notice(
            Claim(
                node=NodeName(node),
                source=ClaimSource.PROLOG,
                at=now,
                # The prolog kills by itself after its time: be done shortly before.
                deadline=now + timedelta(seconds=call.seconds * 0.9),
                detail=f"prolog of priority job {call.job}" if call.job else "prolog",
            )
        )

    def _node(self, caller: Caller, node: str, *, known: bool = True) -> NodeName:
        if not caller.is_admin:
            raise Refused(
                "only administrators may do this",
                f"ask a member of the group {self.config.daemon.admin_group}",
                403,
            )
        cluster = self.tools.observer.look().cluster
        if known and (cluster is None or node not in cluster.nodes):
            raise Refused(f"there is no node {node}", "stopgap nodes lists them", 404)
        return NodeName(node)


def _texts(fingerprint: Fingerprint, compress: str) -> dict[str, str]:
    return {
        "engine": fingerprint.engine,
        "kernel": fingerprint.kernel,
        "runc": fingerprint.runc,
        "criu": fingerprint.criu,
        "cgroup": fingerprint.cgroup,
        "boot_id": fingerprint.boot_id,
        "incremental": _INCREMENTAL[fingerprint.incremental],
        "compress": _compression(fingerprint.zstd, compress),
    }


def _compression(zstd: str | None, wanted: str) -> str:
    """Say how the node keeps memory, in a word when it is as the site wants it."""
    if wanted == "none" or zstd:
        return wanted
    return "none, this node has no zstd: install it, or its jobs' checkpoints stay as they are"


#: What a checkpoint writes on the node.
_INCREMENTAL = {
    None: "not known, its shim is an earlier one: run 'stopgap node setup'",
    True: "yes",
    False: "no, this kernel does not track changed pages",
}
