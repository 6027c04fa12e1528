#include "core.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WATCH_NS 50000000L /* between two looks for signals */

PyTypeObject *core_job_type, *core_dataset_type, *core_loader_type, *core_stream_type,
    *core_batch_type, *core_array_type, *core_peak_type;

PyObject *core_text(const char *bytes)
{
    return PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)strlen(bytes), "backslashreplace");
}

static PyObject *raise_error(const char *name, const char *message, const plim_figures_t *figures)
{
    PyObject *errors = PyImport_ImportModule("plimsoll.errors");
    if (errors == NULL)
        return NULL;
    PyObject *error = PyObject_CallMethod(errors, "make", "sNLLNN", name, core_text(message),
                                          (long long)figures->needed, (long long)figures->available,
                                          core_text(figures->limit), core_text(figures->file));
    Py_DECREF(errors);
    if (error == NULL)
        return NULL;
    PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_DECREF(error);
    return NULL;
}

PyObject *core_raise(const char *name, const char *message)
{
    static const plim_figures_t none = {sizeof none, -1, -1, "", ""};
    return raise_error(name, message, &none);
}

PyObject *core_fail(plim_status_t status)
{
    plim_figures_t figures = PLIM_FIGURES_INIT;
    (void)plim_last_figures(&figures);
    return raise_error(plim_status_name(status), plim_last_error(), &figures);
}

void core_free(void *object)
{
    PyTypeObject *type = Py_TYPE((PyObject *)object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

bool core_check(const job_object_t *job)
{
    if (job->process == getpid())
        return true;
    core_raise("usage",
               "this object was made in the process that forked this one: open the dataset "
               "again here (batches need no worker processes: threads of the library make "
               "them)");
    return false;
}

void core_log(job_object_t *job)
{
    char lines[LOG_BYTES];
    pthread_mutex_lock(&job->lock);
    const size_t count = job->queued;
    memcpy(lines, job->queue, count);
    job->queued = 0;
    pthread_mutex_unlock(&job->lock);
    for (size_t at = 0; at < count; at += strlen(lines + at) + 1) {
        if (job->log == NULL)
            continue;
        PyObject *done =
            PyObject_CallFunction(job->log, "iN", lines[at] - '0', core_text(lines + at + 1));
        if (done == NULL)
            PyErr_WriteUnraisable(job->log);
        Py_XDECREF(done);
    }
}

/* A call of the library on a thread of its own. */
typedef struct call {
    plim_status_t (*run)(void *context);
    void *context;
    plim_status_t status;
    char message[4096];
    plim_figures_t figures; /* with the strings below, as those of the thread end with it */
    char limit[64], file[1024];
    bool over;
    pthread_mutex_t lock; /* guards `over` */
    pthread_cond_t ended;
} call_t;

static void *call_thread(void *data)
{
    call_t *call = data;
    call->status = call->run(call->context);
    if (call->status != PLIM_OK) {
        (void)snprintf(call->message, sizeof call->message, "%s", plim_last_error());
        (void)plim_last_figures(&call->figures);
        (void)snprintf(call->limit, sizeof call->limit, "%s", call->figures.limit);
        (void)snprintf(call->file, sizeof call->file, "%s", call->figures.file);
        call->figures.limit = call->limit;
        call->figures.file = call->file;
    }
    pthread_mutex_lock(&call->lock);
    call->over = true;
    pthread_cond_signal(&call->ended);
    pthread_mutex_unlock(&call->lock);
    return NULL;
}

/* Starts the thread with all signals blocked: they belong to Python's threads. */
static bool call_start(call_t *call, pthread_t *thread_out)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(thread_out, NULL, call_thread, call);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return error == 0;
}

/* Waits for the end of the call, or for WATCH_NS; returns whether it is over. */
static bool call_wait(call_t *call)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += WATCH_NS;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_nsec -= 1000000000L;
        until.tv_sec++;
    }
    pthread_mutex_lock(&call->lock);
    if (!call->over)
        (void)pthread_cond_timedwait(&call->ended, &call->lock, &until);
    const bool over = call->over;
    pthread_mutex_unlock(&call->lock);
    return over;
}

bool core_run(job_object_t *job, plim_status_t (*run)(void *context), void *context)
{
    call_t call = {.run = run, .context = context, .figures = PLIM_FIGURES_INIT};
    pthread_t thread;
    if (!core_check(job))
        return false;
    pthread_mutex_init(&call.lock, NULL);
    pthread_cond_init(&call.ended, NULL);
    if (!call_start(&call, &thread)) {
        PyErr_SetFromErrno(PyExc_OSError);
        pthread_cond_destroy(&call.ended);
        pthread_mutex_destroy(&call.lock);
        return false;
    }
    bool over = false, interrupted = false;
    while (!over) {
        Py_BEGIN_ALLOW_THREADS over = call_wait(&call);
        Py_END_ALLOW_THREADS if (!over && !interrupted && PyErr_CheckSignals() != 0)
        {
            interrupted = true;
            plim_job_stop(job->job, true);
        }
    }
    (void)pthread_join(thread, NULL);
    pthread_cond_destroy(&call.ended);
    pthread_mutex_destroy(&call.lock);
    if (interrupted) {
        plim_job_stop(job->job, false);
        return false;
    }
    core_log(job);
    if (call.status != PLIM_OK)
        raise_error(plim_status_name(call.status), call.message, &call.figures);
    return call.status == PLIM_OK;
}

PyTypeObject *core_type(PyObject *module, PyType_Spec *spec)
{
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
}

static PyObject *version(PyObject *module, PyObject *none)
{
    (void)module, (void)none;
    return PyUnicode_FromString(plim_version());
}

/* malloc_trim and mallopt are glibc's; another allocator in the process is not touched by them. */
static PyObject *trim(PyObject *module, PyObject *none)
{
    (void)module, (void)none;
    Py_BEGIN_ALLOW_THREADS(void) malloc_trim(0);
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

/* glibc begins with a threshold of 128 KiB. As larger blocks are freed, it raises the threshold to
 * 32 MiB at most, and keeps twice that free at the heap's end. A threshold that is set stays. */
static PyObject *map_large_blocks(PyObject *module, PyObject *value)
{
    const int map = PyObject_IsTrue(value);
    (void)module;
    if (map < 0)
        return NULL;
    (void)mallopt(M_MMAP_THRESHOLD, map ? 128 << 10 : 32 << 20);
    if (!map)
        (void)mallopt(M_TRIM_THRESHOLD, 64 << 20);
    Py_RETURN_NONE;
}

#define WITH_KEYWORDS(function) (PyCFunction)(void (*)(void))(function)

static PyMethodDef functions[] = {
    {"version", version, METH_NOARGS, "The version of the loaded library."},
    {"job", WITH_KEYWORDS(core_job), METH_VARARGS | METH_KEYWORDS,
     "A job: the memory line, threads, and a callable(level, text) for log lines."},
    {"dataset", WITH_KEYWORDS(core_dataset), METH_VARARGS | METH_KEYWORDS, "Opens a dataset."},
    {"loader", WITH_KEYWORDS(core_loader), METH_VARARGS | METH_KEYWORDS,
     "Plans and creates a loader for a recipe and its streams."},
    {"fits", WITH_KEYWORDS(core_fits), METH_VARARGS | METH_KEYWORDS,
     "Plans as loader() does, under a line of its own, and creates nothing."},
    {"peak", core_peak, METH_NOARGS, "Begins to sample the memory of this process."},
    {"trim", trim, METH_NOARGS, "Gives free memory of the C library's heap back to the kernel."},
    {"map_large_blocks", map_large_blocks, METH_O,
     "Whether the C library maps each block of 128 KiB or more by itself until it is freed."},
    {"limits", WITH_KEYWORDS(core_limits), METH_VARARGS | METH_KEYWORDS,
     "The limits on this process's memory and threads."},
    {"size_parse", core_size_parse, METH_O, "The bytes of a size such as '4G'."},
    {"size_text", core_size_text, METH_O, "A number of bytes as text, such as '2 GiB'."},
    {"sample", core_sample, METH_NOARGS,
     "The kernel's figures for the memory of this process and its control group; -1: unknown."},
    {NULL, NULL, 0, NULL},
};

static int execute(PyObject *module)
{
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
        PyErr_SetString(PyExc_ImportError,
                        "plimsoll does not run in sub-interpreters: import it in the main one, "
                        "or start another process");
        return -1;
    }
    return core_add_job(module) && core_add_loader(module) && core_add_batch(module) &&
                   core_add_peak(module)
               ? 0
               : -1;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, execute}, {0, NULL}};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "plimsoll._core",
    .m_doc = "The C library, for the package's own modules.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}
