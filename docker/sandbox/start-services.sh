#!/bin/bash
# Start the sandbox's services as `user`, each in a tmux session of its name and with a log of its own.
# The directory services/ beside this file describes them.
#
#   start-services.sh            start the installed services that are not running, in the current directory
#   start-services.sh --check    succeed when the services that need no settings respond
#   start-services.sh --status   print the state of each service
#
# To look at one: tmux -L services attach -t tools
set -u

descriptions=$(dirname "$(readlink -f "$0")")/services
logs=/var/log/sandbox
settings=/etc/sandbox
most_log=+10M # of which one more is kept as NAME.log.1
longest_pause=30

if [ "$(id -u)" = 0 ]; then
    exec setpriv --reuid=user --regid=user --init-groups \
        env HOME=/home/user USER=user LOGNAME=user "$0" "$@"
fi

services() {
    for description in "$descriptions"/*; do
        name=${description##*/}
        [ "$name" = README.md ] || echo "$name"
    done
}

# Callers use a subshell, so that services cannot see each other's definitions.
describe() { # SERVICE
    required=
    reason() { :; }
    # shellcheck source=/dev/null
    . "$descriptions/$1"
}

is_answering() {
    curl --fail --silent --output /dev/null --max-time 3 --noproxy '*' "http://127.0.0.1:$address"
}

tmux_services() { tmux -L services -f /dev/null "$@"; }

has_session() { tmux_services has-session -t "=$1" 2>/dev/null; }

start_session() { # NAME
    # A concurrent start may be first.
    has_session "$1" ||
        tmux_services new-session -d -s "$1" -c / "$0" --run "$1" "$PWD" 2>/dev/null ||
        has_session "$1"
}

start() {
    failed=0
    for service in $(services); do
        (describe "$service" && { ! is_installed || start_session "$service"; }) || failed=1
    done
    start_session logs || failed=1
    return "$failed"
}

check() {
    for service in $(services); do
        (describe "$service" && { [ -z "$required" ] || ! is_installed || is_answering; }) || return
    done
}

status_of() { # SERVICE
    describe "$1"
    if ! is_installed; then
        echo "$1: not in this template"
    elif is_answering; then
        echo "$1: running on port ${address%%/*}"
    elif ! has_session "$1"; then
        echo "$1: not started"
    else
        because=$(reason)
        echo "$1: ${because:-not responding, see $logs/$1.log}"
    fi
}

status() {
    for service in $(services); do
        (status_of "$service")
    done
}

say() { echo "$(date -u +%FT%TZ) start-services: $*"; }

# Restart a service whenever it ends; the pause grows while it keeps failing.
keep_running() { # SERVICE
    pause=1
    while :; do
        began=$SECONDS
        (describe "$1" && serve)
        ended=$?
        [ $((SECONDS - began)) -lt 60 ] || pause=1
        say "$1 ended with $ended and is started again in $pause s"
        sleep "$pause"
        pause=$((pause * 2 < longest_pause ? pause * 2 : longest_pause))
    done
}

# Services keep their logs open for appending, so logs are truncated and not moved.
bound_logs() {
    while :; do
        find "$logs" -maxdepth 1 -name '*.log' -size "$most_log" 2>/dev/null | while read -r log; do
            cp "$log" "$log.1" && : >"$log"
        done
        sleep 60
    done
}

run() { # SERVICE DIRECTORY
    # shellcheck disable=SC2034 # read by the services
    directory=$2
    unset TMUX TMUX_PANE
    [ "$1" != logs ] || bound_logs
    # Output goes to the session and to the log.
    keep_running "$1" > >(exec tee -a "$logs/$1.log") 2>&1
}

case ${1-} in
    "") start ;;
    --check) check ;;
    --status) status ;;
    --run) run "$2" "$3" ;;
    *) sed -n '2,/^$/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
