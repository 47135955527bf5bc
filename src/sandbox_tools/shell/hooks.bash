# What a shell of shell_open reads first. It is as a login shell is, takes commands from the tool server and tells when they end:
# the server writes NUMBER.command and a request, and sends the keys below, which readline alone answers, at a prompt.
# $__sandbox_number has the command that runs. It is begun when NUMBER.begun is there, and has ended with the code in NUMBER.end.
# Marks in what the terminal gets tell where its output begins and ends; a word that is new each time tells them from other text.

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
HISTCONTROL=${HISTCONTROL:-ignoreboth} # the line that runs a command begins with a space

__sandbox_take() {
    local number= word=
    READLINE_LINE='' READLINE_POINT=0
    [[ ! -r $__sandbox/request ]] || IFS=' ' builtin read -r number word <"$__sandbox/request" || :
    if [[ -n $number && $number != "$__sandbox_last" ]]; then
        __sandbox_number=$number __sandbox_last=$number __sandbox_word=$word
        # It is run from a file at the top level, since a function would keep to itself what the command declares, and
        # an unfinished line typed would wait for its rest.
        READLINE_LINE=' . "$__sandbox/run"' READLINE_POINT=19
    fi
}

# Shows a person the command instead of the line that runs it.
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
    # What a command interrupted by C-c leaves undone is done at the prompt.
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
