#!/bin/bash
# Slurm's Epilog: ends the agent that prolog.sh started for the job, after its delivery.
#
# Always exits 0: a failed epilog drains its node.
export PATH="${PATH:-/usr/bin:/bin}"
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=gpuagent.env.example
[ -r "$here/gpuagent.env" ] && . "$here/gpuagent.env"

pid_file="${GPUAGENT_PID_DIR:-/run/gpuagent-slurm}/$SLURM_JOB_ID"
pid=$(cat "$pid_file" 2>/dev/null) || exit 0
rm -f "$pid_file"
# The number of an agent that has ended may belong to another process now.
grep -q gpuagent-beside-job "/proc/$pid/cmdline" 2>/dev/null || exit 0
kill -TERM -- "-$pid" 2>/dev/null
for ((tenths = 0; tenths < ${GPUAGENT_END_SECONDS:-10} * 10; tenths++)); do
    kill -0 -- "-$pid" 2>/dev/null || exit 0
    sleep 0.1
done
kill -KILL -- "-$pid" 2>/dev/null
exit 0
