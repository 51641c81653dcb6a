"""Simulations as they are asked for on the command line: options in, figures out."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from adapters.mock_slurm.nouns import Discipline
from daemon.core.types import NodeName
from daemon.sim.ground import GapGround, Ground, ModelGround
from daemon.sim.harvest import Harvester
from daemon.sim.report import figures
from daemon.sim.rivals import Rival, Scheme
from daemon.sim.run import Outcome, play
from daemon.sim.site import Site
from daemon.sim.supply import Mix, Supply
from daemon.sim.workload import Samples, Trace, TraceError, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is simulated, and how."""

    scheme: Scheme = Scheme.STOPGAP
    discipline: Discipline = Discipline.EASY
    pass_per_event: bool = True
    site: Site = field(default_factory=Site)
    mix: Mix = field(default_factory=Mix)
    #: Low-priority jobs of a file, instead of the mix.
    jobs: Path | None = None
    pilot_seconds: float = 1800.0
    seed: int = 1
    #: Show the controller everything at each look.
    whole: bool = False


def simulate(
    trace: Trace, plan: Plan, progress: Callable[[float], None] | None = None
) -> tuple[Outcome, dict[str, Any]]:
    """
    Replay a trace, and return what was seen and its figures.

    Args:
        progress: called now and then with the part of the trace that is done, 0 to 1.

    Raises:
        TraceError: the low-priority jobs cannot be used.
    """
    began = time.process_time()
    cores = trace.cores_per_node
    site = replace(plan.site, cores_per_node=cores)
    held: dict[NodeName, Any] = {}
    ground = _ground(trace, plan, held)
    supply = _supply(plan, ground, cores)
    _check(supply, site)
    filler: Harvester | Rival | None = None
    if plan.scheme is Scheme.STOPGAP:
        filler = Harvester(
            ground.names,
            site=site,
            supply=supply,
            begin=ground.begin,
            held=held,
            whole=plan.whole,
        )
    elif plan.scheme is not Scheme.NONE:
        filler = Rival(
            ground.names,
            scheme=plan.scheme,
            site=site,
            supply=supply,
            begin=ground.begin,
            held=held,
            pilot_seconds=plan.pilot_seconds,
        )
    all_idle = isinstance(trace, Workload)
    if all_idle and filler is not None:
        filler.open()
    outcome = play(ground, filler, all_idle=all_idle, progress=_scaled(trace, progress))
    found = figures(
        outcome,
        costs=site.costs,
        smallest_mib=min(size.memory_mib for size in supply.sizes),
        cores_per_node=cores,
    )
    return outcome, found | {"cpu_seconds": time.process_time() - began}


def _ground(trace: Trace, plan: Plan, held: dict[NodeName, Any]) -> Ground:
    if isinstance(trace, Samples):
        return GapGround(trace, held=held)
    return ModelGround(
        trace, held=held, discipline=plan.discipline, pass_per_event=plan.pass_per_event
    )


def _supply(plan: Plan, ground: Ground, cores: int) -> Supply:
    if plan.jobs is not None:
        return Supply.of_file(plan.jobs, begin=ground.begin)
    mix = replace(plan.mix, cpus=plan.mix.cpus or cores)
    return Supply.endless(mix, begin=ground.begin, nodes=len(ground.names), seed=plan.seed)


def _check(supply: Supply, site: Site) -> None:
    """
    Refuse jobs that no node could ever take: they would wait for ever, and others behind them.

    Raises:
        TraceError: there is one.
    """
    cpus = site.cores_per_node - site.policy.reserve_cpus
    memory = site.memory_mib - site.policy.reserve_memory_mib
    for size in supply.sizes:
        if size.cpus > cpus or size.memory_mib > memory:
            raise TraceError(
                f"a job of {size.cpus} cores and {size.memory_mib} MiB fits no node: jobs get "
                f"{cpus} cores and {memory} MiB; say --node-memory, or other jobs"
            )


def _scaled(
    trace: Trace, progress: Callable[[float], None] | None
) -> Callable[[float], None] | None:
    if progress is None:
        return None
    begin = trace.begin if isinstance(trace, Samples) else trace.jobs[0].submit
    end = trace.end if isinstance(trace, Samples) else trace.jobs[-1].submit
    return lambda now: progress(min(1.0, (now - begin) / max(end - begin, 1.0)))
