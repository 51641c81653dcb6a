"""The page about moving speaks of every report, and of tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "migration.md").read_text()
#: Those between B03 and B39, and between B55 and B80, that are about Docker or CRIU.
REPORTS = re.findall(
    r"B\d\d",
    "B03 B04 B05 B08 B09 B10 B11 B12 B13 B14 B15 B16 B17 B18 B19 B20 B21 B25 B27 B28 B29 B30 B31 "
    "B32 B34 B35 B36 B37 B38 B39 B55 B56 B58 B59 B61 B62 B63 B64 B65 B66 B67 B69 B70 B72 B73 B74 "
    "B76 B77 B80",
)


def test_every_report_has_its_line() -> None:
    """
    Once, in order, with what becomes of it.
    """
    lines = re.findall(r"^\| (B\d\d) \| (handled|refused|not reachable)[^|]*\|", PAGE, re.MULTILINE)

    assert REPORTS == [number for number, _ in lines]


def test_every_test_that_is_named_exists() -> None:
    """
    A proof that nobody can run is none.
    """
    named = set(re.findall(r"`((?:tests|shim)/[\w/]+\.py)`", PAGE))
    files = {path.replace("shim/", "tests/integration/shim/", 1) for path in named}

    assert len(files) > 20
    assert [] == [path for path in sorted(files) if not (ROOT / path).exists()]
