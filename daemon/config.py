"""The configuration: frozen values with no spare keys, read from one TOML file.

Every key has its unit in its name, a default, and below it the reason.  All problems
of a file are reported at once.  Nothing here looks at the machine.
"""

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Strict,
    Tag,
)

from daemon import config_rules as rules

DEFAULT_PATH = Path("/etc/stopgap/config.toml")
DEFAULT_SOCKET = Path("/run/stopgap/stopgap.sock")

_File = Annotated[Path, Strict(strict=False), AfterValidator(rules.absolute_path)]
_Text = Annotated[str, AfterValidator(rules.one_line)]
_Template = Annotated[str, AfterValidator(rules.template)]
_FileTemplate = Annotated[str, AfterValidator(rules.file_template)]
_Words = Annotated[tuple[_Text, ...], Strict(strict=False)]
_Hours = Annotated[tuple[Annotated[str, AfterValidator(rules.hours)], ...], Strict(strict=False)]
_Mounts = Annotated[
    tuple[Annotated[str, AfterValidator(rules.mount_prefix)], ...], Strict(strict=False)
]


class ConfigError(Exception):
    """The file cannot be used; ``problems`` has one line for each reason."""

    def __init__(self, path: Path, problems: tuple[str, ...]) -> None:
        self.path = path
        self.problems = problems
        lines = "".join(f"\n  {problem}" for problem in problems)
        super().__init__(f"{path} is not usable:{lines}")


class _Section(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )


class DaemonSection(_Section):
    """The daemon itself."""

    instance: Annotated[str, AfterValidator(rules.instance)] = "stopgap"
    """Name of this installation.  It labels containers and cgroups, so two installations
    that share nodes never touch each other's jobs."""
    state_dir: _File = Path("/var/lib/stopgap")
    """Where the database and the keys lie.  Root-only; one daemon per directory."""
    socket: _File = DEFAULT_SOCKET
    """The unix socket of the API.  Open to everybody: who calls is what the kernel says."""
    hook_listen: Annotated[str, AfterValidator(rules.listen_address)] = "127.0.0.1:6819"
    """host:port at which the nodes' prolog hooks reach the daemon; "" is no listener.
    Loopback until a site decides otherwise, because it is the only door to the network."""
    admin_group: _Text = "root"
    """Members (and root) may act on the jobs of others and on nodes."""
    history_days: PositiveFloat = 90.0
    """Days after its end for which a job's events are kept, and a running job's events about
    its checkpoints.  Jobs, segments and logs are kept for ever."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least important event that is logged.  info is one line per tick and action."""


class _BatchSection(_Section):
    poll_seconds: PositiveFloat = 15.0
    """Seconds between two looks.  A claim is seen at most this late; a controller
    notices two commands every 15 s as little as one user's watch squeue."""
    timeout_seconds: PositiveFloat = 10.0
    """Seconds after which a command of the batch system counts as unanswered."""


class SlurmSection(_BatchSection):
    """Slurm, through its own commands."""

    kind: Literal["slurm"] = "slurm"
    """Which batch system owns the nodes: "slurm" or "pbs", or "mock" for trying things out."""
    bin_dir: Annotated[str, AfterValidator(rules.optional_path)] = ""
    """Where sinfo, scontrol and squeue are; "" is the daemon's PATH."""
    conf: Annotated[str, AfterValidator(rules.optional_path)] = ""
    """SLURM_CONF for these commands; "" is Slurm's own default."""


class PbsSection(_BatchSection):
    """OpenPBS or PBS Pro, through their own commands."""

    kind: Literal["pbs"]
    """No default: without a word about it, the batch system is Slurm."""
    bin_dir: Annotated[str, AfterValidator(rules.optional_path)] = "/opt/pbs/bin"
    """Where pbsnodes, qstat and pbs_rstat are; "" is the daemon's PATH."""
    conf: Annotated[str, AfterValidator(rules.optional_path)] = ""
    """PBS_CONF_FILE for these commands; "" is PBS's own default."""
    server: _Text = ""
    """PBS_SERVER for these commands; "" is the server that the file names."""
    mom_config: Annotated[str, AfterValidator(rules.optional_path)] = (
        "/var/spool/pbs/mom_priv/config"
    )
    """A MoM's configuration as the nodes have it, for "config check" alone: no command tells
    what is in it.  Where there is no such file nothing is said about it."""


class MockSection(_BatchSection):
    """The deterministic cluster model, for trying things out without a batch system."""

    kind: Literal["mock"]
    """No default: without a word about it, the batch system is a real one."""
    nodes: PositiveInt = 4
    """How many nodes the model has."""
    cpus: PositiveInt = 8
    """Cores of each of them."""
    memory_mib: PositiveInt = 16384
    """MiB of memory of each of them."""


def _kind(batch: object) -> object:
    return batch.get("kind", "slurm") if isinstance(batch, dict) else getattr(batch, "kind", None)


BatchSection = Annotated[
    Annotated[SlurmSection, Tag("slurm")]
    | Annotated[PbsSection, Tag("pbs")]
    | Annotated[MockSection, Tag("mock")],
    Discriminator(
        _kind,
        custom_error_type="kind",
        custom_error_message='must be a table whose kind is "slurm", "pbs" or "mock"',
    ),
]


class EngineSection(_Section):
    """The Docker engines of the nodes.  {node} stands for the node's name."""

    address: Annotated[str, AfterValidator(rules.engine_address)] = "unix:///run/docker.sock"
    """How the daemon reaches a node's engine: unix://, ssh:// or tcp://.  The default
    is for one machine; a cluster wants ssh://{node} or tcp://{node}:2376."""
    timeout_seconds: PositiveFloat = 30.0
    """Seconds for an ordinary call.  Engines hang rather than fail, so all have one."""
    checkpoint_seconds: PositiveFloat = 600.0
    """Seconds for one checkpoint, kept by the shim.  Engines themselves never give up."""
    resume_seconds: PositiveFloat = 600.0
    """Seconds for one resume, kept by the shim: a broken image makes CRIU spin for ever."""
    poll_seconds: PositiveFloat = 5.0
    """Seconds between two looks at the containers of a node."""
    fetch_images: Literal["registry", "nodes", "nowhere"] = "registry"
    """From where a node gets the image of a job when it lacks it, as long as another node has
    it: by digest from the registry that it was pulled from, otherwise from that node; only
    from that node; or from nowhere."""
    daemon_json: _FileTemplate = "/etc/docker/daemon.json"
    """The engine's configuration on the node, in which the shim is registered."""
    pidfile: _FileTemplate = "/var/run/docker.pid"
    """The engine's pid file on the node: SIGHUP makes a new runtime known."""


class NodesSection(_Section):
    """The nodes, and what is placed on them."""

    install_dir: _FileTemplate = "/opt/stopgap"
    """Folder on the node for the shim, its configuration, keys and the prolog; {node} is
    replaced.  Local to the node: its keys are its own."""
    path: _Text = ""
    """PATH on the nodes in which runc, CRIU and tar are found; "" is the system's."""
    scratch_dir: _FileTemplate = "/var/lib/stopgap/scratch"
    """Folder on the node, root's alone, on a local disk or a tmpfs, with room for the memory
    of all its jobs: there images lie as CRIU reads and writes them while they are compressed."""
    include: _Words = ()
    """Host lists such as "n[01-64]" of the nodes that may be used; [] is all."""
    exclude: _Words = ()
    """Host lists of nodes that are never used; wins over include."""
    partitions: _Words = ()
    """Only nodes of these partitions are used; [] is all."""
    hours: _Hours = ()
    """Times of day at which nodes are filled, such as "20:00-06:00", by the clock of the
    daemon's host; [] is always.  At their end nothing is vacated: jobs run on."""
    hook_seconds: PositiveFloat = 60.0
    """Seconds that a prolog gives the jobs of its node before it kills them.  Must stay
    well below Slurm's PrologEpilogTimeout, which drains the node."""
    hook_unreachable_seconds: PositiveFloat = 10.0
    """The same, when the daemon does not answer: nobody will save the jobs then."""
    hook_url: Annotated[str, AfterValidator(rules.hook_url)] = ""
    """How nodes reach hook_listen, for example "http://10.0.0.1:6819"; "" is nobody to
    tell, and prologs then kill after hook_unreachable_seconds."""


class CheckpointsSection(_Section):
    """Where checkpoints are kept."""

    store: Literal["shared", "streamed"] = "shared"
    """Where they lie: in one directory that the daemon and all nodes share, or on a disk of
    each node, from where they are streamed to the node that needs them."""
    root: _FileTemplate = "/var/lib/stopgap/checkpoints"
    """Directory on a file system that all nodes share and root on them may write; with
    store = "streamed" one on each node's own disk, {node} being replaced.  Checkpoints are
    memory: nothing that jobs may mount can be at, above or below it."""
    copies: Annotated[PositiveInt, Field(le=3)] = 1
    """With store = "streamed": on how many nodes a periodic checkpoint is to lie.  With one, a
    node that is down keeps its jobs waiting; with two they go on from the other one."""
    stream_mib_per_second: NonNegativeFloat = 0.0
    """MiB that all streams together may take in a second; 0 is no bound."""
    stream_packing: Literal["none", "zstd", "gzip"] = "none"
    """How streams are packed: "zstd" where the source has it and the other's engine is 23 or
    newer, else as "gzip".  A core packs some 400 MiB/s with zstd and 30 with gzip, so it is
    worth it only on networks that are slower than that."""
    max_total_gib: NonNegativeFloat = 0.0
    """GiB that the checkpoints of all jobs may take; 0 is no limit.  Beyond it periodic
    checkpoints pause.  Evictions never fail because of it."""
    max_per_user_gib: NonNegativeFloat = 0.0
    """The same for the jobs of one user."""
    compress: Literal["none", "zstd"] = "none"
    """How memory is kept: "zstd" writes less to a slow root, by way of nodes.scratch_dir,
    and takes the node's processor for it while the job stands still."""
    compress_level: Annotated[int, Field(ge=1, le=19)] = 1
    """Level of zstd.  Higher ones take longer while somebody waits for the node."""


class JobsSection(_Section):
    """What users may ask for."""

    mounts: _Mounts = ()
    """Host directories that jobs may mount, with everything below; [] is none.  Shared
    file systems only, or a job misses its files on the next node."""
    allow_root: bool = False
    """Whether root's own jobs are accepted.  Root in a container is one mistake away from
    root on the node, so only for trying things out."""
    max_cpus: PositiveInt = 64
    """Most cores of one job.  More than any node has would wait for ever."""
    max_memory_mib: PositiveInt = 262144
    """Most MiB of memory of one job: what a checkpoint can have to write in a hurry."""
    max_per_node: PositiveInt = 64
    """Most jobs on one node at the same time: more make an eviction slow."""
    max_per_user: PositiveInt = 10000
    """Most jobs of one user that have not ended, against scripts that run wild."""


class PolicySection(_Section):
    """The knobs of the decisions."""

    shadow: bool = False
    """Whether to look and decide only: what would be started and evicted is logged and counted
    (stopgap status), no container is started.  Jobs that run already are looked after."""
    vacate_seconds: PositiveFloat = 60.0
    """Seconds between a claim that names no deadline and the moment when what is left on
    the node is killed."""
    idle_looks: PositiveInt = 1
    """Looks in a row that must find a node idle before it is used.  More than one spares
    a few evictions where the scheduler leaves nodes idle for a moment between two jobs,
    and costs one poll of every gap: stopgap simulate tells for a site."""
    leave_idle: NonNegativeInt = 0
    """Idle nodes that get no job of ours, so that a priority job starts there at once.  When
    fewer are idle nothing is vacated: no other node is filled."""
    reserve_cpus: NonNegativeInt = 0
    """Cores of every node that are left alone."""
    reserve_memory_mib: NonNegativeInt = 512
    """MiB of every node that are left to its system and engine."""
    stale_seconds: PositiveFloat = 60.0
    """Seconds after which an answer of the batch system is too old to start anything on."""
    unknown_grace_seconds: PositiveFloat = 300.0
    """Seconds that running jobs are kept while the batch system does not answer.  Longer
    than a restart of its controller, shorter than an outage nobody looks at."""
    claim_horizon_seconds: NonNegativeFloat = 120.0
    """A claim expected within this many seconds counts as one of now.  About twice what
    the slowest checkpoint takes."""
    linger_seconds: NonNegativeFloat = 60.0
    """Seconds that a node vacated for a claim is left alone after the claim went away:
    short priority jobs come in rows."""
    signal_grace_seconds: PositiveFloat = 30.0
    """Seconds between SIGTERM and SIGKILL for jobs that save themselves, as Slurm's
    KillWait."""
    trial_seconds: PositiveFloat = 30.0
    """Seconds after its first start at which a job is saved for trial, and goes on: its
    submitter learns soon whether it can be moved."""
    checkpoint_min_seconds: PositiveFloat = 300.0
    """Least seconds between two periodic checkpoints of a job, and the least that a
    submitter may ask for.  In between stopgap chooses by cost and losses (Young/Daly)."""
    checkpoint_max_seconds: PositiveFloat = 14400.0
    """Most seconds between two periodic checkpoints: what the crash of a node costs."""
    node_mtbf_hours: PositiveFloat = 720.0
    """Hours of running jobs for each segment that is lost with its node.  What is observed
    takes over with time."""
    saves_at_once: PositiveInt = 2
    """Periodic checkpoints at the same time: they share the file system with evictions."""
    sigill_seconds: NonNegativeFloat = 60.0
    """An illegal instruction within so many seconds after a resume is the move's fault: the
    job goes back to its last checkpoint and gets no such node again.  0 is never."""


class Config(_Section):
    """Everything a site can set."""

    daemon: DaemonSection = DaemonSection()
    batch: BatchSection = SlurmSection()
    engine: EngineSection = EngineSection()
    nodes: NodesSection = NodesSection()
    checkpoints: CheckpointsSection = CheckpointsSection()
    jobs: JobsSection = JobsSection()
    policy: PolicySection = PolicySection()


def load(path: Path) -> Config:
    """
    Read a configuration file.

    Raises:
        ConfigError: with every problem of the file.
    """
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ConfigError(path, (f"cannot be read: {exc.strerror}",)) from exc
    except UnicodeDecodeError as exc:
        raise ConfigError(path, ("is not UTF-8 text",)) from exc
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError(path, (f"is not TOML: {exc}",)) from exc
    return parse(raw, path)


def parse(raw: dict[str, Any], path: Path) -> Config:
    """
    Turn the parsed TOML of ``path`` into a configuration.

    Raises:
        ConfigError: with every problem.
    """
    config, problems = rules.validated(Config, raw)
    faulty = {problem.keys[0] for problem in problems}
    if config is not None:
        # What is wrong by itself is not blamed a second time for its company.
        problems += [p for p in contradictions(config) if faulty.isdisjoint(p.keys)]
    if config is None or problems:
        raise ConfigError(path, tuple(str(problem) for problem in problems))
    return config


def contradictions(config: Config) -> list[rules.Problem]:
    """List what is right by itself and wrong together."""
    nodes = config.nodes
    private = {
        "daemon.state_dir": str(config.daemon.state_dir),
        "checkpoints.root": config.checkpoints.root.split("{node}", maxsplit=1)[0],
        "nodes.install_dir": nodes.install_dir.split("{node}", maxsplit=1)[0],
        "nodes.scratch_dir": nodes.scratch_dir.split("{node}", maxsplit=1)[0],
    }
    found = [
        rules.Problem(
            (key, "jobs.mounts"), f"{place} must not be at, above or below {prefix} of jobs.mounts"
        )
        for key, place in private.items()
        for prefix in config.jobs.mounts
        if rules.overlaps(place, prefix)
    ]
    if config.checkpoints.store == "shared" and "{node}" in config.checkpoints.root:
        keys = ("checkpoints.root", "checkpoints.store")
        found.append(rules.Problem(keys, 'may contain {node} only with store = "streamed"'))
    if nodes.hook_unreachable_seconds > nodes.hook_seconds:
        keys = ("nodes.hook_unreachable_seconds", "nodes.hook_seconds")
        found.append(rules.Problem(keys, "must not be longer than nodes.hook_seconds"))
    if nodes.hook_url and not config.daemon.hook_listen:
        keys = ("nodes.hook_url", "daemon.hook_listen")
        found.append(rules.Problem(keys, "nobody would answer there: daemon.hook_listen is empty"))
    return found + _time_contradictions(config.policy, config.batch)


def _time_contradictions(
    policy: PolicySection, batch: SlurmSection | PbsSection | MockSection
) -> list[rules.Problem]:
    found = []
    if policy.stale_seconds <= batch.poll_seconds + batch.timeout_seconds:
        text = (
            "must be longer than batch.poll_seconds and batch.timeout_seconds together, "
            "or every answer is too old to start anything on"
        )
        three = ("policy.stale_seconds", "batch.poll_seconds", "batch.timeout_seconds")
        found.append(rules.Problem(three, text))
    if policy.checkpoint_max_seconds < policy.checkpoint_min_seconds:
        bounds = ("policy.checkpoint_max_seconds", "policy.checkpoint_min_seconds")
        text = "must not be shorter than policy.checkpoint_min_seconds"
        found.append(rules.Problem(bounds, text))
    if policy.unknown_grace_seconds < policy.stale_seconds:
        two = ("policy.unknown_grace_seconds", "policy.stale_seconds")
        found.append(rules.Problem(two, "must not be shorter than policy.stale_seconds"))
    return found
