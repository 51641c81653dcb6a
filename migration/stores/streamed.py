"""Checkpoints on the disks of the nodes that made them, streamed to where they are needed.

The daemon has none of it: it knows from its ledger which node has what, and asks the shims.
Each call of a node's programs costs some tenths of a second, so one asks for all at once.
"""

from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any, TypeVar

import structlog
from pydantic import ValidationError

from daemon.core.types import (
    Checkpoint,
    CheckpointKind,
    Generation,
    JobId,
    NodeName,
    SegmentRef,
)
from migration.access import Access
from migration.base import EngineError, EngineUnreachableError, NodeUnfitError
from migration.locks import Locks
from migration.manifest import CheckpointReceipt, Manifest, ResumeReceipt
from migration.stores.base import Report, StoreError
from migration.stores.carrying import Carrier
from migration.stores.ledger import ALL, Holding, Ledger, Page

_log = structlog.get_logger(__name__)

_Receipt = TypeVar("_Receipt", CheckpointReceipt, ResumeReceipt)


class StreamedStore:
    """The checkpoints of one installation, as ``migration.stores.base`` promises."""

    on_nodes = True

    def __init__(
        self, access: Access, ledger: Ledger, carrier: Carrier, *, copies: int = 1
    ) -> None:
        """Take the parts, and on how many nodes a kept checkpoint is to lie."""
        self._access = access
        self._copies = copies
        self._ledger = ledger
        self._carrier = carrier
        #: Between a look at a job's page and what is written then nobody else writes it.
        self._pages: Locks[JobId] = Locks()

    def ready(self, node: NodeName) -> None:
        # The node itself says so when the job's directory is made, before anything is begun.
        pass

    def prepare(self, ref: SegmentRef, generation: Generation | None = None) -> None:
        with self._pages.of(ref.job):
            try:
                # Of another history of the job, and with the same numbers, perhaps.
                self._pay(ref.job, ref.node)
                page = self._note(ref)
                if generation is None:
                    self._verb(ref.node, "expect", ref.job, ALL)
                    return
            except (EngineUnreachableError, StoreError) as exc:
                raise NodeUnfitError(f"nothing could be saved there: {exc}") from exc
            manifest, holders = _holders(page, generation)
            arrived = self._carrier.bring(ref, manifest, holders)
            self._found(ref.job, ref.node, [arrived], beside=True)

    def ask(self, ref: SegmentRef, kind: CheckpointKind | None) -> CheckpointReceipt | None:
        with self._pages.of(ref.job):
            page = self._note(ref)
            wanted = CheckpointKind.EVICTION if kind is None else kind
            said = self._verb(ref.node, "ask", ref.job, ref.epoch, wanted, page.highest)
        return _receipt(said["receipt"], CheckpointReceipt)

    def report(self, ref: SegmentRef) -> Report:
        said = self._look(ref.job, ref.node, int(ref.epoch))
        return Report(
            busy=bool(said["busy"]),
            receipt=_receipt(said["checkpoint"], CheckpointReceipt),
            checkpoints=tuple(found.checkpoint() for found in said["manifests"]),
        )

    def resume_receipt(self, ref: SegmentRef) -> ResumeReceipt | None:
        said = self._look(ref.job, ref.node, int(ref.epoch))
        return _receipt(said["resume"], ResumeReceipt)

    def checkpoints(self, job: JobId) -> tuple[Checkpoint, ...]:
        found: dict[int, Manifest] = {}
        nodes = self._ledger.peek(job).nodes
        newest = next(reversed(nodes), None)
        for node, held in list(nodes.items()):
            # Where the job once was and left nothing nobody needs to be asked.
            if held.due == ALL or not (held.manifests or node == newest):
                continue
            # What lies on a spare one lies elsewhere too.
            with suppress(EngineUnreachableError) if held.spare else nullcontext():
                manifests = self._look(job, NodeName(node), 0)["manifests"]
                found |= {manifest.generation: manifest for manifest in manifests}
        return tuple(found[generation].checkpoint() for generation in sorted(found))

    def has_ended(self, ref: SegmentRef) -> bool:
        held = self._ledger.peek(ref.job).nodes.get(ref.node, Holding())
        ends = (m for m in held.manifests if m.kind is CheckpointKind.EVICTION)
        return any(manifest.epoch == ref.epoch for manifest in ends)

    def note_end(self, ref: SegmentRef) -> None:
        if ref.node in self._ledger.peek(ref.job).nodes:
            self._verb(ref.node, "ended", ref.job, ref.epoch)

    def cancel(self, ref: SegmentRef) -> None:
        self._verb(ref.node, "cancel", ref.job)

    def forget(self, job: JobId, *, keep: Generation | None = None) -> None:
        """Do so as promised; where nobody answers it is written down, and done later."""
        with self._pages.of(job):
            page = self._ledger.page(job)
            newest = next(reversed(page.nodes), None)
            proven = newest is not None and keep is not None and page.nodes[newest].has(keep)
            for node, held in page.nodes.items():
                spared = keep is not None and (node == newest or held.spare or not proven)
                # What is to go in any case stays so.
                if held.due != ALL:
                    held.due = int(keep or ALL) if spared else ALL
            self._ledger.write(job, page)
            for node in page.nodes:
                with suppress(EngineUnreachableError):
                    self._pay(job, NodeName(node))

    def spread(self, ref: SegmentRef, generation: Generation) -> None:
        """Do so as promised; nobody is kept from the job's page while it takes."""
        others = [node for node in self._access.known() if node.name != ref.node]
        # Not all jobs to the same node; those that have something of the job come first.
        turn = int(ref.job) % len(others) if others else 0
        others = others[turn:] + others[:turn]
        spare = {node for node, held in self._ledger.peek(ref.job).nodes.items() if held.spare}
        for other in sorted(others, key=lambda node: node.name not in spare):
            manifest, holders = _holders(self._ledger.peek(ref.job), generation)
            if manifest is None or len(holders) >= self._copies:
                return
            try:
                self._spare(replace(ref, node=other.name), manifest, holders)
            except (EngineError, OSError) as exc:
                _log.warning("copy.not_made", job=ref.job, node=other.name, reason=str(exc))

    def _spare(self, ref: SegmentRef, manifest: Manifest, holders: list[NodeName]) -> None:
        with self._pages.of(ref.job):
            self._pay(ref.job, ref.node)
            page = self._ledger.page(ref.job)
            if ref.node not in page.nodes:
                page.nodes = {ref.node: Holding(spare=True), **page.nodes}
                self._ledger.write(ref.job, page)
        arrived = self._carrier.bring(ref, manifest, holders)
        with self._pages.of(ref.job):
            if ref.node in self._ledger.peek(ref.job).nodes:
                self._found(ref.job, ref.node, [arrived], beside=True)
            else:
                # Meanwhile the job has ended, or lives elsewhere.
                self._verb(ref.node, "drop", ref.job, ALL)

    def where(self, job: JobId) -> Mapping[Generation, tuple[NodeName, ...]]:
        found: dict[Generation, tuple[NodeName, ...]] = {}
        for node, held in self._ledger.peek(job).nodes.items():
            for manifest in held.manifests if held.due != ALL else ():
                generation = Generation(manifest.generation)
                found[generation] = (*found.get(generation, ()), NodeName(node))
        return found

    def answered(self, node: NodeName) -> None:
        for job in self._ledger.due(node):
            lock = self._pages.of(job)
            # Whoever works on the job may be at it for minutes: there will be another answer.
            if lock.acquire(blocking=False):
                try:
                    with suppress(EngineError, OSError):
                        self._pay(job, node)
                finally:
                    lock.release()

    # Below: how it is done.

    def _note(self, ref: SegmentRef) -> Page:
        """Write down, before anything is made there, that the job comes to the node."""
        page = self._ledger.page(ref.job)
        if next(reversed(page.nodes), None) != ref.node:
            held = page.nodes.pop(ref.node, Holding())
            page.nodes[ref.node] = held.model_copy(update={"spare": False})
            self._ledger.write(ref.job, page)
        return page

    def _found(
        self, job: JobId, node: NodeName, manifests: list[Manifest], *, beside: bool = False
    ) -> None:
        """Write down what was seen on the node; ``beside`` what is known to be there."""
        with self._pages.of(job):
            page = self._ledger.page(job)
            held = page.nodes.get(node)
            if held is None:
                return
            known = {m.generation: m for m in held.manifests if beside}
            known |= {m.generation: m for m in manifests}
            seen = tuple(known[generation] for generation in sorted(known))
            if seen != held.manifests:
                held.manifests = seen
                page.highest = max(page.highest, *known) if known else page.highest
                self._ledger.write(job, page)

    def _pay(self, job: JobId, node: NodeName) -> None:
        """Delete what is to be deleted on the node."""
        page = self._ledger.page(job)
        held = page.nodes.get(node)
        if held is None or held.due is None:
            return
        self._verb(node, "drop", job, held.due)
        if held.due == ALL:
            del page.nodes[node]
        else:
            least = held.due
            held.manifests = tuple(m for m in held.manifests if m.generation >= least)
            held.due = None
        self._ledger.write(job, page)

    def _look(self, job: JobId, node: NodeName, epoch: int) -> dict[str, Any]:
        said = self._verb(node, "look", job, epoch)
        try:
            found = [Manifest.model_validate(body) for body in said["manifests"]]
        except ValidationError as exc:
            raise StoreError(f"{node}: a manifest cannot be read: {exc}") from exc
        self._found(job, node, found)
        return {**said, "manifests": found}

    def _verb(self, node: NodeName, verb: str, *words: object) -> dict[str, Any]:
        """
        Have the node's shim do it.

        Raises:
            StoreError: it could not.
            EngineUnreachableError: nobody answered.
        """
        try:
            return self._access.of(node).shim.store(verb, *words)
        except EngineUnreachableError:
            raise
        except EngineError as exc:
            raise StoreError(str(exc)) from exc


def _holders(page: Page, generation: Generation) -> tuple[Manifest | None, list[NodeName]]:
    """Return the generation's manifest and who has it, the last node of the job first."""
    nodes = [
        NodeName(node)
        for node, held in reversed(page.nodes.items())
        if held.due != ALL and held.has(generation)
    ]
    known = (m for node in nodes for m in page.nodes[node].manifests if m.generation == generation)
    return next(known, None), nodes


def _receipt(said: object, kind: type[_Receipt]) -> _Receipt | None:
    try:
        return None if said is None else kind.model_validate(said)
    except ValidationError:
        return None
