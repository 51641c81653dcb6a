"""The Standard Workload Format of the Parallel Workloads Archive, version 2.2."""

from collections.abc import Iterable

from daemon.sim.workload import Rows, Shape, TraceError, Workload, assemble

_COLUMNS = 18
# Fields by their position: job, submit, wait, run, allocated processors, requested time.
_ID, _SUBMIT, _WAIT, _RUN, _ALLOCATED, _ASKED_TIME = 0, 1, 2, 3, 4, 8


def read(name: str, lines: Iterable[str], shape: Shape) -> Workload:
    """
    Return the jobs of an SWF log; those without a runtime, processors or an estimate are dropped.

    Raises:
        TraceError: a line is none of SWF.
    """
    rows = Rows()
    header: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if line.startswith(";"):
            key, found, value = line[1:].partition(":")
            if found:
                header.setdefault(key.strip(), value.strip())
            continue
        words = line.split()
        if not words:
            continue
        try:
            _add(rows, words)
        except ValueError as exc:
            raise TraceError(
                f"{name}, line {number} is not SWF: {exc}; drop or mend the line, or say another "
                "--format"
            ) from exc
    return assemble(name, rows, shape, processors=_number(header, "MaxProcs", "MaxNodes"))


def _add(rows: Rows, words: list[str]) -> None:
    if len(words) != _COLUMNS:
        raise ValueError(f"{len(words)} columns instead of {_COLUMNS}")
    submit, wait = _amount(words[_SUBMIT]), _amount(words[_WAIT])
    processors = int(words[_ALLOCATED])
    rows.add(
        words[_ID],
        submit=submit,
        processors=processors,
        runtime=_amount(words[_RUN]),
        limit=_amount(words[_ASKED_TIME]),
        began=submit + wait if wait >= 0 else None,
    )


def _amount(text: str) -> float:
    """Read seconds: whole ones stay whole, and are printed as they came."""
    return int(text) if text.lstrip("-").isdigit() else float(text)


def _number(header: dict[str, str], *keys: str) -> int | None:
    for key in keys:
        first = header.get(key, "").split()
        if first and first[0].isdigit() and int(first[0]) > 0:
            return int(first[0])
    return None
