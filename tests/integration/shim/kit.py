"""Nodes with the shim and nothing else of stopgap: tickets are made here, engines are real.

Independent of ``migration/`` on purpose: the shim is tested against its contract
(docs/node-protocol.md), not against the code that shares its author's ideas of it.
"""

import base64
import hashlib
import hmac
import http.client
import json
import secrets
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.testbed import Bed, wait_until

RUNTIME = Path(__file__).parents[3] / "migration" / "runtime"
FREEZER = Path("/sys/fs/cgroup/freezer")
IMAGE = "stopgap/python:1"
SITE_KEY = secrets.token_hex(32)


class EngineSaidError(Exception):
    """The engine answered with an error."""


class ShimNode:
    """One engine of a bed with the shim beside it."""

    def __init__(self, bed: Bed, name: str) -> None:
        self.bed = bed
        self.name = name
        self.instance = bed.layout.instance
        self.install_dir = bed.layout.install_dir(name)
        self.key = secrets.token_bytes(32)
        self.checkpoints = bed.checkpoints
        self._socket = bed.layout.node(name) / "docker.sock"

    def install(self, **changes: object) -> None:
        """Place the shim as ``stopgap node setup`` does and register its runtime."""
        self.install_dir.mkdir(parents=True, exist_ok=True)
        for program in ("stopgap-runc", "prolog"):
            shutil.copy(RUNTIME / program, self.install_dir / program)
        (self.install_dir / "site.key").write_text(SITE_KEY)
        (self.install_dir / "node.key").write_text(self.key.hex())
        self.configure(**changes)
        daemon_json = self.bed.layout.node(self.name) / "daemon.json"
        settings = json.loads(daemon_json.read_text())
        settings["runtimes"] = {"stopgap": {"path": str(self.install_dir / "stopgap-runc")}}
        daemon_json.write_text(json.dumps(settings))
        dockerd = self.bed.process("dockerd", self.name)
        assert dockerd is not None
        subprocess.run(["kill", f"-{int(signal.SIGHUP)}", str(dockerd.pid)], check=True)
        wait_until(lambda: "stopgap" in self.api("GET", "/info")["Runtimes"], 10, "the runtime")

    def configure(self, **changes: object) -> None:
        """Write the shim's configuration with some keys changed."""
        values = {
            "instance": self.instance,
            "node": self.name,
            "checkpoints": self.checkpoints,
            "path": self.bed.layout.node_path,
            **changes,
        }
        text = "".join(f"{key}={value}\n" for key, value in values.items())
        (self.install_dir / "stopgap-runc.conf").write_text(text)

    def api(self, method: str, path: str, body: object = None, *, seconds: float = 120) -> Any:
        """
        Call the engine and return its answer.

        Raises:
            EngineSaidError: it answered with an error.
        """
        connection = _UnixConnection(self._socket, seconds)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            raw = answer.read()
        finally:
            connection.close()
        if answer.status >= 300 and answer.status != 304:
            raise EngineSaidError(f"{answer.status}: {raw.decode(errors='replace').strip()}")
        is_json = answer.getheader("Content-Type", "").startswith("application/json")
        return json.loads(raw) if is_json and raw else raw

    def ticket(self, job: int, epoch: int, generation: int | None = None, **changes: object) -> str:
        """Sign a ticket with this node's key, some of its fields changed."""
        now = time.time()
        fields: dict[str, object] = {
            "v": 1,
            "roots": ["/"],
            "instance": self.instance,
            "node": self.name,
            "job": job,
            "epoch": epoch,
            "uid": 0,
            "name": f"job-{job}-{epoch}",
            "generation": generation,
            "seen": now,
            "expires": now + 300,
            "nonce": secrets.token_hex(16),
            **changes,
        }
        payload = base64.urlsafe_b64encode(json.dumps(fields).encode()).rstrip(b"=").decode()
        return f"{payload}.{hmac.new(self.key, payload.encode(), hashlib.sha256).hexdigest()}"

    def cgroup_parent(self, job: int, epoch: int) -> str:
        return f"/stopgap/{self.instance}/{self.name}/{job}.{epoch}"

    def create(
        self,
        job: int,
        epoch: int,
        command: list[str],
        *,
        generation: int | None = None,
        env: list[str] | None = None,
        host: dict[str, object] | None = None,
        binds: list[str] | None = None,
        **changes: object,
    ) -> str:
        """Create the container of a segment, with a good ticket unless ``env`` says otherwise."""
        # The daemon makes it before it gives an order.
        (self.checkpoints / str(job)).mkdir(mode=0o700, exist_ok=True)
        if env is None:
            env = [f"STOPGAP_TICKET={self.ticket(job, epoch, generation)}"]
        host_config = {
            "Runtime": "stopgap",
            "CgroupParent": self.cgroup_parent(job, epoch),
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "IpcMode": "private",
            "Binds": binds or [],
            "LogConfig": {"Type": "json-file", "Config": {}},
            **(host or {}),
        }
        body = {
            "Image": IMAGE,
            "Cmd": command,
            "Env": env,
            "NetworkDisabled": True,
            "Hostname": f"job{job}",
            "StopSignal": "SIGKILL",
            "HostConfig": host_config,
            **changes,
        }
        name = f"{self.name}-{job}-{epoch}-{secrets.token_hex(2)}"
        return str(self.api("POST", f"/containers/create?name={name}", body)["Id"])

    def start(self, container: str) -> None:
        self.api("POST", f"/containers/{container}/start")

    def run(self, job: int, epoch: int, command: list[str], **more: Any) -> str:
        """Create and start a segment."""
        container = self.create(job, epoch, command, **more)
        self.start(container)
        return container

    def checkpoint(self, container: str, *, seconds: float = 120) -> None:
        body = {"CheckpointID": f"c{secrets.token_hex(4)}", "Exit": True}
        self.api("POST", f"/containers/{container}/checkpoints", body, seconds=seconds)

    def keep(self, job: int, epoch: int, kind: str = "periodic") -> None:
        """Let a segment go on from its checkpoints."""
        (self.checkpoints / str(job)).mkdir(mode=0o700, exist_ok=True)
        (self.checkpoints / str(job) / "keep").write_text(f"{epoch} {kind}\n")

    def end(self, job: int) -> None:
        """Let the next checkpoint of a job end its segment."""
        (self.checkpoints / str(job) / "keep").unlink()

    def manifest(self, job: int, generation: int) -> dict[str, Any]:
        """Return a manifest's body."""
        path = self.checkpoints / str(job) / str(generation) / "manifest.json"
        body: dict[str, Any] = json.loads(json.loads(path.read_text())["body"])
        return body

    def wait(self, container: str) -> int:
        return int(self.api("POST", f"/containers/{container}/wait")["StatusCode"])

    def remove(self, container: str) -> None:
        def removed() -> bool:
            try:
                self.api("DELETE", f"/containers/{container}?force=1")
            except EngineSaidError as exc:
                # Docker has not unmounted yet what has just ended.
                if "device or resource busy" not in str(exc):
                    raise
                return False
            return True

        wait_until(removed, 20, f"{container} to be removed", every=0.2)

    def state(self, container: str) -> dict[str, Any]:
        state: dict[str, Any] = self.api("GET", f"/containers/{container}/json")["State"]
        return state

    def logs(self, container: str, stream: str = "stdout") -> bytes:
        """Return what a container printed on one of its streams."""
        raw = self.api("GET", f"/containers/{container}/logs?{stream}=1")
        found = b""
        while raw:
            size = int.from_bytes(raw[4:8], "big")
            found, raw = found + raw[8 : 8 + size], raw[8 + size :]
        return found

    def receipt(self, job: int, epoch: int, kind: str = "checkpoint") -> dict[str, Any]:
        path = self.checkpoints / str(job) / "receipts" / f"{epoch}.{kind}.json"
        receipt: dict[str, Any] = json.loads(path.read_text())
        return receipt

    def verb(self, *words: object) -> dict[str, Any]:
        """Run a verb of the shim, as the daemon does on the node."""
        argv = [str(self.install_dir / "stopgap-runc"), "stopgap", *map(str, words)]
        answer = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
        found: dict[str, Any] = json.loads(answer.stdout)
        return found

    def prolog(self, *, seconds: float = 60) -> subprocess.CompletedProcess[str]:
        """Run the node's prolog to its end, as a batch system does: without a PATH."""
        return subprocess.run(
            [str(self.install_dir / "prolog")],
            capture_output=True,
            text=True,
            env={"SLURM_JOB_ID": "4711"},
            timeout=seconds,
            check=False,
        )

    def processes(self, job: int, epoch: int) -> list[int]:
        """Return the processes of a segment, read from the kernel."""
        return self.bed.cgroup_processes(self.name).get(f"{job}.{epoch}", [])

    def frozen(self, job: int, epoch: int, container: str) -> bool:
        place = FREEZER / self.cgroup_parent(job, epoch).lstrip("/") / container
        return (place / "freezer.state").read_text().strip() == "FROZEN"

    def generations(self, job: int) -> list[str]:
        """Return the generations of a job that have a manifest, and those without."""
        folder = self.checkpoints / str(job)
        return sorted(entry.name for entry in folder.iterdir() if entry.name.isdigit())


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, seconds: float) -> None:
        super().__init__("engine", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))
