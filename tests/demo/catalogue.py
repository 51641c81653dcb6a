"""The programs that are moved: none of them knows of checkpoints, each always prints the same."""

from dataclasses import dataclass, replace

PYTHON = "stopgap/python:1"
BUSYBOX = "stopgap/busybox:1"

#: Where a container finds the programs, and where it leaves its files.
PROGRAMS, OUT = "/programs", "/out"

COMPUTING_CORES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A command, and what to compare of what it leaves."""

    name: str
    argv: tuple[str, ...]
    image: str = PYTHON
    cpus: int = 1
    memory_mib: int = 256
    env: tuple[tuple[str, str], ...] = ()
    #: Files in its folder, compared byte by byte.
    files: tuple[str, ...] = ()
    #: SQLite databases in its folder, compared by all that is in them.
    databases: tuple[str, ...] = ()
    #: How lines of each of its streams begin: between two streams there is no order.
    streams: tuple[bytes, ...] = (b"",)


def catalogue(*, seconds: float, products: int) -> tuple[Program, ...]:
    """
    Return the programs, sized to run so long when nothing disturbs them.

    The first does nothing but compute and is sized by ``products`` instead, the number of
    its steps, since its time depends on the machine.
    """

    def paced(pause: float) -> tuple[str, str]:
        return str(round(seconds / pause)), str(pause)

    return (
        Program(
            name="numpy",
            argv=_python("numpy_job.py", str(products), f"{OUT}/result.npy"),
            cpus=COMPUTING_CORES,
            memory_mib=512,
            env=(("OPENBLAS_NUM_THREADS", str(COMPUTING_CORES)),),
            files=("result.npy",),
        ),
        Program(
            name="threads",
            argv=(f"{PROGRAMS}/threads", str(round(seconds / 0.2)), "200"),
            cpus=2,
        ),
        Program(
            name="sqlite",
            argv=_python("sqlite_job.py", *paced(0.25), OUT),
            files=("appended.txt",),
            databases=("work.db",),
        ),
        Program(
            name="reopen",
            argv=_python("reopen.py", *paced(0.2), f"{OUT}/lines.txt"),
            files=("lines.txt",),
        ),
        Program(name="nonewline", argv=_python("nonewline.py", *paced(0.1))),
        Program(name="trap", argv=_python("trap.py", *paced(0.2))),
        Program(
            name="streams", argv=_python("streams.py", *paced(0.2)), streams=(b"out ", b"err ")
        ),
        Program(
            name="holder",
            argv=_python("holder.py", *paced(0.2), f"{OUT}/locked.txt"),
            files=("locked.txt",),
        ),
        Program(
            name="family",
            argv=("sh", f"{PROGRAMS}/family.sh", *paced(0.25), f"{OUT}/numbers.txt"),
            image=BUSYBOX,
            memory_mib=64,
            files=("numbers.txt",),
        ),
        Program(name="events", argv=_python("events.py", *paced(0.2))),
    )


def computation(products: int) -> Program:
    """Return the program that does nothing but compute, to measure what a step of it takes.

    It has one thread: several take time of cores while they wait for each other.
    """
    program = catalogue(seconds=1, products=products)[0]
    return replace(program, env=(("OPENBLAS_NUM_THREADS", "1"),))


def _python(name: str, *words: str) -> tuple[str, ...]:
    return ("python3", f"{PROGRAMS}/{name}", *words)
