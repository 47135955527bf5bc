#!/bin/bash
# Start the sandbox's services as `user`, each in a tmux session of its name and with a log of its own.
#
#   start-services.sh            start the installed services that are not running, in the current directory
#   start-services.sh --check    succeed when the services that need no settings respond
#   start-services.sh --status   print the state of each service
#
# To look at one: tmux -L services attach -t tools
set -u

logs=/var/log/sandbox
settings=/etc/sandbox
most_log=+10M # of which one more is kept as NAME.log.1
longest_pause=30

if [ "$(id -u)" = 0 ]; then
    exec setpriv --reuid=user --regid=user --init-groups \
        env HOME=/home/user USER=user LOGNAME=user "$0" "$@"
fi

services="tools agent-server code-server"

is_installed() { # SERVICE
    case $1 in
        tools) [ -x /usr/local/bin/sandbox-tools ] ;;
        agent-server) [ -d /opt/sandbox/agents/node_modules ] ;;
        code-server) [ -d /opt/code-server ] ;;
    esac
}

port_of() { # SERVICE
    case $1 in
        tools) echo 6060/health ;;
        agent-server) echo 3000/health ;;
        code-server) echo 9000/healthz ;;
    esac
}

answers() { # SERVICE
    curl --fail --silent --output /dev/null --max-time 3 --noproxy '*' "http://127.0.0.1:$(port_of "$1")"
}

tmux_services() { tmux -L services -f /dev/null "$@"; }

has_session() { tmux_services has-session -t "=$1" 2>/dev/null; }

start() {
    for service in $services logs; do
        if [ "$service" = logs ] || is_installed "$service"; then
            # A concurrent start may be first.
            has_session "$service" ||
                tmux_services new-session -d -s "$service" -c / "$0" --run "$service" "$PWD" 2>/dev/null ||
                has_session "$service" || failed=1
        fi
    done
    return "${failed:-0}"
}

check() {
    for service in tools agent-server; do
        ! is_installed "$service" || answers "$service" || return
    done
}

status() {
    for service in $services; do
        if ! is_installed "$service"; then
            echo "$service: not in this template"
        elif answers "$service"; then
            echo "$service: running on port $(port_of "$service" | cut -d/ -f1)"
        elif ! has_session "$service"; then
            echo "$service: not started"
        elif [ "$service" = code-server ] && ! sandbox-tools setting password >/dev/null; then
            echo "$service: waiting for its password"
        else
            echo "$service: not responding, see $logs/$service.log"
        fi
    done
}

serve_tools() { exec sandbox-tools serve --workspace "$directory"; }

serve_agent_server() { exec sandbox-tools serve-agents --workspace "$directory"; }

# The settings file is replaced, so its directory is watched. A missed change is found within 30 seconds.
watch_settings() {
    {
        inotifywait -qq -t 30 -e create,moved_to,delete,close_write "$settings"
        [ $? != 1 ] || sleep 5 # no more watches to be had
    } &
    change=$!
}

# For terminals: services start before the sandbox's environment is known.
export_envs() {
    eval "$(jq -r '.envs // {} | to_entries[] | select(.key | test("^[A-Za-z_][A-Za-z_0-9]*$"))
        | "export \(.key)=\(.value | @sh)"' "$settings/tools.json")"
}

# shellcheck disable=SC2317 # called by its name
serve_code_server() {
    # Watched before it is read, so that no change is missed.
    watch_settings
    until password=$(sandbox-tools setting password); do
        wait "$change"
        watch_settings
    done
    (
        export_envs
        PASSWORD=$password exec code-server --bind-addr 0.0.0.0:9000 --auth password \
            --disable-telemetry --disable-update-check --disable-workspace-trust "$directory"
    ) &
    server=$!
    trap 'kill "$server" "$change"' TERM
    while wait -n "$server" "$change"; kill -0 "$server" 2>/dev/null; do
        watch_settings
        [ "$(sandbox-tools setting password)" = "$password" ] || kill "$server"
    done
    kill "$change"
    wait "$server"
}

say() { echo "$(date -u +%FT%TZ) start-services: $*"; }

# Restart a service whenever it ends; the pause grows while it keeps failing.
keep_running() { # SERVICE
    pause=1
    while :; do
        began=$SECONDS
        ("serve_${1//-/_}")
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
