/*
 * Memory while a model is trained: our code takes none in a step, and what the process holds is the
 * same after every epoch. This program defines the functions that give memory, so everybody's calls
 * pass through here and are counted, oneDNN's apart: it takes what a product needs from the heap
 * and must have given it back when the step ends.
 */
#include "support/training.h"

#include "nn/onednn.h"

#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_bool counting;
static atomic_llong ours;    /* calls that are not oneDNN's */
static atomic_llong foreign; /* oneDNN's */
static atomic_llong live;    /* bytes that were taken, less those that were given back */

/* Where the code of oneDNN and of what it is built on lies; nothing else here is C++ or OpenMP. */
static struct {
    uintptr_t first, end;
} regions[16];
static int num_regions;

static int note_library(struct dl_phdr_info *library, size_t size, void *context)
{
    (void)size;
    (void)context;
    if (strstr(library->dlpi_name, "libdnnl") == NULL &&
        strstr(library->dlpi_name, "libstdc++") == NULL &&
        strstr(library->dlpi_name, "libgomp") == NULL)
        return 0;
    for (int i = 0; i < library->dlpi_phnum && num_regions < 16; i++) {
        const ElfW(Phdr) *part = &library->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || (part->p_flags & PF_X) == 0)
            continue;
        regions[num_regions].first = library->dlpi_addr + part->p_vaddr;
        regions[num_regions].end = regions[num_regions].first + part->p_memsz;
        num_regions++;
    }
    return 0;
}

/* A sanitizer has functions of its own. */
#if !TEST_SANITIZED
/* One call of somebody's; `bytes` is what it took, less what it gave back. */
static void note_call(const void *caller, int64_t bytes)
{
    const uintptr_t place = (uintptr_t)caller;
    if (!counting)
        return;
    bool theirs = false;
    for (int i = 0; i < num_regions; i++)
        theirs = theirs || (place >= regions[i].first && place < regions[i].end);
    atomic_fetch_add(theirs ? &foreign : &ours, 1);
    atomic_fetch_add(&live, bytes);
}

#define CALLER __builtin_return_address(0)

// NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp): glibc's names
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t align, size_t size);
void __libc_free(void *memory);

static int64_t size_of(void *memory)
{
    return memory == NULL ? 0 : (int64_t)malloc_usable_size(memory);
}

void *malloc(size_t size)
{
    void *memory = __libc_malloc(size);
    note_call(CALLER, size_of(memory));
    return memory;
}

void *calloc(size_t count, size_t size)
{
    void *memory = __libc_calloc(count, size);
    note_call(CALLER, size_of(memory));
    return memory;
}

void *realloc(void *old, size_t size)
{
    const int64_t before = size_of(old);
    void *memory = __libc_realloc(old, size);
    note_call(CALLER, size_of(memory) - before);
    return memory;
}

void *aligned_alloc(size_t align, size_t size)
{
    void *memory = __libc_memalign(align, size);
    note_call(CALLER, size_of(memory));
    return memory;
}

int posix_memalign(void **memory_out, size_t align, size_t size)
{
    *memory_out = __libc_memalign(align, size);
    note_call(CALLER, size_of(*memory_out));
    return *memory_out == NULL ? 12 : 0;
}

void free(void *memory)
{
    if (memory == NULL)
        return;
    note_call(CALLER, -size_of(memory));
    __libc_free(memory);
}
// NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)

void *mmap(void *where, size_t size, int protection, int flags, int fd, off_t offset)
{
    note_call(CALLER, (int64_t)size);
    return (void *)syscall(SYS_mmap, where, size, protection, flags, fd, offset);
}

int munmap(void *where, size_t size)
{
    note_call(CALLER, -(int64_t)size);
    return (int)syscall(SYS_munmap, where, size);
}
#endif

/* Calls between the second step of an epoch and its last, loader's threads included. */
typedef struct steps {
    int64_t count;   /* steps looked at */
    int64_t ours;    /* calls */
    int64_t foreign; /* calls */
    int64_t changes; /* steps after which another number of bytes was taken than before */
} steps_t;

static void watch_steps(void *user, const plim_train_event_t *event)
{
    steps_t *steps = user;
    if (event->kind != PLIM_EVENT_STEP)
        return;
    counting = false;
    if (event->step > 2) {
        steps->count++;
        steps->ours += ours;
        steps->foreign += foreign;
        steps->changes += live != 0;
    }
    ours = foreign = live = 0;
    counting = event->step >= 2 && event->step < event->steps;
}

static void test_a_step_allocates_nothing(void **state)
{
    static const plim_model_kind_t kinds[] = {PLIM_MLP, PLIM_GCN, PLIM_SAGE, PLIM_GAT, PLIM_GIN};
    int64_t foreign_calls = 0;
    (void)state;
    test_skip_sanitized("a sanitizer's own memory grows");
    for (int i = 0; i < 10; i++) {
        plim_training_t training = test_training_small();
        plim_train_result_t result = PLIM_TRAIN_RESULT_INIT;
        steps_t steps = {.count = 0};
        test_way_t way = test_plain_way;
        char name[32];
        (void)snprintf(name, sizeof name, "steps-%d", i);
        way.events = watch_steps;
        way.user = &steps;
        training.model.kind = kinds[i % 5];
        training.recipe.num_hops = training.model.kind == PLIM_MLP ? 0 : 2;
        training.model.precision = i < 5 ? PLIM_PRECISION_F32 : PLIM_PRECISION_BF16;
        training.model.norm = i % 2 == 0 ? PLIM_NORM_LAYER : PLIM_NORM_BATCH;
        training.microbatch = i % 2 == 0 ? 30 : 0;
        training.epochs = 2;
        assert_ok(test_train(name, &training, &way, &result));
        assert_true(steps.count > 10);
        assert_int_equal(steps.ours, 0);
        assert_int_equal(steps.changes, 0);
        foreign_calls += steps.foreign;
    }
    print_message("oneDNN's calls for memory in all these steps: %lld\n", (long long)foreign_calls);
}

static void test_the_counter_counts(void **state)
{
    (void)state;
    test_skip_sanitized("a sanitizer's own memory grows");
    ours = foreign = live = 0;
    counting = true;
    void *volatile memory = malloc(100);
    counting = false;
    assert_int_equal(ours, 1);
    assert_int_equal(foreign, 0);
    assert_true(live >= 100);
    counting = true;
    free(memory);
    memory = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    counting = false;
    assert_int_equal(ours, 3);
    assert_int_equal(live, 4096);
    assert_int_equal(munmap(memory, 4096), 0);
}

/* The anonymous memory of this process, page by page: sums that the kernel keeps lag behind. */
static int64_t anonymous_kib(void)
{
    char text[4096];
    int fd = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    const ssize_t length = read(fd, text, sizeof text - 1);
    (void)close(fd);
    assert_true(length > 0);
    text[length] = '\0';
    const char *line = strstr(text, "Anonymous:");
    assert_non_null(line);
    return strtoll(line + strlen("Anonymous:"), NULL, 10);
}

/* After so many epochs everything has been touched, but by a thread that had no processor yet: each
 * may come late once or twice. tools/prove flat has 1,000 epochs. */
#define WARM_EPOCHS 3
#define EPOCHS 250
#define LATE_MOST 8

typedef struct held {
    int64_t anonymous; /* KiB */
    int64_t epochs, changes;
} held_t;

static void weigh(void *user, const plim_train_event_t *event)
{
    held_t *held = user;
    if (event->kind != PLIM_EVENT_EPOCH)
        return;
    counting = false;
    const int64_t anonymous = anonymous_kib();
    if (++held->epochs > WARM_EPOCHS && (anonymous != held->anonymous || live != 0)) {
        held->changes++;
        print_message("epoch %lld: %+lld KiB of pages, %+lld bytes of heap\n",
                      (long long)held->epochs, (long long)(anonymous - held->anonymous),
                      (long long)live);
    }
    held->anonymous = anonymous;
    live = 0;
    counting = event->epoch < EPOCHS;
}

/* Cora by its recipe where the data is, else the generated graph. */
static const char *cora(char path_out[700])
{
    plim_import_options_t options = PLIM_IMPORT_OPTIONS_INIT;
    const char *data = getenv("PLIMSOLL_TEST_DATA");
    char source[1024];
    struct stat about;
    (void)snprintf(source, sizeof source, "%s/cora",
                   data != NULL ? data : PLIM_TEST_SOURCE_DIR "/../shared/data");
    if (stat(source, &about) != 0) {
        print_message("%s is not there (set PLIMSOLL_TEST_DATA): a generated graph instead\n",
                      source);
        return NULL;
    }
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    test_training_path("cora", path_out);
    options.source = source;
    options.target = path_out;
    options.symmetrise = true;
    options.normalise_features = true;
    assert_ok(plim_import(&job, &options));
    test_job_end(&job);
    return path_out;
}

static void test_memory_is_flat(void **state)
{
    plim_training_t training = test_training_small();
    plim_train_result_t result = PLIM_TRAIN_RESULT_INIT;
    held_t held = {.epochs = 0};
    test_way_t way = test_plain_way;
    char path[700];
    (void)state;
    test_skip_sanitized("a sanitizer's own memory grows");
    way.dataset = cora(path);
    way.events = weigh;
    way.user = &held;
    training.model.kind = PLIM_GCN;
    training.recipe.batch_size = 3000; /* with whole neighbourhoods every epoch has the same size */
    training.recipe.fanout[0] = training.recipe.fanout[1] = -1;
    training.epochs = EPOCHS;
    training.eval_every = 3;
    assert_ok(test_train("flat", &training, &way, &result));
    assert_int_equal(held.epochs, EPOCHS);
    assert_true(held.changes <= LATE_MOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_counter_counts),
        cmocka_unit_test(test_a_step_allocates_nothing),
        cmocka_unit_test(test_memory_is_flat),
    };
    print_message("with %s\n", plim__onednn_version()); /* which loads it */
    (void)dl_iterate_phdr(note_library, NULL);
    return cmocka_run_group_tests(tests, test_training_begin, test_training_end);
}
