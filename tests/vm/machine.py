"""The virtual machine: started, spoken to through ssh, rebooted, ended by its process."""

import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from tests.testbed.waiting import TookTooLongError, wait_until
from tests.vm.image import CHECKOUT, Image
from tests.vm.tools import VM_DIR, VmError, run

#: Under software emulation, on a machine that does other things too.
_BOOT_SECONDS = 900
_COMMAND_LINE = (
    "root=/dev/vda rw mitigations=off net.ifnames=0 console=ttyS0 quiet systemd.show_status=no"
)
_PYTHON = "/usr/local/lib/stopgap/bin/python"


class Machine:
    """One virtual machine on a copy of the disk that goes away with it."""

    def __init__(self, image: Image, folder: Path) -> None:
        self._image = image
        self._folder = folder
        self._port = _free_port()
        self._qemu: subprocess.Popen[bytes] | None = None

    @classmethod
    @contextmanager
    def running(cls, image: Image) -> Iterator[Self]:
        """
        Boot a machine that ends with the block.

        Raises:
            VmError: it does not come up.
        """
        with tempfile.TemporaryDirectory(dir=VM_DIR, prefix="run-") as folder:
            machine = cls(image, Path(folder))
            try:
                machine.power_on()
                machine.wait_booted("")
                yield machine
            finally:
                machine.power_off()

    @property
    def console(self) -> str:
        """What the machine has written to its console."""
        path = self._folder / "console"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def ssh(self) -> list[str]:
        """The command that runs others as root of the machine."""
        options = {
            "IdentityFile": str(self._image.key),
            "IdentitiesOnly": "yes",
            "StrictHostKeyChecking": "no",
            "UserKnownHostsFile": "/dev/null",
            "BatchMode": "yes",
            "ConnectTimeout": "30",
            "ServerAliveInterval": "20",
            "ServerAliveCountMax": "15",
            "LogLevel": "ERROR",
        }
        words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        return ["ssh", "-F", "/dev/null", *words, "-p", str(self._port), "root@127.0.0.1"]

    def power_on(self) -> None:
        """Start qemu; it ends with this program, however that ends."""
        disk = self._folder / "disk"
        if not disk.exists():
            # Sparse, and on file systems that can only a link to the blocks.
            run("cp", "--sparse=always", "--reflink=auto", self._image.disk, disk)
        with (self._folder / "qemu.log").open("ab") as log:
            self._qemu = subprocess.Popen(
                ["nice", "-n", "15", "setpriv", "--pdeathsig", "KILL", *self._argv(disk)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def power_off(self) -> None:
        """End qemu at once, as a cut of the power would."""
        if self._qemu is not None:
            self._qemu.kill()
            self._qemu.wait()
            self._qemu = None

    def wait_booted(self, before: str) -> str:
        """
        Wait until the machine answers in another boot than the one before, and return which.

        Raises:
            VmError: it does not.
        """
        boot = ""

        def answers() -> bool:
            nonlocal boot
            if self._qemu is None or self._qemu.poll() is not None:
                log = (self._folder / "qemu.log").read_text(errors="replace")
                raise VmError(f"qemu ended: {log.strip()[-1000:]}")
            boot = self.boot()
            return boot not in {"", before}

        try:
            wait_until(answers, _BOOT_SECONDS, "the virtual machine to boot", every=1.0)
        except TookTooLongError as exc:
            raise VmError(f"{exc}; its console ends with: {self.console[-1500:]}") from exc
        return boot

    def boot(self) -> str:
        """Return what distinguishes this boot; nothing while the machine does not answer."""
        answer = subprocess.run(
            [*self.ssh, "cat /proc/sys/kernel/random/boot_id"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return answer.stdout.strip() if answer.returncode == 0 else ""

    def inside(self, verb: str, *, seconds: float) -> tuple[int, str]:
        """
        Run one part of the test in the machine; its words go to stderr, its answer comes back.

        Raises:
            VmError: it did not end in time.
        """
        command = f"cd {CHECKOUT} && exec {_PYTHON} -m tests.vm.inside {verb}"
        try:
            answer = subprocess.run(
                [*self.ssh, command],
                stdout=subprocess.PIPE,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as exc:
            raise VmError(f"{verb} did not end within {seconds:g} s") from exc
        return answer.returncode, answer.stdout

    def reset(self) -> str:
        """
        Cut the power and switch it on again; return the new boot.

        What the machine had not written to its disk by then is lost, as it would be.
        """
        before = self.boot()
        self.power_off()
        self.power_on()
        return self.wait_booted(before)

    def _argv(self, disk: Path) -> list[str]:
        network = f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{self._port}-:22"
        # One thread: with several the emulated kernel has been seen to panic.  Its time is that
        # of a processor with a quarter of a billion instructions a second, however little of
        # this machine it gets, so that the time limits in it mean something.
        return [
            "qemu-system-x86_64", "-accel", "tcg,thread=single,tb-size=512",
            "-icount", "shift=2,sleep=on", "-rtc", "clock=vm",
            "-cpu", "Nehalem", "-smp", "1", "-m", "4096", "-nodefaults", "-display", "none",
            "-kernel", str(self._image.kernel), "-initrd", str(self._image.initrd),
            "-append", _COMMAND_LINE,
            "-drive", f"file={disk},format=raw,if=virtio,cache=unsafe",
            "-netdev", network, "-device", "virtio-net-pci,netdev=net",
            "-device", "virtio-rng-pci", "-serial", f"file:{self._folder}/console",
        ]  # fmt: skip


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
