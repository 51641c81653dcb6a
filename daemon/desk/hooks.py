"""Whether a call of a node's prolog is that node's own word, and a new one."""

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

    def is_new(self, node: NodeName, body: bytes, signature: str, *, now: datetime) -> bool:
        """
        Tell whether this is a node's own word, said for the first time.

        A prolog whose answer was lost says the same again and must hear that it was heard.

        Raises:
            Refused: 401 when it is not signed by the node, 409 when it is old.
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
            return self._said.setdefault(call.nonce, now) == now
