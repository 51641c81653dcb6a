"""The configuration's values in the words of the parts that they are for."""

from datetime import timedelta
from pathlib import Path

from adapters import registry
from daemon import config_rules as rules
from daemon.clock import Clock
from daemon.config import Config, MockSection, PbsSection
from daemon.core.policy import Policy
from migration.access import Access
from migration.settings import EngineSettings, ImageSource, NodeSettings
from migration.stores.base import Store
from migration.stores.carrying import Carrier
from migration.stores.ledger import Ledger
from migration.stores.pace import Pace
from migration.stores.shared import SharedStore
from migration.stores.streamed import StreamedStore


def policy_of(config: Config) -> Policy:
    """Return the knobs of the decisions."""
    knobs = config.policy
    return Policy(
        shadow=knobs.shadow,
        vacate=timedelta(seconds=knobs.vacate_seconds),
        horizon=timedelta(seconds=knobs.claim_horizon_seconds),
        # Looks come a poll apart, so a claim must be met at least that much ahead.
        ahead=timedelta(seconds=config.batch.poll_seconds),
        stale=timedelta(seconds=knobs.stale_seconds),
        unknown_grace=timedelta(seconds=knobs.unknown_grace_seconds),
        silence=timedelta(seconds=config.engine.timeout_seconds),
        leave_idle=knobs.leave_idle,
        hours=tuple(rules.minutes(hours) for hours in config.nodes.hours),
        max_jobs_per_node=config.jobs.max_per_node,
        reserve_cpus=knobs.reserve_cpus,
        reserve_memory_mib=knobs.reserve_memory_mib,
        trial=timedelta(seconds=knobs.trial_seconds),
        checkpoint_min=timedelta(seconds=knobs.checkpoint_min_seconds),
        checkpoint_max=timedelta(seconds=knobs.checkpoint_max_seconds),
        node_mtbf=timedelta(hours=knobs.node_mtbf_hours),
        saves_at_once=knobs.saves_at_once,
        max_stored=_bytes(config.checkpoints.max_total_gib),
        max_stored_by_user=_bytes(config.checkpoints.max_per_user_gib),
        sigill=timedelta(seconds=knobs.sigill_seconds),
    )


def _bytes(gib: float) -> int | None:
    return int(gib * 2**30) if gib else None


def batch_settings(config: Config) -> registry.Settings:
    """Return how the batch system is reached."""
    batch = config.batch
    if isinstance(batch, MockSection):
        return registry.MockSettings(
            nodes=batch.nodes, cpus=batch.cpus, memory_mib=batch.memory_mib
        )
    if isinstance(batch, PbsSection):
        return registry.PbsSettings(
            bin_dir=batch.bin_dir,
            conf=batch.conf,
            server=batch.server,
            timeout_seconds=batch.timeout_seconds,
            mom_config=batch.mom_config,
        )
    where = config.nodes.install_dir
    return registry.SlurmSettings(
        bin_dir=batch.bin_dir,
        conf=batch.conf,
        timeout_seconds=batch.timeout_seconds,
        hook_seconds=config.nodes.hook_seconds,
        hook_path="" if "{node}" in where else f"{where}/prolog",
    )


def engine_settings(config: Config) -> EngineSettings:
    """Return how engines are reached."""
    return EngineSettings(
        address=config.engine.address,
        timeout_seconds=config.engine.timeout_seconds,
        resume_seconds=config.engine.resume_seconds,
        images=ImageSource(config.engine.fetch_images),
    )


def node_settings(config: Config) -> NodeSettings:
    """Return where things are on the nodes."""
    return NodeSettings(
        install_dir=config.nodes.install_dir,
        daemon_json=config.engine.daemon_json,
        pidfile=config.engine.pidfile,
        path=config.nodes.path,
        checkpoints=config.checkpoints.root,
        own_checkpoints=config.checkpoints.store == "streamed",
        checkpoint_seconds=config.engine.checkpoint_seconds,
        resume_seconds=config.engine.resume_seconds,
        compress=config.checkpoints.compress,
        compress_level=config.checkpoints.compress_level,
        scratch_dir=config.nodes.scratch_dir,
        hook_url=config.nodes.hook_url,
        hook_seconds=config.nodes.hook_seconds,
        hook_unreachable_seconds=config.nodes.hook_unreachable_seconds,
    )


def stream_pace(config: Config, clock: Clock) -> Pace:
    """Return the bound that all streams share."""
    return Pace(clock, config.checkpoints.stream_mib_per_second)


def checkpoint_store(
    config: Config, access: Access, site_key: bytes, pace: Pace, clock: Clock
) -> Store:
    """
    Return the store of the checkpoints, ready for use.

    Raises:
        OSError: its directory cannot be used, or is another installation's.
        ValueError: what was written down about it cannot be read.
    """
    section, state = config.checkpoints, config.daemon.state_dir
    if section.store == "shared":
        shared = SharedStore(Path(section.root), config.daemon.instance, site_key)
        shared.claim(state / "checkpoints.root")
        return shared
    ledger = Ledger(state / "ledger")
    ledger.open()
    carrier = Carrier(access, section.stream_packing, pace, clock)
    return StreamedStore(access, ledger, carrier, copies=section.copies)
