"""The configuration of the bed's stopgap daemon."""

import json
from collections.abc import Mapping

from tests.testbed.layout import Layout

Settings = Mapping[str, Mapping[str, object]]


def write(bed: Layout, changes: Settings | None = None) -> None:
    """Write the configuration of the daemon that belongs to this bed, with some changes."""
    tables = {name: dict(table) for name, table in _settings(bed).items()}
    for name, table in (changes or {}).items():
        tables.setdefault(name, {}).update(table)
    lines = []
    for name, table in tables.items():
        lines += [f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in table.items()), ""]
    bed.config.write_text("\n".join(lines))


def _toml(value: object) -> str:
    """Strings, numbers, truth and lists of them are the same in TOML as in JSON."""
    return json.dumps(value, ensure_ascii=False)


def _settings(bed: Layout) -> Settings:
    node = f"{bed.root}/nodes/{{node}}"
    hook = f"127.0.0.1:{bed.ports['hook']}"
    return {
        "daemon": {
            "instance": bed.instance,
            "state_dir": str(bed.state),
            "socket": str(bed.socket),
            "hook_listen": hook,
        },
        "batch": {"kind": "slurm", "poll_seconds": 1, "conf": str(bed.slurm_conf)},
        "engine": {
            "address": f"unix://{node}/docker.sock",
            "daemon_json": f"{node}/daemon.json",
            "pidfile": f"{node}/docker.pid",
            "poll_seconds": 1,
        },
        "nodes": {
            "install_dir": f"{node}/stopgap",
            "path": bed.node_path,
            "hook_url": f"http://{hook}",
        },
        "checkpoints": {"root": str(bed.checkpoints)},
        # Where root lacks CAP_SYS_RESOURCE, CRIU saves no processes but its own user's.
        "jobs": {"mounts": [str(bed.data)], "allow_root": True},
    }
