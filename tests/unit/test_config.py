"""The configuration: one value, or all the reasons why there is none."""

from pathlib import Path
from typing import Any

import pytest

from daemon import config_example
from daemon.config import Config, ConfigError, MockSection, PbsSection, SlurmSection, load, parse

EXAMPLE = Path(__file__).parents[2] / "config.example.toml"
HERE = Path("config.toml")


def problems_of(raw: dict[str, Any]) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        parse(raw, HERE)
    return caught.value.problems


def test_the_example_changes_nothing() -> None:
    """Every value in the example is the default."""
    assert Config() == load(EXAMPLE)


def test_the_example_has_every_key_with_default_and_reason() -> None:
    """A key that is added to a model is missing from the example until it is written anew."""
    text = EXAMPLE.read_text()

    assert config_example.text() == text
    kinds = MockSection(kind="mock"), PbsSection(kind="pbs")
    for section in (*dict(Config()).values(), *kinds):
        for key, field in type(section).model_fields.items():
            assert field.description, f"{key} has no reason"
            assert f"\n{key} = " in text or f"\n#{key} = " in text


def test_an_empty_file_is_usable(tmp_path: Path) -> None:
    """Everything has a default."""
    path = tmp_path / "config.toml"
    path.write_text("")

    assert Config() == load(path)


def test_all_problems_come_at_once() -> None:
    """Nobody has to fix one typo per start."""
    found = problems_of(
        {
            "daemon": {"instnce": "x", "state_dir": "var"},
            "batch": {"speed": 3, "poll_seconds": "5"},
            "polcy": {},
            "nodes": {"hook_seconds": 5},
        }
    )

    assert {
        "daemon.state_dir: must be an absolute path (it is 'var')",
        "daemon.instnce: there is no such key",
        "batch.speed: there is no such key",
        "batch.poll_seconds: Input should be a valid number (it is '5')",
        "polcy: there is no such key",
        "nodes.hook_unreachable_seconds: must not be longer than nodes.hook_seconds",
    } == set(found)


def test_the_message_names_the_file_and_each_problem() -> None:
    """What the operator reads says where to look."""
    with pytest.raises(ConfigError) as caught:
        parse({"polcy": {}}, HERE)

    assert "config.toml is not usable:\n  polcy: there is no such key" == str(caught.value)


@pytest.mark.parametrize(
    ("section", "values", "problem"),
    [
        ("daemon", {"instance": "a/b"}, "daemon.instance"),
        ("daemon", {"instance": ""}, "daemon.instance"),
        ("daemon", {"socket": "/run/../x"}, "daemon.socket"),
        ("daemon", {"hook_listen": "6819"}, "daemon.hook_listen"),
        ("daemon", {"hook_listen": "host:99999"}, "daemon.hook_listen"),
        ("daemon", {"log_level": "loud"}, "daemon.log_level"),
        ("batch", {"kind": "lsf"}, "batch"),
        ("batch", {"poll_seconds": 0}, "batch.poll_seconds"),
        ("batch", {"poll_seconds": float("inf")}, "batch.poll_seconds"),
        ("batch", {"poll_seconds": float("nan")}, "batch.poll_seconds"),
        ("batch", {"bin_dir": "bin"}, "batch.bin_dir"),
        ("batch", {"kind": "mock", "conf": "/x"}, "batch.conf"),
        ("engine", {"address": "http://{node}"}, "engine.address"),
        ("engine", {"address": "ssh://{host}"}, "engine.address"),
        ("engine", {"address": "ssh://{node"}, "engine.address"),
        ("engine", {"address": "ssh://{node!r}"}, "engine.address"),
        ("engine", {"address": "unix://run/docker.sock"}, "engine.address"),
        ("engine", {"pidfile": "{node}.pid"}, "engine.pidfile"),
        ("nodes", {"install_dir": "/opt/{node.__class__}"}, "nodes.install_dir"),
        ("nodes", {"path": "/bin\nrunc=/tmp/x"}, "nodes.path"),
        ("nodes", {"hook_url": "https://head:1"}, "nodes.hook_url"),
        ("nodes", {"hook_url": "http://head"}, "nodes.hook_url"),
        ("nodes", {"hook_url": "http://head:1/v1"}, "nodes.hook_url"),
        ("nodes", {"include": "n1"}, "nodes.include"),
        ("nodes", {"hours": ["20-6"]}, "nodes.hours.0"),
        ("nodes", {"hours": ["20:00-06:00", "20:00-06:60"]}, "nodes.hours.1"),
        ("nodes", {"hours": ["24:00-06:00"]}, "nodes.hours.0"),
        ("nodes", {"hours": ["06:00-24:01"]}, "nodes.hours.0"),
        ("nodes", {"hours": ["06:00-06:00"]}, "nodes.hours.0"),
        ("jobs", {"max_per_node": 0}, "jobs.max_per_node"),
        ("policy", {"leave_idle": -1}, "policy.leave_idle"),
        ("checkpoints", {"root": "checkpoints"}, "checkpoints.root"),
        ("jobs", {"mounts": ["data"]}, "jobs.mounts.0"),
        ("jobs", {"mounts": ["/data", "/"]}, "jobs.mounts.1"),
        ("jobs", {"mounts": ["/var"]}, "jobs.mounts.0"),
        ("jobs", {"mounts": ["/proc/1"]}, "jobs.mounts.0"),
        ("jobs", {"max_cpus": 0}, "jobs.max_cpus"),
        ("jobs", {"max_cpus": True}, "jobs.max_cpus"),
        ("policy", {"reserve_cpus": -1}, "policy.reserve_cpus"),
        ("policy", {"stale_seconds": 20}, "policy.stale_seconds"),
        ("policy", {"unknown_grace_seconds": 10}, "policy.unknown_grace_seconds"),
    ],
)
def test_a_bad_value_is_told_by_its_key(section: str, values: dict[str, Any], problem: str) -> None:
    """The key in the message is the one in the file."""
    (found,) = problems_of({section: values})

    assert problem == found.split(": ")[0]


@pytest.mark.parametrize("section", ["batch", "policy"])
def test_a_section_must_be_a_table(section: str) -> None:
    """A value where a table belongs is a problem, not a crash."""
    (found,) = problems_of({section: 3})

    assert found.startswith(f"{section}: ")


@pytest.mark.parametrize("prefix", ["/var/lib/stopgap", "/var/lib/stopgap/checkpoints/x", "/opt"])
def test_jobs_may_mount_nothing_of_the_daemons(prefix: str) -> None:
    """State, checkpoints and the shim's folder are out of reach, from above and from below."""
    assert any("jobs.mounts" in problem for problem in problems_of({"jobs": {"mounts": [prefix]}}))


def test_a_shared_beginning_of_names_is_no_overlap() -> None:
    """/data-checkpoints lies beside /data."""
    raw = {"checkpoints": {"root": "/data-checkpoints"}, "jobs": {"mounts": ["/data"]}}

    assert ("/data",) == parse(raw, HERE).jobs.mounts


def test_a_hook_url_needs_a_listener() -> None:
    """Nodes are not sent to a door that is shut."""
    raw = {"daemon": {"hook_listen": ""}, "nodes": {"hook_url": "http://head:6819"}}
    (found,) = problems_of(raw)

    assert found.startswith("nodes.hook_url: nobody would answer there")


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        ({}, SlurmSection),
        ({"kind": "slurm"}, SlurmSection),
        ({"kind": "mock"}, MockSection),
        ({"kind": "pbs"}, PbsSection),
    ],
)
def test_the_kind_chooses_the_batch_system(raw: dict[str, Any], kind: type) -> None:
    """Slurm unless the file says otherwise."""
    assert isinstance(parse({"batch": raw}, HERE).batch, kind)


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"a = ", "is not TOML"), (b"\xff", "is not UTF-8 text"), (None, "cannot be read")],
)
def test_a_file_that_is_none_is_told(tmp_path: Path, content: bytes | None, words: str) -> None:
    """Whatever is wrong with the file, the answer is the same kind of error."""
    path = tmp_path / "config.toml"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(ConfigError, match=words):
        load(path)


def test_a_root_for_each_node_is_not_shared() -> None:
    """Where nodes have names in the root of the checkpoints they have disks of their own."""
    root = {"root": "/disk/{node}/checkpoints"}

    (found,) = problems_of({"checkpoints": root})

    assert 'may contain {node} only with store = "streamed"' in found
    parse({"checkpoints": {**root, "store": "streamed"}}, HERE)
