"""Everything that a user sends, at the door."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from daemon.api import answers, syntax
from daemon.api.ports import Refused
from daemon.api.schemas import JobRequest, PrologCall

GOOD: dict[str, Any] = {"image": "stopgap/busybox:1", "command": ["sleep", "1"]}
MOUNT = {"source": "/data", "target": "/data"}


def refusal(**wanted: Any) -> Refused:
    body = json.dumps({**GOOD, **wanted}).encode()
    with pytest.raises(Refused) as caught:
        answers.parse(body, JobRequest)
    return caught.value


@pytest.mark.parametrize(
    ("wanted", "error", "hint"),
    [
        ({"command": []}, "the command: is missing", "after --"),
        ({"command": ["", "x"]}, "the command: is missing", "after --"),
        ({"command": ["a\0b"]}, "the command: contains a NUL", ""),
        ({"command": ["x"] * 5000}, "the command: has more than", ""),
        ({"command": ["x" * 200000]}, "the command: has more than", ""),
        ({"command": "sleep 1"}, "the command: must be a list", ""),
        ({"mem_mib": 0}, "--mem: must be at least 6 MiB", "--mem 2G"),
        ({"mem_mib": -1}, "--mem: must be at least 6 MiB", "--mem 2G"),
        ({"mem_mib": 1.5}, "--mem: must be a whole number", ""),
        ({"mem_mib": "512"}, "--mem: must be a whole number", ""),
        ({"cpus": 0}, "--cpus: must be at least 1", "--cpus 1"),
        ({"cpus": True}, "--cpus: must be a whole number", ""),
        ({"name": "a b"}, "--name: must be", "--name"),
        ({"name": ""}, "--name: must be", "--name"),
        ({"name": "x" * 65}, "--name: must be", "--name"),
        ({"name": "-rf"}, "--name: must be", "--name"),
        ({"image": ""}, "--image: is not", "docker pull"),
        ({"image": "UPPER"}, "--image: is not", "docker pull"),
        ({"image": "a b"}, "--image: is not", "docker pull"),
        ({"image": "--privileged"}, "--image: is not", "docker pull"),
        ({"image": "x\n"}, "--image: is not", "docker pull"),
        ({"image": "http://host/x"}, "--image: is not", "docker pull"),
        ({"image": "a" * 300}, "--image: is not", "docker pull"),
        (
            {"mounts": [{**MOUNT, "source": "data"}]},
            "--mount source: must be an absolute",
            "--mount",
        ),
        ({"mounts": [{**MOUNT, "source": "/data/../etc"}]}, "--mount source: must be written", ""),
        ({"mounts": [{**MOUNT, "source": "/data/"}]}, "--mount source: must be written", ""),
        ({"mounts": [{**MOUNT, "source": "//data"}]}, "--mount source: must be written", ""),
        ({"mounts": [{**MOUNT, "source": "/a:/b"}]}, "--mount source: must not contain", ""),
        ({"mounts": [{**MOUNT, "source": "/a\nb"}]}, "--mount source: is too long or", ""),
        ({"mounts": [{**MOUNT, "source": "/" + "a" * 5000}]}, "--mount source: is too long", ""),
        ({"mounts": [{**MOUNT, "target": "/"}]}, "--mount target: cannot be mounted over", ""),
        ({"mounts": [{**MOUNT, "target": "/proc/1"}]}, "--mount target: cannot be", ""),
        ({"mounts": [MOUNT, MOUNT]}, "--mount: /data is mounted over twice", ""),
        ({"mounts": [{**MOUNT, "mode": "z"}]}, "--mount mode: there is no such field", ""),
        ({"env": {"STOPGAP_TICKET": "x"}}, "--env: STOPGAP_TICKET cannot be set", "--env"),
        ({"env": {"stopgap_x": "x"}}, "--env: stopgap_x cannot be set", "--env"),
        ({"env": {"1A": "x"}}, "--env: '1A' is not", "--env"),
        ({"env": {"A=B": "x"}}, "--env: 'A=B' is not", "--env"),
        ({"env": {"A": "x\0"}}, "--env: the value of A contains", "--env"),
        ({"env": {"A": "x" * 200000}}, "--env: has more than", "--env"),
        ({"workdir": "work"}, "--workdir: must be an absolute path", "absolute"),
        ({"output": "x.log"}, "--output: must be an absolute path", "absolute"),
        ({"time_seconds": 0}, "--time: must be at least 1 s", "--time"),
        ({"time_seconds": 10**12}, "--time: must be at most 315360000 s", "--time"),
        (
            {"checkpoint": "magic"},
            "--checkpoint: must be 'criu', 'signal' or 'none'",
            "criu, signal or none",
        ),
        ({"uid": 0}, "uid: there is no such field", ""),
    ],
)
def test_bad_input_is_told(wanted: dict[str, Any], error: str, hint: str) -> None:
    """The error names the option, the hint says what to write."""
    found = refusal(**wanted)

    assert 400 == found.status
    assert found.error.startswith(error)
    assert hint in found.hint


def test_all_problems_come_at_once() -> None:
    """Two mistakes are two messages."""
    found = refusal(cpus=0, image="UPPER", mem_mib=0)

    assert ["--image", "--cpus", "--mem"] == [
        part.split(":")[0] for part in found.error.split("; ")
    ]


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b'{"command":["\\ud800"]}'])
def test_what_is_no_document_is_told(body: bytes) -> None:
    """Broken JSON and broken text are refused like any other mistake."""
    with pytest.raises(Refused):
        answers.parse(body, JobRequest)


def test_a_refusal_holds_no_value_of_the_environment() -> None:
    """Errors are logged and shown; secrets are not."""
    found = refusal(env={"TOKEN": "hunter2\0", "B": 3})

    assert "hunter2" not in found.error + found.hint


@pytest.mark.parametrize(
    "image",
    [
        "python",
        "python:3.12",
        "lab/sim",
        "host:5000/lab/sim:v1.2_x",
        "registry.example.org/a/b/c@sha256:" + "0" * 64,
        "a__b/c-d.e",
        "localhost/x:1",
    ],
)
def test_image_references_are_accepted(image: str) -> None:
    """All that docker pull accepts."""
    assert image == syntax.image(image)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["/usr/bin/python3", "x.py"], "python3"),
        (["./my prog"], "my_prog"),
        (["ünï"], "_n_"),
        (["..."], "job"),
        (["x" * 100], "x" * 64),
    ],
)
def test_a_job_is_called_after_its_program(command: list[str], name: str) -> None:
    """Unless it has a name."""
    assert name == JobRequest(image="x", command=tuple(command)).name


@given(st.lists(st.text(min_size=1), min_size=1, max_size=3))
def test_every_made_name_is_a_name(command: list[str]) -> None:
    """Whatever the program is called."""
    name = syntax.name_of(command)

    assert name == syntax.job_name(name)


@given(st.text())
def test_an_accepted_path_stays_where_it_seems(text: str) -> None:
    """No accepted path has a detour, a separator of ours or a control character."""
    try:
        path = syntax.mount_path(text)
    except ValueError:
        return
    assert path.startswith("/")
    assert path.isprintable()
    assert not {"..", ".", ""} & set(path.split("/")[1:]) or path == "/"
    assert ":" not in path


@pytest.mark.parametrize(
    "change",
    [
        {"node": "a/b"},
        {"node": ""},
        {"seconds": 0},
        {"nonce": "x"},
        {"time": "soon"},
        {"time": "nan"},
    ],
)
def test_a_prologs_call_is_checked(change: dict[str, Any]) -> None:
    """A node's word has a form, too."""
    call = {"node": "n1", "time": 1.5, "nonce": "0123456789abcdef", "job": "7", "seconds": 60}
    PrologCall.model_validate_json(json.dumps({**call, "future": 1}))

    with pytest.raises(ValidationError):
        PrologCall.model_validate_json(json.dumps({**call, **change}))
