"""What in Slurm's configuration stands in the way of stopgap, in words for people.  Pure."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

#: What ``scontrol show config`` prints for a time-out that was never set.
_UNSET_SECONDS = 65533
#: The releases whose text was tried.
_OLDEST, _NEWEST = (22, 5), (26, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What the findings depend on besides Slurm's own configuration."""

    #: Of the commands that are run here.
    version: str
    uid: int
    hook_seconds: float
    #: Where ``node setup`` puts the prolog; empty is not known.
    hook_path: str


def findings(config: Mapping[str, str], site: Site) -> tuple[str, ...]:
    """Return what an administrator should change, one sentence each, the gravest first."""
    return (
        *_private(config, site),
        *_prolog(config, site),
        *_power(config),
        *_versions(config, site),
    )


def _private(config: Mapping[str, str], site: Site) -> Iterator[str]:
    hidden = {word.strip() for word in config.get("PrivateData", "none").split(",")}
    owner = re.search(r"\((\d+)\)", config.get("SlurmUser", ""))
    trusted = {0, int(owner[1])} if owner else {0}
    if hidden & {"jobs", "nodes"} and site.uid not in trusted:
        yield (
            f"PrivateData={config['PrivateData']} hides jobs and nodes from uid {site.uid}: run "
            "stopgap as root or as SlurmUser, or it takes nodes for idle that are not"
        )
    if "reservations" in hidden and site.uid not in trusted:
        yield (
            f"PrivateData={config['PrivateData']} hides reservations from uid {site.uid}: their "
            "nodes are vacated when they begin, and not in time for it"
        )


def _prolog(config: Mapping[str, str], site: Site) -> Iterator[str]:
    prolog = config.get("Prolog", "(null)")
    ours = site.hook_path or "the prolog that 'stopgap node setup' places"
    if prolog in {"", "(null)"}:
        yield (
            f"Prolog is not set: set Prolog={ours}, or a priority job may start while "
            "a job of stopgap still runs on its node"
        )
    elif site.hook_path and site.hook_path not in prolog.split(","):
        yield f"Prolog={prolog} is not {site.hook_path}: make sure that it runs that too"
    flags = {flag.strip().lower() for flag in config.get("PrologFlags", "").split(",")}
    # slurm.conf(5): Contain and X11 imply Alloc.
    if not flags & {"alloc", "contain", "x11"}:
        yield (
            "PrologFlags lacks Alloc: the prolog runs only on a job's first node, and on the "
            "others not before its first step"
        )
    limit = re.match(r"(\d+)", config.get("PrologEpilogTimeout", ""))
    if limit and site.hook_seconds >= int(limit[1]) and int(limit[1]) < _UNSET_SECONDS:
        yield (
            f"PrologEpilogTimeout={limit[1]} is not longer than nodes.hook_seconds "
            f"({site.hook_seconds:g}): Slurm would drain the node and hold the user's job"
        )


def _power(config: Mapping[str, str]) -> Iterator[str]:
    after = re.match(r"(\d+)", config.get("SuspendTime", ""))
    if after and int(after[1]) > 0:
        excluded = config.get("SuspendExcNodes", "(null)"), config.get("SuspendExcParts", "(null)")
        yield (
            f"SuspendTime={after[1]}: Slurm switches idle nodes off, jobs of stopgap or not. Name "
            "the nodes that stopgap uses in SuspendExcNodes or SuspendExcParts "
            f"(now {excluded[0]} and {excluded[1]})"
        )


def _versions(config: Mapping[str, str], site: Site) -> Iterator[str]:
    found = re.match(r"(\d+)\.(\d+)", site.version)
    release = (int(found[1]), int(found[2])) if found else _NEWEST
    if release < _OLDEST:
        yield (
            f"Slurm {site.version} is older than 22.05 and calls states of nodes by other words: "
            "such nodes are not used"
        )
    if release > _NEWEST:
        yield (
            f"Slurm {site.version} is newer than what stopgap was tried with (26.05): its text is "
            "read as that of 26.05, and nodes in states with new words are not used"
        )
    controller = config.get("SLURM_VERSION", site.version)
    if controller != site.version:
        yield (
            f"the commands here are Slurm {site.version}, the controller is {controller}: "
            "commands newer than the controller may get no answer"
        )
