"""What cannot be done is said clearly, with what to do instead, and changes nothing."""

import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.integration.service_jobs import Steady
from tests.integration.service_kit import QUICK, Service, story
from tests.testbed import wait_until

pytestmark = pytest.mark.bed

IMAGE = ("--image", "stopgap/busybox:1")
#: An engine that hangs is noticed after five seconds.
SETTINGS: dict[str, dict[str, object]] = {**QUICK, "engine": {"timeout_seconds": 5}}


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service.start(settings=SETTINGS) as service:
        yield service


@pytest.fixture
def steady(service: Service, request: pytest.FixtureRequest) -> Iterator[Steady]:
    job = Steady(service, request.node.name)
    service.wait_node(job.job)
    job.wait_progress()
    yield job
    service.api.cancel(job.job) if service.job(job.job)["ended"] is None else None
    wait_until(lambda: not service.segments(), 60, "the nodes to be empty")


def jobs(service: Service) -> list[int]:
    return [job["id"] for job in service.api.jobs(all_users=True, ended=True)]


def refused(service: Service, *words: str, code: int = 1) -> str:
    """Submit what must be refused without a trace; return what was said."""
    before = jobs(service)
    said = service.cli("submit", *words, check=False)
    assert code == said.returncode, said
    assert before == jobs(service)
    return flat(said)


def flat(said: CompletedProcess[str]) -> str:
    """Return what a command complained of in one line, without a box around it."""
    return " ".join(said.stderr.replace("│", " ").split())


def failed(service: Service, *words: str) -> str:
    """Submit what can only be found out on a node; return the job's reason."""
    job = int(service.cli("submit", *words).stdout.split()[1])
    found = service.wait_state(job, "failed")
    assert [] == found["segments"], story(found)
    assert 0 == found["run_seconds"]
    wait_until(lambda: not service.segments(), 20, "the nodes to be empty")
    assert not service.store_of(job).exists()
    return str(found["reason"])


def wait_problem(service: Service, words: str) -> None:
    """Wait until the daemon says what is wrong."""
    wait_until(
        lambda: any(words in problem for problem in service.api.status()["problems"]),
        60,
        f"the daemon to say that {words}",
    )


def test_unknown_image(service: Service) -> None:
    """
    Only nodes know their images, so the job ends there, before anything has run.
    """
    reason = failed(service, "--image", "nobody/knows:7", "--", "true")

    assert "there is no image nobody/knows:7 on n" in reason
    assert "load or pull it there, or correct its name" in reason


def test_image_that_speaks_in_our_name(service: Service) -> None:
    """
    An image with a variable of ours is no ticket.
    """
    for node in service.bed.nodes:
        service.bed.docker(node, "create", "--name", "origin", "stopgap/busybox:1", "true")
        change = ("--change", "ENV STOPGAP_TICKET=mine")
        service.bed.docker(node, "commit", *change, "origin", "bad/ticket:1")
        service.bed.docker(node, "rm", "origin")
    reason = failed(service, "--image", "bad/ticket:1", "--", "true")

    assert "image bad/ticket:1 sets STOPGAP_TICKET" in reason
    assert "build it without that variable" in reason


def test_missing_program(service: Service) -> None:
    """
    The image is known only on the node, so the job starts, and fails with the usual code.
    """
    job = int(service.cli("submit", *IMAGE, "--", "no-such-program").stdout.split()[1])
    found = service.wait_state(job, "failed")

    assert "there is no such command in the image" in found["reason"]
    assert "no-such-program" in service.log(job).decode()
    assert 127 == found["exit_code"]


def test_mount_outside_the_list(service: Service) -> None:
    """
    The refusal says what may be mounted.
    """
    said = refused(service, *IMAGE, "--mount", "/etc:/data", "--", "true")

    assert "/etc may not be mounted" in said
    assert f"jobs here may mount {service.bed.data}" in said


def test_mount_through_a_link_outside_the_list(service: Service) -> None:
    """
    What counts is where a path leads.
    """
    link = service.bed.data / "elsewhere"
    link.symlink_to("/etc")
    said = refused(service, *IMAGE, "--mount", f"{link}:/data", "--", "true")

    assert "which is /etc, may not be mounted" in said


def test_mounted_socket(service: Service) -> None:
    """
    Whoever holds the other end would stay behind.
    """
    path = service.bed.data / "talk"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        said = refused(service, *IMAGE, "--mount", f"{path}:/talk", "--", "true")

    assert f"{path} is a socket" in said
    assert "mount directories and plain files only" in said


def test_mount_of_what_is_not_there(service: Service) -> None:
    """
    A typo is told at once, not by an empty directory in the job.
    """
    said = refused(service, *IMAGE, "--mount", f"{service.bed.data}/none:/data", "--", "true")

    assert "none does not exist create it, or correct the --mount" in said


def test_no_memory(service: Service) -> None:
    """
    The command line knows that nothing runs in no memory.
    """
    assert "--mem" in refused(service, *IMAGE, "--mem", "0", "--", "true", code=2)


def test_no_command(service: Service) -> None:
    """
    An example of how to write it is part of the complaint.
    """
    said = refused(service, *IMAGE, code=2)

    assert "the command is missing; write it last, after --" in said


def test_variable_of_ours(service: Service) -> None:
    """
    Names of ours are refused, and values are never printed.
    """
    said = refused(service, *IMAGE, "--env", "STOPGAP_TICKET=secret", "--", "true")

    assert "STOPGAP_TICKET cannot be set" in said
    assert "secret" not in said


def test_configuration_with_typos(service: Service, tmp_path: Path) -> None:
    """
    All of its problems come at once, by ``config check`` and by ``serve``.
    """
    config = tmp_path / "config.toml"
    config.write_text('[daemon]\ninstnce = "x"\n[polcy]\n[batch]\npoll_seconds = "5"\n')
    for command, code in ((("config", "check"), 1), (("serve",), 2)):
        said = service.cli(*command, "--config", str(config), check=False)

        assert code == said.returncode
        for problem in (
            "daemon.instnce: there is no such key",
            "polcy: there is no such key",
            "batch.poll_seconds: Input should be a valid number",
        ):
            assert problem in flat(said)


def test_second_daemon(service: Service) -> None:
    """
    It refuses to start, and the first one does not notice.
    """
    before = service.bed.process("stopgapd")
    said = service.cli("serve", "--config", str(service.bed.config), check=False)

    assert 1 == said.returncode
    assert f"another daemon works with {service.bed.layout.state}" in flat(said)
    assert "stop it, or give this one a daemon.state_dir of its own" in flat(said)
    assert before == service.bed.process("stopgapd")
    assert service.api.status()["healthy"]


def test_no_daemon(service: Service, tmp_path: Path) -> None:
    """
    An exit code of its own, and where to look.
    """
    said = service.cli("queue", "--socket", str(tmp_path / "none"), check=False)

    assert 3 == said.returncode
    assert "systemctl status stopgapd" in flat(said)


def test_silent_batch_system(service: Service, steady: Steady) -> None:
    """
    Nothing new is started, what runs goes on, and all is as before when it answers again.
    """
    service.bed.kill("slurmctld")
    wait_problem(service, "slurm does not answer")
    job = Steady(service, "waits")
    wait_until(
        lambda: "does not answer: nothing is started" in service.job(job.job)["reason"],
        20,
        f"a reason: {service.job(job.job)['reason']}",
    )
    steady.wait_progress(more=50)
    assert "queued" == service.job(job.job)["state"]
    assert "slurm does not answer" in service.cli("status").stdout
    service.bed.restart("slurmctld")

    service.wait_node(job.job)
    job.finish()
    steady.finish()
    found = service.job(steady.job)
    assert (0, 0, 1) == (found["lost_seconds"], found["evictions"], len(found["segments"]))
    assert service.api.status()["healthy"]


@pytest.fixture
def mended(service: Service) -> Iterator[None]:
    """The engines answer again after the test, and the nodes are open."""
    yield
    put_right(service)
    service.cli("node", "undrain", *service.bed.nodes)


def put_right(service: Service) -> None:
    for node in service.bed.nodes:
        dockerd = service.bed.process("dockerd", node)
        if dockerd is None:
            service.bed.restart("dockerd", node)
        else:
            dockerd.kill(signal.SIGCONT)


@pytest.mark.usefixtures("mended")
@pytest.mark.parametrize("way", ["away", "hangs"])
def test_engine(service: Service, way: str) -> None:
    """
    The other nodes are served meanwhile, and the node is used again when it is back.
    """
    dockerd = service.bed.process("dockerd", "n1")
    assert dockerd is not None
    if way == "away":
        service.bed.kill("dockerd", "n1")
    else:
        dockerd.kill(signal.SIGSTOP)
    job = Steady(service, f"beside-{way}")
    assert "n2" == service.wait_node(job.job)
    said = service.cli("submit", *IMAGE, "--cpus", "2", "--", "true").stdout
    service.cli("node", "drain", "n2")
    service.wait_state(job.job, "parked")
    wait_problem(service, "n1: its engine does not answer")
    assert "n1: its engine does not answer" in service.cli("status").stdout
    put_right(service)

    assert "n1" == service.wait_node(job.job)
    service.cli("node", "undrain", "n2")
    job.finish()
    assert 0 == service.job(job.job)["lost_seconds"]
    service.wait_state(int(said.split()[1]), "completed")


@pytest.mark.usefixtures("mended")
def test_engine_that_hangs_under_a_job(service: Service, steady: Steady) -> None:
    """
    The job runs on, is not started a second time, and is ours again when the engine answers.
    """
    node = service.wait_node(steady.job)
    dockerd = service.bed.process("dockerd", node)
    assert dockerd is not None
    dockerd.kill(signal.SIGSTOP)
    try:
        wait_problem(service, f"{node}: its engine does not answer")
        other = Steady(service, "meanwhile")
        assert node != service.wait_node(other.job)
        other.wait_progress()
        service.wait_state(steady.job, "unreachable")
        assert [node] == [at for at, job, _ in service.segments() if job == steady.job]
    finally:
        put_right(service)

    assert node == service.wait_node(steady.job)
    other.finish()
    steady.finish()
    found = service.job(steady.job)
    assert (0, 1) == (found["lost_seconds"], len(found["segments"])), story(found)
