"""The shim as a file and a program: whose call it is, and what it reads and writes."""

import ast
import hashlib
import hmac
import json
import subprocess
import sys
from operator import itemgetter
from pathlib import Path
from types import ModuleType

import pytest

from tests.unit.shim_module import SHIM

KEY = bytes(range(32))


def test_file_is_python_3_6() -> None:
    """
    Old nodes can run it.
    """
    ast.parse(SHIM.read_text(), feature_version=(3, 6))


#: Why the house rules do not all hold in a file for Python 3.6 that starts in milliseconds.
NOT_HERE = {
    "PTH": "pathlib takes longer to load than most calls last",
    "PLC0415": "so does everything that not every call needs",
    "SIM105": "so does contextlib",
    "TID251": "there is no clock to inject on a node",
    "INP001": "it is a program",
    "EXE": "the copy that is checked has no mode",
    "T201": "verbs print",
    "S606": "it becomes runc",
    "N818": "Failure is its own word, raised 30 times",
    "BLE001": "whatever fails must be reported as runc would",
    "TRY301": "what a block checks, the same block undoes",
    "PERF": "no hot loops",
    "SIM905": "a table of words reads better as words",
    "PLR0917": "one file, private functions",
    "UP": "3.6",
    "FA": "3.6",
}


@pytest.mark.parametrize("tool", ["ruff", pytest.param("mypy", marks=pytest.mark.slow)])
def test_file_is_clean(tool: str, tmp_path: Path) -> None:
    """
    The file without a suffix is checked like every other.
    """
    pytest.importorskip(tool)
    copy = tmp_path / "shim_copy.py"
    copy.write_text(SHIM.read_text().replace("#!/bin/sh\n", "#\n", 1))
    project = SHIM.parents[2] / "pyproject.toml"
    argv = {
        "ruff": [
            *("check", "--no-cache", "--config", str(project), "--target-version", "py37"),
            *("--extend-ignore", ",".join(NOT_HERE)),
        ],
        "mypy": ["--config-file=", "--strict", "--cache-dir", str(tmp_path)],
    }[tool]

    answer = subprocess.run(
        [sys.executable, "-m", tool, *argv, str(copy)], capture_output=True, text=True, check=False
    )

    assert 0 == answer.returncode, answer.stdout + answer.stderr


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A node's folder with a runc that tells its arguments."""
    (tmp_path / "stopgap-runc").write_bytes(SHIM.read_bytes())
    (tmp_path / "stopgap-runc").chmod(0o755)
    runc = tmp_path / "runc"
    runc.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    runc.chmod(0o755)
    conf = f"instance=i\nnode=n1\ncheckpoints={tmp_path}\nrunc={runc}\npython={sys.executable}\n"
    (tmp_path / "stopgap-runc.conf").write_text(conf)
    return tmp_path


@pytest.mark.parametrize(
    "argv",
    [
        ["--version"],
        ["--root", "/r", "--log", "a b", "--log-format", "json", "state", "abc"],
        ["--systemd-cgroup", "start", "abc"],
        ["kill", "--all", "abc", "9"],
        ["exec", "abc", "sh", "-c", "echo 'two words' \n \"*\" $HOME"],
        ["run", "", "-t", "--", "x"],
        ["delete", "../tickets"],
        ["checkpoint", "--image-path", "/i", "abc"],
    ],
    ids=itemgetter(0),
)
def test_call_of_others_reaches_runc_untouched(place: Path, argv: list[str]) -> None:
    """
    Not one byte of another container's call is changed, and no Python is started for it.
    """
    (place / "state" / "tickets").mkdir(parents=True)

    answer = subprocess.run(
        [place / "stopgap-runc", *argv], capture_output=True, text=True, check=True
    )

    assert "".join(f"<{word}>" for word in argv) == answer.stdout


@pytest.mark.parametrize("spelt", [["--bundle", "{}"], ["--bundle={}"], ["-b", "{}"]])
def test_create_is_ours_by_its_bundle(place: Path, spelt: list[str]) -> None:
    """
    A ticket in the bundle's configuration makes the call ours, and a bad one is refused.
    """
    bundle = place / "bundle"
    bundle.mkdir()
    config = {"process": {"env": ["STOPGAP_TICKET=x.y"], "user": {}}, "linux": {}}
    (bundle / "config.json").write_text(json.dumps(config))
    (place / "node.key").write_text(KEY.hex())
    log = place / "log.json"
    argv = ["--log", str(log), "--log-format", "json", "create"]
    argv += [word.format(bundle) for word in spelt] + ["--pid-file", "p", "abc"]

    answer = subprocess.run(
        [place / "stopgap-runc", *argv], capture_output=True, text=True, check=False
    )

    words = "stopgap: the ticket is not signed with this node's key"
    assert (1, "", words + "\n") == (answer.returncode, answer.stdout, answer.stderr)
    said = json.loads(log.read_text())
    assert ("error", words) == (said["level"], said["msg"])
    assert not (place / "state").exists()


def test_configuration_keeps_the_types_of_its_defaults(shim: ModuleType) -> None:
    """
    Unknown keys are ignored, known ones are what they should be.
    """
    conf = shim.Conf("instance=i\nlog_bytes=5\nhook_seconds=2\nfuture=1\n# node=x\nnode=n=1\n")

    assert ("i", 5, 2.0, "n=1") == (conf.instance, conf.log_bytes, conf.hook_seconds, conf.node)
    assert 600.0 == conf.checkpoint_seconds


def test_call_is_taken_apart(shim: ModuleType) -> None:
    """
    The verb, its options and words are found among runc's global options.
    """
    text = "--root /r --log /l --log-format json --systemd-cgroup checkpoint"
    call = shim.Call([*text.split(), "--image-path=/i", "--work-path", "/w", "abc"])

    assert ("checkpoint", "abc") == (call.verb, call.container)
    assert ("/i", "/w") == (call.options["--image-path"], call.options["--work-path"])
    assert ["--root", "/r", "--systemd-cgroup"] == call.globals


def test_signed_document_is_read_back_and_a_changed_one_is_not(
    shim: ModuleType, tmp_path: Path
) -> None:
    """
    Only what the key signed is believed.
    """
    path = tmp_path / "manifest.json"
    path.write_text(shim.sign({"job": 7, "name": "ü"}, KEY))
    assert {"job": 7, "name": "ü"} == shim.read_signed(str(path), KEY)
    outer = json.loads(path.read_text())
    assert hmac.new(KEY, outer["body"].encode(), hashlib.sha256).hexdigest() == outer["mac"]

    path.write_text(path.read_text().replace("7", "8", 1))
    with pytest.raises(shim.Failure, match="not signed with this site's key"):
        shim.read_signed(str(path), KEY)
    path.write_text("[]")
    with pytest.raises(shim.Failure, match="not a signed document"):
        shim.read_signed(str(path), KEY)


def test_file_appears_whole(shim: ModuleType, tmp_path: Path) -> None:
    """
    A write leaves the file and nothing else.
    """
    shim.write_whole(str(tmp_path / "x"), "one")
    shim.write_whole(str(tmp_path / "x"), "two", durably=True)

    assert ["x"] == [path.name for path in tmp_path.iterdir()]
    assert "two" == (tmp_path / "x").read_text()
