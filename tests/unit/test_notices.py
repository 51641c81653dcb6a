"""Claims of hooks and administrators: which of them stand."""

import threading
from datetime import timedelta

from daemon.core.types import Claim, ClaimSource, NodeName
from daemon.looks.notices import Notices
from tests.contract.clock import START

N1 = NodeName("n1")


def _claim(source: ClaimSource, seconds: float) -> Claim:
    deadline = START + timedelta(seconds=seconds)
    return Claim(node=N1, source=source, at=START, deadline=deadline)


def test_a_person_does_not_give_a_prolog_more_time() -> None:
    """
    Claims of two sources stand side by side; the newest of each source counts.
    """
    notices = Notices(linger=timedelta(), lock=threading.RLock())
    notices.take(_claim(ClaimSource.PROLOG, 600))
    notices.take(_claim(ClaimSource.PROLOG, 10))
    notices.take(_claim(ClaimSource.OPERATOR, 3600))
    standing = notices.standing(held={N1}, cluster=None, now=START)

    assert {(ClaimSource.PROLOG, 10.0), (ClaimSource.OPERATOR, 3600.0)} == {
        (claim.source, (claim.deadline - START).total_seconds())
        for claim in standing
        if claim.deadline is not None
    }
    assert notices.claims(N1)
    assert not notices.claims(NodeName("n2"))
