"""What somebody wants to know of a trace: several policies, with results that are kept."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from adapters.mock_slurm.nouns import Discipline
from daemon.sim import costs as prices
from daemon.sim.costs import Costs
from daemon.sim.page import charts, page
from daemon.sim.report import write_starts
from daemon.sim.rivals import Scheme
from daemon.sim.simulate import Plan, simulate
from daemon.sim.site import Site
from daemon.sim.supply import MIXED_MIB, Mix
from daemon.sim.traces import Format, load
from daemon.sim.workload import Shape, Trace

#: Called with the name of a policy and how much of its simulation is done, 0 to 1.
Watch = Callable[[str, float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The options of ``stopgap simulate``; None and "" are guessed or by default."""

    form: str = ""
    policies: tuple[str, ...] = (Scheme.STOPGAP.value,)
    nodes: int | None = None
    cores_per_node: int | None = None
    scheduler: str = Discipline.EASY.value
    passes: str = "event"
    jobs: Path | None = None
    job_memory_mib: tuple[int, ...] = MIXED_MIB
    #: Zero is all of a node.
    job_cores: int = 0
    job_hours: float = 24.0
    #: A file, or ``zero``.
    costs: str = ""
    poll_seconds: float = 15.0
    idle_looks: int = 1
    pilot_seconds: float = 1800.0
    node_memory_mib: int = 65536
    seed: int = 1

    def schemes(self) -> tuple[Scheme, ...]:
        """Return the policies, each once, in the order in which they were named."""
        every = tuple(Scheme)
        named = (every if name == "all" else (Scheme(name),) for name in self.policies)
        return tuple(dict.fromkeys(scheme for group in named for scheme in group))

    def plan(self, scheme: Scheme) -> Plan:
        """
        Return how to simulate one policy.

        Raises:
            CostsError: the file of costs cannot be used.
        """
        site = Site(
            costs=self._costs(),
            memory_mib=self.node_memory_mib,
            poll_seconds=self.poll_seconds,
            idle_looks=self.idle_looks,
        )
        return Plan(
            scheme=scheme,
            discipline=Discipline(self.scheduler),
            pass_per_event=self.passes == "event",
            site=site,
            mix=Mix(memory_mib=self.job_memory_mib, cpus=self.job_cores, hours=self.job_hours),
            jobs=self.jobs,
            pilot_seconds=self.pilot_seconds,
            seed=self.seed,
        )

    def _costs(self) -> Costs:
        if self.costs == "zero":
            return Costs.free()
        return prices.load(Path(self.costs)) if self.costs else Costs()


def run(
    path: Path,
    request: Request,
    *,
    starts: Path | None = None,
    out: Path | None = None,
    watch: Watch | None = None,
) -> list[dict[str, Any]]:
    """
    Return the figures of each policy, in the order asked for.

    With ``out`` they are kept there, and those that are there already are not simulated again.
    ``starts`` gets the priority jobs' starts under the last policy.

    Raises:
        TraceError: the trace, or the file of low-priority jobs, cannot be used.
        CostsError: the file of costs cannot be used.
        OSError: a result cannot be written.
    """
    trace = load(path, Format(request.form) if request.form else None, _shape(request))
    schemes = request.schemes()
    found = []
    for scheme in schemes:
        kept = _Kept(out, path, request, scheme)
        wanted = starts if scheme is schemes[-1] else None
        known = kept.read() if wanted is None else None
        found.append(known or _simulate(trace, request.plan(scheme), kept, wanted, watch))
    if out is not None:
        drawn = found[0]["charts"]
        put(out / f"{path.name}.html", page([each["figures"] for each in found], drawn))
    return [each["figures"] for each in found]


def _shape(request: Request) -> Shape:
    return Shape(nodes=request.nodes, cores_per_node=request.cores_per_node)


def _simulate(
    trace: Trace, plan: Plan, kept: "_Kept", starts: Path | None, watch: Watch | None
) -> dict[str, Any]:
    progress = None if watch is None else lambda done: watch(plan.scheme.value, done)
    outcome, figures = simulate(trace, plan, progress)
    if progress is not None:
        progress(1.0)
    figures = {"trace": trace.name, "policy": plan.scheme.value, **figures}
    figures["dropped"] = getattr(trace, "dropped", 0)
    figures["guesses"] = list(getattr(trace, "guesses", ()))
    if starts is not None:
        write_starts(starts, outcome)
    document = {"figures": figures, "charts": charts(outcome)}
    kept.write(document)
    return document


def put(path: Path, text: str) -> None:
    """Write a file that appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


class _Kept:
    """The file that a result is kept in."""

    def __init__(self, folder: Path | None, trace: Path, request: Request, scheme: Scheme) -> None:
        self._path = None if folder is None else folder / f"{trace.name}.{scheme.value}.json"
        self._trace = trace
        self._request = request

    def read(self) -> dict[str, Any] | None:
        """Return the result, if it is of the same trace and the same options."""
        if self._path is None or not self._path.exists():
            return None
        try:
            document = json.loads(self._path.read_text(encoding="utf-8"))
        except ValueError:
            return None
        known: dict[str, Any] = document
        return known if known.get("asked") == self._asked() else None

    def write(self, document: dict[str, Any]) -> None:
        """Keep a result."""
        if self._path is not None:
            text = json.dumps({"asked": self._asked(), **document}, indent=1)
            put(self._path, text + "\n")

    def _asked(self) -> str:
        """Return a digest of everything that a result hangs on."""
        asked = sha256(repr(replace(self._request, policies=())).encode())
        for file in (self._trace, self._request.jobs, Path(self._request.costs or "/")):
            if file is not None and file.is_file():
                asked.update(sha256(file.read_bytes()).digest())
        return asked.hexdigest()
