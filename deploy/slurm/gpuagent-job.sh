# shellcheck shell=sh
# Gives a job script telemetry in one line: source /opt/gpuagent/slurm/gpuagent-job.sh
#
# An agent then runs on every node of the job. The script's own shell gets one variable, but no trap, and no child that a
# plain `wait` would wait for. Slurm ends the agents with the job.

# shellcheck disable=SC3028,SC2128 # only bash has the path of a sourced script
if [ -z "${SLURM_JOB_ID:-}" ]; then
    echo "gpuagent: no telemetry: this is not a Slurm job" >&2
elif [ -z "${GPUAGENT_SLURM_DIR:-}${BASH_SOURCE:-}" ]; then
    echo "gpuagent: no telemetry: set GPUAGENT_SLURM_DIR to the folder of gpuagent-job.sh, in shells other than bash" >&2
else
    # Leads `gpuagent run` to the agent of its own job, not to that of the user's other jobs on the node.
    GPUAGENT_RUNTIME_DIR=${GPUAGENT_RUNTIME_DIR:-/var/tmp/gpuagent-$(id -u)}
    GPUAGENT_RUNTIME_DIR=${GPUAGENT_RUNTIME_DIR%/job-*}/job-$SLURM_JOB_ID
    export GPUAGENT_RUNTIME_DIR
    "${GPUAGENT_SLURM_DIR:-$(dirname "$BASH_SOURCE")}/gpuagent-beside-job" launch || :
fi
