"""Setting up a node through its engine alone: files, keys, the registered runtime.

Every step says what it did, or would do, and finds out first whether it is needed.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files

from daemon.clock import Clock
from daemon.core.types import NodeName
from migration.access import SHIM, Access, NodeAccess
from migration.base import Fingerprint
from migration.container import RUNTIME
from migration.docker import EngineSaidError
from migration.host import DEFAULT_PATH, HostFile, HostProgramError
from migration.settings import at
from migration.shim import ShimSaidError
from migration.ticket import Keys

CANARY = "canary.py"
#: Half-written files lie beside their target, so that a rename brings them in whole.
_NEW = ".stopgap-new"
_RELOAD_SECONDS = 10.0
_SECONDS = 30.0

# Host scripts; every value is an argument, never a part of the text.
_MAKE_FOLDERS = 'mkdir -p "$1" && chmod 0755 "$1" && mkdir -p -m 0700 "$1/state"'
_BRING_IN = 'd=$1; s=$2; shift 2; for f; do mv -f "$d/.$f$s" "$d/$f" || exit 1; done; sync "$d"'
_RELOAD = (
    'pid=$(cat "$1") && case $(cat "/proc/$pid/comm") in docker*) kill -HUP "$pid" ;; '
    '*) echo "process $pid of $1 is not dockerd" >&2; exit 1 ;; esac'
)
_TRY_CHECKPOINTS = (
    'mkdir -p -m 0700 "$1" && f="$1/.stopgap-try-$2" && echo ok > "$f" && '
    'chown 0:0 "$f" && chmod 0600 "$f" && rm "$f"'
)


class StepState(StrEnum):
    """What became of a step."""

    DONE = "done"
    ALREADY = "already"
    WOULD = "would"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing that a node needs."""

    state: StepState
    #: For people: what it is about, and what is wrong or to be done by hand.
    text: str


class NodeSetup:
    """Prepares nodes, and asks them what they are."""

    def __init__(self, access: Access, keys: Keys, instance: str, clock: Clock) -> None:
        self._access = access
        self._keys = keys
        self._instance = instance
        self._clock = clock

    def setup(self, node: NodeName, *, dry_run: bool = False) -> tuple[Step, ...]:
        """
        Bring the node into the state that jobs need; may be repeated at any time.

        Raises:
            EngineUnreachableError: the node does not answer.
        """
        access = self._access.of(node)
        access.docker.forget()
        access.host.sweep(self._clock.now())
        done: list[Step] = []
        try:
            for step in self._steps(access, dry_run=dry_run):
                done.append(step)
                if step.state is StepState.FAILED:
                    break
        except (HostProgramError, EngineSaidError, ShimSaidError) as exc:
            done.append(Step(state=StepState.FAILED, text=str(exc)))
        return tuple(done)

    def fingerprint(self, node: NodeName) -> Fingerprint:
        """
        Return what the node is made of.

        Raises:
            NodeUnfitError: it has no shim.
            EngineUnreachableError: it does not answer.
        """
        access = self._access.of(node)
        said = access.shim.fingerprint()
        return Fingerprint(
            engine=access.docker.facts().version,
            kernel=str(said.get("kernel", "")),
            runc=str(said.get("runc", "")),
            criu=str(said.get("criu", "")),
            boot_id=str(said.get("boot_id", "")),
            cgroup=str(said.get("cgroup", "")),
            cpu_flags=str(said.get("cpu_flags", "")),
            architecture=str(said.get("machine", "")),
            cpu=str(said.get("cpu", "")),
            incremental=said.get("incremental"),
            zstd=said.get("zstd"),
        )

    def files(self, node: NodeName) -> dict[str, HostFile]:
        """Return everything that lies in the node's folder."""
        ours = files("migration")
        return {
            SHIM: HostFile(content=(ours / "runtime" / SHIM).read_bytes(), mode=0o755),
            f"{SHIM}.conf": HostFile(content=self._conf(node).encode(), mode=0o600),
            "site.key": HostFile(content=_key_text(self._keys.site), mode=0o600),
            "node.key": HostFile(content=_key_text(self._keys.node(node)), mode=0o600),
            "prolog": HostFile(content=(ours / "runtime" / "prolog").read_bytes(), mode=0o755),
            # Jobs of any user must be able to read it.
            CANARY: HostFile(content=(ours / CANARY).read_bytes(), mode=0o644),
        }

    def _steps(self, access: NodeAccess, *, dry_run: bool) -> Iterator[Step]:
        yield from self._place(access, dry_run=dry_run)
        yield self._register(access, dry_run=dry_run)
        yield self._make_known(access, dry_run=dry_run)
        yield self._try_checkpoints(access, dry_run=dry_run)
        yield _can_checkpoint(access)

    def _place(self, access: NodeAccess, *, dry_run: bool) -> Iterator[Step]:
        folder = at(self._access.nodes.install_dir, access.name)
        wanted = self.files(access.name)
        with access.host.files() as there:
            stale = {n: f for n, f in wanted.items() if there.read(f"{folder}/{n}") != f}
            if stale and not dry_run:
                _run(access, _MAKE_FOLDERS, folder)
                there.write(folder, {f".{name}{_NEW}": file for name, file in stale.items()})
                _run(access, _BRING_IN, folder, _NEW, *stale)
        changed = StepState.WOULD if dry_run else StepState.DONE
        for name in wanted:
            state = changed if name in stale else StepState.ALREADY
            yield Step(state=state, text=f"{folder}/{name} is in place")

    def _register(self, access: NodeAccess, *, dry_run: bool) -> Step:
        path = at(self._access.nodes.daemon_json, access.name)
        text = f"runtime {RUNTIME} is registered in {path}"
        with access.host.files() as there:
            found = there.read(path)
            try:
                merged = merged_daemon_json(found.content if found else b"", self._shim(access))
            except ValueError as exc:
                return Step(state=StepState.FAILED, text=f"{path} cannot be read: {exc}")
            if merged is None:
                return Step(state=StepState.ALREADY, text=text)
            if not dry_run:
                folder, _, name = path.rpartition("/")
                _run(access, 'mkdir -p "$1"', folder)
                mode = found.mode if found else 0o644
                there.write(folder, {f".{name}{_NEW}": HostFile(content=merged, mode=mode)})
                _run(access, _BRING_IN, folder, _NEW, name)
        return Step(state=StepState.WOULD if dry_run else StepState.DONE, text=text)

    def _make_known(self, access: NodeAccess, *, dry_run: bool) -> Step:
        text = f"Docker knows the runtime {RUNTIME}"
        if self._is_known(access):
            return Step(state=StepState.ALREADY, text=text)
        if dry_run:
            return Step(state=StepState.WOULD, text=f"{text} (SIGHUP to dockerd)")
        _run(access, _RELOAD, at(self._access.nodes.pidfile, access.name))
        until = self._clock.monotonic() + _RELOAD_SECONDS
        while not self._is_known(access):
            if self._clock.monotonic() > until:
                return Step(
                    state=StepState.FAILED,
                    text=f"dockerd was told to reload and does not know the runtime {RUNTIME}: "
                    "see its log, or restart it",
                )
            self._clock.wait(0.05)
        return Step(state=StepState.DONE, text=text)

    def _is_known(self, access: NodeAccess) -> bool:
        runtimes = access.docker.get("/info").get("Runtimes") or {}
        return bool(runtimes.get(RUNTIME, {}).get("path") == self._shim(access))

    def _try_checkpoints(self, access: NodeAccess, *, dry_run: bool) -> Step:
        root = at(self._access.nodes.checkpoints, access.name)
        text = f"root of the node can write below {root}"
        if dry_run:
            return Step(state=StepState.WOULD, text=text)
        if self._access.nodes.own_checkpoints:
            # Its own disk: the mark tells it from an empty mount point from now on.
            access.shim.store("mark")
            return Step(state=StepState.ALREADY, text=f"{root} is marked as this node's own")
        ran = access.host.run(_script(_TRY_CHECKPOINTS, root, access.name), seconds=_SECONDS)
        if ran.code:
            return Step(
                state=StepState.FAILED,
                text=f"root of the node cannot write below {root}, which must be one directory "
                f"for all nodes, exported with no_root_squash: {ran.err.strip()}",
            )
        return Step(state=StepState.ALREADY, text=text)

    def _shim(self, access: NodeAccess) -> str:
        return f"{at(self._access.nodes.install_dir, access.name)}/{SHIM}"

    def _conf(self, node: NodeName) -> str:
        nodes = self._access.nodes
        values = {
            "instance": self._instance,
            "node": node,
            "checkpoints": at(nodes.checkpoints, node),
            "path": nodes.path or DEFAULT_PATH,
            "checkpoint_seconds": f"{nodes.checkpoint_seconds:g}",
            "resume_seconds": f"{nodes.resume_seconds:g}",
            "compress": nodes.compress,
            "compress_level": str(nodes.compress_level),
            "scratch": at(nodes.scratch_dir, node),
            "daemon_url": nodes.hook_url,
            "hook_seconds": f"{nodes.hook_seconds:g}",
            "hook_unreachable_seconds": f"{nodes.hook_unreachable_seconds:g}",
        }
        return "".join(f"{key}={value}\n" for key, value in values.items())


def merged_daemon_json(found: bytes, shim: str) -> bytes | None:
    """
    Return the engine's configuration with the runtime in it, or None when it is there.

    Raises:
        ValueError: what was found is not a JSON object.
    """
    settings = json.loads(found) if found.strip() else {}
    if not isinstance(settings, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004  # as for any other bad text
    runtimes = settings.get("runtimes", {})
    if not isinstance(runtimes, dict):
        raise ValueError("its runtimes are not a JSON object")  # noqa: TRY004  # as above
    # Without arguments: Docker would write a wrapper that does not quote them.
    wanted = {
        **settings,
        "experimental": True,
        "runtimes": {**runtimes, RUNTIME: {"path": shim}},
    }
    if wanted == settings:
        return None
    return (json.dumps(wanted, indent=2) + "\n").encode()


def _can_checkpoint(access: NodeAccess) -> Step:
    facts = access.docker.facts()
    if facts.experimental:
        return Step(state=StepState.ALREADY, text=f"Docker {facts.version} can checkpoint")
    return Step(
        state=StepState.FAILED,
        text=f'Docker {facts.version} runs without "experimental": true, which is in its '
        "configuration now: restart it",
    )


def _run(access: NodeAccess, script: str, *arguments: str) -> None:
    ran = access.host.run(_script(script, *arguments), seconds=_SECONDS)
    if ran.code:
        raise HostProgramError((ran.err or ran.out).strip(), ran.code)


def _script(script: str, *arguments: str) -> list[str]:
    return ["/bin/sh", "-c", script, "sh", *arguments]


def _key_text(key: bytes) -> bytes:
    return key.hex().encode() + b"\n"
