#!/bin/sh
# A priority job: priority.sh FOLDER CGROUP SECONDS.  First of all it looks whether any process
# of a job of ours is on its node, in any hierarchy of cgroups.
began=$(date +%s.%N)
found=$(
    for top in "/sys/fs/cgroup$2/$SLURMD_NODENAME" /sys/fs/cgroup/*"$2/$SLURMD_NODENAME"; do
        [ -d "$top" ] && find "$top" -name cgroup.procs -exec cat {} + 2>/dev/null
    done | sort -u | wc -l
)
note=$1/$SLURM_JOB_ID
echo "node $SLURMD_NODENAME" >"$note"
echo "began $began" >>"$note"
echo "found $found" >>"$note"
sleep "$3"
echo "ended $(date +%s.%N)" >>"$note"
