"""The Slurm adapter, on programs that print the cluster model, keeps what every one promises."""

from datetime import timedelta
from pathlib import Path

import pytest

from daemon.core.types import ClaimSource, NodeState
from tests.contract.adapter import AdapterContract, Bench
from tests.contract.shims_bench import ShimsBench

VERSIONS = ("22.05.8", "24.11.5")


@pytest.fixture(params=VERSIONS)
def shims(tmp_path: Path, request: pytest.FixtureRequest) -> ShimsBench:
    """Return four idle nodes under each of the captured versions."""
    return ShimsBench(tmp_path, request.param)


class TestShims(AdapterContract):
    """The suite on mock-Slurm's shims."""

    @pytest.fixture
    def bench(self, shims: ShimsBench) -> Bench:
        return shims


def test_a_reservation_to_come_is_a_claim_with_a_time(shims: ShimsBench) -> None:
    """
    Its node is idle until then.
    """
    node = shims.nodes[0]
    shims.adapter.look()
    shims.reserve(node, maintenance=False, after=1800)
    found = shims.until(lambda cluster: bool(cluster.nodes[node].claims))
    (claim,) = found.nodes[node].claims

    assert (ClaimSource.RESERVED, "reservation root_1") == (claim.source, claim.detail)
    assert NodeState.IDLE is found.nodes[node].state
    assert timedelta(minutes=29) < claim.at - found.taken < timedelta(minutes=31)
