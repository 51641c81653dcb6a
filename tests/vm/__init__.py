"""A virtual machine has what the bed lacks: systemd, cgroup v2, all capabilities, a reboot."""
