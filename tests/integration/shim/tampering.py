"""What somebody who has the site's key could do to a generation."""

import hashlib
import hmac
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.integration.shim.kit import SITE_KEY


def sign_again(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a manifest's body and sign it."""
    document = json.loads((folder / "manifest.json").read_text())
    body = json.loads(document["body"])
    change(body)
    text = json.dumps(body)
    key = bytes.fromhex(SITE_KEY)
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    (folder / "manifest.json").write_text(json.dumps({"body": text, "mac": signature}))
