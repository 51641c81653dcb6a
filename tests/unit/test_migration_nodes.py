"""Setting up and probing nodes: the parts that need no node."""

import json
import tarfile
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.clock import SystemClock
from daemon.core.types import NodeName
from migration.access import Access
from migration.nodes import NodeSetup, merged_daemon_json
from migration.probe import CanaryLostError, _image, check_song
from migration.settings import EngineSettings, NodeSettings
from migration.sockets import open_ssh, ssh_argv
from migration.ticket import Keys

SHIM = "/opt/stopgap/stopgap-runc"
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)
)
KEYS = st.text(min_size=1).filter(lambda key: key not in {"experimental", "runtimes"})


@given(settings=st.dictionaries(KEYS, VALUES, max_size=4))
def test_a_sites_settings_are_kept(settings: dict[str, object]) -> None:
    """Whatever is in daemon.json; and the second time there is nothing to do."""
    merged = merged_daemon_json(json.dumps(settings).encode(), SHIM)

    assert merged is not None
    found = json.loads(merged)
    assert {"path": SHIM} == found.pop("runtimes")["stopgap"]
    assert found.pop("experimental") is True
    assert settings == found
    assert merged_daemon_json(merged, SHIM) is None


def test_other_runtimes_are_kept() -> None:
    """Ours is added, an old path of ours corrected."""
    found = {"runtimes": {"nvidia": {"path": "n", "args": []}, "stopgap": {"path": "/old"}}}

    merged = json.loads(merged_daemon_json(json.dumps(found).encode(), SHIM) or b"")

    assert {"nvidia": {"path": "n", "args": []}, "stopgap": {"path": SHIM}} == merged["runtimes"]


def test_an_empty_file_is_no_settings() -> None:
    """As Docker reads it."""
    assert merged_daemon_json(b"\n", SHIM) is not None


@pytest.mark.parametrize("text", [b"{", b"[]", b'{"runtimes": []}'])
def test_what_cannot_be_read_is_not_replaced(text: bytes) -> None:
    """The site's words are worth more than ours."""
    with pytest.raises(ValueError, match=r"."):
        merged_daemon_json(text, SHIM)


def test_a_node_gets_its_own_key_and_the_sites() -> None:
    """Nothing else is secret, nothing secret is readable."""
    access = Access(EngineSettings(address="unix:///x"), NodeSettings(path="/p"), "site")
    setup = NodeSetup(access, Keys(b"m" * 32), "site", SystemClock())

    one, two = setup.files(NodeName("n1")), setup.files(NodeName("n2"))

    assert one["site.key"] == two["site.key"]
    assert one["node.key"] != two["node.key"]
    assert 32 == len(bytes.fromhex(one["node.key"].content.decode()))
    assert {0o600} == {one[n].mode for n in ("site.key", "node.key", "stopgap-runc.conf")}
    conf = dict(
        line.split("=", 1) for line in one["stopgap-runc.conf"].content.decode().splitlines()
    )
    assert ("site", "n1", "/p") == (conf["instance"], conf["node"], conf["path"])


def test_a_song_is_whole_or_lost() -> None:
    """From the first number, each once; an unfinished line is no line."""
    check_song(b"0 ok\n1 ok\n2 o")
    for wrong in (b"1 ok\n", b"0 ok\n0 ok\n", b"0 ok\n2 ok\n", b"0 lost the memory\n"):
        with pytest.raises(CanaryLostError):
            check_song(wrong)


def test_the_canarys_image_has_a_folder_to_write_in() -> None:
    """For any user."""
    with tarfile.open(fileobj=BytesIO(_image())) as archive:
        assert 0o1777 == archive.getmember("tmp").mode


def test_ssh_is_asked_without_a_shell() -> None:
    """No terminal, no password, no option in the host's place."""
    argv = ssh_argv("ssh://root@n1:2222", 5)

    assert ["-l", "root", "-p", "2222", "--", "n1", "docker", "system", "dial-stdio"] == argv[5:]
    assert "BatchMode=yes" in argv
    with pytest.raises(OSError, match="no host"):
        ssh_argv("ssh://", 5)


def test_a_program_is_a_connection() -> None:
    """What is written comes to its stdin, what it writes comes back."""
    with open_ssh(["cat"], 5) as sock:
        sock.sendall(b"ping")
        assert b"ping" == sock.recv(10)
