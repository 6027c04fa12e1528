# fish completion for plimsoll(1).

set -l verbs limit import generate inspect bench
set -l has "__fish_seen_subcommand_from"

complete -c plimsoll -f
complete -c plimsoll -n "not $has $verbs help" -a limit -d 'what memory and threads this job really has'
complete -c plimsoll -n "not $has $verbs help" -a import -d 'make a dataset from the data people have'
complete -c plimsoll -n "not $has $verbs help" -a generate -d 'make a dataset of a named shape'
complete -c plimsoll -n "not $has $verbs help" -a inspect -d 'what a dataset holds'
complete -c plimsoll -n "not $has $verbs help" -a bench -d 'how fast batches come'
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
complete -c plimsoll -n "$has import" -l normalise-features -d 'divide each row of features by its sum'
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

# bench sample|gather|load DIR
complete -c plimsoll -n "$has bench" -a 'sample gather load (__fish_complete_directories)'
complete -c plimsoll -n "$has bench" -l batch -x -d 'seeds a batch'
complete -c plimsoll -n "$has bench" -l fanout -x -d 'neighbours drawn at each hop'
complete -c plimsoll -n "$has bench" -l replace -d 'draw with replacement'
complete -c plimsoll -n "$has bench" -l form -x -a 'native pyg' -d 'form of the blocks'
complete -c plimsoll -n "$has bench" -l seed -x -d 'of all draws'
complete -c plimsoll -n "$has bench" -l rows -x -a 'f16 f32' -d 'type of the rows'
complete -c plimsoll -n "$has bench" -l ids -x -a '32 64' -d 'bits of the ids'
complete -c plimsoll -n "$has bench" -l split -x -a 'train valid test' -d 'whose seeds'
complete -c plimsoll -n "$has bench" -l epoch -x -d 'the first epoch'
complete -c plimsoll -n "$has bench" -l step -x -d 'the first step'
complete -c plimsoll -n "$has bench" -l epochs -x -d 'how many epochs; 0: only the plan'
complete -c plimsoll -n "$has bench" -l batches -x -d 'at most so many an epoch'
complete -c plimsoll -n "$has bench" -l hash -d 'the hash of the batches of each epoch'
complete -c plimsoll -n "$has bench" -l slots -x -d 'batches in flight'
complete -c plimsoll -n "$has bench" -l window -x -d 'steps sampled as a whole'
complete -c plimsoll -n "$has bench" -l topology -x -a 'memory disk' -d 'where neighbour lists lie'
complete -c plimsoll -n "$has bench" -l features -x -a 'memory disk' -d 'where rows lie'
complete -c plimsoll -n "$has bench" -l hot-lists -x -a 'none 256M 1G 4G' -d 'lists kept in memory'
complete -c plimsoll -n "$has bench" -l hot-rows -x -a 'none 256M 1G 4G' -d 'rows kept in memory'
complete -c plimsoll -n "$has bench" -l scratch -x -a '(__fish_complete_directories)' -d 'a local disk for the kept rows'
complete -c plimsoll -n "$has bench" -l stage -d 'copy the dataset to --scratch first'
