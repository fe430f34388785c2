#!/bin/bash
# gpuagent @VERSION@ in one file, for Linux on @MACHINE@ with one of Python @PYTHONS@. It needs no network.
#
#   bash FILE [--prefix FOLDER] [--python PROGRAM] [--service]    install, or upgrade an installation
#   bash FILE --uninstall [--prefix FOLDER]
#
# FOLDER is /opt/gpuagent for root, else ~/.local/gpuagent. --service makes the agent a systemd service (root).
set -euo pipefail

version="@VERSION@" machine="@MACHINE@" pythons="@PYTHONS@" sha256="@SHA256@"
# Modules that the distribution has, and this file does not: there are no builds for such a machine.
modules="@MODULES@"

fail() {
    echo "gpuagent: $1" >&2
    exit "${2:-1}"
}

usage() {
    sed -n '2,7s/^# \{0,1\}//p' "$0"
}

is_ours() {
    [ -e "$prefix/systemd/gpuagent.service" ]
}

find_python() {
    local candidate found
    for candidate in ${python:-python3 ${pythons//3./python3.}}; do
        found=$("$candidate" -I -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || found="not there"
        case " $pythons " in *" $found "*) python=$candidate && return ;; esac
        [ -z "$python" ] || fail "$python is ${found/#3/Python 3}; this file is for Python ${pythons// / or }"
    done
    fail "this file is for Python ${pythons// / or }, and there is none; name one: --python PROGRAM"
}

unpack() {
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    local line
    line=$(grep -anm1 '^__ARCHIVE__$' "$0" | cut -d: -f1) || fail "$0 is damaged: it has no archive"
    tail -n "+$((line + 1))" "$0" >"$folder/archive"
    echo "$sha256  $folder/archive" | sha256sum --check --status || fail "$0 is damaged: its checksum is wrong; copy it again"
    tar -xzf "$folder/archive" -C "$folder"
}

install_all() {
    [ "$(uname -s) $(uname -m)" = "Linux $machine" ] ||
        fail "this file is for Linux on $machine; this is $(uname -s) on $(uname -m)"
    find_python
    if [ -n "$(ls -A "$prefix" 2>/dev/null)" ] && ! is_ours; then
        fail "$prefix holds something else; name another folder: --prefix FOLDER"
    fi
    unpack
    [ -z "$service" ] || "$folder/systemd/services.sh" check agent "$prefix"
    rm -rf "${prefix:?}"/{bin,lib,lib64,include}
    # First the mark of the folder: a second try then repairs an interrupted one.
    mkdir -p "$prefix" && cp -r "$folder/slurm" "$folder/systemd" "$prefix/"
    "$python" -I -m venv --without-pip ${modules:+--system-site-packages} "$prefix" || fail "cannot make a virtual environment in $prefix"
    [ -z "$modules" ] || "$prefix/bin/python" -c "import ${modules// /, }" 2>/dev/null ||
        fail "$python lacks one of $modules; Debian, Ubuntu: apt-get install python3-grpcio python3-psutil python3-yaml"
    # pip runs from its own wheel: not every Python here has it.
    "$prefix/bin/python" "$(echo "$folder"/wheels/pip-*.whl)/pip" install --quiet --no-index --no-cache-dir \
        --disable-pip-version-check --find-links "$folder/wheels" "gpuagent@EXTRAS@==$version" >"$folder/log" 2>&1 ||
        fail "cannot install: $(tail -n 3 "$folder/log")"
    echo "gpuagent: installed $version in $prefix; check this node: $prefix/bin/gpuagent info"
    [ -z "$service" ] || "$prefix/systemd/services.sh" install agent "$prefix"
}

uninstall_all() {
    is_ours || fail "there is no gpuagent in $prefix; name its folder: --prefix FOLDER"
    local part unit
    for part in agent:gpuagent collector:gpuagent-collector; do
        unit=/etc/systemd/system/${part#*:}.service
        # Keep the service of another installation.
        ! grep -qsF "=$prefix/bin/" "$unit" || "$prefix/systemd/services.sh" uninstall "${part%:*}" "$prefix"
    done
    rm -rf "${prefix:?}"
    echo "gpuagent: $prefix is removed"
}

if [ "$(id -u)" -eq 0 ]; then prefix=/opt/gpuagent; else prefix=$HOME/.local/gpuagent; fi
python="" service="" action=install
while [ $# -gt 0 ]; do
    case $1 in
        --prefix | --python)
            [ $# -gt 1 ] || fail "$1 wants a value" 2
            if [ "$1" = --prefix ]; then prefix=$(readlink -m "$2"); else python=$2; fi
            shift
            ;;
        --service) service=yes ;;
        --uninstall) action=uninstall ;;
        -h | --help) usage && exit ;;
        *) fail "there is no option $1; see: bash $0 --help" 2 ;;
    esac
    shift
done
if [ $action = install ]; then install_all; else uninstall_all; fi
exit
# shellcheck disable=SC2317 # the rest is for tar
__ARCHIVE__
