#!/bin/bash
# Startup script of a GPU machine with Ubuntu: installs the GPU's driver and an empty environment for gpuagent.
# Google's guest agent runs it as root at every boot; finished steps are skipped. Its output: journalctl -u google-startup-scripts.
set -euo pipefail

state=/var/lib/gpuagent-machine
[ ! -e "$state/ready" ] || exit 0
mkdir -p "$state"
export DEBIAN_FRONTEND=noninteractive

apt-get update -q
apt-get install -yq --no-install-recommends ubuntu-drivers-common python3-venv
ubuntu-drivers install --gpgpu
branch=$(dpkg-query -W -f '${db:Status-Abbrev}${Package}\n' 'libnvidia-compute-*' | sed -n 's/^ii *libnvidia-compute-//p' | sort -V | tail -n 1)
apt-get install -yq --no-install-recommends "nvidia-utils-$branch"

# The module may be for a newer kernel that apt has just installed: reboot once, then this runs again.
if ! modprobe nvidia; then
  [ ! -e "$state/rebooted" ] || { echo "the driver $branch cannot be loaded" >&2; exit 1; }
  touch "$state/rebooted"
  systemctl reboot
  exit 0
fi

nvidia-smi
[ -e /opt/gpuagent/bin/pip ] || python3 -I -m venv /opt/gpuagent
ln -sf /opt/gpuagent/bin/gpuagent /usr/local/bin/gpuagent
touch "$state/ready"
