"""What was found: named checks with their figures, told as they come and all at the end."""

import json
import sys
import time
from typing import Any


class Report:
    """The checks of one part of the test."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._checks: list[dict[str, Any]] = []

    def check(self, name: str, holds: bool, **figures: object) -> None:
        """Note whether a promise holds, and what was measured."""
        found = {"name": name, "ok": bool(holds), **figures}
        self._checks.append(found)
        self.say(json.dumps(found, default=str))

    def say(self, words: str) -> None:
        """Tell the person who waits how far it is."""
        print(f"{time.monotonic() - self._began:6.1f} {words}", file=sys.stderr, flush=True)

    def finish(self) -> int:
        """Print everything as one JSON object and return the exit status."""
        print(json.dumps({"checks": self._checks}, default=str), flush=True)
        return 0 if self._checks and all(check["ok"] for check in self._checks) else 1
