"""Bad input and absent parts, through the real command line: a clear word, and nothing changed."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator

import pytest

from tests.integration.service_jobs import Steady
from tests.integration.service_kit import QUICK, Service
from tests.testbed import wait_until

pytestmark = pytest.mark.bed

#: A silent batch system or engine is noticed in seconds here, not in minutes.
HASTY: dict[str, dict[str, object]] = {
    **QUICK,
    "batch": {"timeout_seconds": 3},
    "engine": {"timeout_seconds": 5},
}


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service.start(nodes=2, settings=HASTY) as service:
        yield service


def _submit(service: Service, *words: str, image: str = "stopgap/busybox:1") -> tuple[int, str]:
    answer = service.cli("submit", "--image", image, *words, check=False)
    return answer.returncode, answer.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--mem", "0", "--", "true"), "mem"),
        (("--cpus", "0", "--", "true"), "cpus"),
        (("--mount", "/etc:/d", "--", "true"), "/etc"),
        (("--env", "STOPGAP_TICKET=x", "--", "true"), "STOPGAP_"),
        (("--time", "soon", "--", "true"), "time"),
        (("--cpus", "100000", "--", "true"), "cpus"),
    ],
)
def test_bad_wishes_are_refused(service: Service, words: tuple[str, ...], told: str) -> None:
    """
    What cannot be granted is refused at once with what to do, and nothing is enqueued.
    """
    before = service.cli("queue", "--json").stdout
    code, said = _submit(service, *words)

    assert code in {1, 2}
    assert told.lower() in said.lower()
    assert before == service.cli("queue", "--json").stdout


def test_a_socket_is_no_mount(service: Service) -> None:
    """
    A job cannot take a socket of the node's with it, so it does not get one.
    """
    path = service.bed.data / "door"
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(path))
        code, said = _submit(service, "--mount", f"{path}:/door", "--", "true")
    path.unlink()

    assert 1 == code
    assert "a socket" in said


def test_a_link_out_of_the_shared_directory_is_refused(service: Service) -> None:
    """
    A link that leads elsewhere is no way around the list of mounts.
    """
    path = service.bed.data / "way-out"
    path.symlink_to("/etc")
    code, said = _submit(service, "--mount", f"{path}:/d", "--", "true")
    path.unlink()

    assert 1 == code
    assert "/etc" in said


def test_an_unknown_image_fails_with_its_name(service: Service) -> None:
    """
    A job whose image is nowhere ends with what to do about it.
    """
    job = _enqueue(service, "true", image="nobody/knows:7")
    found = service.wait_state(job, "failed")

    assert "nobody/knows:7" in found["reason"]
    assert [] == found["segments"]


def test_a_missing_command_fails_and_says_so(service: Service) -> None:
    """
    A command that the image does not have is named as the reason.
    """
    job = _enqueue(service, "no-such-command")
    found = service.wait_state(job, "failed")

    assert "no such command" in found["reason"]


def test_reserved_names_in_an_image_are_refused(service: Service) -> None:
    """
    An image cannot bring a ticket of its own.
    """
    for node in service.bed.nodes:
        change = ["--change", "ENV STOPGAP_TICKET=forged", "-", "stopgap/forged:1"]
        subprocess.run(
            ["docker", "--host", service.bed.engines[node], "import", *change],
            input=b"\0" * 1024,
            env=service.bed.env,
            capture_output=True,
            check=True,
        )
    job = _enqueue(service, "true", image="stopgap/forged:1")

    assert "STOPGAP_" in service.wait_state(job, "failed")["reason"]


def test_all_mistakes_of_a_configuration_at_once(service: Service) -> None:
    """
    A configuration is refused with every problem, by the daemon and by the check alike.
    """
    path = service.bed.data / "bad.toml"
    path.write_text('[daemon]\nsockett = "/x"\n[policy]\nvacate_seconds = -1\n')
    for words in (("config", "check"), ("serve",)):
        answer = service.cli(*words, "--config", str(path), check=False)

        assert answer.returncode in {1, 2}
        assert "daemon.sockett" in answer.stderr
        assert "policy.vacate_seconds" in answer.stderr


def test_a_second_daemon_is_refused(service: Service) -> None:
    """
    Two daemons never work with one state directory.
    """
    answer = service.cli("serve", "--config", str(service.bed.config), check=False)

    assert 1 == answer.returncode
    assert "another daemon" in answer.stderr
    assert 0 == service.cli("status").returncode


def test_nothing_starts_while_slurm_is_silent(service: Service) -> None:
    """
    Without the batch system's word no job is started; with it, all go on.
    """
    running = Steady(service, "silence")
    service.wait_node(running.job)
    service.bed.kill("slurmctld", number=signal.SIGTERM)
    try:
        wait_until(lambda: not service.api.status()["healthy"], 60, "the silence to be noticed")
        waiting = _enqueue(service, "sleep", "1")
        running.wait_progress(50)
        found = service.job(waiting)
        assert "queued" == found["state"]
        assert "does not answer" in found["reason"]
    finally:
        service.bed.restart("slurmctld")
    service.wait_state(waiting, "completed", seconds=120)
    running.finish()
    assert 0 == service.job(running.job)["lost_seconds"]


def test_a_hanging_engine_holds_up_only_itself(service: Service) -> None:
    """
    While one engine hangs the other nodes are served, and its job is not given up.
    """
    held = Steady(service, "hanging")
    node = service.wait_node(held.job)
    engine = service.bed.process("dockerd", node)
    assert engine is not None
    os.kill(engine.pid, signal.SIGSTOP)
    try:
        found = service.wait_state(held.job, "unreachable", seconds=120)
        assert node == found["node"]
        other = _enqueue(service, "sleep", "1")
        service.wait_state(other, "completed", seconds=120)
        held.wait_progress()
    finally:
        os.kill(engine.pid, signal.SIGCONT)
    service.wait_state(held.job, "running", seconds=120)
    held.finish()
    assert 1 == len(service.job(held.job)["segments"])


def test_sigterm_leaves_jobs_alone_and_a_new_daemon_adopts_them(service: Service) -> None:
    """
    A daemon that is restarted costs no job anything.
    """
    job = Steady(service, "adopted")
    node = service.wait_node(job.job)
    before = service.segments()
    service.bed.stop_daemon()
    job.wait_progress()
    assert before == service.segments()
    service.bed.start_daemon()

    assert node == service.wait_node(job.job)
    job.finish()
    assert 1 == len(service.job(job.job)["segments"])


def test_a_full_disk_lets_the_job_go_on(service: Service) -> None:
    """
    Where nothing can be saved a job whose node is wanted no more goes on without a gap.
    """
    job = Steady(service, "full")
    node = service.wait_node(job.job)
    folder = service.store_of(job.job)
    folder.mkdir(mode=0o700, exist_ok=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k,mode=0700", "full", str(folder)], check=True
    )
    try:
        service.cli("node", "drain", node)
        wait_until(
            lambda: "No space left" in service.job(job.job)["reason"], 60, "a checkpoint to fail"
        )
        service.cli("node", "undrain", node)
        assert node == service.wait_node(job.job)
        job.wait_progress()
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
    job.finish()
    found = service.job(job.job)
    assert (1, 0, 0) == (len(found["segments"]), found["evictions"], found["lost_seconds"])


def _enqueue(service: Service, *command: str, image: str = "stopgap/busybox:1") -> int:
    words = ("submit", "--json", "--image", image, "--mem", "64M", "--", *command)
    answer = service.cli(*words)
    return int(answer.stdout.partition('"id": ')[2].partition(",")[0])
