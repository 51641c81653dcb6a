"""Behaviour that any batch adapter can have: each wraps one and is one."""

from collections.abc import Set as AbstractSet
from typing import Protocol

from adapters.base import BatchAdapter, Capabilities, UnreachableError
from daemon.clock import Clock
from daemon.core.types import Cluster, NodeName


class ExaminedAdapter(BatchAdapter, Protocol):
    """A batch adapter that can also say what is wrong with its site."""

    def findings(self) -> tuple[str, ...]:
        """
        Return what an administrator should change, one sentence each.

        Raises:
            UnreachableError: the batch system did not answer.
            UnparsableError: its answer made no sense.
        """


class _Wrapper:
    """Everything but ``look`` is passed on."""

    def __init__(self, inner: ExaminedAdapter) -> None:
        self._inner = inner

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def version(self) -> str:
        return self._inner.version

    @property
    def capabilities(self) -> Capabilities:
        return self._inner.capabilities

    def findings(self) -> tuple[str, ...]:
        return self._inner.findings()


class Retrying(_Wrapper):
    """Any adapter, but one silence is not yet silence."""

    def __init__(
        self, inner: ExaminedAdapter, *, tries: int, pause_seconds: float, clock: Clock
    ) -> None:
        super().__init__(inner)
        self._tries = tries
        self._pause = pause_seconds
        self._clock = clock

    def look(self) -> Cluster:
        """
        Look, and look again a little later when there was no answer.

        Raises:
            UnreachableError: there was none to the last try either.
            UnparsableError: the answer made no sense; asking again would not help.
        """
        for _ in range(self._tries - 1):
            try:
                return self._inner.look()
            except UnreachableError:
                self._clock.wait(self._pause)
        return self._inner.look()


class Doubting(_Wrapper):
    """
    Any adapter, but nodes do not vanish in crowds at the first word.

    An answer cut off between two lines is a valid answer with fewer nodes, and what
    we believe of nodes that are not listed is that they are not ours any more.  A
    real change is as true the next time; a lost half is not.
    """

    def __init__(self, inner: ExaminedAdapter, *, looks: int = 3, share: float = 0.1) -> None:
        super().__init__(inner)
        self._looks = looks
        self._share = share
        self._believed: AbstractSet[NodeName] = frozenset()
        self._seen = 0

    def look(self) -> Cluster:
        """
        Look, and doubt an answer that lacks more than a share of the known nodes.

        Raises:
            UnreachableError: no answer, or one that is doubted.
            UnparsableError: the answer made no sense.
        """
        cluster = self._inner.look()
        lost = self._believed - cluster.nodes.keys()
        if len(lost) > self._share * len(self._believed):
            self._seen += 1
            if self._seen < self._looks:
                few = ", ".join(sorted(lost)[:5]) + (", …" if len(lost) > 5 else "")
                told = f"{len(lost)} of {len(self._believed)} nodes are suddenly missing ({few})"
                raise UnreachableError(f"{told}; believed when seen {self._looks} times")
        self._believed = cluster.nodes.keys()
        self._seen = 0
        return cluster
