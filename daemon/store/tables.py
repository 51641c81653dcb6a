"""The tables.  Moments are seconds since 1970 in UTC, durations seconds."""

from sqlmodel import Field, SQLModel


class JobRow(SQLModel, table=True):
    __tablename__ = "job"
    id: int | None = Field(default=None, primary_key=True)
    uid: int = Field(index=True)
    name: str
    spec: str
    state: str = Field(index=True)
    reason: str = ""
    submitted: float
    started: float | None = None
    ended: float | None = Field(default=None, index=True)
    exit_code: int | None = None
    image_digest: str | None = None
    last_epoch: int = 0
    generation: int | None = None
    ran_seconds: float = 0
    lost_seconds: float = 0
    evictions: int = 0
    migrations: int = 0
    cancel_wanted: bool = False
    hold_wanted: bool = False
    faults: int = 0
    not_before: float | None = None
    movable: str = "unknown"
    movable_why: str = ""
    saved: float | None = None
    save_tried: float | None = None
    save_cost_seconds: float | None = None
    stored_bytes: int = 0
    #: What its generation needs of a node, as JSON; empty is not known.
    machine: str = ""
    after_crash: str | None = None
    #: Lists as JSON.
    changed_files: str = "[]"
    avoid: str = "[]"


class SegmentRow(SQLModel, table=True):
    __tablename__ = "segment"
    job: int = Field(primary_key=True)
    epoch: int = Field(primary_key=True)
    node: str
    started: float
    ended: float | None = None
    outcome: str
    resumed_from: int | None = None


class CheckpointRow(SQLModel, table=True):
    __tablename__ = "checkpoint"
    job: int = Field(primary_key=True)
    generation: int = Field(primary_key=True)
    epoch: int
    time: float
    size_bytes: int
    seconds: float
    kind: str
    shared_bytes: int = 0
    saved_bytes: int = 0


class EventRow(SQLModel, table=True):
    __tablename__ = "event"
    id: int | None = Field(default=None, primary_key=True)
    job: int = Field(index=True)
    time: float
    event: str
    state: str
    reason: str


class IntentRow(SQLModel, table=True):
    """An action that was begun; ``done`` is empty as long as nobody ticked it off."""

    __tablename__ = "intent"
    id: int | None = Field(default=None, primary_key=True)
    job: int
    action: str
    node: str | None = None
    epoch: int | None = None
    begun: float
    done: float | None = Field(default=None, index=True)
    note: str = ""


class EvictionRow(SQLModel, table=True):
    """How fast a job got out of the way, for the figures in ``status``."""

    __tablename__ = "eviction"
    job: int = Field(primary_key=True)
    epoch: int = Field(primary_key=True)
    node: str
    time: float
    freeze_seconds: float
    vacate_seconds: float


class NodeRow(SQLModel, table=True):
    __tablename__ = "node"
    name: str = Field(primary_key=True)
    drained: float | None = None
    #: The fingerprint under which the canary passed; empty when it did not.
    probe_digest: str = ""
    probe_ok: bool = False
    probe_why: str = ""
    probed: float | None = None
    other_users: bool = True
    #: As JSON; empty is not known.
    machine: str = ""
    #: An administrator said then that it is dead.
    gone: float | None = None
    #: An administrator called panic then.
    panicked: float | None = None


class MetaRow(SQLModel, table=True):
    __tablename__ = "meta"
    key: str = Field(primary_key=True)
    value: str
