"""PBS as a batch system: asks, has the answers parsed, and puts them together."""

import os
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from adapters import commands
from adapters.base import AdapterError, Capabilities, UnreachableError
from adapters.partial import LastJobs, pictured
from adapters.pbs import examine, parse, site
from adapters.pbs.picture import draw
from daemon.clock import Clock
from daemon.core.types import Cluster

#: Reservations can be moved: after so many looks they are asked for again.
_RESERVATION_LOOKS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class PbsSettings:
    """How to reach PBS."""

    #: Where pbsnodes, qstat and pbs_rstat are; empty is the usual places for programs.
    bin_dir: str = "/opt/pbs/bin"
    #: PBS_CONF_FILE; empty is PBS's own default.
    conf: str = ""
    #: PBS_SERVER; empty is the one of that file.
    server: str = ""
    timeout_seconds: float = 10.0
    #: For the findings only: a MoM's configuration; a file that is not there says nothing.
    mom_config: str = ""


class PbsAdapter:
    """PBS, through two commands per look."""

    def __init__(self, settings: PbsSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._version = ""
        self._jobs = LastJobs[parse.JobRecord]()
        self._reservations: Mapping[str, datetime] = {}
        #: Jobs that nodes told of and qstat did not, in the last look.
        self._missing: AbstractSet[str] = frozenset()
        #: Why the list of jobs is not to be trusted; empty when it is.
        self._hidden = ""
        #: The names that were asked for, and how many looks ago.
        self._named: AbstractSet[str] = frozenset()
        self._looks = 0

    @property
    def name(self) -> str:
        return "pbs"

    @property
    def version(self) -> str:
        return self._version

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(predicts_start_times=True, lists_reservations=True)

    def look(self) -> Cluster:
        """
        Return every host that PBS knows, with the claims on it.

        Without the jobs the answer is partial: the claims of those that were known last.

        Raises:
            UnreachableError: nothing could be learnt; keep the previous picture.
            UnparsableError: the answer made no sense, or it is not PBS.
        """
        self._learn_version()
        # The answer is as old as the question: a job may start in between.
        taken = self._clock.now()
        vnodes = parse.parse_nodes(self._ask(parse.NODES))
        if not vnodes:
            raise UnreachableError("pbsnodes lists no nodes")
        named = frozenset(name for vnode in vnodes for name in vnode.reservations)
        try:
            trouble = self._learn_more(vnodes, named, taken)
        except AdapterError as exc:
            trouble = str(exc)
        drawn = draw(vnodes, self._jobs.listed, self._reservations, taken)
        return pictured(drawn, taken, trouble)

    def _learn_more(
        self, vnodes: Iterable[parse.VnodeRecord], named: AbstractSet[str], taken: datetime
    ) -> str:
        """Ask for the jobs, or now and then for the reservations; return what is missing."""
        stand_in = self._jobs.stand_in(taken)
        if self._is_due(named) and stand_in:
            self._reservations = parse.parse_reservations(self._ask(parse.RESERVATIONS))
            self._named, self._looks = named, 0
        else:
            self._jobs.learn(parse.parse_jobs(self._ask(parse.JOBS)), taken)
            self._looks += 1
            self._doubt({job for vnode in vnodes for job in vnode.jobs})
        return self._hidden

    def _doubt(self, running: AbstractSet[str]) -> None:
        """
        Find out whether qstat hides jobs that their nodes tell of.

        Both answers come from one server, a moment apart: a job that is missing twice was
        not just started.  Of hidden jobs that are suspended nothing at all is seen, so what
        was found out once holds until running jobs are listed again.
        """
        missing = running - {job.id for job in self._jobs.listed}
        hidden, self._missing = missing & self._missing, missing
        if hidden:
            few = ", ".join(sorted(hidden)[:5])
            self._hidden = f"qstat hides jobs that run ({few}): see query_other_jobs"
        elif running and not missing:
            self._hidden = ""

    def _is_due(self, named: AbstractSet[str]) -> bool:
        return not named <= self._named or (bool(named) and self._looks >= _RESERVATION_LOOKS)

    def findings(self) -> tuple[str, ...]:
        """
        Return what in PBS's configuration an administrator should change.

        Raises:
            UnreachableError: PBS did not answer.
            UnparsableError: its version made no sense, or it is not PBS.
        """
        self._learn_version()
        server = site.parse_server(self._ask(site.SERVER))
        try:
            hooks, hooks_trouble = site.parse_hooks(self._ask(site.HOOKS)), ""
        except UnreachableError as exc:
            hooks, hooks_trouble = {}, str(exc)
        asked = examine.Asked(
            version=self._version,
            uid=os.geteuid(),
            host=os.uname().nodename,
            server=server,
            hooks=hooks,
            hooks_trouble=hooks_trouble,
            mom=self._mom(),
            mom_path=self._settings.mom_config,
        )
        return examine.findings(asked)

    def _mom(self) -> Mapping[str, str]:
        try:
            text = Path(self._settings.mom_config or "/dev/null").read_text(errors="replace")
        except OSError:
            return {}
        return site.parse_mom(text)

    def _learn_version(self) -> None:
        """Ask once: this does not go to the server, so it is not part of the load."""
        if not self._version:
            answer = self._run(site.VERSION)
            # Torque says who it is on stderr.
            self._version = site.parse_version(answer.out + answer.err)

    def _ask(self, argv: Sequence[str]) -> str:
        answer = self._run(argv)
        # A dead server may leave a valid answer without jobs on stdout.
        if answer.code != 0 or answer.err.strip():
            said = " ".join(answer.err.split()) or answer.out.strip()[:200] or "nothing"
            told = f"{argv[0]} exited with {answer.code} and said: {said}"
            raise UnreachableError(told)
        return answer.out

    def _run(self, argv: Sequence[str]) -> commands.Answer:
        env = {"PBS_CONF_FILE": self._settings.conf, "PBS_SERVER": self._settings.server}
        try:
            return commands.run(
                argv,
                timeout_seconds=self._settings.timeout_seconds,
                bin_dir=self._settings.bin_dir,
                env={key: value for key, value in env.items() if value},
            )
        except commands.CommandError as exc:
            raise UnreachableError(str(exc)) from exc
