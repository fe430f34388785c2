#!/bin/bash
# Slurm's Prolog: starts an agent on this node, invisible to the job. epilog.sh ends it.
#
# Always exits 0: a failed prolog drains its node.
export PATH="${PATH:-/usr/bin:/bin}"
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=gpuagent.env.example
[ -r "$here/gpuagent.env" ] && . "$here/gpuagent.env"

as_user=()
if [ "$(id -u)" -eq 0 ]; then
    user=${GPUAGENT_USER:-gpuagent}
    if ! id "$user" >/dev/null 2>&1; then
        logger -t gpuagent "no telemetry: the user $user does not exist; run useradd --system $user, or set GPUAGENT_USER in gpuagent.env"
        exit 0
    fi
    as_user=(setpriv --reuid "$user" --regid "$(id -g "$user")" --init-groups --)
fi
export SLURM_JOB_NODELIST=${SLURM_JOB_NODELIST:-${SLURM_NODELIST:-}} # its name in jobs
pids=${GPUAGENT_PID_DIR:-/run/gpuagent-slurm}
mkdir -p "$pids" || exit 0
cd /
# A session of its own: the epilog ends it as a whole, and Slurm, which kills a prolog's process group, leaves it alone.
# So wait for its first word, and leave no output open, which Slurm would wait for.
# shellcheck disable=SC2016 # $$ is the new process
read -r pid < <(setsid "${as_user[@]}" /bin/bash -c 'echo $$; exec "$0" node >/dev/null' "$here/gpuagent-beside-job" \
    </dev/null 2>/dev/null)
echo "$pid" >"$pids/$SLURM_JOB_ID"
exit 0
