"""What the shim reads from CRIU's images."""

from pathlib import Path
from types import ModuleType


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
