#!/bin/bash
# Switch to `user`, start the services, print what this sandbox has, then run the given command or wait.
set -u

if [ "$(id -u)" = 0 ]; then
    exec setpriv --reuid=user --regid=user --init-groups \
        env HOME=/home/user USER=user LOGNAME=user "$0" "$@"
fi

here=$(dirname "$(readlink -f "$0")")
wanted="GITHUB_TOKEN ANTHROPIC_API_KEY OPENAI_API_KEY GEMINI_API_KEY COPILOT_GITHUB_TOKEN"

tell() { printf '%-10s %s\n' "$1" "$2"; }

first_line_of() { timeout 20 "$@" 2>/dev/null </dev/null | head -n 1; }

versions() {
    tell system "$(. /etc/os-release && echo "$PRETTY_NAME"), $(uname -m)"
    for program in python3 node npm git gh chromium code-server claude codex copilot gemini opencode; do
        if command -v "$program" >/dev/null; then
            version=$(first_line_of "$program" --version)
            tell "$program" "${version:-unknown version}"
        fi
    done
}

memory_limit() {
    for file in /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes; do
        limit=$(cat "$file" 2>/dev/null) || continue
        # Without a limit the file contains "max", or a number near 2^63.
        case $limit in *[!0-9]* | ????????????????*) ;; *) echo $((limit >> 20)); return ;; esac
    done
    free -m | awk '/^Mem/ { print $2 }'
}

resources() {
    tell memory "$(memory_limit) MiB"
    tell disk "$(df -Ph . | awk 'NR == 2 { print $4 " of " $2 " free" }')"
}

# Names only, since this output is kept in logs.
variables() {
    given=" $(jq -r '.envs // {} | keys | join(" ")' /etc/sandbox/tools.json 2>/dev/null) "
    for name in $wanted; do
        if [ -n "${!name-}" ]; then
            tell "$name" set
        elif [[ $given == *" $name "* ]]; then
            tell "$name" "set for agents"
        else
            tell "$name" "not set"
        fi
    done
}

services() {
    for _ in $(seq 20); do
        "$here/start-services.sh" --check && break
        sleep 0.5
    done
    "$here/start-services.sh" --status
}

"$here/start-services.sh" || echo "Failed to start the services." >&2
versions
resources
variables
services

[ $# = 0 ] || exec "$@"
[ ! -t 0 ] || exec bash -l
exec sleep infinity
