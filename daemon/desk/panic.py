"""Panic, as administrators call it and say that it is over."""

from collections.abc import Sequence

from daemon.acts import clearing
from daemon.acts.clearing import Cleared
from daemon.api.ports import Caller, Refused
from daemon.api.schemas import PanicView
from daemon.core.types import NodeName, Outcome
from daemon.desk.parts import Parts

#: For those who were told that time is up to kill what they have not saved.
_LAST_SECONDS = 0.3


class PanicDesk(Parts):
    """Answers whoever wants us off his nodes."""

    __slots__ = ()

    def panic(self, caller: Caller, nodes: Sequence[str]) -> list[PanicView]:
        """Take everything of ours off these nodes in seconds, and off all for none."""
        self._only_admins(caller)
        observer, clock = self.tools.observer, self.tools.clock
        began = clock.monotonic()
        wanted, unknown = self._split(nodes)
        already = {node for node in wanted if observer.panicked(node)}
        observer.set_panicked(wanted, panicked=True, every=not nodes)
        patience = self.policy.panic_save.total_seconds() + _LAST_SECONDS
        cleared = clearing.clear(self.tools, wanted, began=began, patience=patience)
        observer.survey(wanted)
        views = [self._view(node, cleared[node], already=node in already) for node in wanted]
        return views + unknown

    def calm(self, caller: Caller, nodes: Sequence[str]) -> list[PanicView]:
        """Say that the panic is over on these nodes, and on all for none."""
        self._only_admins(caller)
        observer = self.tools.observer
        wanted, unknown = self._split(nodes)
        closed = {node for node in wanted if observer.panicked(node)}
        observer.set_panicked(wanted, panicked=False)
        return [
            PanicView(node=node, result="over" if node in closed else "already_over")
            for node in wanted
        ] + unknown

    def _only_admins(self, caller: Caller) -> None:
        if not caller.is_admin:
            raise Refused(
                "only administrators may do this",
                f"ask a member of the group {self.config.daemon.admin_group}",
                403,
            )

    def _split(self, nodes: Sequence[str]) -> tuple[list[NodeName], list[PanicView]]:
        """
        Return the nodes, in order, and what is said about those that there are not.

        As long as the batch system has not answered, every node may be one.
        """
        known = self.tools.observer.known_nodes()
        if not nodes:
            return sorted(known), []
        names = [NodeName(name) for name in dict.fromkeys(nodes)]
        if self.tools.observer.look().cluster is None:
            return names, []
        reason = "there is no such node; stopgap nodes lists them"
        return (
            [name for name in names if name in known],
            [
                PanicView(node=name, result="no_such_node", reason=reason)
                for name in names
                if name not in known
            ],
        )

    def _view(self, node: NodeName, cleared: Cleared, *, already: bool) -> PanicView:
        evicted = sum(
            segment.outcome is Outcome.EVICTED
            for ref in cleared.refs
            for segment in self._store.segments(ref.job)
            if segment.epoch == ref.epoch
        )
        return PanicView(
            node=node,
            result="already_panic" if already else "panic",
            empty=not cleared.reason,
            reason=cleared.reason,
            evicted=evicted,
            killed=len(cleared.refs) - evicted,
            seconds=round(cleared.seconds, 3),
        )
