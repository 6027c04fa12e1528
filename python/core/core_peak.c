/*
 * The peak of the process's anonymous memory between two readings, and how long the calling thread
 * waited for pages of mapped files, sampled by a thread of its own. A training step takes its
 * memory within milliseconds and frees most of it before the next batch is asked for, so a sample
 * can come too late, above all on a busy machine. Therefore the kernel's own peak of resident
 * memory since the process began is read, too: if it grew, it was reached between the readings.
 */
#include "core.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Nanoseconds between two samples; the pause doubles while nothing changes. */
#define SHORTEST_NAP 5000000L
#define LONGEST_NAP 40000000L
#define CHANGE ((int64_t)1 << 20) /* bytes: smaller differences are no change */
#define STACK_BYTES ((size_t)64 << 10)

typedef struct peak_object {
    PyObject_HEAD pid_t process;
    int file; /* /proc/self/statm */
    pthread_t thread;
    atomic_bool ending;
    atomic_llong peak;
    atomic_llong shared;    /* the most resident memory of files seen since the last reading */
    int64_t maximum;        /* the peak of resident memory since the process began */
    atomic_int caller;      /* the thread that called take() last */
    atomic_llong wait_ns;   /* of the caller for pages, since then */
    long long processor_ns; /* of the caller's own code until then */
} peak_object_t;

/* The thread that is watched while it waits. */
typedef struct watched {
    int caller;
    int file; /* its /proc/self/task/ID/syscall; -1: none */
    int64_t looked;
} watched_t;

static int64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void raise_to(atomic_llong *most, int64_t value)
{
    long long before = atomic_load(most);
    while (value > before && !atomic_compare_exchange_weak(most, &before, value)) {
    }
}

/* Anonymous bytes in memory: resident pages that belong to no file and no shared memory. */
static int64_t sample(peak_object_t *self)
{
    char text[128];
    const ssize_t size = pread(self->file, text, sizeof text - 1, 0);
    if (size <= 0)
        return 0;
    text[size] = '\0';
    char *end;
    (void)strtoll(text, &end, 10); /* all mappings */
    const long long resident = strtoll(end, &end, 10), shared = strtoll(end, NULL, 10);
    const int64_t page = sysconf(_SC_PAGESIZE), bytes = (resident - shared) * page;
    raise_to(&self->shared, shared * page);
    raise_to(&self->peak, bytes);
    return bytes;
}

static int64_t maximum_bytes(void)
{
    struct rusage usage;
    (void)getrusage(RUSAGE_SELF, &usage);
    return (int64_t)usage.ru_maxrss << 10;
}

/* Raises the peak to what no sample saw. */
static void add_maximum(peak_object_t *self)
{
    const int64_t maximum = maximum_bytes();
    if (maximum > self->maximum)
        raise_to(&self->peak, maximum - atomic_load(&self->shared));
    self->maximum = maximum;
}

static void open_watched(watched_t *watched, int caller)
{
    char path[64];
    if (watched->file >= 0)
        (void)close(watched->file);
    (void)snprintf(path, sizeof path, "/proc/self/task/%d/syscall", caller);
    watched->file = caller != 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    watched->caller = caller;
}

/* The kernel shows "-1" for a thread that sleeps outside of system calls: it waits for a page. */
static void look_at_caller(peak_object_t *self, watched_t *watched)
{
    char text[2] = "";
    const int caller = atomic_load(&self->caller);
    const int64_t before = watched->looked;
    watched->looked = now_ns();
    if (caller != watched->caller)
        open_watched(watched, caller);
    else if (watched->file >= 0 && pread(watched->file, text, sizeof text, 0) == sizeof text &&
             memcmp(text, "-1", sizeof text) == 0)
        (void)atomic_fetch_add(&self->wait_ns, watched->looked - before);
}

static void *peak_thread(void *data)
{
    peak_object_t *self = data;
    watched_t watched = {.file = -1};
    int64_t before = 0;
    long nap = SHORTEST_NAP;
    while (!atomic_load(&self->ending)) {
        const int64_t bytes = sample(self);
        look_at_caller(self, &watched);
        const bool changed = llabs(bytes - before) >= CHANGE;
        nap = changed ? SHORTEST_NAP : nap * 2 < LONGEST_NAP ? nap * 2 : LONGEST_NAP;
        if (changed)
            before = bytes;
        (void)nanosleep(&(struct timespec){.tv_nsec = nap}, NULL);
    }
    open_watched(&watched, 0);
    return NULL;
}

static bool start_thread(peak_object_t *self)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    (void)sigfillset(&all);
    (void)pthread_attr_init(&attributes);
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* signals belong to Python's threads */
    const int error = pthread_create(&self->thread, &attributes, peak_thread, self);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
    errno = error;
    return error == 0;
}

PyObject *core_peak(PyObject *module, PyObject *none)
{
    (void)module, (void)none;
    peak_object_t *self = (peak_object_t *)PyType_GenericAlloc(core_peak_type, 0);
    if (self == NULL)
        return NULL;
    self->file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    self->maximum = maximum_bytes();
    if (self->file >= 0 && start_thread(self)) {
        self->process = getpid();
        return (PyObject *)self;
    }
    PyErr_SetFromErrno(PyExc_OSError);
    Py_DECREF(self);
    return NULL;
}

/* The thread exists only in the process that made the object. */
static void peak_destroy(peak_object_t *self)
{
    if (self->process == getpid()) {
        atomic_store(&self->ending, true);
        Py_BEGIN_ALLOW_THREADS(void) pthread_join(self->thread, NULL);
        Py_END_ALLOW_THREADS
    }
    if (self->file >= 0)
        (void)close(self->file);
    core_free(self);
}

static PyObject *peak_take(peak_object_t *self, PyObject *none)
{
    struct rusage usage;
    (void)none;
    (void)sample(self);
    add_maximum(self);
    atomic_store(&self->shared, 0);
    const int64_t now = sample(self);
    (void)getrusage(RUSAGE_THREAD, &usage);
    const long long before = self->processor_ns, wait = atomic_exchange(&self->wait_ns, 0);
    self->processor_ns = usage.ru_utime.tv_sec * 1000000000LL + usage.ru_utime.tv_usec * 1000LL;
    const int caller = (int)syscall(SYS_gettid);
    const bool known = atomic_exchange(&self->caller, caller) == caller;
    return Py_BuildValue("(Ldd)", (long long)atomic_exchange(&self->peak, now),
                         known ? 1e-9 * (double)wait : 0.0,
                         known ? 1e-9 * (double)(self->processor_ns - before) : 0.0);
}

static PyObject *peak_bytes(peak_object_t *self, void *none)
{
    (void)none;
    add_maximum(self);
    return PyLong_FromLongLong(atomic_load(&self->peak));
}

static PyGetSetDef peak_fields[] = {
    {"bytes", (getter)peak_bytes, NULL, "The peak since the last call of take(), so far.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef peak_methods[] = {
    {"take", (PyCFunction)peak_take, METH_NOARGS,
     "Since the last call: (peak of the process's anonymous memory, seconds that this thread\n"
     "waited for pages of mapped files, seconds that its code ran); 0 and 0 in another thread."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot peak_slots[] = {{Py_tp_dealloc, peak_destroy},
                                   {Py_tp_getset, peak_fields},
                                   {Py_tp_methods, peak_methods},
                                   {0, NULL}};
static PyType_Spec peak_spec = {"plimsoll._core.Peak", sizeof(peak_object_t), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, peak_slots};

bool core_add_peak(PyObject *module)
{
    core_peak_type = core_type(module, &peak_spec);
    return core_peak_type != NULL && PyModule_AddType(module, core_peak_type) == 0;
}
