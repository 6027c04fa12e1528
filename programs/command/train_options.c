/* Options of `plimsoll train`, with the spellings of PyG's, OGB's and DGL's scripts. */
#include "command/verb_train.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- values that need more than a kind ---- */

/* "10": the total; "+10": that many more than the run has. */
static bool take_epochs(void *context, char *value, char ***next)
{
    train_t *train = context;
    const bool more = value[0] == '+';
    int64_t epochs;
    (void)next;
    if (!cli_parse_int(&train->common, "--epochs", value, 1, INT32_MAX, &epochs))
        return false;
    train->more_epochs = more ? epochs : 0;
    if (!more)
        train->training.epochs = epochs;
    return true;
}

static bool take_fanout(void *context, char *value, char ***next)
{
    train_t *train = context;
    return cli_parse_fanout(&train->common, "--fanout", value, next, &train->training.recipe);
}

static bool take_eval_fanout(void *context, char *value, char ***next)
{
    train_t *train = context;
    plim_training_t *training = &train->training;
    plim_recipe_t drawn = PLIM_RECIPE_INIT;
    if (!cli_parse_fanout(&train->common, "--eval-fanout", value, next, &drawn))
        return false;
    memset(training->eval_fanout, 0, sizeof training->eval_fanout);
    memcpy(training->eval_fanout, drawn.fanout, (size_t)drawn.num_hops * sizeof drawn.fanout[0]);
    return true;
}

static bool take_edge_categories(void *context, char *value, char ***next)
{
    train_t *train = context;
    return cli_parse_categories(&train->common, "--edge-categories", value, next, PLIM_HOPS_MAX,
                                train->training.edge_categories);
}

static bool take_node_categories(void *context, char *value, char ***next)
{
    train_t *train = context;
    return cli_parse_categories(&train->common, "--node-categories", value, next,
                                PLIM_CATEGORIES_MAX, train->training.node_categories);
}

/* "valid,test" or "all". */
static bool take_splits(void *context, char *value, char ***next)
{
    train_t *train = context;
    static const struct {
        const char *name;
        unsigned bits;
    } splits[] = {{"train", 1}, {"valid", 2}, {"val", 2}, {"test", 4}, {"all", PLIM_SPLITS_ALL}};
    const size_t count = sizeof splits / sizeof splits[0];
    unsigned bits = 0;
    (void)next;
    for (const char *at = value; bits == 0 || *at != '\0';) {
        const size_t length = strcspn(at, ", ");
        size_t i = 0;
        while (i < count &&
               (strlen(splits[i].name) != length || strncmp(at, splits[i].name, length) != 0))
            i++;
        if (i == count) {
            (void)cli_wrong_use(&train->common,
                                "--eval-splits: '%s' is not a list of train, valid and test, or "
                                "all",
                                value);
            return false;
        }
        bits |= splits[i].bits;
        at += length + strspn(at + length, ", ");
    }
    train->training.eval_splits = (plim_splits_t)bits;
    return true;
}

static bool take_valid_negatives(void *context, char *value, char ***next)
{
    train_t *train = context;
    (void)next;
    return cli_parse_negatives(&train->common, "--valid-negatives", value,
                               &train->training.valid_negatives, &train->training.valid_drawn);
}

static bool take_minutes(void *context, char *value, char ***next)
{
    train_t *train = context;
    double minutes;
    (void)next;
    if (!cli_parse_real(&train->common, "--checkpoint-minutes", value, 1e9, &minutes))
        return false;
    train->training.checkpoint_seconds = minutes * 60;
    return true;
}

/* --resume RUN; or --resume alone, which goes with --run RUN. */
static bool take_resume(void *context, char *value, char ***next)
{
    train_t *train = context;
    bool named = train->run != NULL;
    for (char **word = *next; *word != NULL && strcmp(*word, "--") != 0; word++)
        named = named || strcmp(*word, "--run") == 0 || strncmp(*word, "--run=", 6) == 0;
    train->requeued = value == NULL && named;
    if (train->requeued)
        return true;
    train->resume = value == NULL && **next != NULL ? *(*next)++ : value;
    if (train->resume == NULL)
        (void)cli_wrong_use(&train->common,
                            "--resume needs the directory of a run: --resume RUN, or --run RUN "
                            "--resume, which also begins the run");
    return train->resume != NULL;
}

static bool take_stage(void *context, char *value, char ***next)
{
    train_t *train = context;
    (void)next;
    train->stage = true;
    train->stage_directory = value;
    return true;
}

static bool take_device(void *context, char *value, char ***next)
{
    train_t *train = context;
    (void)next;
    train->loader_words = true;
    if (strcmp(value, "cpu") == 0 || strcmp(value, "-1") == 0)
        return true;
    (void)cli_wrong_use(
        &train->common,
        "--device %s: plimsoll train computes on the CPU. On a GPU, train in Python "
        "with torch and plimsoll.NeighborLoader(…, device='cuda'): build the package "
        "with tools/wheel --build-only (README, Install), pip install "
        "build/wheel/dist/*.whl. Its GPU memory: plimsoll plan --for pyg "
        "--gpu-memory SIZE. Here: --device cpu",
        value);
    return false;
}

/* ---- the tables ---- */

#define AT(member) CLI_AT(train_t, member)
#define FROM(minimum) CLI_RANGE(minimum, INT32_MAX)
#define IGNORED AT(loader_words), .kind = CLI_FLAG

_Static_assert(sizeof(plim_model_kind_t) == sizeof(int) && sizeof(plim_metric_t) == sizeof(int),
               "enumerations are written as int");

const cli_option_t train_model_options[] = {
    {"model", "KIND", "%s; default gcn", "mlp reads no neighbours, for comparison.",
     AT(training.model.kind), CLI_LIST_OF(PLIM_WORDS_MODEL), .plans = true},
    {"layers", "N", "number of layers (also --num_layers); default: one for each fan-out",
     "Without sampling the default is 2.", AT(training.model.num_layers),
     CLI_RANGE(1, PLIM_HOPS_MAX), .plans = true},
    {"hidden", "N", "hidden channels between layers (also --hidden_channels); default 64",
     AT(training.model.hidden), FROM(1), .plans = true},
    {"heads", "N", "attention heads of gat and gatv2, which share --hidden; default 1",
     AT(training.model.heads), CLI_RANGE(1, 1024), .plans = true},
    {"edge-features", NULL, "gat and gatv2 read the dataset's features of edges (gine always does)",
     "As PyTorch Geometric's edge_dim.", AT(training.edge_features), .plans = true},
    {"edge-categories", "LIST",
     "gine: how many values each column of integer features of edges has, for embeddings",
     "Such as 5,6,2 for the bonds of OGB's molecules.", AT(training.edge_categories),
     CLI_BY(take_edge_categories), .plans = true},
    {"node-categories", "LIST",
     "how many values each column of integer features of nodes has, for embeddings",
     "The sum of a row's embeddings, --hidden wide, is the first layer's input. Such as "
     "119,5,12,12,10,6,6,2,2 for the atoms of OGB's molecules.",
     AT(training.node_categories), CLI_BY(take_node_categories), .plans = true},
    {"edge-weight", NULL, "gcn weighs edges by the dataset's weights", AT(training.edge_weight),
     .plans = true},
    {"num-bases", "N", "bases of rgcn; default: as many as types of edges, at most 30",
     AT(training.bases), CLI_RANGE(1, 1024), .plans = true},
    {"aggr", "HOW", "aggregation of sage: %s; default mean", AT(training.model.aggregation),
     CLI_LIST_OF(PLIM_WORDS_AGGREGATION)},
    {"norm", "KIND", "norm after each layer but the last: %s; default none",
     "With batch, batches are never split.", AT(training.model.norm), CLI_LIST_OF(PLIM_WORDS_NORM),
     .plans = true},
    {"act", "KIND", "activation after each layer but the last: %s; default relu",
     AT(training.model.activation), CLI_LIST_OF(PLIM_WORDS_ACTIVATION)},
    {"dropout", "P", "share of the inputs of a layer that is dropped; default 0",
     AT(training.model.dropout), CLI_BELOW(1)},
    {"residual", NULL, "add a layer's input to its output where their widths are equal",
     AT(training.model.residual)},
    {"pool", "HOW", "pooling of a graph's nodes, in a dataset of many graphs: %s; default mean",
     AT(training.model.pool), CLI_LIST_OF(PLIM_WORDS_POOL)},
    {"precision", "TYPE", "type of the inputs of matrix products: %s; default f32",
     "With bf16 they are stored in bfloat16, and everything else in float32. The result differs "
     "slightly.",
     AT(training.model.precision), CLI_LIST_OF(PLIM_WORDS_PRECISION), .plans = true},
    CLI_OPTIONS_END};

const cli_option_t train_task_options[] = {
    {"task", "KIND", "what is learnt: %s; default labels",
     "link learns which pairs of nodes are linked: --decoder scores a pair by the rows of its "
     "nodes, which are --hidden wide, and the loss is BCE over the pairs of --pairs and drawn "
     "ones. Neither labels nor splits are read; --valid-pairs are evaluated. 'plimsoll "
     "predict --kind embeddings' writes the rows of all nodes.",
     AT(training.task), CLI_LIST_OF(PLIM_WORDS_TASK), .plans = true},
    {"pairs", "FILE",
     "the links to learn: a .npy file of integers, (2, pairs) or (pairs, 2); default: all edges of "
     "the dataset",
     "Of any size: its pairs are read as batches need them. A run that continues takes the file of "
     "its start, which must be the same; a file that has moved is given again.",
     AT(training.pairs), .kind = CLI_TEXT, .plans = true},
    {"negatives", "N", "pairs drawn for each pair, of any two nodes; default 1",
     "Also a fraction. They change every epoch, and may be links.", AT(training.negatives),
     CLI_BELOW(1e6), .plans = true},
    {"exclude", "WHAT",
     "edges left out of a batch's neighbourhoods after the draw: %s; default reverse",
     "self: the edge of each pair of the batch, if it is one. reverse: also the edge from its "
     "target to its source. Otherwise a model reads the answer off that edge.",
     AT(training.exclude), CLI_LIST_OF(PLIM_WORDS_EXCLUDE)},
    {"decoder", "HOW", "how a pair is scored by the rows of its nodes: %s; default dot",
     "dot: their dot product. mlp: PyG's MLP([hidden, hidden, 1], norm=None) of their product, "
     "element by element, trained with the model. distmult: the sum of that product times a vector "
     "that is trained; where the dataset has types of edges, of the vector of the pair's type. "
     "Then all files of pairs have a third number, (3, pairs) or (pairs, 3): source, target, type.",
     AT(training.decoder), CLI_LIST_OF(PLIM_WORDS_DECODER), .plans = true},
    {"valid-pairs", "FILE",
     "pairs to score after every epoch, or every --eval-every epochs, with all neighbours as "
     "--eval-exact does",
     "The epoch with the best score keeps its weights. See plimsoll-evaluate(1).",
     AT(training.valid_pairs), .kind = CLI_TEXT, .plans = true},
    {"valid-negatives", "FILE|N",
     "what they are scored against: a .npy file of pairs, for AUC; or of targets for each pair's "
     "source, (pairs, n), for MRR; or how many targets to draw for each",
     "An array with an axis of 2 is one of pairs; where pairs have types, one with an axis of 3.",
     AT(training.valid_negatives), CLI_BY(take_valid_negatives), .plans = true},
    CLI_OPTIONS_END};

const cli_option_t train_sampling_options[] = {
    {"batch", "N", "seeds in a batch, or graphs, or pairs (also --batch_size); default 1024",
     AT(training.recipe.batch_size), FROM(1), .plans = true},
    {"fanout", "A,B,..",
     "neighbours drawn at each hop, -1: all (also --num_neighbors A B ..); default 10 at each; "
     "none in a dataset of many graphs",
     "One number a layer; one number with --layers is for every layer. '[3,2]', '3 2' and "
     "separate words, as '--num_neighbors 3 2', are taken too.",
     AT(training.recipe.fanout), CLI_BY(take_fanout), .plans = true},
    {"temporal", "HOW", "how times limit the neighbours of a seed: %s; default none",
     "As PyTorch Geometric's temporal_strategy. uniform: draws edges that are not later than the "
     "seed. last: takes the latest of them. The seed's time is in node_time.npy, an edge's in "
     "edge_time.npy; without that file, an edge has the time of its neighbour. Each seed has a "
     "tree of its own, so batches have more nodes. Evaluations and predictions are drawn in the "
     "same way, never exact. Not with gcn, which weighs edges by degrees in the whole graph, nor "
     "with '--task link'.",
     AT(training.temporal), CLI_LIST_OF(PLIM_WORDS_TEMPORAL), .plans = true},
    {"seed", "S", "seed of initial weights, order, draws and dropout; default 0",
     AT(training.recipe.seed), .kind = CLI_SEED},
    CLI_OPTIONS_END};

const cli_option_t train_step_options[] = {
    {"epochs", "N", "total number of epochs; default 10; with --resume also +N: N more",
     "With --resume the number includes the completed epochs, and '+N' means N more than in "
     "run.json, so a script that is queued again must not repeat it. The number may also be "
     "lower, but not below the epochs that have begun.",
     AT(training.epochs), CLI_BY(take_epochs), .plans = true},
    {"lr", "RATE", "learning rate; default 0.01", AT(training.optimiser.rate), CLI_BELOW(INFINITY)},
    {"optimizer", "KIND", "%s; default adam", AT(training.optimiser.kind),
     CLI_LIST_OF(PLIM_WORDS_OPTIMISER)},
    {"momentum", "M", "momentum of sgd; default 0", AT(training.optimiser.momentum), CLI_BELOW(1)},
    {"weight-decay", "D", "weight decay; default 0", AT(training.optimiser.weight_decay),
     CLI_BELOW(INFINITY)},
    {"clip", "NORM", "largest norm of all gradients together; default: no clipping",
     AT(training.optimiser.clip_norm), CLI_BELOW(INFINITY)},
    {"schedule", "KIND", "schedule of the learning rate: %s; default none",
     "cosine falls to 0 at the last epoch; step is multiplied by --gamma every --step-size "
     "epochs. A run with cosine cannot be made longer or shorter, since every rate depends on "
     "its number of epochs.",
     AT(training.optimiser.schedule), CLI_LIST_OF(PLIM_WORDS_SCHEDULE)},
    {"step-size", "N", "epochs between steps of the schedule",
     AT(training.optimiser.schedule_epochs), FROM(1)},
    {"gamma", "F", "factor of each step; default 0.1", AT(training.optimiser.schedule_factor),
     CLI_BELOW(INFINITY)},
    {"loss", "KIND", "%s; default auto",
     "auto is cross-entropy for classes, bce for a multi-label task (values of 0 and 1 in "
     "several columns) and mse for other values.",
     AT(training.loss), CLI_LIST_OF(PLIM_WORDS_LOSS)},
    {"metric", "KIND", "%s; default auto",
     "auto is accuracy for classes, roc-auc with bce, else rmse; of links mrr, or roc-auc where "
     "all --valid-pairs share their negatives. r2 is the mean over the targets. For a regression "
     "onto embeddings cosine is the mean similarity of a seed's outputs and its known values; see "
     "also --hits of "
     "plimsoll-evaluate(1).",
     AT(training.metric), CLI_LIST_OF(PLIM_WORDS_METRIC)},
    {"eval-every", "N",
     "epochs between evaluations (also --eval_steps); default 1; 0: none, also no scores at the "
     "end",
     "At the end all three splits are scored, also if N is more than the number of epochs. "
     "plimsoll-evaluate(1) scores a run later.",
     AT(training.eval_every), FROM(0), .plans = true},
    {"log-steps", "N", "print every N epochs, and evaluate as often unless --eval-every is given",
     "The last epoch has a line too.", AT(print_every), FROM(1)},
    {"eval-fanout", "A,B,..",
     "neighbours drawn at each hop of an evaluation, -1: all; default: those of --fanout; the "
     "same draws after every epoch",
     "Where that reaches more nodes, an evaluation takes fewer seeds at a time, so it needs about "
     "the memory of training, and at least that of the largest neighbourhood of one seed; losses "
     "and weights stay the same if the line fits whole batches (otherwise the number of seeds in "
     "a part depends on it too). One number is for every layer. On large graphs --eval-exact "
     "takes less than -1.",
     AT(training.eval_fanout), CLI_BY(take_eval_fanout), .plans = true},
    {"eval-exact", "N", "evaluate every N epochs, with all neighbours, layer by layer",
     "As 'plimsoll evaluate --exact' does, instead of batches. The pass uses the memory of loader "
     "and model: the run is saved before it, and continues after it as if it was resumed. "
     "Intermediate layers take disk space in the run directory.",
     AT(eval_exact), FROM(1), .plans = true},
    {"eval-splits", "S,..",
     "splits evaluated between epochs: train, valid, test or all; default valid,test; at the end "
     "all three are scored",
     "Without valid no epoch is the best.", AT(training.eval_splits), CLI_BY(take_splits),
     CLI_HINTS("valid", "valid,test", "all"), .plans = true},
    {"eval-train", NULL, "evaluate the training split as often as the others",
     "Otherwise once at the end.", AT(training.eval_train)},
    {"gradient-accumulation-steps", "N",
     "average the gradients of N batches for each update; default 1",
     "At the end of an epoch it is the number of remaining batches. A run that is stopped or "
     "killed between two updates continues from the first of them.",
     AT(training.accumulation), FROM(1)},
    {"shares", "S",
     "cut each batch into S shares, whose gradients are added in an order that S alone fixes: up "
     "to S ranks (mpirun, srun) give the same bits; default: the number of ranks",
     "Evaluations are summed in the same way. The number of shares decides the last bits of a "
     "run, and a run continues with the number it began with. A rank computes its shares one "
     "after the other, which takes less memory than whole batches. Batch norm needs whole "
     "batches, so it is refused with more than one share.",
     AT(training.shares), FROM(1), .plans = true},
    {"patience", "N",
     "stop after N evaluations without a better validation score; default: never; --resume may "
     "raise it",
     "NaN is never better. Such a run continues with --resume and more patience, or 0 for no "
     "early end.",
     AT(training.patience), FROM(0)},
    CLI_OPTIONS_END};

const cli_option_t train_memory_options[] = {
    {"microbatch", "K", "compute a batch K seeds at a time and add the gradients",
     "The losses are the same up to rounding.", AT(training.microbatch), FROM(0), .plans = true},
    {"recompute", NULL, "compute activations again in the backward pass instead of keeping them",
     "The result is the same bits.", AT(training.model.recompute), .plans = true},
    CLI_OPTIONS_END};

const cli_option_t train_run_options[] = {
    {"run", "DIR", "directory of the new run; default runs/DATASET-MODEL-N",
     "Missing parents are created. The default is in the working directory, with the first free "
     "N.",
     AT(run), .kind = CLI_TEXT},
    {"resume", "[RUN]",
     "continue this run, up to its epochs or --epochs. Without RUN, after --run DIR, for a batch "
     "script that is queued again: begin the run, continue it, or do nothing if it is done",
     "Options that decide the result may be repeated, but not changed, except for --epochs and "
     "--patience. If the dataset has moved, the operand names its new place; another dataset is "
     "refused. The values of --memory, --threads, --io, --row-cache and --scratch are those of "
     "the run's last start, unless they are given again; '--memory max' removes the first. Other "
     "limits still apply: the smallest decides. Only the owner of a run can continue it. With "
     "'--run DIR --resume', --epochs is the total, and a larger one trains on; a run that is done "
     "exits with 0.",
     AT(resume), CLI_BY(take_resume)},
    {"init", "FILE",
     "begin with the weights of a safetensors file: a run's, or PyG's of the same names and "
     "shapes",
     "It may be another run's best.safetensors, if the models have the same shapes; other settings "
     "may differ. The layers of a PyTorch Geometric model, as "
     "'safetensors.torch.save_file(model.state_dict(), file)' writes them, may also be called "
     "conv1, conv2 and so on. The optimiser starts from zero. run.json keeps the path; a run that "
     "continues has its own weights.",
     AT(training.init), .kind = CLI_TEXT},
    {"checkpoint-every", "STEPS",
     "save after every STEPS updates too, not only after epochs (of short epochs only after some: "
     "saving takes at most a twentieth of the time)",
     AT(training.checkpoint_steps), FROM(0)},
    {"checkpoint-minutes", "M", "save at least this often; default 5; 0: by steps and epochs alone",
     AT(training.checkpoint_seconds), CLI_BY(take_minutes)},
    {"memory-every", "STEPS", "print the memory after every STEPS updates (also --log_interval)",
     "Such as 'Step 1000: CPU: 2048.5MB of 4096.0MB'.", AT(training.memory_steps), FROM(0)},
    {"row-cache", "SIZE", "size of the cache for rows on disk, or none",
     "The default is as much as the line allows.", AT(params.row_cache),
     CLI_SIZE_OR("none", PLIM_CACHE_NONE), .plans = true},
    {"scratch", "DIR", "a local disk for a file of what batches can need, made once",
     "Rows and lists that the caches miss are then read in few, large reads. The file serves all "
     "your jobs with the same dataset and fan-outs, under any line; it can be deleted at any time "
     "('plimsoll cache').",
     AT(params.scratch), .kind = CLI_TEXT, .plans = true},
    {"stage", "[=DIR]",
     "copy the dataset to DIR, else to --scratch, and read it there; of several ranks one reads "
     "it for all nodes",
     "The copy is verified first. A copy that others could have written is refused; each user has "
     "one. Of several ranks one reads the dataset and sends it to all nodes, and one rank of each "
     "node writes it. The copy stays, and later jobs use it; a job that finds another one at work "
     "waits for it. run.json names the dataset's own directory: a run that is resumed without "
     "--stage reads that one, and with it copies again where the copy is gone. DIR must exist.",
     CLI_BY(take_stage)},
    {"verify", NULL,
     "verify the whole dataset first, as inspect --verify does; otherwise only files that are "
     "read whole are verified",
     "Damage ends with exit status 4 before the run is created.", AT(verify)},
    CLI_OPTIONS_END};

/* Words of other scripts. */
const cli_option_t train_script_options[] = {
    CLI_ALIAS("num_epochs", "PyG", "epochs"),
    CLI_ALIAS("n-epochs", "DGL", "epochs"),
    CLI_ALIAS("batch_size", "PyG, OGB", "batch"),
    CLI_ALIAS("hidden_channels", "PyG, OGB", "hidden"),
    CLI_ALIAS("num-hidden", "DGL", "hidden"),
    CLI_ALIAS("n-hidden", "DGL", "hidden"),
    CLI_ALIAS("hidden_dim", "others", "hidden"),
    CLI_ALIAS("num_layers", "PyG, OGB", "layers"),
    CLI_ALIAS("n-layers", "DGL", "layers"),
    CLI_ALIAS("num_heads", "PyG, DGL", "heads"),
    CLI_ALIAS("num_neighbors", "PyG", "fanout"),
    CLI_ALIAS("temporal_strategy", "PyG", "temporal"),
    {"fan-out", .from = "PyG, DGL", .means = "fanout", AT(fan_out)},
    CLI_ALIAS("learning_rate", "others", "lr"),
    CLI_ALIAS("wd", "PyG, DGL", "weight-decay"),
    CLI_ALIAS("use_sage", "OGB", "model=sage"),
    CLI_ALIAS("use_gat", "PyG", "model=gat"),
    CLI_ALIAS("use_layer_norm", "others", "norm=layer"),
    CLI_ALIAS("use_batch_norm", "others", "norm=batch"),
    {"use_amp", .from = "others", .means = "precision=bf16", AT(amp)},
    {"use_fp16", .from = "others", .means = "precision=bf16", AT(amp)},
    CLI_ALIAS("gradient_checkpointing", "others", "recompute"),
    CLI_ALIAS("eval_steps", "OGB", "eval-every"),
    CLI_ALIAS("log_interval", "others", "memory-every"),
    {"num_workers", "N", .from = "PyG, DGL", IGNORED},
    {"persistent_workers", .from = "PyG", IGNORED},
    {"prefetch_factor", "N", .from = "PyG", IGNORED},
    {"pin_memory", .from = "PyG", IGNORED},
    {"device", "cpu", .from = "PyG, OGB", CLI_BY(take_device)},
    {"gpu", "-1", .from = "DGL", CLI_BY(take_device)},
    CLI_OPTIONS_END};

/* ---- what follows from several options ---- */

bool train_read_options(int argc, char **argv, train_t *train, int *exit_out)
{
    plim_training_t *training = &train->training;
    const cli_common_t *common = &train->common;
    if (!cli_read_options(argc, argv, train, exit_out))
        return false;
    const bool every = cli_given(common, "eval-every"), steps = cli_given(common, "log-steps");
    if (cli_given(common, "eval-exact")) {
        if (every && training->eval_every != train->eval_exact) {
            *exit_out = cli_wrong_use(common,
                                      "--eval-exact %" PRId64 " evaluates every %" PRId64
                                      " epochs: leave out --eval-every",
                                      train->eval_exact, train->eval_exact);
            return false;
        }
        training->eval_exact = true;
        training->eval_every = train->eval_exact;
    } else if (steps && !every) {
        training->eval_every = train->print_every;
    }
    return true;
}

bool train_resolve(train_t *train, const plim_dataset_info_t *info)
{
    plim_training_t *training = &train->training;
    const bool links = training->task == PLIM_TASK_LINK;
    if (links && training->valid_pairs != NULL && training->eval_every > 0)
        training->eval_exact = true;
    else if (links && !training->eval_exact && !cli_given(&train->common, "eval-every"))
        training->eval_every = 0;
    plim_recipe_t *recipe = &training->recipe;
    plim_model_t *model = &training->model;
    const bool drawn = info->num_graphs == 0 && model->kind != PLIM_MLP;
    const bool fanout = cli_given(&train->common, "fanout");
    if (!drawn && !fanout)
        recipe->num_hops = 0;
    if (drawn && train->resume == NULL && !cli_given(&train->common, "layers")) {
        model->num_layers = recipe->num_hops;
    } else if (drawn && (fanout ? recipe->num_hops == 1 : train->resume == NULL)) {
        /* One number is for every layer, as in PyG's scripts. */
        const int64_t every = fanout ? recipe->fanout[0] : 10;
        train->fanout_repeated = fanout && model->num_layers > 1;
        for (recipe->num_hops = 0; recipe->num_hops < model->num_layers; recipe->num_hops++)
            recipe->fanout[recipe->num_hops] = every;
    }
    if (training->eval_fanout[0] != 0 && training->eval_fanout[1] == 0)
        for (int i = 1; i < recipe->num_hops; i++)
            training->eval_fanout[i] = training->eval_fanout[0];
    if (training->eval_train && training->eval_splits != PLIM_SPLITS_AUTO)
        training->eval_splits = (plim_splits_t)(training->eval_splits | 1);
    const bool attends = model->kind == PLIM_GAT || model->kind == PLIM_GATV2;
    if (!attends && cli_given(&train->common, "heads") && model->heads > 1) {
        (void)cli_wrong_use(&train->common, "--heads is for --model gat and gatv2; %s has none",
                            plim_words(PLIM_WORDS_MODEL)[model->kind]);
        return false;
    }
    return true;
}

/* Whether a layer is as wide as its input, so that --residual adds it. */
static bool adds_inputs(const plim_training_t *training, const plim_dataset_info_t *info)
{
    const int64_t hidden = training->model.hidden;
    const int64_t outputs = training->task == PLIM_TASK_LINK          ? hidden
                            : info->label_kind == PLIM_LABELS_CLASSES ? info->num_classes
                                                                      : info->num_targets;
    const int layers = training->model.num_layers;
    const int64_t input = training->node_categories[0] > 0 ? hidden : info->num_features;
    for (int i = 0; i < layers; i++)
        if ((i == 0 ? input : hidden) ==
            (i + 1 == layers && info->num_graphs == 0 ? outputs : hidden))
            return true;
    return false;
}

/* Whether a split that is evaluated between epochs has seeds. */
static bool is_scored(const plim_training_t *training, const plim_dataset_info_t *info)
{
    const bool chosen = training->eval_splits != PLIM_SPLITS_AUTO;
    unsigned splits = chosen ? (unsigned)training->eval_splits : 1U << PLIM_VALID | 1U << PLIM_TEST;
    splits |= training->eval_train ? 1U << PLIM_TRAIN : 0;
    for (int split = PLIM_TRAIN; split <= PLIM_TEST; split++)
        if ((splits >> split & 1) != 0 && info->num_split[split] > 0)
            return true;
    return false;
}

int train_idle(const train_t *train, const plim_dataset_info_t *info, const cli_plan_t *plan,
               const char *texts_out[TRAIN_IDLE_MAX])
{
    const plim_training_t *training = &train->training;
    const plim_model_t *model = &training->model;
    const bool steps = training->optimiser.schedule == PLIM_SCHEDULE_STEP;
    const bool single = model->num_layers == 1 && info->num_graphs == 0;
    const bool rows_in_memory = plan->info.rows == PLIM_PLACE_MEMORY;
    const bool never = training->eval_every == 0;
    const struct {
        const char *name;
        bool idle;
        const char *text;
    } options[] = {
        {"momentum", training->optimiser.kind != PLIM_SGD, "--momentum (of sgd)"},
        {"aggr", model->kind != PLIM_SAGE, "--aggr (of sage)"},
        {"heads", model->kind != PLIM_GAT && model->kind != PLIM_GATV2, "--heads (of gat)"},
        {"step-size", !steps, "--step-size (of --schedule step)"},
        {"gamma", !steps, "--gamma (of --schedule step)"},
        {"pool", info->num_graphs == 0, "--pool (of datasets of many graphs)"},
        {"hidden", single && training->task == PLIM_TASK_LABELS,
         "--hidden (one layer has no hidden channels)"},
        {"dropout", single, "--dropout (between layers, and there is one)"},
        {"norm", single, "--norm (between layers, and there is one)"},
        {"act", single, "--act (between layers, and there is one)"},
        {"residual", !adds_inputs(training, info), "--residual (no layer is as wide as its input)"},
        {"eval-every", !is_scored(training, info), "--eval-every (no split to evaluate)"},
        {"eval-train", never, "--eval-train (nothing is evaluated)"},
        {"eval-fanout", never, "--eval-fanout (nothing is evaluated)"},
        {"eval-splits", never, "--eval-splits (nothing is evaluated)"},
        {"row-cache", rows_in_memory, "--row-cache (all features fit in memory)"},
        {"scratch", rows_in_memory && !train->stage, "--scratch (all features fit in memory)"},
        {"microbatch", training->microbatch >= training->recipe.batch_size,
         "--microbatch (no less than --batch)"},
    };
    _Static_assert(sizeof options / sizeof options[0] <= TRAIN_IDLE_MAX,
                   "every option has an entry");
    int count = 0;
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (options[i].idle && cli_given(&train->common, options[i].name))
            texts_out[count++] = options[i].text;
    return count;
}

void train_warn_idle(const train_t *train, const plim_dataset_info_t *info, const cli_plan_t *plan)
{
    const char *texts[TRAIN_IDLE_MAX];
    const int count = train_idle(train, info, plan, texts);
    char line[1024] = "";
    size_t used = 0;
    for (int i = 0; i < count && used < sizeof line; i++)
        used +=
            (size_t)snprintf(line + used, sizeof line - used, "%s%s", i > 0 ? ", " : "", texts[i]);
    if (count > 0)
        cli_warn("options without effect: %s", line);
    if (train->loader_words)
        cli_remark("--num_workers, --persistent_workers, --prefetch_factor, --pin_memory and "
                   "--device cpu change nothing: plimsoll loads batches and trains in --threads "
                   "threads of the CPU");
    if (train->amp)
        cli_remark("mixed precision is --precision bf16: matrix products read bfloat16, and no "
                   "loss is scaled");
    bool ordered = false;
    for (int i = 1; i < train->training.recipe.num_hops; i++)
        ordered |= train->training.recipe.fanout[i] != train->training.recipe.fanout[0];
    if (train->fan_out && ordered)
        cli_warn("--fan-out is read from the seeds outward, as PyG's num_neighbors; if it is of a "
                 "DGL script, which lists the hops the other way round, turn it round");
}
