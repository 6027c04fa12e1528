/*
 * plimsoll._core: the C API of the library as Python objects, for the package's own modules.
 *
 *     Job ◄── Dataset
 *      ▲         ▲
 *      └── Loader┴◄── Stream       an arrow is a reference
 *            Batch ──► hold ◄── Array, DLPack tensors
 *
 * Every call of the library that may take time runs without the interpreter's lock. Memory that is
 * handed out belongs to a hold: its last reference releases the batch, on any thread, with or
 * without the interpreter's lock. The library's log lines wait in the job until the call is over.
 * There is one interpreter: objects shared by all calls are static.
 */
#ifndef PLIM_PYTHON_CORE_H
#define PLIM_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <plimsoll/plimsoll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#define LOG_BYTES 16384

typedef struct job_object {
    PyObject_HEAD plim_job_t *job;
    pid_t process;
    PyObject *log;         /* callable(level, text), or NULL */
    pthread_mutex_t lock;  /* guards the queue */
    size_t queued;         /* bytes in use */
    char queue[LOG_BYTES]; /* lines: '0' + level, text, NUL */
} job_object_t;

typedef struct dataset_object {
    PyObject_HEAD plim_dataset_t *dataset;
    job_object_t *job;
} dataset_object_t;

/* The list of a loader's batches that are held. It lives as long as the loader or a batch. */
typedef struct held {
    atomic_int references;
    pid_t process;        /* a forked child leaves the list alone: its lock may be held for ever */
    pthread_mutex_t lock; /* guards the list */
    struct hold *first;
    int batches; /* in the list */
} held_t;

typedef struct loader_object {
    PyObject_HEAD plim_loader_t *loader;
    plim_plan_t *plan;
    held_t *held;
    job_object_t *job;
    pthread_mutex_t lock; /* the loader and its streams belong to one thread at a time */
} loader_object_t;

/* Bytes of a loader's input as messages name it: "'train'", "333 nodes". */
#define SOURCE_MAX 32

typedef struct stream_object {
    PyObject_HEAD plim_stream_t *stream;
    loader_object_t *loader;
    plim_stream_info_t info; /* its seeds and steps */
    char source[SOURCE_MAX];
} stream_object_t;

/* A delivered batch, with a reference for each object that uses its memory. */
typedef struct hold {
    atomic_int references;
    plim_batch_t *batch;
    char source[SOURCE_MAX];
    held_t *held;
    struct hold *before, *next; /* in the list of those held */
    plim_array_t input_ids;     /* of the values below */
    int64_t ids[];              /* (batch->num_seeds), or none of links */
} hold_t;

/* core_module.c */
extern PyTypeObject *core_job_type, *core_dataset_type, *core_loader_type, *core_stream_type,
    *core_batch_type, *core_array_type, *core_peak_type;

/* Sets the exception for a status that the library returned in this thread. Returns NULL. */
PyObject *core_fail(plim_status_t status);

/* Raises plimsoll.errors' exception of that name. Returns NULL. */
PyObject *core_raise(const char *name, const char *message);

/* The library's text as a Python string. Names of files in it may not be UTF-8. */
PyObject *core_text(const char *bytes);

/* Frees an object of a heap type. */
void core_free(void *object);

/* False, with an exception set, in a process forked from the job's. */
bool core_check(const job_object_t *job);

/* Hands queued log lines to the job's callable. */
void core_log(job_object_t *job);

/*
 * Calls run(context) on a thread of its own while this one watches for signals: an interrupt sets
 * the job's stop flag and waits for the call's end. Returns false with an exception set when the
 * call failed or was interrupted; it may have succeeded before the interrupt, so the caller
 * releases what it created.
 */
bool core_run(job_object_t *job, plim_status_t (*run)(void *context), void *context);

/* Fills a type from its specification; NULL with an exception. */
PyTypeObject *core_type(PyObject *module, PyType_Spec *spec);

/* core_dataset.c */
bool core_add_job(PyObject *module);
PyObject *core_job(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *core_dataset(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *core_limits(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *core_size_parse(PyObject *module, PyObject *text);
PyObject *core_size_text(PyObject *module, PyObject *bytes);
PyObject *core_sample(PyObject *module, PyObject *none);

/* core_loader.c */
bool core_add_loader(PyObject *module);
PyObject *core_loader(PyObject *module, PyObject *args, PyObject *kwargs);

/* Plans the same and creates nothing. */
PyObject *core_fits(PyObject *module, PyObject *args, PyObject *kwargs);

/* core_peak.c */
bool core_add_peak(PyObject *module);
PyObject *core_peak(PyObject *module, PyObject *none);

/* core_batch.c */
bool core_add_batch(PyObject *module);

/* A hold of a batch that the stream delivered, with one reference. Takes the caller's reference to
 * the batch, also after an error. Needs no interpreter's lock. */
plim_status_t core_hold(const stream_object_t *stream, plim_batch_t *batch, hold_t **hold_out);

/* A Python batch. Takes the reference to the hold, also after an error. */
PyObject *core_batch(hold_t *hold);

/* A list of held batches with one reference, or NULL. */
held_t *core_held(void);

void core_held_release(held_t *held);

int core_held_count(held_t *held);

/* Names held batches, as many as fit, the newest first: "step 4 of epoch 0 of 'train', step 0 of
 * epoch 0 of 333 nodes". Returns the number of all. */
int core_held_names(held_t *held, char *text_out, size_t size);

#endif
