{ __sandbox_begin; } 2>/dev/null
. "$__sandbox/$__sandbox_number.command"
{ __sandbox_end "$?"; } 2>/dev/null
