# bash completion for plimsoll(1): the command itself knows its verbs and options.

_plimsoll() {
    local line current=${COMP_WORDS[COMP_CWORD]}
    [[ $current == '=' ]] && current='' # bash takes --io=uring for three words
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
        :*)
            mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -A "${line#:}" -- "$current")
            compopt -o filenames
            ;;
        *) COMPREPLY+=("${line%%$'\t'*}") ;;
        esac
    done < <("${COMP_WORDS[0]/#\~/$HOME}" --complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2> /dev/null)
}

complete -F _plimsoll plimsoll
