#!/bin/bash
# services.sh check|install|uninstall agent|collector [FOLDER]: the systemd service of the installation in FOLDER
# (/opt/gpuagent). `check` only checks whether the others can work here.
#
# With DESTDIR=DIR files go below DIR and nothing is started, as packages need it.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
root=${DESTDIR:-}

fail() {
    echo "gpuagent: $1" >&2
    exit "${2:-1}"
}

check() {
    [ -z "$root" ] || return 0
    [ "$(id -u)" -eq 0 ] || fail "services are root's to change; run it with sudo"
    [ -d /run/systemd/system ] || fail "systemd does not run here; start it by hand: $folder/bin/$program $verb, or in a container"
}

install_service() {
    [ -x "$root$folder/bin/$program" ] || fail "there is no $folder/bin/$program; install it first"
    # So that the agent can read a CA certificate there, regardless of root's umask.
    install -d -m 755 "$root/etc/systemd/system" "$root/etc/gpuagent"
    sed "s#/opt/gpuagent/#$folder/#" "$here/$unit" >"$root/etc/systemd/system/$unit"
    # Keep the operator's changes.
    [ -e "$root/etc/gpuagent/$part.env" ] || cp "$here/$part.env.example" "$root/etc/gpuagent/$part.env"
    if [ "$part" = collector ]; then
        mkdir -p "$root/usr/lib/sysusers.d"
        cp "$here/gpuagent-collector.sysusers" "$root/usr/lib/sysusers.d/gpuagent-collector.conf"
    fi
    [ -z "$root" ] || return 0
    [ "$part" = agent ] || systemd-sysusers gpuagent-collector.conf
    systemctl daemon-reload
    systemctl enable --quiet "$unit"
    if [ "$part" = agent ] && [ ! -e /etc/gpuagent/token ]; then
        echo "gpuagent: installed, not started: write the collector's address to /etc/gpuagent/agent.env and an agent's token"
        echo "to /etc/gpuagent/token (chmod 600), then: systemctl start gpuagent"
        return
    fi
    systemctl restart "$unit"
    echo "gpuagent: $unit runs; see: systemctl status ${unit%.service}, journalctl -u ${unit%.service}"
}

uninstall_service() {
    if [ -z "$root" ]; then
        systemctl disable --quiet --now "$unit" 2>/dev/null || :
    fi
    rm -f "$root/etc/systemd/system/$unit" "$root/usr/lib/sysusers.d/${unit%.service}.conf"
    [ -n "$root" ] || systemctl daemon-reload
    local state=${unit%.service}
    echo "gpuagent: the service is removed; /etc/gpuagent and /var/lib/$state, with undelivered or stored data, are kept"
}

part=${2:-}
folder=${3:-/opt/gpuagent}
case $part in
    agent) program=gpuagent verb=start unit=gpuagent.service ;;
    collector) program=collector verb=serve unit=gpuagent-collector.service ;;
    *) fail "usage: services.sh check|install|uninstall agent|collector [FOLDER]" 2 ;;
esac
case ${1:-} in
    check) check ;;
    install) check && install_service ;;
    uninstall) check && uninstall_service ;;
    *) fail "usage: services.sh check|install|uninstall agent|collector [FOLDER]" 2 ;;
esac
