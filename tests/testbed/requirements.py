"""What this machine lacks for a bed."""

import os
import shutil

_PROGRAMS = {
    "dockerd": "docker.io",
    "docker": "docker.io",
    "runc": "runc",
    "munged": "munge",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sinfo": "slurm-client",
    "busybox": "busybox-static",
    "debootstrap": "debootstrap",
    "tini-static": "tini",
    "iptables": "iptables",
}


def missing() -> list[str]:
    """Return why a bed cannot run here, one sentence each; nothing if it can."""
    if os.geteuid() != 0:
        return ["the bed starts Docker engines and must be run by root"]
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return [
        f"{program} is not installed (Debian: apt-get install {package})"
        for program, package in _PROGRAMS.items()
        if not shutil.which(program, path=path)
    ]
