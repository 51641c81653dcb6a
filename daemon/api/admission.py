"""Whether a submitter may have what he asks for, by the site's limits and the file system.

A bind mount is made by root, so the kernel does not ask whether the submitter could have
reached its source; these checks do.  They look from the daemon's host: what it cannot see
there is judged by its name alone, and the node's own mount decides.
"""

import math
import os
import stat
from pathlib import Path

from daemon.api.ports import Caller, Refused
from daemon.api.schemas import JobRequest, MountRequest
from daemon.config import JobsSection
from daemon.core.types import CheckpointMode

_KINDS = (
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def admit(caller: Caller, request: JobRequest, limits: JobsSection, *, unended: int) -> None:
    """
    Check a request against the site's limits; ``unended`` counts the caller's present jobs.

    Raises:
        Refused: with what to ask for instead.
    """
    if caller.uid == 0 and not limits.allow_root:
        raise Refused(
            "root's own jobs are not accepted here",
            "submit as an ordinary user, or set jobs.allow_root for trying things out",
            403,
        )
    if unended >= limits.max_per_user:
        raise Refused(
            f"you have {unended} jobs that have not ended; this site allows {limits.max_per_user}",
            "wait for some of them, or cancel some",
            409,
        )
    if request.cpus > limits.max_cpus:
        raise Refused(
            f"{request.cpus} cores are more than a job may have here",
            f"ask for at most --cpus {limits.max_cpus}",
        )
    if request.mem_mib > limits.max_memory_mib:
        raise Refused(
            f"{request.mem_mib} MiB are more than a job may have here",
            f"ask for at most --mem {limits.max_memory_mib}M",
        )
    for mount in request.mounts:
        _admit_mount(caller, mount, limits.mounts)


def admit_saving(request: JobRequest, least_seconds: float) -> None:
    """
    Check what a request says of its checkpoints; ``least_seconds`` apart is what the site allows.

    Raises:
        Refused: with what to ask for instead.
    """
    every = request.checkpoint_every_seconds
    if every is not None and request.checkpoint is not CheckpointMode.CRIU:
        raise Refused(
            f"a job with --checkpoint {request.checkpoint.value} has no periodic checkpoints",
            "leave --checkpoint-every out, or choose --checkpoint criu",
        )
    if every is not None and every < least_seconds:
        raise Refused(
            f"a checkpoint every {every} s is more than this site allows",
            f"ask for at least --checkpoint-every {math.ceil(least_seconds / 60)} (minutes)",
        )
    targets = [mount.target for mount in request.mounts if not mount.read_only]
    for path in request.results:
        if not any(_within(path, target) for target in targets):
            raise Refused(
                f"--results {path} is below no mount that the job may write to",
                "name what it writes on a mounted directory, as it sees it",
            )


def _admit_mount(caller: Caller, mount: MountRequest, prefixes: tuple[str, ...]) -> None:
    prefix = next((p for p in prefixes if _within(mount.source, p)), None)
    if prefix is None:
        raise _not_allowed(mount.source, prefixes)
    try:
        real = os.path.realpath(mount.source, strict=True)
        mode = os.stat(real).st_mode  # noqa: PTH116  beside realpath, which Path spells worse
    except FileNotFoundError:
        if Path(prefix).exists():
            raise Refused(
                f"{mount.source} does not exist", "create it, or correct the --mount"
            ) from None
        return
    except OSError:
        return  # not visible from here, for example through root_squash
    if not any(_within(real, os.path.realpath(p)) for p in prefixes):
        raise _not_allowed(f"{mount.source}, which is {real},", prefixes)
    for is_kind, kind in _KINDS:
        if is_kind(mode):
            raise Refused(
                f"{mount.source} is {kind}, which a job cannot take to another node",
                "mount directories and plain files only",
            )
    if caller.uid != 0:
        _check_reach(caller, Path(real))


def _not_allowed(source: str, prefixes: tuple[str, ...]) -> Refused:
    places = ", ".join(prefixes) or "nothing (an administrator sets jobs.mounts)"
    return Refused(f"{source} may not be mounted", f"jobs here may mount {places}", 403)


def _within(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(prefix.rstrip("/") + "/")


def _check_reach(caller: Caller, real: Path) -> None:
    """Ask of every folder above what the kernel would have asked of the submitter."""
    for folder in reversed(real.parents):
        try:
            found = folder.stat()
        except OSError:
            return
        if found.st_uid == caller.uid:
            needed = stat.S_IXUSR
        elif found.st_gid == caller.gid or found.st_gid in caller.groups:
            needed = stat.S_IXGRP
        else:
            needed = stat.S_IXOTH
        if not found.st_mode & needed:
            raise Refused(
                f"{real} may not be mounted: you may not enter {folder}",
                "mount what you can reach yourself",
                403,
            )
