"""A bench on programs over the model of a batch system, in a time that a test moves."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from adapters import commands
from adapters.base import BatchAdapter
from daemon.clock import Clock
from daemon.core.types import Cluster, NodeName
from tests.contract.clock import ManualClock


class ProgramsBench(ABC):
    """Makes things happen through the commands that people use."""

    adapter: BatchAdapter

    def __init__(self, bin_dir: Path, nodes: int, clock: Clock | None) -> None:
        self.bin_dir = bin_dir
        self.nodes = tuple(NodeName(f"n{number}") for number in range(1, nodes + 1))
        self.clock = clock or ManualClock()

    @abstractmethod
    def tell_time(self) -> None:
        """Let the model's time be the clock's."""

    def run(self, *argv: str) -> str:
        """Run one of the programs."""
        self.tell_time()
        answer = commands.run(argv, timeout_seconds=30, bin_dir=str(self.bin_dir))
        assert (0, "") == (answer.code, answer.err), argv
        return answer.out

    def look(self) -> Cluster:
        """Look at the cluster as it is now."""
        self.tell_time()
        return self.adapter.look()

    def until(self, condition: Callable[[Cluster], bool]) -> Cluster:
        for _ in range(20):
            self.clock.wait(1)
            found = self.look()
            if condition(found):
                return found
        raise AssertionError(f"never came true; last: {dict(self.adapter.look().nodes)}")
