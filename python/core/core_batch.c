/*
 * Batches and their arrays, handed out by DLPack without a copy:
 *
 *     Batch ─┬─► hold ─► plim_batch_t, a slot of the loader
 *     Array ─┤
 *     tensor ┘
 *
 * The structures are those of DLPack 1 (https://dmlc.github.io/dlpack): the managed tensor, and its
 * form with a version. A consumer that takes a capsule renames it and calls the deleter later, on
 * any thread and without the interpreter's lock.
 */
#include "core.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ALIGNMENT 64 /* of tensors, as DLPack asks for */

typedef struct dl_device {
    int32_t type; /* 1: CPU */
    int32_t id;
} dl_device_t;

typedef struct dl_type {
    uint8_t code; /* 0: integer, 2: floating point */
    uint8_t bits;
    uint16_t lanes;
} dl_type_t;

typedef struct dl_tensor {
    void *data;
    dl_device_t device;
    int32_t ndim;
    dl_type_t type;
    int64_t *shape;
    int64_t *strides; /* in elements */
    uint64_t byte_offset;
} dl_tensor_t;

typedef struct dl_managed {
    dl_tensor_t tensor;
    void *context;
    void (*deleter)(struct dl_managed *self);
} dl_managed_t;

typedef struct dl_versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct dl_versioned *self);
    uint64_t flags; /* 1: read-only, 2: a copy */
    dl_tensor_t tensor;
} dl_versioned_t;

/* One of the two forms and what it points to, in one allocation. */
typedef struct export
{
    union {
        dl_managed_t managed;
        dl_versioned_t versioned;
    };
    hold_t *hold; /* NULL: of a copy */
    void *copy;
    int64_t shape[2], strides[2];
}
export_t;

typedef struct batch_object {
    PyObject_HEAD hold_t *hold;
} batch_object_t;

typedef struct array_object {
    PyObject_HEAD hold_t *hold;
    const plim_array_t *array;
} array_object_t;

held_t *core_held(void)
{
    held_t *held = calloc(1, sizeof *held);
    if (held == NULL)
        return NULL;
    atomic_init(&held->references, 1);
    held->process = getpid();
    pthread_mutex_init(&held->lock, NULL);
    return held;
}

void core_held_release(held_t *held)
{
    if (atomic_fetch_sub(&held->references, 1) != 1)
        return;
    pthread_mutex_destroy(&held->lock);
    free(held);
}

int core_held_count(held_t *held)
{
    if (held->process != getpid())
        return 0;
    pthread_mutex_lock(&held->lock);
    const int count = held->batches;
    pthread_mutex_unlock(&held->lock);
    return count;
}

int core_held_names(held_t *held, char *text_out, size_t size)
{
    size_t used = 0;
    text_out[0] = '\0';
    if (held->process != getpid())
        return 0;
    pthread_mutex_lock(&held->lock);
    const int count = held->batches;
    for (const hold_t *hold = held->first; hold != NULL && used < size; hold = hold->next) {
        const int bytes = snprintf(text_out + used, size - used, "%sstep %lld of epoch %lld of %s",
                                   used > 0 ? ", " : "", (long long)hold->batch->step,
                                   (long long)hold->batch->epoch, hold->source);
        if (bytes < 0 || (size_t)bytes >= size - used)
            break;
        used += (size_t)bytes;
    }
    pthread_mutex_unlock(&held->lock);
    text_out[used] = '\0'; /* whole names only */
    return count;
}

static void held_add(held_t *held, hold_t *hold)
{
    atomic_fetch_add(&held->references, 1);
    hold->held = held;
    hold->before = NULL;
    pthread_mutex_lock(&held->lock);
    hold->next = held->first;
    if (hold->next != NULL)
        hold->next->before = hold;
    held->first = hold;
    held->batches++;
    pthread_mutex_unlock(&held->lock);
}

static void held_remove(held_t *held, const hold_t *hold)
{
    if (held->process != getpid())
        return;
    pthread_mutex_lock(&held->lock);
    if (hold->before != NULL)
        hold->before->next = hold->next;
    else
        held->first = hold->next;
    if (hold->next != NULL)
        hold->next->before = hold->before;
    held->batches--;
    pthread_mutex_unlock(&held->lock);
}

static hold_t *hold_retain(hold_t *hold)
{
    atomic_fetch_add(&hold->references, 1);
    return hold;
}

static void hold_release(hold_t *hold)
{
    if (atomic_fetch_sub(&hold->references, 1) != 1)
        return;
    held_remove(hold->held, hold); /* first: the list names the batch */
    plim_batch_release(hold->batch);
    core_held_release(hold->held);
    free(hold);
}

static void export_destroy(export_t *export)
{
    if (export->hold != NULL)
        hold_release(export->hold);
    free(export->copy);
    free(export);
}

static void delete_managed(dl_managed_t *managed)
{
    export_destroy(managed->context);
}

static void delete_versioned(dl_versioned_t *versioned)
{
    export_destroy(versioned->context);
}

/* A capsule that nobody took. */
static void drop_managed(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor"))
        delete_managed(PyCapsule_GetPointer(capsule, "dltensor"));
}

static void drop_versioned(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor_versioned"))
        delete_versioned(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
}

static dl_type_t type_of(plim_dtype_t type)
{
    switch (type) {
    case PLIM_I32:
        return (dl_type_t){0, 32, 1};
    case PLIM_U32:
        return (dl_type_t){1, 32, 1};
    case PLIM_I64:
        return (dl_type_t){0, 64, 1};
    case PLIM_F16:
        return (dl_type_t){2, 16, 1};
    case PLIM_F32:
        return (dl_type_t){2, 32, 1};
    }
    return (dl_type_t){0, 8, 1};
}

static void fill_tensor(dl_tensor_t *tensor, export_t *export, const plim_array_t *array)
{
    export->shape[0] = array->shape[0];
    export->shape[1] = array->shape[1];
    export->strides[0] = array->ndim > 1 ? array->shape[1] : 1;
    export->strides[1] = 1;
    *tensor =
        (dl_tensor_t){.data = export->copy != NULL ? export->copy : (void *)(uintptr_t)array->data,
                      .device = {1, 0},
                      .ndim = array->ndim,
                      .type = type_of(array->type),
                      .shape = export->shape,
                      .strides = export->strides};
}

/* Fills an export with a copy of the array, or with a reference to the hold. */
static bool export_fill(export_t *export, hold_t *hold, const plim_array_t *array, bool copies)
{
    if (!copies) {
        export->hold = hold_retain(hold);
        return true;
    }
    const size_t bytes =
        (size_t)array->shape[0] * (size_t)array->shape[1] * (type_of(array->type).bits / 8u);
    export->copy = aligned_alloc(ALIGNMENT, (bytes / ALIGNMENT + 1) * ALIGNMENT);
    if (export->copy != NULL)
        memcpy(export->copy, array->data, bytes);
    return export->copy != NULL;
}

/* A capsule of one array, or of a copy of it. */
static PyObject *capsule_of(hold_t *hold, const plim_array_t *array, bool versioned, bool copies)
{
    export_t *export = calloc(1, sizeof *export);
    if (export == NULL || !export_fill(export, hold, array, copies)) {
        free(export);
        return PyErr_NoMemory();
    }
    PyObject *capsule;
    if (versioned) {
        export->versioned.major = 1;
        export->versioned.context = export;
        export->versioned.deleter = delete_versioned;
        fill_tensor(&export->versioned.tensor, export, array);
        capsule = PyCapsule_New(&export->versioned, "dltensor_versioned", drop_versioned);
    } else {
        export->managed.context = export;
        export->managed.deleter = delete_managed;
        fill_tensor(&export->managed.tensor, export, array);
        capsule = PyCapsule_New(&export->managed, "dltensor", drop_managed);
    }
    if (capsule == NULL)
        export_destroy(export);
    return capsule;
}

plim_status_t core_hold(const stream_object_t *stream, plim_batch_t *batch, hold_t **hold_out)
{
    const int64_t inputs = batch->num_pairs > 0 ? 0 : batch->num_seeds; /* pairs have pair_ids */
    hold_t *hold = malloc(sizeof *hold + (size_t)inputs * sizeof hold->ids[0]);
    plim_status_t status = hold != NULL ? PLIM_OK : PLIM_ERR_NOMEM;
    if (hold != NULL && inputs > 0)
        status = plim_stream_input_ids(stream->stream, batch, hold->ids);
    if (status != PLIM_OK) {
        plim_batch_release(batch);
        free(hold);
        return status;
    }
    atomic_init(&hold->references, 1);
    hold->batch = batch;
    memcpy(hold->source, stream->source, sizeof hold->source);
    hold->input_ids = (plim_array_t){.name = "input_ids",
                                     .hop = -1,
                                     .data = hold->ids,
                                     .type = PLIM_I64,
                                     .ndim = 1,
                                     .shape = {inputs, 1}};
    held_add(stream->loader->held, hold);
    *hold_out = hold;
    return PLIM_OK;
}

PyObject *core_batch(hold_t *hold)
{
    batch_object_t *self = (batch_object_t *)PyType_GenericAlloc(core_batch_type, 0);
    if (self == NULL)
        hold_release(hold);
    else
        self->hold = hold;
    return (PyObject *)self;
}

static void batch_destroy(batch_object_t *self)
{
    if (self->hold != NULL)
        hold_release(self->hold);
    core_free(self);
}

static PyObject *array_of(hold_t *hold, const plim_array_t *array)
{
    array_object_t *self = (array_object_t *)PyType_GenericAlloc(core_array_type, 0);
    if (self == NULL)
        return NULL;
    self->hold = hold_retain(hold);
    self->array = array;
    return (PyObject *)self;
}

/* Adds an array: convert(capsule), or an Array. */
static bool add_array(PyObject *arrays, hold_t *hold, const plim_array_t *array, PyObject *convert,
                      bool copies)
{
    PyObject *value =
        convert == Py_None ? array_of(hold, array) : capsule_of(hold, array, false, copies);
    if (value != NULL && convert != Py_None) {
        PyObject *converted = PyObject_CallFunctionObjArgs(convert, value, NULL);
        Py_DECREF(value);
        value = converted;
    }
    const bool added = value != NULL && PyDict_SetItemString(arrays, array->name, value) == 0;
    Py_XDECREF(value);
    return added;
}

/* The arrays that belong to the whole batch, and the input ids. */
static PyObject *batch_arrays(batch_object_t *self, PyObject *args)
{
    hold_t *hold = self->hold;
    PyObject *convert;
    int copies;
    if (!PyArg_ParseTuple(args, "Op", &convert, &copies))
        return NULL;
    PyObject *arrays = PyDict_New();
    bool good = arrays != NULL && add_array(arrays, hold, &hold->input_ids, convert, copies != 0);
    const plim_array_t *array;
    for (int i = 0; good && (array = plim_batch_array(hold->batch, i)) != NULL; i++)
        good = array->hop >= 0 || add_array(arrays, hold, array, convert, copies != 0);
    if (!good)
        Py_CLEAR(arrays);
    return arrays;
}

/* (new nodes of each hop, the seeds first; edges of each hop) */
static PyObject *batch_sampled(batch_object_t *self, PyObject *none)
{
    const plim_batch_t *batch = self->hold->batch;
    (void)none;
    PyObject *nodes = PyList_New(0), *edges = PyList_New(0);
    int64_t before = 0;
    for (int i = -1; nodes != NULL && edges != NULL && i < batch->num_blocks; i++) {
        const int64_t reached = i < 0 ? batch->num_seeds : batch->blocks[i].num_src;
        PyObject *count = PyLong_FromLongLong(reached - before);
        before = reached;
        if (count == NULL || PyList_Append(nodes, count) != 0)
            Py_CLEAR(nodes);
        Py_XDECREF(count);
        if (i < 0)
            continue;
        count = PyLong_FromLongLong(batch->blocks[i].num_edges);
        if (count == NULL || PyList_Append(edges, count) != 0)
            Py_CLEAR(edges);
        Py_XDECREF(count);
    }
    if (nodes == NULL || edges == NULL) {
        Py_XDECREF(nodes);
        Py_XDECREF(edges);
        return NULL;
    }
    return Py_BuildValue("(NN)", nodes, edges);
}

static PyObject *batch_epoch(batch_object_t *self, void *none)
{
    (void)none;
    return PyLong_FromLongLong(self->hold->batch->epoch);
}

static PyObject *batch_step(batch_object_t *self, void *none)
{
    (void)none;
    return PyLong_FromLongLong(self->hold->batch->step);
}

static PyObject *batch_num_seeds(batch_object_t *self, void *none)
{
    (void)none;
    return PyLong_FromLongLong(self->hold->batch->num_seeds);
}

static PyObject *batch_num_pairs(batch_object_t *self, void *none)
{
    (void)none;
    return PyLong_FromLongLong(self->hold->batch->num_pairs);
}

static PyObject *batch_num_nodes(batch_object_t *self, void *none)
{
    (void)none;
    return PyLong_FromLongLong(self->hold->batch->num_nodes);
}

static PyObject *batch_last_part(batch_object_t *self, void *none)
{
    (void)none;
    return PyBool_FromLong(self->hold->batch->last_part);
}

static PyGetSetDef batch_fields[] = {
    {"last_part", (getter)batch_last_part, NULL, "Graphs that do not fit a slot come in parts.",
     NULL},
    {"epoch", (getter)batch_epoch, NULL, NULL, NULL},
    {"step", (getter)batch_step, NULL, "The batch's number in its epoch.", NULL},
    {"num_seeds", (getter)batch_num_seeds, NULL, NULL, NULL},
    {"num_nodes", (getter)batch_num_nodes, NULL, NULL, NULL},
    {"num_pairs", (getter)batch_num_pairs, NULL, "0 unless seeds are links.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef batch_methods[] = {
    {"arrays", (PyCFunction)batch_arrays, METH_VARARGS,
     "The arrays by name: convert(DLPack capsule) of each, or of a copy of each; or, for None, "
     "Array objects."},
    {"sampled", (PyCFunction)batch_sampled, METH_NOARGS,
     "New nodes of each hop, the seeds first, and edges of each hop."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot batch_slots[] = {{Py_tp_dealloc, batch_destroy},
                                    {Py_tp_getset, batch_fields},
                                    {Py_tp_methods, batch_methods},
                                    {0, NULL}};
static PyType_Spec batch_spec = {"plimsoll._core.Batch", sizeof(batch_object_t), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                 batch_slots};

static void array_destroy(array_object_t *self)
{
    hold_release(self->hold);
    core_free(self);
}

/* Whether a consumer's max_version allows the form with a version. */
static int wants_versioned(PyObject *max_version)
{
    if (max_version == Py_None)
        return 0;
    PyObject *major = PySequence_GetItem(max_version, 0);
    if (major == NULL)
        return -1;
    const long value = PyLong_AsLong(major);
    Py_DECREF(major);
    if (value == -1 && PyErr_Occurred() != NULL)
        return -1;
    return value >= 1;
}

/* Whether a consumer asks for this device, or for none in particular. */
static bool is_cpu(PyObject *device)
{
    int type, id;
    if (device == Py_None)
        return true;
    if (!PyTuple_Check(device)) {
        PyErr_SetString(PyExc_TypeError, "dl_device must be a tuple (type, id)");
        return false;
    }
    if (!PyArg_ParseTuple(device, "ii", &type, &id))
        return false;
    if (type == 1 && id == 0)
        return true;
    PyErr_SetString(PyExc_BufferError, "the batch is in the CPU's memory: copy it from there");
    return false;
}

static PyObject *array_dlpack(array_object_t *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = Py_None, *max_version = Py_None, *device = Py_None, *copy = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO", names, &stream, &max_version, &device,
                                     &copy))
        return NULL;
    const int versioned = wants_versioned(max_version);
    if (versioned < 0 || !is_cpu(device))
        return NULL;
    const int copies = PyObject_IsTrue(copy); /* None: as the producer likes */
    if (copies < 0)
        return NULL;
    if (copies > 0) {
        PyErr_SetString(PyExc_BufferError, "the array is handed out without a copy: copy it after");
        return NULL;
    }
    return capsule_of(self->hold, self->array, versioned > 0, false);
}

static PyObject *array_dlpack_device(array_object_t *self, PyObject *none)
{
    (void)self, (void)none;
    return Py_BuildValue("(ii)", 1, 0);
}

static PyObject *array_address(array_object_t *self, void *none)
{
    (void)none;
    return PyLong_FromVoidPtr((void *)(uintptr_t)self->array->data);
}

static PyObject *array_shape(array_object_t *self, void *none)
{
    (void)none;
    if (self->array->ndim == 1)
        return Py_BuildValue("(L)", (long long)self->array->shape[0]);
    return Py_BuildValue("(LL)", (long long)self->array->shape[0],
                         (long long)self->array->shape[1]);
}

static PyGetSetDef array_fields[] = {
    {"address", (getter)array_address, NULL, "Where its first byte lies.", NULL},
    {"shape", (getter)array_shape, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef array_methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))array_dlpack, METH_VARARGS | METH_KEYWORDS, NULL},
    {"__dlpack_device__", (PyCFunction)array_dlpack_device, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot array_slots[] = {{Py_tp_dealloc, array_destroy},
                                    {Py_tp_getset, array_fields},
                                    {Py_tp_methods, array_methods},
                                    {0, NULL}};
static PyType_Spec array_spec = {"plimsoll._core.Array", sizeof(array_object_t), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                 array_slots};

bool core_add_batch(PyObject *module)
{
    core_batch_type = core_type(module, &batch_spec);
    core_array_type = core_type(module, &array_spec);
    return core_batch_type != NULL && core_array_type != NULL &&
           PyModule_AddType(module, core_batch_type) == 0 &&
           PyModule_AddType(module, core_array_type) == 0;
}
