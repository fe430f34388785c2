#!/bin/bash
# Write what a job used into its AdminComment, which `sacct --format=JobID,AdminComment%80` shows.
# An example, for an operator of Slurm with a viewer's token: admin-comment.sh JOB
set -euo pipefail
summary=$("${COLLECTOR_PROGRAM:-collector}" job "$1" --json | python3 -c '
import json, sys
job = json.load(sys.stdin)
names = ("state", "gpu_percent", "gpus_held", "gpus_used", "idle_gpu_seconds", "energy_joules",
         "cpu_seconds", "memory_max_bytes")
known = {name: job[name] for name in names if job[name] is not None}
words = (f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in known.items())
print(job["number"], *words)')
exec sacctmgr --immediate --quiet modify job where jobid="${summary%% *}" set admincomment="gpuagent: ${summary#* }"
