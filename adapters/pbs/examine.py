"""What in PBS's configuration stands in the way of stopgap, in words for people.  Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

#: Hooks that run on nodes beside our jobs, or while a node changes hands.
_EVENTS = frozenset(
    {
        "execjob_begin",
        "execjob_prologue",
        "execjob_epilogue",
        "execjob_end",
        "exechost_periodic",
        "exechost_startup",
    }
)
#: Come with PBS and touch only what belongs to jobs of its own.
_OWN_HOOKS = frozenset({"pbs_cgroups"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the findings are made of."""

    #: Of the commands that are run here.
    version: str
    uid: int
    #: Where they are run.
    host: str
    server: Mapping[str, str]
    hooks: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    #: Why the hooks are not known; empty when they are.
    hooks_trouble: str = ""
    #: A MoM's own settings without their ``$``, and where they were read.
    mom: Mapping[str, str] = field(default_factory=dict)
    mom_path: str = ""


def findings(asked: Asked) -> tuple[str, ...]:
    """Return what an administrator should change, one sentence each, the gravest first."""
    return (
        *_private(asked),
        *_mom(asked),
        *_hooks(asked),
        *_power(asked),
        *_versions(asked),
    )


def _private(asked: Asked) -> Iterator[str]:
    home = asked.server.get("server_host", "").split(".", 1)[0]
    is_manager = asked.uid == 0 and asked.host.split(".", 1)[0] == home
    if asked.server.get("query_other_jobs") == "False" and not is_manager:
        yield (
            f"query_other_jobs=False hides jobs from uid {asked.uid} here: run stopgap as root on "
            "the server's host, or make it one of its managers. Nothing is started otherwise, for "
            "nodes with suspended jobs look idle"
        )


def _mom(asked: Asked) -> Iterator[str]:
    where = f" in {asked.mom_path}"
    if asked.mom.get("restrict_user", "").casefold() in {"true", "yes", "on", "1"}:
        limit = asked.mom.get("restrict_user_maxsysid", "999")
        yield (
            f"$restrict_user{where} kills processes of users above uid {limit} who have no job of "
            "PBS's on the node, and so jobs of stopgap: unset it on the nodes that stopgap uses"
        )
    loads = [key for key in ("ideal_load", "max_load") if key in asked.mom]
    if loads:
        names = " and ".join(f"${key}" for key in loads)
        yield (
            f"{names}{where} count jobs of stopgap too: PBS calls a node busy, and starts nothing "
            "there, because of them. Unset that on the nodes that stopgap uses"
        )


def _hooks(asked: Asked) -> Iterator[str]:
    if asked.hooks_trouble:
        yield (
            f"the hooks could not be listed ({asked.hooks_trouble}): see that none of them kills "
            "processes or removes containers that are not a job's of PBS"
        )
    for name, hook in sorted(asked.hooks.items()):
        events = set(hook.get("event", "").replace('"', "").split(","))
        runs = sorted(_EVENTS & {event.strip() for event in events})
        if hook.get("enabled", "True") == "True" and runs and name not in _OWN_HOOKS:
            yield (
                f"hook {name} runs on nodes ({', '.join(runs)}): see that it neither kills "
                "processes of users without a job nor removes containers with the label "
                "stopgap.instance"
            )


def _power(asked: Asked) -> Iterator[str]:
    if asked.server.get("power_provisioning") == "True":
        yield (
            "power_provisioning=True: PBS switches idle nodes off, jobs of stopgap or not. Set "
            "poweroff_eligible=False on the nodes that stopgap uses"
        )


def _versions(asked: Asked) -> Iterator[str]:
    server = asked.server.get("pbs_version", asked.version)
    if server != asked.version:
        yield (
            f"the commands here are PBS {asked.version}, the server is {server}: keep them of one "
            "version"
        )
