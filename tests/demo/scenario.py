"""The scenario: fill the idle nodes, take one after another away, compare what comes out."""

import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

from daemon.api.client import Client
from tests.demo import picture, report
from tests.demo.catalogue import COMPUTING_CORES, Program, catalogue, computation
from tests.demo.commands import finish, running
from tests.demo.compare import differences
from tests.demo.driver import next_claims, short_of
from tests.demo.leftovers import Leftovers
from tests.demo.picture import Picture
from tests.demo.priority import PriorityJobs
from tests.demo.references import References, Run
from tests.demo.report import Report
from tests.demo.view import View
from tests.demo.workplace import Workplace
from tests.testbed import Bed

_KIND = "stopgap"
#: How long each priority job keeps its node.
_HOLD_SECONDS = 3.0
#: The first one keeps its node until the others are filled.
_FIRST_HOLD_SECONDS = 10.0
_LOOK_SECONDS = 0.4
#: Far beyond everything that is to be expected.
_PATIENCE_SECONDS = 600.0
#: For the daemon to sweep what the last jobs have left.
_SWEEP_SECONDS = 30.0
_MEASURED = (1, 41)
#: Where the canaries of all nodes take so long side by side, moves are slower too, and programs
#: must last longer.  Found by trying; two cores that do nothing else need about 10 s.
_SLOW_PROBE_SECONDS = 30.0
_SLOWEST = 3.0


class DemoError(Exception):
    """The scenario cannot go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is done."""

    #: How often each job must move.
    moves: int = 3
    #: How long a program runs when nothing disturbs it; it must outlast its moves.
    seconds: float = 100.0
    #: The same for the one that only computes, if its threads had all their cores for themselves
    #: and never waited for each other.
    computing_seconds: float = 35.0


class Scenario:
    """One run on one bed that has just been started, without its daemon."""

    def __init__(self, bed: Bed, view: View, size: Size) -> None:
        self._bed = bed
        self._view = view
        self._size = size
        self._began = time.monotonic()
        self._client = Client(bed.layout.socket)
        self._place = Workplace(bed.data)
        self._references = References(bed, self._place)
        self._priority = PriorityJobs(bed)
        self._ids: dict[str, int] = {}
        self._last = Picture(jobs=(), nodes=(), priority=())

    def play(self) -> Report:
        """
        Play it from the start of the daemon to the last comparison.

        Raises:
            BedError, CommandError: a command failed that must not.
            DemoError: something did not come about in time.
            EndedTooSoonError: a program was not long enough for this machine.
        """
        programs = self._prepare()
        leftovers = Leftovers(self._bed)
        computing, *others = programs
        for program in others:
            self._references.start(program)
        self._fill(programs)
        self._evict(computing)
        # Not earlier: two of them would slow down what is measured.
        self._references.start(computing)
        self._wait_for_jobs()
        self._view.say("all jobs have ended; comparing them with runs that nothing disturbed")
        found = {program.name: self._differences(program) for program in (*others, computing)}
        return self._conclude(found, leftovers)

    # -- what comes before the first job ------------------------------------

    def _prepare(self) -> tuple[Program, ...]:
        bed, say = self._bed, self._view.say
        self._place.furnish()
        products = self._products()
        bed.start_daemon()
        self._set_nodes_up()
        say(f"stopgap is set up on {' '.join(bed.nodes)}")
        began = time.monotonic()
        self._watch_until(lambda: len(self._last.free) == len(bed.nodes), "all nodes to be fit")
        took = time.monotonic() - began
        say("all nodes are fit: a canary went on in three other containers on each")
        slowness = min(max(1.0, 0.6 + took / _SLOW_PROBE_SECONDS), _SLOWEST)
        return catalogue(seconds=self._size.seconds * slowness, products=products)

    def _products(self) -> int:
        """Size the program that only computes so that no machine like this one is faster."""
        few, many = (self._references.core_seconds(computation(n)) for n in _MEASURED)
        step = (many - few) / (_MEASURED[1] - _MEASURED[0])
        return round(self._size.computing_seconds * COMPUTING_CORES / step)

    def _set_nodes_up(self) -> None:
        """All of them side by side; one command takes its nodes one after another."""
        commands = [("stopgap", "node", "setup", node) for node in self._bed.nodes]
        with running(commands, self._bed.env) as children:
            for child in children:
                finish(child, seconds=_PATIENCE_SECONDS)

    def _fill(self, programs: tuple[Program, ...]) -> None:
        """One node is busy with a priority job: the jobs go to the others."""
        taken = self._bed.nodes[-1]
        self._priority.send(taken, seconds=_FIRST_HOLD_SECONDS)
        for program in programs:
            self._ids[program.name] = self._submit(program)
        self._view.say(f"{len(programs)} jobs are submitted; {taken} is busy with a priority job")
        self._watch_until(lambda: self._last.calm, "all jobs to run")

    def _submit(self, program: Program) -> int:
        argv = ["stopgap", "submit", "--json", "--name", program.name, "--image", program.image]
        argv += ["--cpus", str(program.cpus), "--mem", f"{program.memory_mib}M"]
        for mount in self._place.mounts(_KIND, program):
            argv += ["--mount", mount]
        for name, value in program.env:
            argv += ["--env", f"{name}={value}"]
        said = self._bed.run([*argv, "--", *program.argv])
        number: int = json.loads(said.stdout)["id"]
        return number

    # -- while they run -----------------------------------------------------

    def _evict(self, computing: Program) -> None:
        """Let priority jobs claim node after node until every job has moved often enough."""
        moves, claims = self._size.moves, 0
        moved: frozenset[int] = frozenset()
        hasty = frozenset({self._ids[computing.name]})
        end = time.monotonic() + _PATIENCE_SECONDS
        while short_of(self._last, moves):
            if time.monotonic() > end:
                raise self._waited_for(f"{moves} moves of every job")
            nodes = next_claims(
                self._last, moves=moves, claims=claims, just_moved=moved, hasty=hasty
            )
            if nodes:
                claims += 1
                held = {node.name: node.jobs for node in self._last.nodes}
                moved = frozenset(job for node in nodes for job in held[node])
                sent = [self._priority.send(node, seconds=_HOLD_SECONDS) for node in nodes]
                numbers = " and ".join(f"{job.number} on {job.node}" for job in sent)
                self._view.say(f"sbatch: priority job {numbers}")
            self._watch()

    def _wait_for_jobs(self) -> None:
        """What came of them is for the checks to say."""
        argv = ["stopgap", "wait", *map(str, self._ids.values())]
        with running([argv], self._bed.env) as (waiting,):
            self._watch_until(lambda: waiting.poll() is not None, "the end of all jobs")

    def _watch(self) -> None:
        time.sleep(_LOOK_SECONDS)
        now = picture.look(self._client, self._priority)
        for line in picture.changes(self._client, self._last, now):
            self._view.say(line)
        self._last = now
        self._view.show(now, _speed(self._client.status()))

    def _watch_until(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + _PATIENCE_SECONDS
        self._watch()
        while not condition():
            if time.monotonic() > end:
                raise self._waited_for(what)
            self._watch()

    def _waited_for(self, what: str) -> DemoError:
        jobs = (f"{j.name} {j.state} {j.node or '-'}: {j.reason}" for j in self._last.jobs)
        nodes = (f"{n.name} {n.words}: {n.reason or 'free'}" for n in self._last.nodes)
        stand = "; ".join([*jobs, *nodes])
        return DemoError(f"waited {_PATIENCE_SECONDS:g} s for {what}: {stand}")

    # -- what came out ------------------------------------------------------

    def _differences(self, program: Program) -> list[str]:
        number = self._ids[program.name]
        job = next(job for job in self._last.jobs if job.id == number)
        run = Run(
            log=self._log(number),
            folder=self._place.folder(_KIND, program),
            exit_code=-1 if job.exit_code is None else job.exit_code,
        )
        reference = self._references.collect(program, seconds=_PATIENCE_SECONDS)
        found = differences(program, reference, run)
        verdict = "differs" if found else f"identical ({len(run.log)} bytes of log)"
        self._view.say(f"{program.name}: {verdict} after {job.migrations} moves")
        return found

    def _log(self, number: int) -> bytes:
        argv = ["stopgap", "logs", str(number)]
        done = subprocess.run(
            argv, capture_output=True, env=self._bed.env, timeout=120, check=False
        )
        if done.returncode:
            raise DemoError(f"stopgap logs {number}: {done.stderr.decode().strip()}")
        return done.stdout

    def _conclude(self, found: dict[str, list[str]], leftovers: Leftovers) -> Report:
        end = time.monotonic() + _SWEEP_SECONDS
        while True:
            containers, others = leftovers.containers(), leftovers.others()
            if not (containers or others) or time.monotonic() > end:
                break
            time.sleep(_LOOK_SECONDS)
        self._watch()
        jobs, priority = self._last.jobs, self._last.priority
        status = json.loads(self._bed.run(["stopgap", "status", "--json"]).stdout)
        return Report(
            jobs=jobs,
            priority=priority,
            status=status,
            real=self._versions(status["batch_version"]),
            differences=found,
            containers_left=len(containers),
            seconds=time.monotonic() - self._began,
            faults=report.faults(jobs, priority, [*containers, *others], moves=self._size.moves),
        )

    def _versions(self, slurm: str) -> dict[str, str]:
        docker = self._bed.docker(self._bed.nodes[0], "version", "--format", "{{.Server.Version}}")
        criu = self._bed.run(["criu", "--version"]).stdout.split()
        return {"slurm": slurm, "docker": docker, "criu": criu[1] if len(criu) > 1 else ""}


def _speed(status: dict[str, object]) -> str:
    evictions = status["evictions"]
    if not isinstance(evictions, dict):
        return ""
    return (
        f"{evictions['count']} evictions: a job was frozen {_figures(evictions['freeze_seconds'])} "
        f"after its node's claim was seen, and its node rid of it "
        f"{_figures(evictions['vacate_seconds'])} after that was decided"
    )


def _figures(figures: dict[str, float]) -> str:
    return f"{figures['p50']:.2f} s (at most {figures['max']:.2f} s)"
