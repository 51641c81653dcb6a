"""A database in WAL mode and a file that grows beside it: sqlite_job.py STEPS SECONDS FOLDER.

The connection, a cursor in the middle of its rows and the file stay open all the time.
"""

import sqlite3
import sys
import time
from pathlib import Path


def main(steps: int, seconds: float, folder: Path) -> None:
    connection = sqlite3.connect(folder / "work.db", isolation_level=None)
    mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
    print(f"journal mode {mode}", flush=True)
    connection.execute("CREATE TABLE done (step INTEGER PRIMARY KEY, value INTEGER, total INTEGER)")
    with (folder / "appended.txt").open("a") as appended:
        value = 1
        for step in range(steps):
            connection.execute("BEGIN IMMEDIATE")
            for _ in range(20):
                value = (value * 48271) % 2147483647
                connection.execute("INSERT INTO done (value) VALUES (?)", (value,))
            time.sleep(seconds / 2)
            connection.execute("UPDATE done SET total = ? WHERE value = ?", (step, value))
            connection.execute("COMMIT")
            count, total = connection.execute("SELECT count(*), sum(value) FROM done").fetchone()
            appended.write(f"{step} {count} {total}\n")
            appended.flush()
            print(f"step {step}: {count} rows, sum {total}", flush=True)
            time.sleep(seconds / 2)
    connection.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3]))
