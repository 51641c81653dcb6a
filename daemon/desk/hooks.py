"""Whether a call of a node's prolog is that node's own word, said once."""

import threading
from collections.abc import Callable
from datetime import datetime, timedelta

from daemon.api.ports import Refused
from daemon.api.schemas import PrologCall
from daemon.core.types import NodeName

#: A node whose clock is further off is refused anyway by munge, with the same bound.
_SKEW = timedelta(seconds=300)

Verify = Callable[[NodeName, bytes, str], bool]


class HookGuard:
    """Checks signatures and remembers what was said."""

    def __init__(self, verify: Verify) -> None:
        self._verify = verify
        self._lock = threading.Lock()
        self._said: dict[str, datetime] = {}

    def check(self, node: NodeName, body: bytes, signature: str, *, now: datetime) -> None:
        """
        Let a call pass once.

        Raises:
            Refused: 401 when it is not signed by the node, 409 when it is old or a repetition.
        """
        if not self._verify(node, body, signature):
            raise Refused(
                "the call is not signed with this node's key",
                "run stopgap node setup for this node",
                401,
            )
        call = PrologCall.model_validate_json(body)
        if abs(now.timestamp() - call.time) > _SKEW.total_seconds():
            raise Refused("the call is too old", "check the node's clock", 409)
        with self._lock:
            self._said = {n: t for n, t in self._said.items() if now - t < 2 * _SKEW}
            if call.nonce in self._said:
                raise Refused("the call was made before", "", 409)
            self._said[call.nonce] = now
