"""Where this checkout keeps what the beds share, and which bed is the current one."""

import os
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
CACHE = REPO / ".cache"

CRIU_DIR = CACHE / "criu"
CRIU_BIN = CRIU_DIR / "bin"
IMAGES_DIR = CACHE / "images"
STOCK_DIR = CACHE / "stock"
RELEASES_DIR = CACHE / "releases"

#: Where beds are noted.  A test that kills beds half-way has a place of its own.
NOTES = Path(os.environ.get("STOPGAP_BED_NOTES", CACHE))
#: Names the root of the bed that ``make bed`` started.
CURRENT = NOTES / "bed"
#: One file for each bed that a program owns; it names the bed's root.
OWNED = NOTES / "beds"
LOCK = NOTES / "bed.lock"
