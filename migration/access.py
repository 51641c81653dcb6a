"""The ways to one node, made when it is first asked for: its engine, its programs, its shim."""

import threading
from dataclasses import dataclass

from daemon.core.types import NodeName
from migration.docker import Docker
from migration.host import Host
from migration.settings import EngineSettings, NodeSettings, at
from migration.shim import Shim

SHIM = "stopgap-runc"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAccess:
    """One node."""

    name: NodeName
    docker: Docker
    host: Host
    shim: Shim


class Access:
    """All nodes."""

    def __init__(self, engine: EngineSettings, nodes: NodeSettings, instance: str) -> None:
        self.engine = engine
        self.nodes = nodes
        self._instance = instance
        self._lock = threading.Lock()
        self._known: dict[NodeName, NodeAccess] = {}

    def of(self, node: NodeName) -> NodeAccess:
        """Return the ways to a node; nothing is connected yet."""
        with self._lock:
            if node not in self._known:
                self._known[node] = self._make(node)
            return self._known[node]

    def known(self) -> tuple[NodeAccess, ...]:
        """Return the ways to every node that was asked for by now."""
        with self._lock:
            return tuple(self._known.values())

    def close(self) -> None:
        """Close all connections."""
        for access in self._known.values():
            access.docker.forget()

    def _make(self, node: NodeName) -> NodeAccess:
        docker = Docker(self.engine.address_of(node), self.engine)
        host = Host(docker, self._instance, self.nodes.path)
        program = f"{at(self.nodes.install_dir, node)}/{SHIM}"
        return NodeAccess(name=node, docker=docker, host=host, shim=Shim(host, program, node))
