"""The composition root: builds the parts from the configuration and runs the loop."""

import fcntl
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, timedelta
from pathlib import Path
from types import FrameType

import structlog
from apscheduler.schedulers.background import BackgroundScheduler

from adapters import registry
from adapters.base import AdapterError
from adapters.wrappers import ExaminedAdapter
from daemon import logs, systemd, wiring
from daemon.acts.output import OutputWriter
from daemon.acts.tools import Tools
from daemon.api.server import ApiServer, HookServer
from daemon.clock import Clock, SystemClock
from daemon.config import Config, ConfigError, load
from daemon.controller import Controller
from daemon.desk.desk import Desk
from daemon.desk.hooks import HookGuard
from daemon.desk.pulse import Pulse
from daemon.executor import Executor
from daemon.observer import Observer, Watch
from daemon.recovery import clear_late, recover
from daemon.selection import selector
from daemon.store import Store, StoreError
from daemon.store.spool import Spool
from daemon.workshop import NodeWorkshop
from migration.access import Access
from migration.engine import DockerEngine
from migration.nodes import NodeSetup
from migration.probe import Prober
from migration.settings import Site
from migration.ticket import Keys, master_secret

_log = structlog.get_logger(__name__)

#: A tick comes at least this often; what happens in between wakes the loop.
_TICK_SECONDS = 1.0
#: What is forgotten after months need not go to the minute.
_PRUNE_SECONDS = 6 * 3600.0
#: Between two tries to delete what ended jobs have left: the checkpoints were out of reach.
_CLEAR = timedelta(minutes=10)


class StartError(Exception):
    """The daemon cannot start; the text says what to do."""


def run(path: Path) -> None:
    """
    Run the daemon until SIGTERM.

    Raises:
        ConfigError: the configuration cannot be used.
        ListenError: the API cannot be served.
        StartError: anything else that an administrator must put right first.
    """
    config = load(path)
    logs.set_up(config.daemon.log_level)
    clock = SystemClock()
    with _state_dir(config), ExitStack() as stack:
        service = Service(config, path, clock)
        service.open(stack)
        service.loop()


def check(path: Path) -> list[str]:
    """
    Return what is wrong with a configuration and with the site that it describes.

    Raises:
        ConfigError: with every problem of the file.
    """
    config = load(path)
    adapter = registry.create(wiring.batch_settings(config), SystemClock())
    try:
        return list(adapter.findings())
    except AdapterError as exc:
        return [f"batch: {exc}"]


@contextmanager
def _state_dir(config: Config) -> Iterator[None]:
    """Make the daemon's folders and hold its lock: one daemon per state directory."""
    state = config.daemon.state_dir
    try:
        shared = config.checkpoints.store == "shared"
        for folder in (state, *([Path(config.checkpoints.root)] if shared else [])):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)
        lock = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise StartError(
            f"{exc.filename}: {exc.strerror}; start the daemon as root, or change daemon.state_dir "
            "and checkpoints.root"
        ) from exc
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise StartError(
            f"another daemon works with {state}; stop it, or give this one a daemon.state_dir "
            "of its own"
        ) from None
    try:
        yield
    finally:
        os.close(lock)


class Service:
    """All parts of one daemon."""

    def __init__(self, config: Config, path: Path, clock: Clock) -> None:
        self._config = config
        self._path = path
        self._clock = clock
        self._stopping = threading.Event()
        self._reloading = threading.Event()

    def open(self, stack: ExitStack) -> None:
        """
        Build, recover, and begin to answer; the stack undoes it.

        Raises:
            ListenError: the API cannot be served.
            StartError: the state cannot be used.
        """
        config, clock = self._config, self._clock
        policy = wiring.policy_of(config)
        store = Store(config.daemon.state_dir / "stopgap.db", policy)
        try:
            keys = Keys(master_secret(config.daemon.state_dir / "master.key"))
            store.open()
        except (StoreError, ValueError) as exc:
            raise StartError(str(exc)) from exc
        self._store = store
        stack.callback(store.close)
        adapter = registry.create(wiring.batch_settings(config), clock)
        self._pulse = Pulse(instance=config.daemon.instance, adapter=adapter)
        site = Site(instance=config.daemon.instance, mounts=config.jobs.mounts)
        access = Access(wiring.engine_settings(config), wiring.node_settings(config), site.instance)
        stack.callback(access.close)
        pace = wiring.stream_pace(config, clock)
        try:
            checkpoints = wiring.checkpoint_store(config, access, keys.site, pace, clock)
        except (OSError, ValueError) as exc:
            raise StartError(str(exc)) from exc
        engine = DockerEngine(access, site, keys, checkpoints, clock, pace=pace)
        self._observer = self._eyes(adapter, engine, store)
        stack.callback(self._observer.close)
        self._pulse.watch(self._observer)
        self._tools = tools = Tools(
            store=store,
            spool=Spool(config.daemon.state_dir),
            engine=engine,
            clock=clock,
            observer=self._observer,
            output=OutputWriter(),
            policy=policy,
            checkpoint_limit=timedelta(seconds=config.engine.checkpoint_seconds),
            signal_grace=timedelta(seconds=config.policy.signal_grace_seconds),
        )
        workshop = NodeWorkshop(
            NodeSetup(access, keys, site.instance, clock),
            Prober(access, site, keys, checkpoints, clock),
        )
        executor = Executor(tools, workshop)
        stack.callback(executor.close)
        self._controller = Controller(eyes=self._observer, hands=executor, policy=policy)
        self._observer.open()
        recover(tools)
        desk = Desk(
            tools=tools,
            config=config,
            policy=policy,
            workshop=workshop,
            guard=HookGuard(keys.verify_hook),
            pulse=self._pulse,
        )
        self._serve(desk, stack)

    def _eyes(self, adapter: ExaminedAdapter, engine: DockerEngine, store: Store) -> Observer:
        watch = Watch(
            idle_looks=self._config.policy.idle_looks,
            poll=timedelta(seconds=self._config.batch.poll_seconds),
            linger=timedelta(seconds=self._config.policy.linger_seconds),
            ours=selector(self._config.nodes),
        )
        return Observer(
            adapter=adapter,
            engine=engine,
            store=store,
            clock=self._clock,
            watch=watch,
            wake=self._pulse.wake,
        )

    def _serve(self, desk: Desk, stack: ExitStack) -> None:
        section = self._config.daemon
        api = ApiServer(section.socket, desk, admin_group=section.admin_group)
        api.start()
        stack.callback(api.stop)
        if section.hook_listen:
            host, _, port = section.hook_listen.rpartition(":")
            hooks = HookServer(host.strip("[]"), int(port), desk)
            hooks.start()
            stack.callback(hooks.stop)

    def loop(self) -> None:
        """Tick until SIGTERM; what is under way then is finished, containers stay as they are."""
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        signal.signal(signal.SIGHUP, self._reload)
        scheduler = BackgroundScheduler(timezone=UTC)
        # However late a turn comes it is taken: it only begins to ask.
        once = {"max_instances": 1, "coalesce": True, "misfire_grace_time": None}
        seconds = self._config.batch.poll_seconds
        scheduler.add_job(self._observer.ask_batch, "interval", seconds=seconds, **once)
        seconds = self._config.engine.poll_seconds
        scheduler.add_job(self._observer.survey, "interval", seconds=seconds, **once)
        scheduler.add_job(self._prune, "interval", seconds=_PRUNE_SECONDS, **once)
        scheduler.add_job(self._clear, "interval", seconds=_CLEAR.total_seconds(), **once)
        self._observer.ask_batch()
        self._observer.survey()
        self._prune()
        scheduler.start()
        _log.info("daemon.started", instance=self._config.daemon.instance, config=str(self._path))
        try:
            ready = False
            while not self._stopping.is_set():
                self._tick()
                if not ready and self._observer.batch_asked_once:
                    systemd.notify("READY=1")
                    ready = True
                self._pulse.wait(_TICK_SECONDS)
        finally:
            systemd.notify("STOPPING=1")
            _log.info("daemon.stopping")
            scheduler.shutdown(wait=False)

    def _tick(self) -> None:
        began = self._clock.monotonic()
        if self._reloading.is_set():
            self._reloading.clear()
            self._read_policy()
        try:
            self._controller.tick()
        except Exception:  # noqa: BLE001  a loop that fails every time is ended by the watchdog
            _log.exception("tick.fault")
            return
        seconds = self._clock.monotonic() - began
        self._pulse.ticked(self._clock.now(), seconds, self._controller.shadow)
        systemd.notify("WATCHDOG=1", f"STATUS={self._pulse.sentence(self._controller.seen)}")

    def _prune(self) -> None:
        before = self._clock.now() - timedelta(days=self._config.daemon.history_days)
        try:
            events = self._store.prune(before)
        except Exception:  # noqa: BLE001  the disk is full, or the like: there is another day
            _log.exception("history.not_pruned")
        else:
            _log.info("history.pruned", events=events)

    def _clear(self) -> None:
        try:
            clear_late(self._tools, before=self._clock.now() - _CLEAR)
        except Exception:  # noqa: BLE001  the disk is full, or the like: there is another turn
            _log.exception("ended.not_cleared")

    def _read_policy(self) -> None:
        try:
            config = load(self._path)
        except ConfigError as exc:
            _log.error("reload.refused", reason=str(exc))
            return
        self._controller.adopt(wiring.policy_of(config))
        _log.info(
            "reload.done",
            note="what looks, grace times and all else need is a restart",
        )

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stopping.set()
        self._pulse.wake()

    def _reload(self, _number: int, _frame: FrameType | None) -> None:
        self._reloading.set()
        self._pulse.wake()
