"""What the daemon knows of checkpoints that lie on the nodes themselves: which, and where.

One small file for each job, in the daemon's own state.  A node is written down before
anything of the job is made there, and stays until all of it is known to be deleted.
"""

import threading
from pathlib import Path

from pydantic import BaseModel

from daemon.core.types import Generation, JobId, NodeName
from daemon.durable import write_whole
from migration.manifest import Manifest

#: To be deleted: everything.
ALL = 0


class Holding(BaseModel):
    """What one node has of a job."""

    #: What was last seen there.
    manifests: tuple[Manifest, ...] = ()
    #: Generations below this one are to be deleted there, or ``ALL``; None is nothing.
    due: int | None = None
    #: Never a segment's node since: what it has was brought to be there if that one is lost.
    spare: bool = False

    def has(self, generation: Generation) -> bool:
        return any(found.generation == generation for found in self.manifests)


class Page(BaseModel):
    """What is known of one job."""

    #: By node, spare ones first, then in the order in which the job came to them: its newest
    #: segment's is the last.
    nodes: dict[str, Holding] = {}
    #: The highest number that a generation of it has had anywhere.
    highest: int = 0


_EMPTY = Page()


class Ledger:
    """All jobs that have, or may have, something on a node."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._pages: dict[JobId, Page] = {}

    def open(self) -> None:
        """
        Read what an earlier daemon has written down.

        Raises:
            OSError: it cannot be read.
            ValueError: it is not what one has written.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in self._folder.glob("*.json"):
            self._pages[JobId(int(path.stem))] = Page.model_validate_json(path.read_bytes())

    def page(self, job: JobId) -> Page:
        """Return what is known of a job; it may be changed by nobody else meanwhile."""
        with self._lock:
            return self._pages.get(job, Page()).model_copy(deep=True)

    def peek(self, job: JobId) -> Page:
        """Return the same without a copy, for whoever only reads."""
        with self._lock:
            return self._pages.get(job, _EMPTY)

    def write(self, job: JobId, page: Page) -> None:
        """Replace what is known of a job, durably; with no node left nothing is."""
        path = self._folder / f"{job}.json"
        if page.nodes:
            write_whole(path, [page.model_dump_json().encode()])
        else:
            path.unlink(missing_ok=True)
        with self._lock:
            if page.nodes:
                self._pages[job] = page
            else:
                self._pages.pop(job, None)

    def due(self, node: NodeName) -> tuple[JobId, ...]:
        """Return the jobs of which something is to be deleted on the node."""
        with self._lock:
            pages = [(job, page.nodes.get(node)) for job, page in self._pages.items()]
        return tuple(job for job, held in pages if held is not None and held.due is not None)
