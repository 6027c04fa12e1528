# bash completion for plimsoll(1); needs nothing but bash.

_plimsoll() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    local verb=${COMP_WORDS[1]} words=''
    local common='--memory --threads --io --json --quiet --help'
    COMPREPLY=()

    # bash takes --io=uring for three words.
    if [[ $current == '=' ]]; then
        current=''
    elif [[ $previous == '=' ]]; then
        previous=${COMP_WORDS[COMP_CWORD - 2]}
    fi

    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W 'limit import generate inspect help --help --version' -- "$current")
        return
    fi

    case $previous in
    --io) words='auto uring threads' ;;
    --self-loops) words='keep add remove' ;;
    --dtype) words='f16 f32' ;;
    --features) [[ $verb == import ]] && words='f16 f32' ;;
    --memory) words='256M 1G 2G 4G 16G 64G' ;;
    --tmp)
        mapfile -t COMPREPLY < <(compgen -d -- "$current")
        compopt -o filenames
        return
        ;;
    esac
    case $previous in
    --io | --self-loops | --dtype | --features | --memory | --threads | --nodes | --edges | --classes | --scale | \
        --spread | --seed)
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
        return
        ;;
    esac

    case $verb in
    limit) words=$common ;;
    inspect) words="--verify $common" ;;
    import)
        words="--symmetrise --remove-duplicates --self-loops --relabel --features --nodes --tmp $common"
        ;;
    generate)
        words="--scale --spread --seed --nodes --edges --features --classes --dtype --tmp $common"
        ;;
    help)
        mapfile -t COMPREPLY < <(compgen -W 'limit import generate inspect' -- "$current")
        return
        ;;
    *) return ;;
    esac
    if [[ $current == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
    elif [[ $verb == generate ]] && ((COMP_CWORD == 2)); then
        mapfile -t COMPREPLY < <(compgen -W 'papers100M products arxiv reddit free' -- "$current")
    elif [[ $verb == import ]]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        compopt -o filenames
    elif [[ $verb != limit ]]; then
        mapfile -t COMPREPLY < <(compgen -d -- "$current")
        compopt -o filenames
    fi
}

complete -F _plimsoll plimsoll
