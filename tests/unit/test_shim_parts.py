"""The pure parts of the shim, without root: loaded as a module from its one file."""

import ast
import base64
import hashlib
import hmac
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from migration.ticket import Ticket, sign
from tests.unit import shim_module

SHIM = shim_module.SHIM
KEY = bytes(range(32))
NOW = 1_800_000_000.0


@pytest.fixture(scope="module")
def shim() -> ModuleType:
    return shim_module.load()


# -- the file -------------------------------------------------------------------------------------


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


# -- configuration, calls, documents --------------------------------------------------------------


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


# -- tickets --------------------------------------------------------------------------------------


def _ticket(**changes: Any) -> dict[str, Any]:
    return {
        "v": 1,
        "roots": ["/data"],
        "instance": "i",
        "node": "n1",
        "job": 7,
        "epoch": 3,
        "uid": 1000,
        "name": "x",
        "generation": None,
        "seen": NOW - 1,
        "expires": NOW + 10,
        "nonce": "0123456789abcdef",
        "results": ["/data/out"],
        "ignored": [],
        "after_crash": "hold",
        **changes,
    }


def _text(ticket: object) -> str:
    payload = base64.urlsafe_b64encode(json.dumps(ticket).encode()).rstrip(b"=").decode()
    return f"{payload}.{hmac.new(KEY, payload.encode(), hashlib.sha256).hexdigest()}"


def _config(path: str, uid: int = 1000) -> dict[str, Any]:
    return {"process": {"user": {"uid": uid}}, "linux": {"cgroupsPath": path}}


def test_daemons_ticket_is_read(shim: ModuleType) -> None:
    """
    Both sides of the contract speak the same language.
    """
    fields = {name: value for name, value in _ticket().items() if name != "v"}
    assert _ticket() == shim.read_ticket(sign(Ticket(**fields), KEY), KEY)


def test_mounts_lead_where_the_ticket_allows(shim: ModuleType, tmp_path: Path) -> None:
    """
    Links are followed before the mount is made, and one that leads astray is refused.
    """
    inside, outside = tmp_path / "shared", tmp_path / "secret"
    (inside / "data").mkdir(parents=True)
    outside.mkdir()
    (inside / "link").symlink_to("data")
    (inside / "trap").symlink_to(outside)

    def mounted(source: Path) -> str:
        mount = {"type": "bind", "source": str(source), "destination": "/d"}
        shim.resolve_mounts({"mounts": [mount]}, [str(inside)])
        return mount["source"]

    assert str(inside / "data") == mounted(inside / "link")
    for source in (inside / "trap", inside / ".." / "secret", outside, tmp_path / "sharedx"):
        with pytest.raises(shim.Failure, match="no job may mount"):
            mounted(source)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "x",
        _text(_ticket()) + "0",
        _text(_ticket())[:-1],
        _text([]),
        _text(_ticket(v=2)),
        _text(_ticket(nonce="../../etc/passwd")),
        _text(_ticket(nonce="short")),
        _text(_ticket(job="7")),
        _text(_ticket(seen=None)),
        _text({name: value for name, value in _ticket().items() if name != "generation"}),
        "\udcff.\udcff",
    ],
)
def test_malformed_ticket_is_a_failure_and_no_crash(shim: ModuleType, text: str) -> None:
    """
    Whatever the variable holds, the answer is a refusal in words.
    """
    with pytest.raises(shim.Failure, match="the ticket is not"):
        shim.read_ticket(text, KEY)


def test_ticket_is_exactly_one_variable(shim: ModuleType) -> None:
    """
    None is a container of others; two, or something like it, are refused.
    """
    assert shim.find_ticket({"process": {"env": ["PATH=/bin", "X=STOPGAP_TICKET=1"]}}) is None
    assert "a.b" == shim.find_ticket({"process": {"env": ["STOPGAP_TICKET=a.b"]}})
    for env in (
        ["STOPGAP_TICKET=a", "STOPGAP_TICKET=b"],
        ["STOPGAP_TICKET"],
        ["STOPGAP_TICKETS=a"],
    ):
        with pytest.raises(shim.Failure, match="the only variable"):
            shim.find_ticket({"process": {"env": env}})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"instance": "j"}, "n1 of j"),
        ({"node": "n2"}, "node n2"),
        ({"expires": NOW - 1}, "expired 1.0 seconds ago"),
        ({"seen": NOW + 60}, "60.0 seconds ahead"),
        ({"uid": 0}, "uid 0"),
        ({"epoch": 4}, "7.4"),
        ({"job": 8}, "8.3"),
    ],
)
def test_ticket_that_does_not_fit_is_refused(
    shim: ModuleType, changes: dict[str, Any], words: str
) -> None:
    """
    Node, time, user and cgroup have to be those of the ticket, and the refusal names which.
    """
    conf = shim.Conf("instance=i\nnode=n1\n")
    with pytest.raises(shim.Failure, match=words):
        shim.check_ticket(conf, _ticket(**changes), _config("/stopgap/i/n1/7.3/abc"), "abc", NOW)


def test_ticket_fits_both_cgroup_drivers(shim: ModuleType) -> None:
    """
    The segment's cgroup is found whether systemd or Docker makes it.
    """
    conf = shim.Conf("instance=my-site\nnode=n-1.x\n")
    ticket = _ticket(instance="my-site", node="n-1.x")
    unit = "stopgap-my_site.n_1.x.7.3.slice"

    by_docker = shim.check_ticket(
        conf, ticket, _config("/stopgap/my-site/n-1.x/7.3/abc"), "abc", NOW
    )
    by_systemd = shim.check_ticket(conf, ticket, _config(f"{unit}:docker:abc"), "abc", NOW)

    assert shim.TREE + "/stopgap/my-site/n-1.x/7.3/abc" == by_docker
    assert f"{shim.TREE}/stopgap.slice/{unit}/docker-abc.scope" == by_systemd


@pytest.mark.parametrize(
    "path", ["/stopgap/i/n1/7.3/other", "/stopgap/i/n1/7.3", "", "/docker/abc"]
)
def test_ticket_for_another_place_is_refused(shim: ModuleType, path: str) -> None:
    """
    A container outside its segment's cgroup could not be proven dead.
    """
    conf = shim.Conf("instance=i\nnode=n1\n")
    with pytest.raises(shim.Failure, match="cgroup parent"):
        shim.check_ticket(conf, _ticket(), _config(path), "abc", NOW)


# -- credentials ----------------------------------------------------------------------------------

STATUS = {
    "Uid": "1000\t1000\t1000\t1000",
    "Gid": "100\t100\t100\t100",
    "Groups": "20 100",
    "CapInh": "0",
    "CapPrm": "0000000000000400",
    "CapEff": "0",
    "CapBnd": "0000000000000400",
    "CapAmb": "0",
    "NoNewPrivs": "1",
    "Seccomp": "2",
}
GIVEN = {
    "process": {
        "user": {"uid": 1000, "gid": 100, "additionalGids": [20]},
        "capabilities": {
            "bounding": ["CAP_NET_BIND_SERVICE"],
            "permitted": ["CAP_NET_BIND_SERVICE"],
        },
        "noNewPrivileges": True,
    },
    "linux": {"seccomp": {"defaultAction": "SCMP_ACT_ERRNO"}},
}


def test_task_with_what_it_was_given_passes(shim: ModuleType) -> None:
    """
    Fewer capabilities than given are the job's own decision.
    """
    assert "" == shim.excess(STATUS, GIVEN)
    assert "" == shim.excess({**STATUS, "CapBnd": "0", "CapPrm": "0"}, GIVEN)


@pytest.mark.parametrize(
    "changes",
    [
        {"Uid": "0\t0\t0\t0"},
        {"Uid": "1000\t0\t1000\t1000"},
        {"Gid": "0\t0\t0\t0"},
        {"Groups": "0 20 100"},
        {"Groups": ""},
        {"CapEff": "000001ffffffffff"},
        {"CapEff": "0000000000000400"},
        {"CapBnd": "0000020000000400"},
        {"CapAmb": "1"},
        {"NoNewPrivs": "0"},
        {"Seccomp": "0"},
    ],
    ids="-".join,
)
def test_task_with_more_is_named(shim: ModuleType, changes: dict[str, str]) -> None:
    """
    The field that is wrong is in the answer.
    """
    assert shim.excess({**STATUS, **changes}, GIVEN).startswith(next(iter(changes)))


# -- images and names -----------------------------------------------------------------------------


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    head = b""
    while value > 0x7F:
        head, value = head + bytes([value & 0x7F | 0x80]), value >> 7
    return head + bytes([value])


def _image(*messages: bytes) -> bytes:
    return bytes(8) + b"".join(len(m).to_bytes(4, "little") + m for m in messages)


def test_links_of_renamed_files_are_found(shim: ModuleType, tmp_path: Path) -> None:
    """
    Of all remaps only those with a link, with both names.
    """
    remaps = [
        _number(1, 300) + _number(2, 5) + _number(3, 0),
        _number(1, 301) + _number(2, 9) + _number(3, 1),
    ]
    (tmp_path / "remap-fpath.img").write_bytes(_image(*remaps))
    files = [
        _number(1, 1) + _number(2, 300) + _bytes(3, _number(1, 300) + _bytes(6, b"/a b")),
        _number(1, 1) + _number(2, 5) + _bytes(3, _number(1, 5) + _bytes(6, b"/link_remap.5")),
        _number(1, 3) + _number(2, 6) + _bytes(4, b"socket"),
    ]
    (tmp_path / "files.img").write_bytes(_image(*files))

    assert [("/a b", "/link_remap.5")] == shim.linked_remaps(str(tmp_path))


def test_no_remaps_no_links(shim: ModuleType, tmp_path: Path) -> None:
    """
    Most generations have none.
    """
    assert [] == shim.linked_remaps(str(tmp_path))


def test_stopped_tasks_are_found(shim: ModuleType, tmp_path: Path) -> None:
    """
    By the number that the job itself knows them by.
    """
    for pid, state in ((1, 1), (23, 3), (24, 6)):
        core = _number(1, 1) + _bytes(3, _number(1, state))
        (tmp_path / f"core-{pid}.img").write_bytes(_image(core))

    assert {23} == shim.stopped_tasks(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/plain", "/plain"),
        (r"/a\040b\134c", r"/a b\c"),
        (r"\011x\012", "\tx\n"),
        (r"a\,b", r"a,b"),
    ],
)
def test_names_in_mountinfo_are_unescaped(shim: ModuleType, text: str, expected: str) -> None:
    """
    The kernel writes blanks as octal numbers, overlay's own commas with a backslash.
    """
    assert expected == shim.unescape(text)


@pytest.mark.parametrize(
    ("name", "size", "expected"),
    [
        ("images/pages-1.img", 1, True),
        ("images/core-1.img", 1 << 30, False),
        ("images/mm-1.img", 1 << 30, False),
        ("layer.tar", 10240, False),
        ("layer.tar", 1 << 30, True),
        ("images/ghost-file-3.img", 1 << 30, True),
    ],
)
def test_only_data_is_hashed_late(shim: ModuleType, name: str, size: int, expected: bool) -> None:
    """
    What CRIU interprets is signed with the manifest, however large.
    """
    assert expected == shim.is_bulk(name, size)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("runc version 1.1.5+ds1\ncommit: 1.1.5", "1.1.5+ds1"),
        ("Version: 4.2.1\n", "4.2.1"),
        ("tar (GNU tar) 1.34\n", "1.34"),
        ("*** Zstandard CLI (64-bit) v1.5.4, by Yann Collet ***\n", "1.5.4"),
        ("", ""),
    ],
)
def test_version_is_read(shim: ModuleType, text: str, expected: str) -> None:
    """
    Every program says it in its own words.
    """
    assert expected == shim.version(text)


# -- what others do meanwhile ---------------------------------------------------------------------


def test_a_cgroup_that_is_gone_is_not_frozen(shim: ModuleType, tmp_path: Path) -> None:
    """
    It may vanish between two looks.
    """
    gone = str(tmp_path / "gone")

    assert not shim.is_frozen(gone)
    assert not shim.told_to_freeze(gone)


def test_old_tickets_and_records_are_cleared_once_a_day(
    shim: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Also while another call deletes a record; what is young stays.
    """
    monkeypatch.setattr(shim, "STATE", str(tmp_path))
    (tmp_path / "tickets").mkdir()
    old, young, later = (tmp_path / "tickets" / name for name in ("old", "young", "later"))
    for ticket in (old, young, later):
        ticket.touch()
    os.utime(old, (0, 0))
    values = dict.fromkeys(shim.Record.FIELDS, "0")
    monkeypatch.setattr(shim, "records", lambda: [shim.Record("gone", **values)])
    shim.forget_old()
    os.utime(later, (0, 0))
    shim.forget_old()

    assert (False, True, True) == (old.exists(), young.exists(), later.exists())


def test_a_prolog_ends_although_a_process_does_not(
    shim: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A process that waits for a disk survives every kill; the batch system is not kept waiting.
    """
    conf = shim.Conf("hook_seconds=0\nhook_unreachable_seconds=0\n")
    monkeypatch.setattr(shim, "segments", lambda _conf: [(1, 1, "/one"), (2, 1, "/two")])
    monkeypatch.setattr(shim, "processes", lambda _segment: [4242])
    monkeypatch.setattr(shim, "freeze_segment", lambda *_: None)
    monkeypatch.setattr(shim, "records", list)
    killed: list[str] = []

    def kill_all(place: str, _seconds: float) -> list[int]:
        killed.append(place)
        return [4242]

    monkeypatch.setattr(shim, "kill_all", kill_all)

    assert {"processes": 2} == shim.prolog(conf)
    assert ["/one", "/two"] == killed


def test_a_prolog_without_a_key_vacates_by_itself(
    shim: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Nobody can be told then, and that is no reason to leave jobs running.
    """
    monkeypatch.setattr(shim, "HERE", str(tmp_path))

    assert not shim.tell_daemon(shim.Conf("daemon_url=http://127.0.0.1:1\n")).is_set()


HERE = {"machine": "x86_64", "cgroup": 2, "cpu": "avx fpu sse"}


@pytest.mark.parametrize(
    ("there", "words"),
    [
        ({}, ""),
        ({"cpu": "sse fpu"}, ""),
        ({"cpu": "fpu avx512f avx erms"}, "lacks avx512f erms"),
        ({"cgroup": 1}, "cgroup was 1"),
        ({"machine": "aarch64"}, "machine was aarch64"),
    ],
)
def test_job_goes_on_where_nothing_is_missing(
    shim: ModuleType, there: dict[str, Any], words: str
) -> None:
    """
    A processor may have more than the one before, never less.
    """
    said = shim.misfit({**HERE, **there}, HERE)

    assert words in said
    assert bool(words) == bool(said)


@pytest.mark.parametrize(
    ("there", "here", "good"),
    [
        ("4.2.1", "4.2.1", True),
        ("4.2", "4.2.1", True),
        ("4.2.1", "4.10", True),
        ("4.2", "4.1.1", False),
        ("4.2.1", "4.2", False),
        ("3.17.1", "4.2-1+deb", True),
        ("4.2", "", False),
    ],
)
def test_older_criu_is_refused(shim: ModuleType, there: str, here: str, good: bool) -> None:
    """
    It could read the images as empty, and lose memory without a word.
    """
    if good:
        shim.check_criu(there, here)
    else:
        with pytest.raises(shim.Failure, match="CRIU"):
            shim.check_criu(there, here)


# -- files outside of the container ----------------------------------------------------------------


@pytest.fixture
def roots(tmp_path: Path) -> Iterator[dict[str, int]]:
    root = os.open(tmp_path, os.O_PATH)
    yield {"/data": root}
    os.close(root)


def _judged(
    shim: ModuleType, roots: dict[str, int], tmp_path: Path, *cut: int, **manifest: Any
) -> Any:
    facts = {"mounts": {"/data": str(tmp_path)}, "ignored": [], "uid": os.getuid()}
    return shim.judge(facts, roots, {"quiet": 9e9, **manifest}, set(cut))


def test_an_interrupted_cut_is_known_again(
    shim: ModuleType, roots: dict[str, int], tmp_path: Path
) -> None:
    """
    Killed after the cut and before it gave the file its old time, the shim finds its own work.
    """
    file = tmp_path / "file"
    file.write_bytes(b"before")
    entry = shim.note_file(roots["/data"], "/data", "file")
    with file.open("ab") as appended:
        appended.write(b" and after")
    assert ([(0, entry)], []) == _judged(shim, roots, tmp_path, outputs=[entry])

    with (tmp_path / "tail").open("wb") as tail:
        shim.cut(roots, entry, tail.fileno())
    assert ([], []) == _judged(shim, roots, tmp_path, outputs=[entry])
    assert (b"before", b" and after") == (file.read_bytes(), (tmp_path / "tail").read_bytes())

    os.utime(file)
    assert ([(0, entry)], []) == _judged(shim, roots, tmp_path, 0, outputs=[entry])
    said = ["/data/file was overwritten"]
    assert ([], said) == _judged(shim, roots, tmp_path, outputs=[entry])


def test_no_link_is_followed(shim: ModuleType, roots: dict[str, int], tmp_path: Path) -> None:
    """
    What the submitter has put in the place of a file, or of its folder, leads nowhere.
    """
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(b"x")
    (tmp_path / "file").write_bytes(b"x")
    entries = [shim.note_file(roots["/data"], "/data", n) for n in ("file", "folder/file")]
    (tmp_path / "secret").write_bytes(b"xyz")
    (tmp_path / "file").unlink()
    (tmp_path / "file").symlink_to("secret")
    (tmp_path / "folder").rename(tmp_path / "real")
    (tmp_path / "folder").symlink_to("real")

    longer, changed = _judged(shim, roots, tmp_path, outputs=entries)

    assert [] == longer
    assert ["/data/file cannot be opened", "/data/folder/file cannot be opened"] == [
        line.partition(":")[0] for line in changed
    ]


def test_files_are_looked_at_as_the_submitter(shim: ModuleType, tmp_path: Path) -> None:
    """
    He gets no further than he would himself.
    """
    if os.getuid():
        pytest.skip("needs root")
    tmp_path.chmod(0o755)
    (tmp_path / "secret").write_bytes(b"x")
    (tmp_path / "secret").chmod(0o600)
    facts = {"mounts": {"/data": str(tmp_path)}, "uid": 4321, "gid": 4321, "groups": [4322]}

    noted = shim.as_submitter(
        facts, shim.Watch(10), lambda roots: shim.note_file(roots["/data"], "/data", "secret")
    )
    ids = shim.as_submitter(facts, shim.Watch(10), lambda _: [os.geteuid(), os.getgroups()])
    # Its names can be read, and nothing behind them.
    (tmp_path / "listed").mkdir()
    (tmp_path / "listed" / "file").touch()
    (tmp_path / "listed").chmod(0o744)
    found = shim.as_submitter(
        facts, shim.Watch(10), lambda roots: shim.files_below(roots["/data"], "", 10)
    )

    assert "Permission denied" in noted["hidden"]
    assert [4321, [4322]] == ids
    assert ["secret"] == found


# -- what cannot be saved --------------------------------------------------------------------------


def test_a_gpu_needs_criu_to_know_it(
    shim: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Its plugin and NVIDIA's helper have to be there; the refusal says what to do instead.
    """
    monkeypatch.setattr(shim, "PLUGINS", (str(tmp_path),))
    monkeypatch.setenv("PATH", str(tmp_path))
    links = {"/dev/null", "/dev/nvidia0", "/dev/nvidiactl"}

    with pytest.raises(shim.Failure, match=r"uses a GPU .*--checkpoint signal or none"):
        shim.refuse(links)

    (tmp_path / "cuda-checkpoint").touch()
    (tmp_path / "cuda_plugin.so").touch()
    shim.refuse(links)


def test_what_is_ordinary_is_not_refused(shim: ModuleType) -> None:
    """
    Files of the kernel among it, which CRIU can open again.
    """
    shim.refuse({"/proc/1/status", "/proc", "anon_inode:[eventpoll]", "socket:[1]", "/dev/zero"})


def test_a_timer_that_expired_goes_on(shim: ModuleType, tmp_path: Path) -> None:
    """
    One that is periodic and has nothing left; others are left alone.
    """

    def timer(value: int, interval: int) -> bytes:
        tags = [(7, 0), (8, value), (9, 0), (10, interval)]
        inner = b"".join(bytes([number << 3, amount]) for number, amount in tags)
        entry = bytes([1 << 3, 17, 2 << 3, 5, 12 << 3 | 2, len(inner)]) + inner
        return len(entry).to_bytes(4, "little") + entry

    head = b"magic..."
    image = tmp_path / "files.img"
    image.write_bytes(head + timer(0, 9) + timer(3, 9) + timer(0, 0))

    shim.rearm_timers(str(tmp_path))

    assert head + timer(1, 9) + timer(3, 9) + timer(0, 0) == image.read_bytes()
