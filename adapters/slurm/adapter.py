"""Slurm as a batch system: asks, has the answers parsed, and puts them together."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from adapters import commands
from adapters.base import AdapterError, Capabilities, UnreachableError
from adapters.partial import LastJobs, pictured
from adapters.slurm import examine, parse, words
from adapters.slurm.picture import draw
from daemon.clock import Clock
from daemon.core.types import Cluster

#: Reservations that are to come are asked for every so many looks; Slurm flags the nodes of
#: those that are on.
_RESERVATION_LOOKS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSettings:
    """How to reach Slurm."""

    #: Where scontrol and squeue are; empty is the usual places.
    bin_dir: str = ""
    #: SLURM_CONF; empty is Slurm's own default.
    conf: str = ""
    timeout_seconds: float = 10.0
    #: For the findings only.
    hook_seconds: float = 60.0
    hook_path: str = ""


class SlurmAdapter:
    """Slurm, through two commands per look."""

    def __init__(self, settings: SlurmSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._version = ""
        self._jobs = LastJobs[parse.JobRecord]()
        self._reservations: tuple[parse.ReservationRecord, ...] = ()
        #: How many until they are asked for again.
        self._looks = 0

    @property
    def name(self) -> str:
        return "slurm"

    @property
    def version(self) -> str:
        return self._version

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(predicts_start_times=True, lists_reservations=True)

    def look(self) -> Cluster:
        """
        Return every node that Slurm knows, with the claims on it.

        Without the jobs the answer is partial: the claims of those that were known last.

        Raises:
            UnreachableError: nothing could be learnt; keep the previous picture.
            UnparsableError: the answer made no sense.
        """
        self._learn_version()
        # The answer is as old as the question: a prolog may run in between.
        taken = self._clock.now()
        nodes = parse.parse_nodes(self._ask(parse.NODES))
        if not nodes:
            raise UnreachableError("scontrol lists no nodes")
        trouble = ""
        try:
            self._learn_more(nodes, taken)
        except AdapterError as exc:
            trouble = str(exc)
        drawn = draw(nodes, self._jobs.listed, taken, self._reservations)
        return pictured(drawn, taken, trouble)

    def _learn_more(self, nodes: Iterable[parse.NodeRecord], taken: datetime) -> None:
        """Ask for the jobs, or now and then for the reservations that are to come."""
        stand_in = self._jobs.stand_in(taken)
        if self._looks == 0 and stand_in and self._is_told(nodes):
            self._reservations = parse.parse_reservations(self._ask(parse.RESERVATIONS))
            self._looks = _RESERVATION_LOOKS
        else:
            self._jobs.learn(parse.parse_jobs(self._ask(parse.JOBS)), taken)
            self._looks = max(self._looks - 1, 0)

    def _is_told(self, nodes: Iterable[parse.NodeRecord]) -> bool:
        """Tell whether it is known whom planned nodes are for, and when: only the jobs tell."""
        known = {node for job in self._jobs.listed for node in job.planned}
        return all(node.name in known for node in nodes if words.PLANNED in node.words.split("+"))

    def findings(self) -> tuple[str, ...]:
        """
        Return what in Slurm's configuration an administrator should change.

        Raises:
            UnreachableError: Slurm did not answer.
            UnparsableError: its version made no sense.
        """
        self._learn_version()
        site = examine.Site(
            version=self._version,
            uid=os.geteuid(),
            hook_seconds=self._settings.hook_seconds,
            hook_path=self._settings.hook_path,
        )
        return examine.findings(parse.parse_config(self._ask(parse.CONFIG)), site)

    def _learn_version(self) -> None:
        """Ask once: this does not go to the controller, so it is not part of the load."""
        if not self._version:
            self._version = parse.parse_version(self._ask(parse.VERSION))

    def _ask(self, argv: Sequence[str]) -> str:
        # Moments as seconds, so that no time zone has a say.
        env = {"SLURM_TIME_FORMAT": "%s"}
        if self._settings.conf:
            env["SLURM_CONF"] = self._settings.conf
        try:
            answer = commands.run(
                argv,
                timeout_seconds=self._settings.timeout_seconds,
                bin_dir=self._settings.bin_dir,
                env=env,
            )
        except commands.CommandError as exc:
            raise UnreachableError(str(exc)) from exc
        # Exit codes alone are not to be trusted: some failures end with 0 and a message.
        if answer.code != 0 or answer.err.strip():
            said = answer.err.strip() or answer.out.strip()[:200] or "nothing"
            told = f"{argv[0]} exited with {answer.code} and said: {said}"
            raise UnreachableError(told)
        return answer.out
