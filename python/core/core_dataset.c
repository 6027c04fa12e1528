/* The job, the dataset, limits and the meter. */
#include "core.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Queues a log line, or drops it if the queue is full. Runs on any thread: calls no Python. */
static void queue_log(void *user, plim_log_level_t level, const char *message)
{
    job_object_t *job = user;
    const size_t bytes = strlen(message) + 2;
    pthread_mutex_lock(&job->lock);
    if (bytes <= sizeof job->queue - job->queued) {
        char *line = job->queue + job->queued;
        line[0] = (char)('0' + (int)level);
        memcpy(line + 1, message, bytes - 1);
        job->queued += bytes;
    }
    pthread_mutex_unlock(&job->lock);
}

PyObject *core_job(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"line", "threads", "log", NULL};
    plim_job_params_t params = PLIM_JOB_PARAMS_INIT;
    long long line;
    PyObject *log = Py_None;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Li|O", names, &line, &params.threads, &log))
        return NULL;
    job_object_t *self = (job_object_t *)PyType_GenericAlloc(core_job_type, 0);
    if (self == NULL)
        return NULL;
    pthread_mutex_init(&self->lock, NULL);
    self->process = getpid();
    params.line = line > 0 ? line : PLIM_LINE_NONE;
    params.log = queue_log;
    params.user = self;
    const plim_status_t status = plim_job_create(&params, &self->job);
    if (status != PLIM_OK) {
        Py_DECREF(self);
        return core_fail(status);
    }
    if (log != Py_None) {
        Py_INCREF(log);
        self->log = log;
    }
    return (PyObject *)self;
}

/* Python objects of loaders and datasets hold this one, so theirs are released before. Batches may
 * outlive it: they keep the library's job alive, and log nothing. */
static void job_destroy(job_object_t *self)
{
    plim_job_release(self->job);
    pthread_mutex_destroy(&self->lock);
    Py_XDECREF(self->log);
    core_free(self);
}

static plim_job_info_t info_of(const job_object_t *self)
{
    plim_job_info_t info = PLIM_JOB_INFO_INIT;
    (void)plim_job_info(self->job, &info);
    return info;
}

static PyObject *job_line(job_object_t *self, void *none)
{
    (void)none;
    return PyLong_FromLongLong(info_of(self).line);
}

static PyObject *job_reserved(job_object_t *self, void *none)
{
    (void)none;
    return PyLong_FromLongLong(info_of(self).reserved);
}

static PyObject *job_peak(job_object_t *self, void *none)
{
    (void)none;
    return PyLong_FromLongLong(info_of(self).peak);
}

static PyObject *job_accounts(job_object_t *self, PyObject *none)
{
    (void)none;
    PyObject *accounts = PyDict_New();
    plim_account_info_t account = PLIM_ACCOUNT_INFO_INIT;
    for (int i = 0; accounts != NULL && plim_job_account(self->job, i, &account); i++) {
        PyObject *bytes = PyLong_FromLongLong(account.reserved);
        if (bytes == NULL || PyDict_SetItemString(accounts, account.name, bytes) != 0)
            Py_CLEAR(accounts);
        Py_XDECREF(bytes);
    }
    return accounts;
}

static PyGetSetDef job_fields[] = {
    {"line", (getter)job_line, NULL, "Bytes that this process may hold.", NULL},
    {"reserved", (getter)job_reserved, NULL, "Bytes reserved now.", NULL},
    {"peak", (getter)job_peak, NULL, "The peak of reservations.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef job_methods[] = {
    {"accounts", (PyCFunction)job_accounts, METH_NOARGS, "The bytes of each account."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot job_slots[] = {{Py_tp_dealloc, job_destroy},
                                  {Py_tp_getset, job_fields},
                                  {Py_tp_methods, job_methods},
                                  {0, NULL}};
static PyType_Spec job_spec = {"plimsoll._core.Job", sizeof(job_object_t), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, job_slots};

typedef struct opening {
    const plim_job_t *job;
    const char *path;
    plim_dataset_t *dataset;
} opening_t;

static plim_status_t open_dataset(void *context)
{
    opening_t *opening = context;
    return plim_dataset_open(opening->job, opening->path, &opening->dataset);
}

PyObject *core_dataset(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"job", "path", NULL};
    job_object_t *job;
    PyObject *path;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O&", names, core_job_type, &job,
                                     PyUnicode_FSConverter, &path))
        return NULL;
    opening_t opening = {.job = job->job, .path = PyBytes_AsString(path)};
    dataset_object_t *self = NULL;
    if (core_run(job, open_dataset, &opening)) {
        self = (dataset_object_t *)PyType_GenericAlloc(core_dataset_type, 0);
        if (self != NULL) {
            Py_INCREF(job);
            self->job = job;
            self->dataset = opening.dataset;
            opening.dataset = NULL;
        }
    }
    plim_dataset_release(opening.dataset);
    Py_DECREF(path);
    return (PyObject *)self;
}

static void dataset_destroy(dataset_object_t *self)
{
    plim_dataset_release(self->dataset);
    Py_XDECREF(self->job);
    core_free(self);
}

static const char *type_name(plim_dtype_t type)
{
    switch (type) {
    case PLIM_I32:
        return "int32";
    case PLIM_U32:
        return "uint32";
    case PLIM_I64:
        return "int64";
    case PLIM_F16:
        return "float16";
    case PLIM_F32:
        return "float32";
    }
    return "none";
}

static PyObject *dataset_info(dataset_object_t *self, PyObject *none)
{
    static const char *const kinds[] = {"none", "classes", "values"};
    const plim_dataset_info_t *info = plim_dataset_info(self->dataset);
    (void)none;
    if (info == NULL)
        return core_raise("usage", "the dataset was opened in another process; open it again here");
    return Py_BuildValue(
        "{s:i,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:s,s:s,s:s,s:N,s:d,s:s,s:s,"
        "s:s,"
        "s:s}",
        "format", info->format, "num_nodes", (long long)info->num_nodes, "num_edges",
        (long long)info->num_edges, "num_features", (long long)info->num_features, "num_graphs",
        (long long)info->num_graphs, "num_labels", (long long)info->num_labels, "num_classes",
        (long long)info->num_classes, "num_targets", (long long)info->num_targets, "num_train",
        (long long)info->num_split[PLIM_TRAIN], "num_valid", (long long)info->num_split[PLIM_VALID],
        "num_test", (long long)info->num_split[PLIM_TEST], "max_degree",
        (long long)info->max_degree, "num_edge_features", (long long)info->num_edge_features,
        "num_edge_types", (long long)info->num_edge_types, "bytes", (long long)info->bytes,
        "index_type", type_name(info->index_type), "feature_type",
        info->num_features > 0 ? type_name(info->feature_type) : "none", "label_kind",
        kinds[info->label_kind], "multi_label", PyBool_FromLong(info->multi_label), "feature_error",
        info->feature_error, "fingerprint", info->fingerprint, "source", info->source, "options",
        info->options, "version", info->version);
}

static PyObject *dataset_files(dataset_object_t *self, PyObject *none)
{
    (void)none;
    PyObject *files = PyList_New(0);
    plim_dataset_file_t file = PLIM_DATASET_FILE_INIT;
    for (int i = 0; files != NULL && plim_dataset_file(self->dataset, i, &file); i++) {
        PyObject *shape = PyTuple_New(file.num_dims);
        for (int d = 0; shape != NULL && d < file.num_dims; d++) {
            PyObject *count = PyLong_FromLongLong(file.shape[d]);
            if (count == NULL || PyTuple_SetItem(shape, d, count) != 0)
                Py_CLEAR(shape);
        }
        PyObject *entry = shape != NULL ? Py_BuildValue("(ssNL)", file.name, file.type, shape,
                                                        (long long)file.bytes)
                                        : NULL;
        if (entry == NULL || PyList_Append(files, entry) != 0)
            Py_CLEAR(files);
        Py_XDECREF(entry);
    }
    return files;
}

static PyMethodDef dataset_methods[] = {
    {"info", (PyCFunction)dataset_info, METH_NOARGS, "The contents of dataset.json as a dict."},
    {"files", (PyCFunction)dataset_files, METH_NOARGS,
     "(name, NumPy type, shape, bytes) of each file."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot dataset_slots[] = {
    {Py_tp_dealloc, dataset_destroy}, {Py_tp_methods, dataset_methods}, {0, NULL}};
static PyType_Spec dataset_spec = {"plimsoll._core.Dataset", sizeof(dataset_object_t), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                   dataset_slots};

bool core_add_job(PyObject *module)
{
    core_job_type = core_type(module, &job_spec);
    core_dataset_type = core_type(module, &dataset_spec);
    return core_job_type != NULL && core_dataset_type != NULL &&
           PyModule_AddType(module, core_job_type) == 0 &&
           PyModule_AddType(module, core_dataset_type) == 0;
}

static PyObject *limit_list(const plim_limit_t *limits, int count)
{
    PyObject *list = PyList_New(0);
    for (int i = 0; list != NULL && i < count; i++) {
        PyObject *entry =
            Py_BuildValue("(NL)", core_text(limits[i].source), (long long)limits[i].value);
        if (entry == NULL || PyList_Append(list, entry) != 0)
            Py_CLEAR(list);
        Py_XDECREF(entry);
    }
    return list;
}

PyObject *core_limits(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"memory", "threads", NULL};
    plim_limit_options_t options = PLIM_LIMIT_OPTIONS_INIT;
    long long memory = 0;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|Li", names, &memory, &options.threads))
        return NULL;
    options.memory = memory;
    plim_limits_t *limits = PyMem_Malloc(sizeof *limits);
    if (limits == NULL)
        return PyErr_NoMemory();
    *limits = (plim_limits_t)PLIM_LIMITS_INIT;
    /* With the interpreter's lock: no other Python thread changes the environment meanwhile. */
    const plim_status_t status = plim_limits_discover(&options, limits);
    PyObject *found;
    if (status != PLIM_OK)
        found = core_fail(status);
    else
        found =
            Py_BuildValue("{s:L,s:N,s:N,s:L,s:N,s:N,s:i,s:N,s:N}", "line_bytes",
                          (long long)limits->memory[limits->line].value, "line_source",
                          core_text(limits->memory[limits->line].source), "memory",
                          limit_list(limits->memory, limits->num_memory), "threads",
                          (long long)limits->threads[limits->threads_line].value, "threads_source",
                          core_text(limits->threads[limits->threads_line].source), "all_threads",
                          limit_list(limits->threads, limits->num_threads), "local_ranks",
                          limits->local_ranks, "login_node", PyBool_FromLong(limits->login_node),
                          "login_why", core_text(limits->login_why));
    PyMem_Free(limits);
    return found;
}

PyObject *core_size_parse(PyObject *module, PyObject *text)
{
    int64_t bytes = 0;
    (void)module;
    PyObject *encoded = PyUnicode_AsUTF8String(text);
    if (encoded == NULL)
        return NULL;
    const plim_status_t status = plim_size_parse(PyBytes_AsString(encoded), &bytes);
    Py_DECREF(encoded);
    return status == PLIM_OK ? PyLong_FromLongLong(bytes) : core_fail(status);
}

PyObject *core_size_text(PyObject *module, PyObject *bytes)
{
    char text[24];
    (void)module;
    const long long value = PyLong_AsLongLong(bytes);
    if (value == -1 && PyErr_Occurred() != NULL)
        return NULL;
    return PyUnicode_FromString(plim_size_text(value, text));
}

/* The meter of this process, opened at the first reading; guarded by the interpreter's lock. */
static plim_meter_t *meter_of_process(void)
{
    static plim_meter_t *meter;
    static pid_t process;
    if (meter != NULL && process == getpid())
        return meter;
    const plim_job_params_t params = PLIM_JOB_PARAMS_INIT;
    plim_job_t *job = NULL;
    plim_meter_t *opened = NULL;
    plim_status_t status = plim_job_create(&params, &job);
    if (status == PLIM_OK)
        status = plim_meter_open(job, &opened);
    plim_job_release(job);
    if (status != PLIM_OK)
        return (plim_meter_t *)(void *)core_fail(status);
    meter = opened;
    process = getpid();
    return meter;
}

PyObject *core_sample(PyObject *module, PyObject *none)
{
    plim_sample_t sample = PLIM_SAMPLE_INIT;
    (void)module, (void)none;
    plim_meter_t *meter = meter_of_process();
    if (meter == NULL)
        return NULL;
    const plim_status_t status = plim_meter_read(meter, &sample);
    if (status != PLIM_OK)
        return core_fail(status);
    return Py_BuildValue(
        "{s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L}", "rss_bytes",
        (long long)sample.rss_bytes, "rss_peak_bytes", (long long)sample.rss_peak_bytes,
        "anonymous_bytes", (long long)sample.anonymous_bytes, "file_bytes",
        (long long)sample.file_bytes, "shared_bytes", (long long)sample.shared_bytes, "group_bytes",
        (long long)sample.group_bytes, "group_peak_bytes", (long long)sample.group_peak_bytes,
        "group_cache_bytes", (long long)sample.group_cache_bytes, "group_dirty_bytes",
        (long long)sample.group_dirty_bytes, "group_limit_hits", (long long)sample.group_limit_hits,
        "group_kills", (long long)sample.group_kills, "group_stall_us",
        (long long)sample.group_stall_us);
}
