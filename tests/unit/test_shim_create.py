"""What the shim believes before it creates a container: tickets."""

import base64
import hashlib
import hmac
import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from migration.ticket import Ticket, sign

KEY = bytes(range(32))
NOW = 1_800_000_000.0


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
