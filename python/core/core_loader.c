/* Loaders and streams. */
#include "core.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WAIT_SECONDS 0.05 /* between two looks for signals */

/* Fills fan-outs from a sequence of at most PLIM_HOPS_MAX numbers. */
static bool read_fanout(PyObject *sequence, int64_t fanout_out[PLIM_HOPS_MAX], int *num_hops_out)
{
    const Py_ssize_t count = PySequence_Size(sequence);
    if (count < 0)
        return false;
    if (count > PLIM_HOPS_MAX) {
        (void)PyErr_Format(PyExc_ValueError, "num_neighbors has %zd hops; at most %d are possible",
                           count, PLIM_HOPS_MAX);
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *number = PySequence_GetItem(sequence, i);
        if (number == NULL)
            return false;
        fanout_out[i] = PyLong_AsLongLong(number);
        Py_DECREF(number);
        if (fanout_out[i] == -1 && PyErr_Occurred() != NULL)
            return false;
    }
    *num_hops_out = (int)count;
    return true;
}

/* Reads a dict as PyArg_ParseTupleAndKeywords reads arguments: by their names. */
static bool read_dict(PyObject *dict, const char *format, char **names, ...)
{
    va_list outputs;
    if (!PyDict_Check(dict)) {
        PyErr_SetString(PyExc_TypeError, "settings are a dict");
        return false;
    }
    PyObject *none = PyTuple_New(0);
    if (none == NULL)
        return false;
    va_start(outputs, names);
    const int read = PyArg_VaParseTupleAndKeywords(none, dict, format, names, outputs);
    va_end(outputs);
    Py_DECREF(none);
    return read != 0;
}

/* Reads links from a dict, _Links of _core.pyi. Addresses are 0 for what is not given. */
static bool read_links(PyObject *dict, plim_links_t *links)
{
    static char *names[] = {"sources",     "targets",   "pairs",     "path",   "all_edges",
                            "rank",        "num_ranks", "negatives", "amount", "source_sums",
                            "target_sums", "no_edges",  "exclude",   NULL};
    unsigned long long sources, targets, source_sums, target_sums;
    long long pairs;
    int negatives, exclude, no_edges, all_edges;
    if (!read_dict(dict, "KKLzpiiidKKpi", names, &sources, &targets, &pairs, &links->path,
                   &all_edges, &links->rank, &links->num_ranks, &negatives, &links->amount,
                   &source_sums, &target_sums, &no_edges, &exclude))
        return false;
    links->exclude = (plim_exclude_t)exclude;
    links->no_edges = no_edges != 0;
    links->all_edges = all_edges != 0;
    links->sources = (const int64_t *)(uintptr_t)sources;
    links->targets = (const int64_t *)(uintptr_t)targets;
    links->num_pairs = pairs;
    links->negatives = (plim_negatives_t)negatives;
    links->source_sums = (const double *)(uintptr_t)source_sums;
    links->target_sums = (const double *)(uintptr_t)target_sums;
    return true;
}

/* Reads a stream's settings from a dict, _Settings of _core.pyi. Memory at its addresses stays the
 * caller's. `source_out` may be NULL. */
static bool read_stream(PyObject *dict, plim_stream_params_t *params, plim_links_t *links,
                        char source_out[SOURCE_MAX])
{
    static char *names[] = {"fanout", "batch_size", "shuffle", "share", "num_shares",
                            "seed",   "no_labels",  "source",  "times", "split",
                            "nodes",  "count",      "links",   NULL};
    int split = PLIM_TRAIN, shuffle, share, num_shares, no_labels;
    unsigned long long nodes = 0, times;
    long long count = 0, batch_size;
    PyObject *fanout, *seed, *pairs = NULL;
    const char *source;
    if (!read_dict(dict, "OLpiiOpsK|iKLO", names, &fanout, &batch_size, &shuffle, &share,
                   &num_shares, &seed, &no_labels, &source, &times, &split, &nodes, &count, &pairs))
        return false;
    if (pairs != NULL) {
        if (!read_links(pairs, links))
            return false;
        params->links = links;
    }
    if (seed != Py_None) {
        params->has_seed = true;
        params->seed = PyLong_AsUnsignedLongLong(seed);
        if (PyErr_Occurred() != NULL)
            return false;
    }
    if (source_out != NULL)
        (void)PyOS_snprintf(source_out, SOURCE_MAX, "%s", source);
    params->split = (plim_split_t)split;
    params->nodes = (const int64_t *)(uintptr_t)nodes;
    params->num_nodes = count;
    params->shuffle = shuffle != 0;
    params->batch_size = batch_size;
    params->share = share;
    params->num_shares = num_shares;
    params->no_labels = no_labels != 0;
    params->times = (const int64_t *)(uintptr_t)times;
    return read_fanout(fanout, params->fanout, &params->num_hops);
}

typedef struct creation {
    const plim_job_t *job;
    const plim_dataset_t *dataset;
    plim_recipe_t recipe;
    plim_plan_params_t params;
    plim_stream_params_t streams[PLIM_STREAMS_MAX];
    plim_links_t links[PLIM_STREAMS_MAX];
    int slots; /* the fewest that the script needs */
    plim_plan_t *plan;
    plim_loader_t *loader;
} creation_t;

static plim_plan_info_t info_of(const plim_plan_t *plan)
{
    plim_plan_info_t info = PLIM_PLAN_INFO_INIT;
    (void)plim_plan_info(plan, &info);
    return info;
}

/* A loop holds one batch while it asks for the next, and often a batch of another loader. */
#define SLOTS_WANTED 4

/* Plans with so many slots; 0: as many as the planner chooses. */
static plim_status_t plan_slots(const creation_t *creation, int slots, plim_plan_t **plan_out)
{
    plim_plan_params_t params = creation->params;
    params.num_slots = slots;
    return plim_load_plan(creation->job, creation->dataset, &creation->recipe, &params, plan_out);
}

/*
 * Plans the loader: as a rule once. The planner takes a number of slots as it is, or chooses one
 * that may be too few for a script, so another plan follows where it chose fewer than SLOTS_WANTED,
 * and a third where that many do not fit and the least that the script needs were not chosen
 * either. Each is arithmetic: the first plan has measured the batches, where that was necessary.
 *
 * Counting the batches of each epoch costs more than two slots instead of four do: a plan with more
 * slots that counts them is taken only where the first one counts them too, or has too few slots.
 */
static plim_status_t plan_loader(creation_t *creation)
{
    plim_plan_t *more = NULL, *first;
    plim_status_t status = plan_slots(creation, 0, &first);
    if (status != PLIM_OK)
        return status;
    const plim_plan_info_t info = info_of(first);
    const bool few = info.slots < creation->slots;
    if (info.slots < SLOTS_WANTED) {
        status = plan_slots(creation, SLOTS_WANTED, &more);
        if (status == PLIM_ERR_BUDGET)
            status = few ? plan_slots(creation, creation->slots, &more) : PLIM_OK;
    }
    const bool takes = more != NULL && (few || info.counted || !info_of(more).counted);
    creation->plan = takes ? more : first;
    plim_plan_release(takes ? first : more);
    return status;
}

static plim_status_t create_loader(void *context)
{
    creation_t *creation = context;
    const plim_status_t status = plan_loader(creation);
    if (status != PLIM_OK)
        return status;
    return plim_loader_create(creation->job, creation->dataset, creation->plan, &creation->loader);
}

static bool read_streams(PyObject *streams, creation_t *creation)
{
    const Py_ssize_t count = PySequence_Size(streams);
    if (count < 0)
        return false;
    /* More than that are planned when they are added, if they can be. */
    for (Py_ssize_t i = 0; i < count && i < PLIM_STREAMS_MAX; i++) {
        PyObject *settings = PySequence_GetItem(streams, i);
        creation->streams[i] = (plim_stream_params_t)PLIM_STREAM_PARAMS_INIT;
        creation->links[i] = (plim_links_t)PLIM_LINKS_INIT;
        const bool read = settings != NULL &&
                          read_stream(settings, &creation->streams[i], &creation->links[i], NULL);
        Py_XDECREF(settings);
        if (!read)
            return false;
        creation->params.num_streams++;
    }
    creation->params.streams = creation->streams;
    return true;
}

static loader_object_t *wrap_loader(creation_t *creation, job_object_t *job)
{
    held_t *held = core_held();
    loader_object_t *self = (loader_object_t *)PyType_GenericAlloc(core_loader_type, 0);
    if (held == NULL || self == NULL) {
        if (held != NULL)
            core_held_release(held);
        Py_XDECREF(self);
        (void)PyErr_NoMemory();
        return NULL;
    }
    pthread_mutex_init(&self->lock, NULL);
    self->held = held;
    Py_INCREF(job);
    self->job = job;
    self->loader = creation->loader;
    self->plan = creation->plan;
    creation->loader = NULL;
    creation->plan = NULL;
    return self;
}

/* The column that decides draws; 0 for none. */
static unsigned column_of(const char *name)
{
    return strcmp(name, "edge_weight") == 0 ? PLIM_EDGE_WEIGHT
           : strcmp(name, "edge_time") == 0 ? PLIM_EDGE_TIME
           : strcmp(name, "node_time") == 0 ? PLIM_NODE_TIME
                                            : 0;
}

/* Reads the arguments of loader() and fits(). */
static bool read_creation(PyObject *args, PyObject *kwargs, creation_t *creation,
                          job_object_t **job_out)
{
    static char *names[] = {"job",     "dataset",    "row_bits", "replace", "seed",
                            "streams", "batch_size", "fanout",   "memory",  "slots",
                            "draw_by", "disjoint",   "latest",   NULL};
    plim_recipe_t *recipe = &creation->recipe;
    dataset_object_t *dataset;
    PyObject *streams, *fanout;
    int row_bits, replace, disjoint, latest;
    const char *draw_by;
    unsigned long long seed;
    long long batch_size, memory;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!ipKOLOLispp", names, core_job_type, job_out,
                                     core_dataset_type, &dataset, &row_bits, &replace, &seed,
                                     &streams, &batch_size, &fanout, &memory, &creation->slots,
                                     &draw_by, &disjoint, &latest) ||
        !read_fanout(fanout, recipe->fanout, &recipe->num_hops) || !read_streams(streams, creation))
        return false;
    creation->job = (*job_out)->job;
    creation->dataset = dataset->dataset;
    creation->params.memory = memory;
    recipe->batch_size = batch_size;
    recipe->seed = seed;
    recipe->replace = replace != 0;
    recipe->disjoint = disjoint != 0;
    recipe->draw_by = column_of(draw_by);
    recipe->latest = latest != 0;
    const plim_dataset_info_t *info = plim_dataset_info(dataset->dataset);
    recipe->form = info != NULL && info->num_graphs > 0 ? PLIM_NATIVE : PLIM_PYG;
    recipe->no_features = row_bits == 0;
    recipe->row_type = row_bits == 16 ? PLIM_F16 : PLIM_F32;
    recipe->index_type = PLIM_I64;
    recipe->edge_index = recipe->edge_ids = true;
    recipe->columns =
        info != NULL ? info->columns : 0; /* a batch has all attributes, as PyG's has */
    return true;
}

PyObject *core_loader(PyObject *module, PyObject *args, PyObject *kwargs)
{
    creation_t creation = {.recipe = PLIM_RECIPE_INIT, .params = PLIM_PLAN_PARAMS_INIT};
    job_object_t *job;
    (void)module;
    if (!read_creation(args, kwargs, &creation, &job))
        return NULL;
    loader_object_t *self = NULL;
    if (core_run(job, create_loader, &creation))
        self = wrap_loader(&creation, job);
    plim_loader_release(creation.loader);
    plim_plan_release(creation.plan);
    return (PyObject *)self;
}

static plim_status_t plan_least(void *context)
{
    creation_t *creation = context;
    return plan_slots(creation, creation->slots, &creation->plan);
}

PyObject *core_fits(PyObject *module, PyObject *args, PyObject *kwargs)
{
    creation_t creation = {.recipe = PLIM_RECIPE_INIT, .params = PLIM_PLAN_PARAMS_INIT};
    job_object_t *job;
    (void)module;
    if (!read_creation(args, kwargs, &creation, &job) || !core_run(job, plan_least, &creation))
        return NULL;
    plim_plan_release(creation.plan);
    Py_RETURN_NONE;
}

static bool is_here(const loader_object_t *self)
{
    return self->job->process == getpid();
}

static void loader_destroy(loader_object_t *self)
{
    Py_BEGIN_ALLOW_THREADS plim_loader_release(self->loader);
    plim_plan_release(self->plan);
    Py_END_ALLOW_THREADS pthread_mutex_destroy(&self->lock);
    if (self->held != NULL)
        core_held_release(self->held);
    Py_XDECREF(self->job);
    core_free(self);
}

typedef struct adding {
    loader_object_t *loader;
    plim_stream_params_t params;
    plim_links_t links;
    plim_stream_t *stream;
    plim_stream_info_t info;
} adding_t;

static plim_status_t add_stream(void *context)
{
    adding_t *adding = context;
    pthread_mutex_lock(&adding->loader->lock);
    plim_status_t status =
        plim_loader_stream(adding->loader->loader, &adding->params, &adding->stream);
    if (status == PLIM_OK)
        status = plim_stream_info(adding->stream, &adding->info);
    pthread_mutex_unlock(&adding->loader->lock);
    return status;
}

static PyObject *loader_stream(loader_object_t *self, PyObject *settings)
{
    adding_t adding = {.loader = self,
                       .params = PLIM_STREAM_PARAMS_INIT,
                       .links = PLIM_LINKS_INIT,
                       .info = PLIM_STREAM_INFO_INIT};
    char source[SOURCE_MAX];
    if (!read_stream(settings, &adding.params, &adding.links, source))
        return NULL;
    stream_object_t *stream = (stream_object_t *)PyType_GenericAlloc(core_stream_type, 0);
    if (stream == NULL)
        return NULL;
    Py_INCREF(self);
    stream->loader = self;
    memcpy(stream->source, source, sizeof source);
    const bool added = core_run(self->job, add_stream, &adding);
    stream->info = adding.info;
    stream->stream = adding.stream; /* even if interrupted: stream_destroy() releases it */
    if (!added)
        Py_CLEAR(stream);
    return (PyObject *)stream;
}

static PyObject *loader_memory(loader_object_t *self, PyObject *none)
{
    void *base;
    size_t bytes;
    (void)none;
    if (!core_check(self->job))
        return NULL;
    plim_loader_memory(self->loader, &base, &bytes);
    return Py_BuildValue("(KK)", (unsigned long long)(uintptr_t)base, (unsigned long long)bytes);
}

static PyObject *loader_stats(loader_object_t *self, PyObject *none)
{
    plim_load_stats_t stats = PLIM_LOAD_STATS_INIT;
    (void)none;
    if (!core_check(self->job))
        return NULL;
    plim_status_t status;
    Py_BEGIN_ALLOW_THREADS pthread_mutex_lock(&self->lock);
    status = plim_loader_stats(self->loader, &stats);
    pthread_mutex_unlock(&self->lock);
    Py_END_ALLOW_THREADS if (status != PLIM_OK) return core_fail(status);
    return Py_BuildValue("{s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:d,s:d}", "batches",
                         (long long)stats.batches, "edges", (long long)stats.edges, "nodes",
                         (long long)stats.nodes, "lists", (long long)stats.lists, "lists_cached",
                         (long long)stats.lists_cached, "list_bytes", (long long)stats.list_bytes,
                         "rows", (long long)stats.rows, "rows_cached", (long long)stats.rows_cached,
                         "row_bytes", (long long)stats.row_bytes, "wait_seconds",
                         stats.wait_seconds, "starved_seconds", stats.starved_seconds);
}

/* (bound, held, cached, files, reserve, limit, source) of plim_headroom_t. */
static PyObject *loader_headroom(loader_object_t *self, PyObject *none)
{
    plim_headroom_t headroom = PLIM_HEADROOM_INIT;
    (void)none;
    if (!core_check(self->job))
        return NULL;
    plim_status_t status;
    Py_BEGIN_ALLOW_THREADS pthread_mutex_lock(&self->lock);
    status = plim_loader_headroom(self->loader, &headroom);
    pthread_mutex_unlock(&self->lock);
    Py_END_ALLOW_THREADS if (status != PLIM_OK) return core_fail(status);
    return Py_BuildValue("(LLLLLLs)", (long long)headroom.bound, (long long)headroom.held,
                         (long long)headroom.cached, (long long)headroom.files,
                         (long long)headroom.reserve, (long long)headroom.limit, headroom.source);
}

static const char *place_name(plim_place_t place)
{
    return place == PLIM_PLACE_MEMORY ? "memory" : "disk";
}

/* The figures of a loader's plan; without accounts. */
static PyObject *plan_dict(const plim_plan_info_t *info)
{
    PyObject *plan = Py_BuildValue(
        "{s:L,s:L,s:L,s:L,s:L,s:N,s:N,s:s,s:s,s:i,s:L,s:L,s:L,s:L,s:L,s:L,s:i,s:L,s:L,s:i,s:L,s:L,"
        "s:{s:L,s:L,s:L,s:L,s:L,s:L,s:L}}",
        "total_bytes", (long long)info->peak, "minimum_bytes", (long long)info->minimum,
        "part_seeds", (long long)info->part_seeds, "part_nodes", (long long)info->part_nodes,
        "part_edges", (long long)info->part_edges, "guessed", PyBool_FromLong(info->guessed),
        "counted", PyBool_FromLong(info->counted), "topology", place_name(info->topology),
        "features", place_name(info->rows), "workers", info->workers, "list_cache_bytes",
        (long long)info->list_cache_bytes, "row_cache_bytes", (long long)info->row_cache_bytes,
        "window_steps", (long long)info->window_steps, "window_draws",
        (long long)info->window_draws, "window_rows", (long long)info->window_rows, "ahead_draws",
        (long long)info->ahead_draws, "slots", info->slots, "slot_nodes",
        (long long)info->slot_nodes, "slot_edges", (long long)info->slot_edges, "io_depth",
        info->io_depth, "io_merge_bytes", (long long)info->io_merge_bytes, "scratch_bytes",
        (long long)info->scratch_bytes, "expect", "batch_nodes", (long long)info->batch_nodes,
        "batch_edges", (long long)info->batch_edges, "batch_bytes", (long long)info->batch_bytes,
        "epoch_steps", (long long)info->epoch_steps, "epoch_reads", (long long)info->epoch_reads,
        "epoch_read_bytes", (long long)info->epoch_read_bytes, "disk_bytes",
        (long long)info->disk_bytes);
    PyObject *line = info->line != PLIM_LINE_NONE ? PyLong_FromLongLong(info->line) : NULL;
    if (plan != NULL && line != NULL && PyDict_SetItemString(plan, "line_bytes", line) != 0)
        Py_CLEAR(plan);
    Py_XDECREF(line);
    return plan;
}

static PyObject *plan_accounts(const plim_plan_t *plan)
{
    plim_plan_account_t account = PLIM_PLAN_ACCOUNT_INIT;
    PyObject *list = PyList_New(0);
    for (int i = 0; list != NULL && plim_plan_account(plan, i, &account); i++) {
        PyObject *entry =
            Py_BuildValue("{s:s,s:L}", "name", account.name, "bytes", (long long)account.bytes);
        if (entry == NULL || PyList_Append(list, entry) != 0)
            Py_CLEAR(list);
        Py_XDECREF(entry);
    }
    return list;
}

static PyObject *loader_plan(loader_object_t *self, void *none)
{
    (void)none;
    const plim_plan_info_t info = info_of(self->plan);
    PyObject *plan = plan_dict(&info), *accounts = plan != NULL ? plan_accounts(self->plan) : NULL;
    const bool done = accounts != NULL && PyDict_SetItemString(plan, "accounts", accounts) == 0;
    Py_XDECREF(accounts);
    if (!done)
        Py_CLEAR(plan);
    return plan;
}

static PyObject *loader_held(loader_object_t *self, void *none)
{
    (void)none;
    return PyLong_FromLong(core_held_count(self->held));
}

static PyObject *loader_held_names(loader_object_t *self, void *none)
{
    char names[512];
    (void)none;
    (void)core_held_names(self->held, names, sizeof names);
    return PyUnicode_FromString(names);
}

static PyGetSetDef loader_fields[] = {
    {"plan", (getter)loader_plan, NULL, "The plan's figures and accounts, a dict.", NULL},
    {"held", (getter)loader_held, NULL, "The number of batches that are held.", NULL},
    {"held_names", (getter)loader_held_names, NULL, "Their names, as many as fit.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef loader_methods[] = {
    {"stream", (PyCFunction)loader_stream, METH_O, "Adds a stream."},
    {"memory", (PyCFunction)loader_memory, METH_NOARGS, "(address, bytes) of the slots."},
    {"headroom", (PyCFunction)loader_headroom, METH_NOARGS,
     "(bound, held, cached, files, reserve, limit, source): memory that the process may hold."},
    {"stats", (PyCFunction)loader_stats, METH_NOARGS, "Counts since the loader was created."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot loader_slots[] = {{Py_tp_dealloc, loader_destroy},
                                     {Py_tp_getset, loader_fields},
                                     {Py_tp_methods, loader_methods},
                                     {0, NULL}};
static PyType_Spec loader_spec = {"plimsoll._core.Loader", sizeof(loader_object_t), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                  loader_slots};

/* In a forked child the lock may be held for ever, so the library's stream is leaked there. */
static void stream_destroy(stream_object_t *self)
{
    if (self->loader != NULL && is_here(self->loader)) {
        Py_BEGIN_ALLOW_THREADS pthread_mutex_lock(&self->loader->lock);
        plim_stream_release(self->stream);
        pthread_mutex_unlock(&self->loader->lock);
        Py_END_ALLOW_THREADS
    }
    Py_XDECREF(self->loader);
    core_free(self);
}

static PyObject *stream_seeds(stream_object_t *self, void *none)
{
    (void)none;
    return PyLong_FromLongLong(self->info.seeds);
}

static PyObject *stream_steps(stream_object_t *self, void *none)
{
    (void)none;
    return PyLong_FromLongLong(self->info.steps);
}

typedef struct starting {
    stream_object_t *stream;
    int64_t epoch, step;
} starting_t;

static plim_status_t start_stream(void *context)
{
    const starting_t *starting = context;
    pthread_mutex_lock(&starting->stream->loader->lock);
    const plim_status_t status =
        plim_stream_start(starting->stream->stream, starting->epoch, starting->step);
    pthread_mutex_unlock(&starting->stream->loader->lock);
    return status;
}

static PyObject *stream_start(stream_object_t *self, PyObject *args)
{
    long long epoch, step;
    if (!PyArg_ParseTuple(args, "LL", &epoch, &step))
        return NULL;
    starting_t starting = {.stream = self, .epoch = epoch, .step = step};
    /* Only counting batches is worth a thread of its own. */
    if (info_of(self->loader->plan).counted) {
        if (!core_run(self->loader->job, start_stream, &starting))
            return NULL;
        Py_RETURN_NONE;
    }
    if (!core_check(self->loader->job))
        return NULL;
    plim_status_t status;
    Py_BEGIN_ALLOW_THREADS status = start_stream(&starting);
    Py_END_ALLOW_THREADS core_log(self->loader->job);
    if (status != PLIM_OK)
        return core_fail(status);
    Py_RETURN_NONE;
}

static PyObject *stream_reseed(stream_object_t *self, PyObject *args)
{
    unsigned long long address;
    long long count;
    if (!PyArg_ParseTuple(args, "KL", &address, &count) || !core_check(self->loader->job))
        return NULL;
    plim_status_t status;
    Py_BEGIN_ALLOW_THREADS pthread_mutex_lock(&self->loader->lock);
    status = plim_stream_reseed(self->stream, (const int64_t *)(uintptr_t)address, count);
    if (status == PLIM_OK)
        status = plim_stream_info(self->stream, &self->info);
    pthread_mutex_unlock(&self->loader->lock);
    Py_END_ALLOW_THREADS if (status != PLIM_OK) return core_fail(status);
    Py_RETURN_NONE;
}

/* The library reports wrong use here only when every slot is held: batches in PyG's form are never
 * in parts. */
static PyObject *fail_next(const loader_object_t *loader, plim_status_t status)
{
    char names[512], text[1280];
    const int held = core_held_names(loader->held, names, sizeof names);
    if (status != PLIM_ERR_USAGE || held == 0)
        return core_fail(status);
    (void)PyOS_snprintf(
        text, sizeof text,
        "all %d slots of this loader hold batches that are still in use (the newest first: %s), so "
        "there is none for the next batch: let go of earlier batches (del batch, or keep "
        "batch.clone() instead), or make the loader with copy=True. A loss or an output that has "
        "its graph holds its batch too: use loss.item(), .detach() or torch.no_grad()",
        held, names);
    return core_raise("held", text);
}

static PyObject *stream_next(stream_object_t *self, PyObject *none)
{
    loader_object_t *loader = self->loader;
    plim_batch_t *batch = NULL;
    hold_t *hold = NULL;
    plim_status_t status = PLIM_ERR_TIMEOUT;
    (void)none;
    if (!core_check(loader->job))
        return NULL;
    while (status == PLIM_ERR_TIMEOUT) {
        Py_BEGIN_ALLOW_THREADS pthread_mutex_lock(&loader->lock);
        status = plim_stream_next(self->stream, WAIT_SECONDS, &batch);
        if (status == PLIM_OK && batch != NULL)
            status = core_hold(self, batch, &hold);
        pthread_mutex_unlock(&loader->lock);
        Py_END_ALLOW_THREADS if (status == PLIM_ERR_TIMEOUT &&
                                 PyErr_CheckSignals() != 0) return NULL;
    }
    core_log(loader->job);
    if (status != PLIM_OK)
        return fail_next(loader, status);
    if (batch == NULL)
        Py_RETURN_NONE;
    return core_batch(hold);
}

static PyGetSetDef stream_fields[] = {
    {"seeds", (getter)stream_seeds, NULL, "Seeds in an epoch.", NULL},
    {"steps", (getter)stream_steps, NULL, "Batches in an epoch.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef stream_methods[] = {
    {"start", (PyCFunction)stream_start, METH_VARARGS, "Moves to (epoch, step)."},
    {"reseed", (PyCFunction)stream_reseed, METH_VARARGS,
     "Gives the stream other seeds: their address and number."},
    {"next", (PyCFunction)stream_next, METH_NOARGS, "The next batch; None after the last."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot stream_slots[] = {{Py_tp_dealloc, stream_destroy},
                                     {Py_tp_getset, stream_fields},
                                     {Py_tp_methods, stream_methods},
                                     {0, NULL}};
static PyType_Spec stream_spec = {"plimsoll._core.Stream", sizeof(stream_object_t), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                  stream_slots};

bool core_add_loader(PyObject *module)
{
    core_loader_type = core_type(module, &loader_spec);
    core_stream_type = core_type(module, &stream_spec);
    return core_loader_type != NULL && core_stream_type != NULL &&
           PyModule_AddType(module, core_loader_type) == 0 &&
           PyModule_AddType(module, core_stream_type) == 0;
}
