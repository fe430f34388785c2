# shellcheck shell=sh
# One line gives a job script telemetry: source /opt/gpuagent/slurm/gpuagent-job.sh
#
# On every node of the job an agent then runs beside it. Nothing in the script's own shell changes but one variable: there
# is no trap, and no child that a plain `wait` would wait for. Slurm itself ends the agents with the job.

# shellcheck disable=SC3028,SC2128 # only bash tells a sourced script where it lies
if [ -z "${SLURM_JOB_ID:-}" ]; then
    echo "gpuagent: no telemetry: this is no Slurm job" >&2
elif [ -z "${GPUAGENT_SLURM_DIR:-}${BASH_SOURCE:-}" ]; then
    echo "gpuagent: no telemetry: in shells other than bash, GPUAGENT_SLURM_DIR must name the folder of gpuagent-job.sh" >&2
else
    # By this `gpuagent run` finds the agent of its own job, not that of another job of the same user on the node.
    GPUAGENT_RUNTIME_DIR=${GPUAGENT_RUNTIME_DIR:-/var/tmp/gpuagent-$(id -u)}
    GPUAGENT_RUNTIME_DIR=${GPUAGENT_RUNTIME_DIR%/job-*}/job-$SLURM_JOB_ID
    export GPUAGENT_RUNTIME_DIR
    "${GPUAGENT_SLURM_DIR:-$(dirname "$BASH_SOURCE")}/gpuagent-beside-job" launch || :
fi
