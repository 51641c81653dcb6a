"""What the API needs from the daemon: one protocol, its caller, its refusal."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from daemon.api.schemas import (
    DrainView,
    GoneView,
    JobChange,
    JobDetail,
    JobRequest,
    JobView,
    NodeView,
    PanicView,
    ProbeView,
    SetupView,
    StatusView,
    VacateView,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who is at the other end, by the kernel's word."""

    uid: int
    gid: int
    pid: int
    #: The account's name, or its number where there is no account.
    name: str
    #: Of the account, not of the process: a job gets what its submitter's login has.
    groups: tuple[int, ...]
    is_admin: bool


class Refused(Exception):  # noqa: N818  it is an answer to a wish, not a fault
    """The wish is not granted and nothing was changed; ``hint`` says what to do about it."""

    def __init__(self, error: str, hint: str = "", status: int = 400) -> None:
        super().__init__(error)
        self.error = error
        self.hint = hint
        self.status = status


class Desk(Protocol):
    """
    The daemon as its callers see it.

    Everything sent has been validated by its schema.  Calls come from several threads at
    once.  Any method may raise Refused: 403 for what the caller may not do, 404 for what
    there is not (or is not his), 409 for what does not fit the present state, 503 for what
    cannot be asked now.
    """

    def submit(self, caller: Caller, request: JobRequest) -> JobDetail:
        """Enqueue a job."""

    def jobs(self, caller: Caller, *, all_users: bool, include_ended: bool) -> list[JobView]:
        """List jobs in order of submission: the caller's, or those of all users."""

    def job(self, caller: Caller, job: int) -> JobDetail:
        """Describe one job with its history."""

    def logs(self, caller: Caller, job: int, *, follow: bool) -> Iterator[bytes]:
        """
        Yield what the job printed in all of its segments, from the beginning.

        Refuses before the first item.  While following it yields b"" at least once a
        second when there is nothing new, so that a reader who went away is noticed; it
        ends when the job has.
        """

    def cancel(self, caller: Caller, job: int) -> JobChange:
        """Wish for the job to end; ``already_cancelled`` when that was wished before."""

    def hold(self, caller: Caller, job: int) -> JobChange:
        """Wish for the job not to run again; ``already_held`` when that was wished before."""

    def release(self, caller: Caller, job: int) -> JobChange:
        """Take a hold back; ``already_released`` when there was none."""

    def status(self) -> StatusView:
        """Sum the daemon's state up."""

    def nodes(self) -> list[NodeView]:
        """List the nodes in order of their names."""

    def drain(self, caller: Caller, node: str) -> DrainView:
        """Close the node to jobs; those that run there are evicted."""

    def undrain(self, caller: Caller, node: str) -> DrainView:
        """Open the node again."""

    def gone(self, caller: Caller, node: str) -> GoneView:
        """
        Take an administrator's word that the node is dead: its jobs go on elsewhere.

        Refuses with 409 where its engine answers.
        """

    def vacate(self, caller: Caller, node: str, seconds: float) -> VacateView:
        """Have the node emptied, kill what is left after that time, return when it is empty."""

    def panic(self, caller: Caller, nodes: Sequence[str]) -> list[PanicView]:
        """
        Take everything of ours off these nodes in seconds, and off all for none.

        They get no job until the panic is over, whatever becomes of the daemon.  One that is
        not proven empty is in the answer too.
        """

    def calm(self, caller: Caller, nodes: Sequence[str]) -> list[PanicView]:
        """Say that the panic is over on these nodes, and on all for none."""

    def setup(self, caller: Caller, node: str, *, dry_run: bool) -> SetupView:
        """Place the shim on the node and register it, or tell what would be done."""

    def probe(self, caller: Caller, node: str) -> ProbeView:
        """Run the canary on the node."""

    def hook(self, node: str, body: bytes, signature: str) -> None:
        """
        Take a prolog's word that the node is wanted now.

        ``body`` is a well-formed PrologCall of that node, ``signature`` what stood in its
        header: unproven until the node's key says so.  Refuses with 401 what is not signed
        by it and with 409 what is too old.  A prolog repeats the same call until it hears
        that it was accepted, so a repetition is accepted again and changes nothing.
        """
