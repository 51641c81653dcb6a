"""PBS's parser on bytes that no PBS ever printed."""

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapters.base import UnparsableError
from adapters.pbs.parse import (
    JobRecord,
    VnodeRecord,
    parse_jobs,
    parse_nodes,
    parse_reservations,
)
from adapters.pbs.picture import draw
from adapters.pbs.site import parse_hooks, parse_mom, parse_server, parse_version
from adapters.pbs.words import WORDS, judge
from daemon.core.types import NodeState
from tests.property.mutated import mutations
from tests.unit.captured import DATA, decoded

TAKEN = datetime(2026, 12, 1, tzinfo=UTC)
NODES = (DATA / "openpbs-23.06.06-master-cd7ab5e/14-vnodes/pbsnodes_av_dsv.out").read_bytes()
MANGLED = (DATA / "openpbs-23.06.06/08-down/pbsnodes_a_dsv.out").read_bytes()
JOBS = (DATA / "openpbs-23.06.06/03-priority-pending/qstat_f_dsv.out").read_bytes()
FILLINGS = (
    *(b"\n", b"\nName=n1|state=free", b"|state=free", b"^\nJob Id: 1.x|"),
    *(b"|", b"\\", b"^\n"),
)


@given(
    mutations(NODES, *FILLINGS) | mutations(MANGLED, *FILLINGS),
    mutations(JOBS, *FILLINGS),
)
@example(NODES, JOBS)
@example(MANGLED, JOBS)
@example(NODES + NODES, JOBS + JOBS)
def test_any_bytes_are_understood_or_refused(nodes: bytes, jobs: bytes) -> None:
    """
    The parser raises one error only, and takes no host for idle that is not in all its parts.
    """
    records: tuple[VnodeRecord, ...] = ()
    queue: tuple[JobRecord, ...] = ()
    with contextlib.suppress(UnparsableError):
        records = parse_nodes(decoded(nodes))
    with contextlib.suppress(UnparsableError):
        queue = parse_jobs(decoded(jobs))
    held = {vnode for job in queue if job.state in "RS" for vnode in job.vnodes}
    for host, node in draw(records, queue, {}, TAKEN).items():
        own = [record for record in records if record.host == host]
        assert [c.at for c in node.claims] == sorted(c.at for c in node.claims)
        if node.state is NodeState.IDLE:
            assert {"free"} == {record.state for record in own}
            assert not any(record.jobs or record.assigned or record.reservations for record in own)
            assert held.isdisjoint({host, *(record.name for record in own)})


@given(st.lists(st.sampled_from([*WORDS, "new", "", "<various>"]), min_size=1, max_size=3))
def test_idle_is_a_whitelist(found: list[str]) -> None:
    """
    Of all combinations of words only "free", however often, is idle.
    """
    assert (set(found) == {"free"}) == (judge([",".join(found)], held=False) is NodeState.IDLE)
    assert judge([",".join(found)], held=True) is not NodeState.IDLE


@given(st.text(max_size=200))
def test_small_answers_are_understood_or_refused(text: str) -> None:
    """
    Versions, reservations and configurations too.
    """
    parse_server(text)
    parse_hooks(text)
    parse_mom(text)
    with contextlib.suppress(UnparsableError):
        assert parse_version(text)
    with contextlib.suppress(UnparsableError):
        parse_reservations(text)


@given(st.text(alphabet="\\|=^,'\"ax\udcca\n\x1c", max_size=40))
def test_a_users_text_hides_no_job(text: str) -> None:
    """
    A value is printed as qstat does, its newline-like bytes as OpenPBS 23.06.06 does.
    """
    escaped = text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", "\\n")
    printed = escaped.replace("\udcca", "^\n").replace("\x1c", "^\\")
    line = f"Job Id: 7.vm|job_state=S|Account_Name={printed}|exec_host=n1/0|exec_vnode=(n1:ncpus=1)"

    records = parse_jobs(f"{line}|Submit_Host=vm\nJob Id: 8.vm|job_state=Q|Submit_Host=vm\n")
    assert {"7.vm", "8.vm"} <= {record.id for record in records}
    assert ("n1",) in {record.vnodes for record in records if record.id == "7.vm"}


@pytest.mark.parametrize("parse", [parse_nodes, parse_jobs])
def test_every_cut_is_noticed(parse: Callable[[str], object]) -> None:
    """
    An answer that ends in the middle of a line is refused, wherever that is.
    """
    text = decoded(NODES if parse is parse_nodes else JOBS)
    for end in range(1, len(text), 7):
        if text[end - 1] != "\n":
            with pytest.raises(UnparsableError):
                parse(text[:end])
