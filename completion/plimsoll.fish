# fish completion for plimsoll(1).

set -l verbs limit import generate inspect
set -l has "__fish_seen_subcommand_from"

complete -c plimsoll -f
complete -c plimsoll -n "not $has $verbs help" -a limit -d 'what memory and threads this job really has'
complete -c plimsoll -n "not $has $verbs help" -a import -d 'make a dataset from the data people have'
complete -c plimsoll -n "not $has $verbs help" -a generate -d 'make a dataset of a named shape'
complete -c plimsoll -n "not $has $verbs help" -a inspect -d 'what a dataset holds'
complete -c plimsoll -n "not $has $verbs help" -a help -d 'what a verb does'
complete -c plimsoll -n "not $has $verbs help" -l version -d 'the version'
complete -c plimsoll -n "$has help" -a "$verbs"

# Every verb
complete -c plimsoll -s h -l help -d 'what it does'
complete -c plimsoll -n "$has $verbs" -l memory -x -a '256M 1G 2G 4G 16G 64G' -d 'the memory line'
complete -c plimsoll -n "$has $verbs" -l threads -x -d 'at most that many threads'
complete -c plimsoll -n "$has $verbs" -l io -x -a 'auto uring threads' -d 'how files are read and written'
complete -c plimsoll -n "$has $verbs" -l json -d 'one JSON object a line on standard output'
complete -c plimsoll -n "$has $verbs" -l quiet -d 'no progress, only warnings and errors'

# inspect DIR
complete -c plimsoll -n "$has inspect" -a '(__fish_complete_directories)'
complete -c plimsoll -n "$has inspect" -l verify -d 'read and check every byte'

# import SOURCE DIR
complete -c plimsoll -n "$has import" -F
complete -c plimsoll -n "$has import" -l symmetrise -d 'add the reverse of each edge'
complete -c plimsoll -n "$has import" -l remove-duplicates -d 'keep one of equal edges'
complete -c plimsoll -n "$has import" -l self-loops -x -a 'keep add remove' -d 'what becomes of self-loops'
complete -c plimsoll -n "$has import" -l relabel -d 'ids of a text of edges are names'
complete -c plimsoll -n "$has import" -l features -x -a 'f16 f32' -d 'type of the features'
complete -c plimsoll -n "$has import" -l nodes -x -d 'number of nodes'
complete -c plimsoll -n "$has import" -l tmp -x -a '(__fish_complete_directories)' -d 'where temporary files go'

# generate SHAPE DIR
complete -c plimsoll -n "$has generate" -a 'papers100M products arxiv reddit free (__fish_complete_directories)'
complete -c plimsoll -n "$has generate" -l scale -x -d 'nodes, edges and splits times this'
complete -c plimsoll -n "$has generate" -l spread -x -d '0: the own locality of the shape, 1: none'
complete -c plimsoll -n "$has generate" -l seed -x -d 'another graph of the same shape'
complete -c plimsoll -n "$has generate" -l nodes -x -d 'number of nodes'
complete -c plimsoll -n "$has generate" -l edges -x -d 'number of edges'
complete -c plimsoll -n "$has generate" -l features -x -d 'number of features'
complete -c plimsoll -n "$has generate" -l classes -x -d 'number of classes'
complete -c plimsoll -n "$has generate" -l dtype -x -a 'f16 f32' -d 'type of the features'
complete -c plimsoll -n "$has generate" -l tmp -x -a '(__fish_complete_directories)' -d 'where temporary files go'
