# Startup file of the shells of shell_open. It reads the login files, accepts commands from the tool server and reports their end.
# The server writes NUMBER.command and a request, then sends the keys bound below, which only readline handles, at a prompt.
# $__sandbox_number is the running command. NUMBER.begun marks its start, NUMBER.end contains its exit code.
# Marks in the terminal output enclose the output of a command; a random word in them distinguishes them from other text.

__sandbox=$SANDBOX_SHELL
unset SANDBOX_SHELL
__sandbox_number=0
__sandbox_last=0
__sandbox_word=
. "$__sandbox/environment"
rm -f "$__sandbox/environment"

[[ ! -r /etc/profile ]] || . /etc/profile
for __sandbox_file in ~/.bash_profile ~/.bash_login ~/.profile; do
    if [[ -r $__sandbox_file ]]; then
        . "$__sandbox_file"
        break
    fi
done
unset __sandbox_file
HISTCONTROL=${HISTCONTROL:-ignoreboth} # lines that run commands start with a space

__sandbox_take() {
    local number= word=
    READLINE_LINE='' READLINE_POINT=0
    [[ ! -r $__sandbox/request ]] || IFS=' ' builtin read -r number word <"$__sandbox/request" || :
    if [[ -n $number && $number != "$__sandbox_last" ]]; then
        __sandbox_number=$number __sandbox_last=$number __sandbox_word=$word
        # The command is sourced at top level: a function would make its declarations local, and an incomplete command typed
        # at the prompt would wait for more input.
        READLINE_LINE=' . "$__sandbox/run"' READLINE_POINT=19
    fi
}

# Shows the command in the terminal instead of the line that runs it.
__sandbox_begin() {
    local code=$? text prompt=${PS1@P}
    {
        text=$(<"$__sandbox/$__sandbox_number.command")
        builtin history -s -- "$text"
        prompt=${prompt//[$'\001\002']/}
        text=${text:0:2000}
        builtin printf '\e[A\r\e[J%s%s\n' "${prompt##*$'\n'}" "${text//[^[:print:][:space:]]/?}"
        builtin printf '\e]133;C;sandbox=%s\a' "$__sandbox_word"
    } >/dev/tty
    builtin printf 'begun\n' >|"$__sandbox/$__sandbox_number.begun"
    builtin printf . 1<>"$__sandbox/wake"
    return "$code"
}

__sandbox_end() {
    if [[ -n $__sandbox_number ]]; then
        [[ -z $__sandbox_word ]] || builtin printf '\e]133;D;sandbox=%s\a' "$__sandbox_word" >/dev/tty
        builtin printf '%s\n' "$1" >|"$__sandbox/$__sandbox_number.end"
        builtin printf . 1<>"$__sandbox/wake"
        __sandbox_number=
    fi
    # If C-c interrupted the command, its end is reported at the next prompt.
    case "${PROMPT_COMMAND[*]-}" in
    *__sandbox_prompt*) ;;
    *) PROMPT_COMMAND=(__sandbox_prompt "${PROMPT_COMMAND[@]}") ;;
    esac
    return "$1"
} 2>/dev/null

__sandbox_prompt() { __sandbox_end "$?"; } 2>/dev/null

PROMPT_COMMAND=(__sandbox_prompt "${PROMPT_COMMAND[@]}")
bind -m emacs-standard -x '"\e[7770~": __sandbox_take'
bind -m vi-insert -x '"\e[7770~": __sandbox_take'
bind -m vi-command -x '"\e[7770~": __sandbox_take'
set +H
