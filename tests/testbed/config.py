"""The configuration of the bed's stopgap daemon."""

from tests.testbed.layout import Layout

_CONFIG = """\
[daemon]
instance = "{instance}"
state_dir = "{state}"
socket = "{socket}"
hook_listen = "127.0.0.1:{hook_port}"

[batch]
kind = "slurm"
poll_seconds = 1
conf = "{slurm_conf}"

[engine]
address = "unix://{root}/nodes/{{node}}/docker.sock"
daemon_json = "{root}/nodes/{{node}}/daemon.json"
pidfile = "{root}/nodes/{{node}}/docker.pid"
poll_seconds = 1

[nodes]
install_dir = "{root}/nodes/{{node}}/stopgap"
path = "{node_path}"
hook_url = "http://127.0.0.1:{hook_port}"

[checkpoints]
root = "{checkpoints}"

[jobs]
mounts = ["{data}"]
"""


def write(bed: Layout) -> None:
    """Write the configuration of the daemon that belongs to this bed."""
    bed.config.write_text(
        _CONFIG.format(
            instance=bed.instance,
            root=bed.root,
            state=bed.state,
            socket=bed.socket,
            slurm_conf=bed.slurm_conf,
            hook_port=bed.ports["hook"],
            node_path=bed.node_path,
            checkpoints=bed.checkpoints,
            data=bed.data,
        )
    )
