"""Where this checkout keeps what the beds share, and which bed is the current one."""

from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
CACHE = REPO / ".cache"

CRIU_DIR = CACHE / "criu"
CRIU_BIN = CRIU_DIR / "bin"
IMAGES_DIR = CACHE / "images"
STOCK_DIR = CACHE / "stock"

#: Names the root of the bed that ``make bed`` started.
CURRENT = CACHE / "bed"
#: One file for each bed that a program owns; it names the bed's root.
OWNED = CACHE / "beds"
LOCK = CACHE / "bed.lock"
