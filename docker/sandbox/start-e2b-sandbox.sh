#!/bin/bash
# Open a shell in a sandbox that has the current project directory as /workspace. See --help.
#
# Starts a local server if none is running and creates an API key if none is configured; the rest is
# `python -m sandbox_client.workspace`.
set -euo pipefail

repository=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
python=$repository/.venv/bin/python
log=${XDG_STATE_HOME:-$HOME/.local/state}/sandbox-server/server.log
longest_start=600 # the first start builds the base image

say() { echo "start-e2b-sandbox: $*" >&2; }

die() { say "$@"; exit 1; }

# The URL or key that the client finds in its environment variables and file; empty if none.
known() { # url | api_key
    "$python" - "$1" <<'PYTHON'
import sys

from sandbox_client.protocol.address import ConfigurationError, find_address

try:
    print(getattr(find_address(api_key="" if sys.argv[1] == "url" else None), sys.argv[1]))
except ConfigurationError:
    pass
PYTHON
}

answers() { curl --fail --silent --output /dev/null --noproxy '*' --max-time 5 "$url/readyz"; }

is_here() { [[ $url =~ ^http://(127\.0\.0\.1|localhost)(:[0-9]+)?$ ]]; }

port_of() { local port=${url##*:}; [[ $port =~ ^[0-9]+$ ]] && echo "$port" || echo 80; }

bring_up() {
    is_here || die "The server at $url does not answer."
    if [ "$(id -u)" != 0 ] && ! sudo -n true 2>/dev/null; then
        die "No server is running at $url, and starting one needs root: run \`make run\` in another terminal and try again."
    fi
    mkdir -p "$(dirname "$log")"
    say "no server is running at $url; starting one, log: $log"
    # In its own session, so that it keeps running when this terminal is closed.
    setsid "$repository/scripts/run" --port "$(port_of)" >"$log" 2>&1 </dev/null &
    server=$!
    for _ in $(seq $((longest_start * 2))); do
        ! answers || return 0
        kill -0 "$server" 2>/dev/null || { tail -n 20 "$log" >&2; die "The server did not start."; }
        sleep 0.5
    done
    die "The server is not ready yet. See $log and try again."
}

make_key() {
    is_here || die "No API key configured for $url. Set SANDBOX_SERVER_API_KEY."
    key=$("$repository/.venv/bin/sandbox-server" keys create --scope sandboxes --name start-e2b-sandbox) ||
        die "Could not create an API key. Set SANDBOX_SERVER_API_KEY."
    file=$("$python" -c 'from sandbox_client.protocol.address import config_file; print(config_file())')
    [ ! -e "$file" ] || die "$file has no key for $url. Add one with \`sbx login\`, or set SANDBOX_SERVER_API_KEY."
    mkdir -p "$(dirname "$file")"
    (umask 077 && printf 'url = "%s"\napi_key = "%s"\n' "$url" "$key" >"$file")
    say "created an API key, saved in $file"
}

case " $* " in *" -h "* | *" --help "*) wants_help=1 ;; *) wants_help= ;; esac
[ "$(uname -s)" != Linux ] || command -v curl >/dev/null || die "curl is not installed."
"$repository/scripts/install"
if [ -z "$wants_help" ]; then
    url=$(known url)
    answers || bring_up
    [ -n "$(known api_key)" ] || make_key
fi
exec "$python" -m sandbox_client.workspace "$@"
