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
        mapfile -t COMPREPLY < <(compgen -W 'limit import generate inspect bench plan train evaluate predict watch mark doctor report slurm help --help --version' -- "$current")
        return
    fi

    case $previous in
    --io) words='auto uring threads' ;;
    --self-loops) words='keep add remove' ;;
    --targets) words='classes values' ;;
    --dtype) words='f16 f32' ;;
    --features)
        [[ $verb == import ]] && words='f16 f32'
        [[ $verb == bench ]] && words='memory disk'
        ;;
    --topology) words='memory disk' ;;
    --rows) words='f16 f32' ;;
    --ids) words='32 64' ;;
    --form) words='native pyg' ;;
    --split)
        words='train valid test'
        [[ $verb != bench ]] && words+=' all'
        ;;
    --kind) words='logits classes embeddings probabilities' ;;
    --model) words='gcn sage gat gin mlp' ;;
    --aggr) words='mean max sum' ;;
    --norm) words='none layer batch' ;;
    --act) words='relu elu none' ;;
    --pool) words='mean add max' ;;
    --precision) words='f32 bf16' ;;
    --optimizer) words='adam adamw sgd' ;;
    --schedule) words='none cosine step' ;;
    --loss) words='auto cross-entropy bce mse mae' ;;
    --metric) words='auto accuracy roc-auc mae rmse cosine' ;;
    --eval-splits) words='valid valid,test all' ;;
    --for) words='pyg' ;;
    --graph) words='edge_index csc' ;;
    --gpu-memory) words='8G 16G 24G 40G 80G' ;;
    --sweep) words='batch= fanout= hidden= layers= heads= model= precision= norm= microbatch= memory= workers= loaders= late-loaders= gpu-memory=' ;;
    --row-cache | --list-cache) words='none 256M 1G 4G' ;;
    --memory) words='256M 1G 2G 4G 16G 64G' ;;
    --interval) words='10ms 100ms 1s' ;;
    --warn) words='0.8,0.9' ;;
    --signal-at) words='0.95:USR1' ;;
    --time) words='4:00:00 24:00:00 2-00:00:00' ;;
    --weights | --out | --init | --table | --check)
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        compopt -o filenames
        return
        ;;
    --tmp | --scratch | --run | --resume)
        mapfile -t COMPREPLY < <(compgen -d -- "$current")
        compopt -o filenames
        return
        ;;
    esac
    case $previous in
    --io | --self-loops | --targets | --dtype | --features | --memory | --threads | --nodes | --edges | --classes | --scale | \
        --spread | --seed | --topology | --rows | --ids | --form | --split | --row-cache | --list-cache | --batch | --fanout | \
        --epoch | --step | --epochs | --batches | --slots | --window | \
        --model | --layers | --hidden | --heads | --aggr | --norm | --act | --dropout | --pool | --precision | \
        --lr | --optimizer | --momentum | --weight-decay | --clip | --schedule | --step-size | --gamma | --loss | \
        --metric | --eval-every | --eval-fanout | --eval-exact | --eval-splits | --log-steps | --gradient-accumulation-steps | --shares | --patience | --microbatch | --checkpoint-every | --checkpoint-minutes | \
        --memory-every | --hits | --kind | --sweep | --for | \
        --graph | --loaders | --workers | --prefetch | --gpu-memory | --interval | --warn | --signal-at | --time)
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
        return
        ;;
    esac

    case $verb in
    limit | mark | doctor) words=$common ;;
    report) words="--out $common" ;;
    slurm) words="--time --stage --try --ranks --check $common" ;;
    watch) words="--out --interval --warn --signal-at $common" ;;
    inspect) words="--verify $common" ;;
    import)
        words="--symmetrise --remove-duplicates --self-loops --relabel --features --normalise-features --targets --nodes --split --seed --tmp $common"
        ;;
    generate)
        words="--scale --spread --seed --nodes --edges --features --classes --dtype --tmp $common"
        ;;
    bench)
        words="--batch --fanout --replace --form --seed --rows --ids --split --epoch --step --epochs --batches --hash"
        words+=" --slots --window --topology --features --list-cache --row-cache --scratch --stage $common"
        ;;
    plan)
        words="--for --graph --mapped-features --loaders --workers --prefetch --persistent-workers --pin-memory --late-loaders --gpu-memory"
        words+=" --sweep --try --measure --ranks --scale --spread --dtype --nodes --edges --features --classes --model --layers --hidden --heads"
        words+=" --norm --precision --batch --fanout --shares --microbatch --recompute --row-cache --scratch"
        words+=" --epochs --eval-every --eval-fanout --eval-exact --eval-splits $common"
        ;;
    train)
        words="--model --layers --hidden --heads --aggr --norm --act --dropout --residual --pool --precision"
        words+=" --batch --fanout --seed --epochs --lr --optimizer --momentum --weight-decay --clip --schedule"
        words+=" --step-size --gamma --loss --metric --eval-every --log-steps --gradient-accumulation-steps --shares --eval-train --eval-fanout --eval-exact --eval-splits --patience --microbatch --recompute"
        words+=" --run --resume --init --checkpoint-every --checkpoint-minutes --memory-every --row-cache --scratch --stage --verify $common"
        ;;
    evaluate)
        words="--split --weights --scratch --verify --exact --hits --table $common"
        ;;
    predict)
        words="--split --weights --scratch --verify --out --kind --sampled $common"
        ;;
    help)
        mapfile -t COMPREPLY < <(compgen -W 'limit import generate inspect bench plan train evaluate predict watch mark doctor report slurm' -- "$current")
        return
        ;;
    *) return ;;
    esac
    if [[ $current == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
    elif [[ $verb == generate ]] && ((COMP_CWORD == 2)); then
        mapfile -t COMPREPLY < <(compgen -W 'papers100M products arxiv reddit free' -- "$current")
    elif [[ $verb == plan ]] && ((COMP_CWORD == 2)); then
        mapfile -t COMPREPLY < <(compgen -d -- "$current"; compgen -W 'papers100M products arxiv reddit free' -- "$current")
        compopt -o filenames
    elif [[ $verb == bench ]] && ((COMP_CWORD == 2)); then
        mapfile -t COMPREPLY < <(compgen -W 'sample load' -- "$current")
    elif [[ $verb == watch ]]; then
        mapfile -t COMPREPLY < <(compgen -c -- "$current"; compgen -f -- "$current")
    elif [[ $verb == slurm ]]; then
        mapfile -t COMPREPLY < <(compgen -W 'train import generate evaluate predict watch' -- "$current"; compgen -d -- "$current")
        compopt -o filenames
    elif [[ $verb == import || $verb == doctor ]]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        compopt -o filenames
    elif [[ $verb != limit && $verb != mark ]]; then
        mapfile -t COMPREPLY < <(compgen -d -- "$current")
        compopt -o filenames
    fi
}

complete -F _plimsoll plimsoll
