# Runs cells in one shell. A request is two fields that end with NUL: a marker and the code. At the end of a cell the
# marker is written to stdout and stderr, and the cell's status to the events.
# Arguments: the descriptors of requests and events. Names begin with __cell so that cells do not meet them.
exec {__cell_in}<&"$1" {__cell_events}>&"$2" {__cell_out}>&1 {__cell_err}>&2 </dev/null
eval "exec $1<&- $2>&-"
shift 2
__cell_errexit=

# Skip the rest of the cell: with extdebug, commands for which the DEBUG trap returns 2 end the function they are in.
__cell_abort() {
    shopt -s extdebug
    trap __cell_is_over DEBUG
}

__cell_is_over() { [[ " ${FUNCNAME[*]} " != *" __cell_run "* ]] || return 2; }

# `set -e` ends the cell instead of the shell.
__cell_failed() {
    [[ $- == *e* ]] || return "$1"
    set +e
    __cell_errexit=1 __cell_status=$1
    __cell_abort
}

__cell_run() {
    trap '__cell_status=130; __cell_abort' INT
    trap '__cell_failed $?' ERR
    set -E
    [ -z "$__cell_errexit" ] || set -e
    __cell_errexit=
    eval "$1" {__cell_in}<&- {__cell_events}>&- {__cell_out}>&- {__cell_err}>&-
}

trap : INT
echo "{\"event\":\"ready\"}" >&"$__cell_events"
while IFS= read -r -d '' -u "$__cell_in" __cell_marker && IFS= read -r -d '' -u "$__cell_in" __cell_code; do
    __cell_status=
    __cell_run "$__cell_code"
    __cell_last=$?
    [[ $- == *e* ]] && __cell_errexit=1
    set +eE
    trap - DEBUG ERR
    shopt -u extdebug
    trap : INT
    printf '\0%s\0' "$__cell_marker" >&"$__cell_out"
    printf '\0%s\0' "$__cell_marker" >&"$__cell_err"
    echo "{\"event\":\"done\",\"status\":${__cell_status:-$__cell_last}}" >&"$__cell_events"
done
