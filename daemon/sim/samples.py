"""Samples of idle nodes, as a loop around sinfo writes them.

A sample is a line with its time, in seconds since 1970, then any number of lines, then
``----``.  The lines of sinfo name idle nodes; a line ``invokers:`` names nodes that
preemptable pilots hold, which are idle for the batch system too.
"""

import re
from collections.abc import Iterable, Iterator

from daemon.sim.workload import Gap, Samples, TraceError

_HOSTS = re.compile(r"([^\[\],\s]+)(?:\[([^\]]*)\])?")


def read(name: str, lines: Iterable[str], cores_per_node: int = 1) -> Samples:
    """
    Return the gaps between the samples: from the first that has a node to the first without.

    Raises:
        TraceError: there are fewer than two samples.
    """
    gaps: list[Gap] = []
    since: dict[str, float] = {}
    moment = first = None
    for moment, idle in _samples(lines):
        first = moment if first is None else first
        over = [node for node in since if node not in idle]
        gaps += [Gap(node, since.pop(node), moment) for node in over]
        for node in sorted(idle):
            since.setdefault(node, moment)
    if first is None or moment is None or moment <= first:
        raise TraceError(f"{name} has no two samples of idle nodes; is it of another --format?")
    gaps += [Gap(node, begin, moment) for node, begin in since.items()]
    found = sorted((g for g in gaps if g.end > g.begin), key=lambda g: (g.begin, g.node))
    return Samples(
        name=name, gaps=tuple(found), begin=first, end=moment, cores_per_node=cores_per_node
    )


def _samples(lines: Iterable[str]) -> Iterator[tuple[float, set[str]]]:
    moment, idle = None, set[str]()
    for line in lines:
        words = line.split()
        if len(words) == 1 and words[0].isdigit():
            if moment is not None:
                yield moment, idle
            moment, idle = float(words[0]), set()
        elif words and words[0] == "invokers:":
            idle.update(_expand(words[1] if len(words) > 1 else ""))
        elif len(words) >= 6 and words[4] == "idle":
            idle.update(_expand(words[5]))
    if moment is not None:
        yield moment, idle


def _expand(hosts: str) -> Iterator[str]:
    for prefix, ranges in _HOSTS.findall(hosts):
        if not ranges:
            yield prefix
        for part in ranges.split(",") if ranges else ():
            low, _, high = part.partition("-")
            for number in range(int(low), int(high or low) + 1):
                yield f"{prefix}{number:0{len(low)}}"
