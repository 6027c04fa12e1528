# fish completion for plimsoll(1): the command itself knows its verbs and options.

function __plimsoll_complete
    set -l words (commandline -opc) (commandline -ct)
    for line in ($words[1] --complete $words[2..-1] 2>/dev/null)
        switch $line
            case :file
                __fish_complete_path (commandline -ct)
            case :directory
                __fish_complete_directories (commandline -ct)
            case :command
                __fish_complete_command
            case '*'
                echo $line
        end
    end
end

complete -c plimsoll -f -a '(__plimsoll_complete)'
