/*
 * A host of the library, as somebody else would write one: public headers only. It has signal
 * handlers and a timer, uses oneDNN and huge pages itself, and holds a lock of its own (such as
 * Python's GIL) both in callbacks and while it calls the library. It imports, loads, trains, and
 * releases everything; afterwards its process must be as it was.
 *
 * embed_run is the whole scene; it is called by a C program (embed_main.c) and, through ctypes, by
 * Python with torch loaded before or after (test_embed.py).
 */
#ifndef PLIM_UNSTABLE
#define PLIM_UNSTABLE
#endif
#include <plimsoll/plimsoll.h>

#include <dirent.h>
#include <dnnl.h>
#include <errno.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define CAPACITY 77 /* of oneDNN's primitive cache, as this host wants it */
#define HUGE_BYTES ((size_t)4 << 20)
#define LINE ((int64_t)1 << 30)
#define THREADS_MAX 512

/* Fails the scene: says where, returns 1. */
#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)fprintf(stderr, "embed.c:%d: %s [%s]\n", __LINE__, #condition,                   \
                          plim_last_error());                                                      \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)
#define EXPECT_OK(call) EXPECT((call) == PLIM_OK)

int embed_run(const char *directory, plim_log_fn log);

/* State of the process that the library must not change. */
typedef struct process_state {
    int thp_disable;
    sigset_t mask;
    struct sigaction actions[65];
    int capacity;
    int descriptors;
    int arenas; /* mappings that a forked child would find empty: the library's are */
    int mappings;
    mode_t umask;
    char locale[128];
    int environment; /* number of variables */
    int oom_score_adj;
    struct rlimit limits[RLIM_NLIMITS];
} process_state_t;

static int count_entries(const char *path)
{
    int count = 0;
    DIR *directory = opendir(path);
    while (directory != NULL && readdir(directory) != NULL)
        count++;
    if (directory != NULL)
        (void)closedir(directory);
    return count;
}

static int read_number(const char *path)
{
    int value = -1;
    FILE *file = fopen(path, "re");
    if (file != NULL) {
        if (fscanf(file, "%d", &value) != 1)
            value = -1;
        (void)fclose(file);
    }
    return value;
}

/* Mappings with the flag of MADV_WIPEONFORK. */
static int count_arenas(void)
{
    char line[1024];
    int count = 0;
    FILE *file = fopen("/proc/self/smaps", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        count += strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " wf") != NULL;
    if (file != NULL)
        (void)fclose(file);
    return count;
}

static int count_mappings(void)
{
    char line[1024];
    int count = 0;
    FILE *file = fopen("/proc/self/maps", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        count++;
    if (file != NULL)
        (void)fclose(file);
    return count;
}

extern char **environ;

static void take_state(process_state_t *state)
{
    memset(state, 0, sizeof *state);
    state->thp_disable = prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0);
    (void)pthread_sigmask(SIG_SETMASK, NULL, &state->mask);
    for (int i = 1; i < 65; i++)
        (void)sigaction(i, NULL, &state->actions[i]);
    (void)dnnl_get_primitive_cache_capacity(&state->capacity);
    state->descriptors = count_entries("/proc/self/fd");
    state->arenas = count_arenas();
    state->mappings = count_mappings();
    state->umask = umask(0);
    (void)umask(state->umask);
    (void)snprintf(state->locale, sizeof state->locale, "%s", setlocale(LC_ALL, NULL));
    while (environ[state->environment] != NULL)
        state->environment++;
    state->oom_score_adj = read_number("/proc/self/oom_score_adj");
    for (int i = 0; i < (int)RLIM_NLIMITS; i++)
        (void)getrlimit((__rlimit_resource_t)i, &state->limits[i]);
}

static int compare_states(const process_state_t *before, const process_state_t *after)
{
    EXPECT(after->thp_disable == before->thp_disable);
    EXPECT(memcmp(&after->mask, &before->mask, sizeof after->mask) == 0);
    for (int i = 1; i < 65; i++) {
        EXPECT(after->actions[i].sa_handler == before->actions[i].sa_handler);
        EXPECT(after->actions[i].sa_flags == before->actions[i].sa_flags);
    }
    EXPECT(after->capacity == before->capacity);
    EXPECT(after->descriptors == before->descriptors);
    EXPECT(after->arenas == before->arenas);
    EXPECT(after->umask == before->umask);
    EXPECT(strcmp(after->locale, before->locale) == 0);
    EXPECT(after->environment == before->environment);
    EXPECT(after->oom_score_adj == before->oom_score_adj);
    EXPECT(memcmp(after->limits, before->limits, sizeof after->limits) == 0);
    return 0;
}

/* The host: its threads, its lock, what its callbacks were told. */
static struct {
    pid_t threads[THREADS_MAX]; /* there before the scene, and its own */
    int num_threads;
    pthread_mutex_t lock;
    plim_log_fn log; /* of the caller of embed_run; NULL: none */
    int messages, progresses;
    bool foreign;  /* a callback or a handler ran on a library thread */
    int unblocked; /* library threads seen that do not block all signals */
    int seen;      /* library threads seen */
    volatile sig_atomic_t alarms;
} host = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_host_thread(pid_t thread)
{
    for (int i = 0; i < host.num_threads; i++)
        if (host.threads[i] == thread)
            return true;
    return false;
}

static pid_t this_thread(void)
{
    return (pid_t)syscall(SYS_gettid);
}

/* Every thread of /proc/self/task, for `take`. */
static void each_thread(void (*take)(pid_t thread))
{
    DIR *directory = opendir("/proc/self/task");
    struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL)
        if (entry->d_name[0] != '.')
            take((pid_t)strtol(entry->d_name, NULL, 10));
    if (directory != NULL)
        (void)closedir(directory);
}

static void add_host_thread(pid_t thread)
{
    if (host.num_threads < THREADS_MAX)
        host.threads[host.num_threads++] = thread;
}

/* All signals but KILL, STOP and the two that the C library keeps for itself. */
static void check_signals(pid_t thread)
{
    const uint64_t needed = ~((1ull << 8) | (1ull << 18) | (1ull << 31) | (1ull << 32));
    char path[64], line[256];
    unsigned long long blocked = 0;
    if (is_host_thread(thread))
        return;
    (void)snprintf(path, sizeof path, "/proc/self/task/%d/status", (int)thread);
    FILE *file = fopen(path, "re");
    bool found = false;
    int threads = 0; /* of its process: 0 once it is ending, and then its mask reads as empty */
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "Threads: %d", &threads) != 1)
            found = threads > 0 && sscanf(line, "SigBlk: %llx", &blocked) == 1;
    if (file != NULL)
        (void)fclose(file);
    if (!found) /* it has ended meanwhile */
        return;
    host.seen++;
    if ((blocked & needed) != needed) {
        host.unblocked++;
        (void)fprintf(stderr, "thread %d blocks only %llx\n", (int)thread, blocked);
    }
}

static int num_left;

static void count_library_thread(pid_t thread)
{
    num_left += !is_host_thread(thread);
}

/* Threads that are not the host's. */
static int count_left(void)
{
    num_left = 0;
    each_thread(count_library_thread);
    return num_left;
}

static void on_alarm(int number)
{
    (void)number;
    host.alarms = host.alarms + 1;
    if (!is_host_thread(this_thread()))
        host.foreign = true;
}

static void on_log(void *user, plim_log_level_t level, const char *message)
{
    host.foreign |= !is_host_thread(this_thread());
    pthread_mutex_lock(&host.lock);
    host.messages++;
    pthread_mutex_unlock(&host.lock);
    each_thread(check_signals);
    if (host.log != NULL)
        host.log(user, level, message);
}

static void on_progress(void *user, const plim_progress_t *progress)
{
    (void)user;
    (void)progress;
    host.foreign |= !is_host_thread(this_thread());
    pthread_mutex_lock(&host.lock);
    host.progresses++;
    pthread_mutex_unlock(&host.lock);
    each_thread(check_signals);
}

/* What a child that is forked inside plim_train uses. */
typedef struct trained {
    plim_job_t *job;
    plim_dataset_t *dataset;
    plim_plan_t *plan;
    const plim_training_t *training;
    const char *run;
    bool forks, forked;
    int failed;
} trained_t;

/* Waits for a child; 0 when it ended with 0. */
static int wait_for(pid_t child)
{
    int status;
    pid_t ended;
    while ((ended = waitpid(child, &status, 0)) < 0 && errno == EINTR)
        ;
    EXPECT(child > 0 && ended == child);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return 0;
}

static int train_in_child(const trained_t *trained)
{
    plim_train_result_t result = PLIM_TRAIN_RESULT_INIT;
    plim_run_info_t info = PLIM_RUN_INFO_INIT;
    EXPECT(plim_train(trained->job, trained->dataset, trained->training, trained->plan,
                      trained->run, NULL, NULL, &result) == PLIM_ERR_USAGE);
    EXPECT(plim_train_resume(trained->job, trained->dataset, trained->training, trained->plan,
                             trained->run, NULL, NULL, &result) == PLIM_ERR_USAGE);
    EXPECT(plim_run_read(trained->job, trained->run, &info) == PLIM_ERR_USAGE);
    plim_plan_release(trained->plan);
    plim_dataset_release(trained->dataset);
    plim_job_release(trained->job);
    return 0;
}

static void on_event(void *user, const plim_train_event_t *event)
{
    trained_t *trained = user;
    (void)event;
    host.foreign |= !is_host_thread(this_thread());
    pthread_mutex_lock(&host.lock);
    pthread_mutex_unlock(&host.lock);
    each_thread(check_signals);
    if (!trained->forks || trained->forked)
        return;
    trained->forked = true;
    const pid_t child = fork();
    if (child == 0)
        _exit(train_in_child(trained));
    trained->failed = wait_for(child);
}

/* The host's own product: it must come out right before, during and after. */
static int use_onednn(void)
{
    const float a[4] = {1, 2, 3, 4}, b[4] = {5, 6, 7, 8};
    float c[4] = {0};
    EXPECT(dnnl_sgemm('N', 'N', 2, 2, 2, 1.0f, a, 2, b, 2, 0.0f, c, 2) == dnnl_success);
    EXPECT(c[0] == 19 && c[1] == 22 && c[2] == 43 && c[3] == 50);
    return 0;
}

/* Calls the library again and again with the lock held that callbacks take. */
typedef struct caller {
    plim_job_t *job;
    const char *path;
    pthread_barrier_t started;
    volatile int stop;
    int failed;
} caller_t;

static void *call_with_lock(void *argument)
{
    caller_t *caller = argument;
    sigset_t alarm;
    add_host_thread(this_thread());
    (void)sigemptyset(&alarm);
    (void)sigaddset(&alarm, SIGALRM);
    (void)pthread_sigmask(SIG_UNBLOCK, &alarm, NULL);
    (void)pthread_barrier_wait(&caller->started);
    while (!caller->stop) {
        plim_dataset_t *dataset = NULL;
        plim_job_info_t info = PLIM_JOB_INFO_INIT;
        pthread_mutex_lock(&host.lock);
        if (plim_dataset_open(caller->job, caller->path, &dataset) != PLIM_OK ||
            plim_job_info(caller->job, &info) != PLIM_OK || info.reserved <= 0)
            caller->failed++;
        plim_dataset_release(dataset);
        pthread_mutex_unlock(&host.lock);
        (void)usleep(200);
    }
    return NULL;
}

static int make_data(plim_job_t *job, const char *directory, char imported[512], char made[512])
{
    char text[512];
    plim_import_options_t import = PLIM_IMPORT_OPTIONS_INIT;
    plim_generate_options_t generate = PLIM_GENERATE_OPTIONS_INIT;
    (void)snprintf(text, 512, "%s/edges.txt", directory);
    (void)snprintf(imported, 512, "%s/imported", directory);
    (void)snprintf(made, 512, "%s/made", directory);
    FILE *file = fopen(text, "we");
    EXPECT(file != NULL);
    for (int i = 0; i < 20000; i++)
        (void)fprintf(file, "%d %d\n", i % 3000, (i * 7 + 1) % 3000);
    EXPECT(fclose(file) == 0);
    import.source = text;
    import.target = imported;
    EXPECT_OK(plim_import(job, &import));
    generate.shape = "free";
    generate.target = made;
    generate.num_nodes = 6000;
    generate.num_edges = 60000;
    generate.num_features = 32;
    generate.num_classes = 5;
    EXPECT_OK(plim_generate(job, &generate));
    return 0;
}

/* In the child: the parent's objects refuse, their release does nothing, and own ones work. */
static int use_in_child(plim_job_t *job, plim_dataset_t *dataset, plim_loader_t *loader,
                        plim_stream_t *stream, plim_batch_t *held, const char *path)
{
    plim_stream_params_t more = PLIM_STREAM_PARAMS_INIT;
    plim_stream_t *added;
    plim_load_stats_t stats = PLIM_LOAD_STATS_INIT;
    plim_job_info_t info = PLIM_JOB_INFO_INIT;
    void *memory;
    size_t bytes;
    plim_job_params_t params = PLIM_JOB_PARAMS_INIT;
    plim_batch_t *batch = NULL;
    plim_dataset_t *own_dataset;
    plim_dataset_t *opened;
    plim_job_t *own;
    EXPECT(plim_stream_next(stream, -1, &batch) == PLIM_ERR_USAGE);
    EXPECT(plim_stream_start(stream, 0, 0) == PLIM_ERR_USAGE);
    EXPECT(plim_loader_stream(loader, &more, &added) == PLIM_ERR_USAGE);
    plim_loader_memory(loader, &memory, &bytes);
    EXPECT(memory == NULL && bytes == 0);
    plim_loader_stats(loader, &stats);
    EXPECT(stats.batches == 0 && plim_loader_hash(loader, held, 7) == 7);
    EXPECT(plim_dataset_open(job, path, &opened) == PLIM_ERR_USAGE);
    EXPECT(plim_dataset_verify(job, dataset) == PLIM_ERR_USAGE);
    EXPECT(plim_dataset_info(dataset) == NULL);
    EXPECT(plim_job_info(job, &info) == PLIM_ERR_USAGE);
    plim_batch_release(held);
    plim_stream_release(stream);
    plim_loader_release(loader);
    plim_dataset_release(dataset);
    plim_job_release(job);
    EXPECT_OK(plim_job_create(&params, &own));
    EXPECT(plim_dataset_verify(own, dataset) == PLIM_ERR_USAGE);
    EXPECT_OK(plim_dataset_open(own, path, &own_dataset));
    EXPECT_OK(plim_dataset_verify(own, own_dataset));
    plim_dataset_release(own_dataset);
    plim_job_release(own);
    return 0;
}

/* An epoch's hash; with fork_at >= 0 a child is forked before that batch. */
static int run_epoch(plim_job_t *job, plim_dataset_t *dataset, plim_loader_t *loader,
                     plim_stream_t *stream, int fork_at, const char *path, uint64_t *hash_out)
{
    uint64_t hash = 0;
    plim_batch_t *batch;
    int count = 0;
    EXPECT_OK(plim_stream_start(stream, 0, 0));
    for (;; count++) {
        EXPECT_OK(plim_stream_next(stream, -1, &batch));
        if (batch == NULL)
            break;
        each_thread(check_signals);
        if (count == fork_at) {
            const pid_t child = fork();
            if (child == 0)
                _exit(use_in_child(job, dataset, loader, stream, batch, path));
            EXPECT(wait_for(child) == 0);
        }
        hash = plim_loader_hash(loader, batch, hash);
        plim_batch_release(batch);
    }
    EXPECT(count > 4);
    *hash_out = hash;
    return 0;
}

static int load(plim_job_t *job, const char *path)
{
    plim_recipe_t recipe = PLIM_RECIPE_INIT;
    plim_plan_params_t params = PLIM_PLAN_PARAMS_INIT;
    plim_dataset_t *dataset;
    plim_plan_t *plan;
    plim_loader_t *loader;
    plim_stream_t *stream;
    const plim_stream_params_t training = PLIM_STREAM_PARAMS_INIT;
    uint64_t whole, forked;
    recipe.batch_size = 128;
    params.topology = params.rows = PLIM_PLACE_DISK; /* from disk: windows, caches, I/O threads */
    EXPECT_OK(plim_dataset_open(job, path, &dataset));
    EXPECT_OK(plim_load_plan(job, dataset, &recipe, &params, &plan));
    EXPECT_OK(plim_loader_create(job, dataset, plan, &loader));
    EXPECT_OK(plim_loader_stream(loader, &training, &stream));
    plim_plan_release(plan); /* in any order: what needs it keeps it alive */
    plim_dataset_retain(dataset);
    plim_dataset_release(dataset);
    const int failed = run_epoch(job, dataset, loader, stream, -1, path, &whole) != 0 ||
                       run_epoch(job, dataset, loader, stream, 3, path, &forked) != 0;
    plim_loader_release(loader);
    plim_stream_release(stream);
    plim_dataset_release(dataset);
    if (failed)
        return 1;
    EXPECT(whole == forked);
    return 0;
}

/* Trains; with `forks` a child is forked inside. */
static int train(plim_job_t *job, const char *path, const char *run, bool forks,
                 plim_train_result_t *result_out)
{
    plim_training_t training = PLIM_TRAINING_INIT;
    trained_t trained = {.job = job, .training = &training, .run = run, .forks = forks};
    training.epochs = 2;
    training.recipe.batch_size = 256;
    EXPECT_OK(plim_dataset_open(job, path, &trained.dataset));
    EXPECT_OK(plim_train_plan(job, trained.dataset, &training, NULL, &trained.plan));
    EXPECT_OK(plim_train(job, trained.dataset, &training, trained.plan, run, on_event, &trained,
                         result_out));
    plim_plan_release(trained.plan);
    plim_dataset_release(trained.dataset);
    EXPECT(trained.forked == forks && trained.failed == 0);
    return 0;
}

/* Twice, to the same loss: a fork in between is nothing to the parent. */
static int train_and_fork(plim_job_t *job, const char *path, const char *directory)
{
    plim_train_result_t whole = PLIM_TRAIN_RESULT_INIT, forked = PLIM_TRAIN_RESULT_INIT;
    char run[512], other[512];
    (void)snprintf(run, sizeof run, "%s/run", directory);
    (void)snprintf(other, sizeof other, "%s/forked", directory);
    if (train(job, path, run, false, &whole) != 0 || train(job, path, other, true, &forked) != 0)
        return 1;
    EXPECT(whole.loss == forked.loss && whole.score[0] == forked.score[0]);
    return 0;
}

static int work(const char *directory)
{
    plim_job_params_t params = PLIM_JOB_PARAMS_INIT;
    plim_job_t *job;
    char imported[512], made[512];
    pthread_t thread;
    params.line = LINE;
    params.threads = 3;
    params.log = on_log;
    params.progress = on_progress;
    EXPECT_OK(plim_job_create(&params, &job));
    if (make_data(job, directory, imported, made) != 0)
        return 1;
    caller_t caller = {.job = job, .path = imported};
    (void)pthread_barrier_init(&caller.started, NULL, 2);
    sigset_t alarm, mask;
    (void)sigemptyset(&alarm);
    (void)sigaddset(&alarm, SIGALRM);
    (void)pthread_sigmask(SIG_BLOCK, &alarm, &mask); /* until the thread is known to the handler */
    EXPECT(pthread_create(&thread, NULL, call_with_lock, &caller) == 0);
    (void)pthread_sigmask(SIG_SETMASK, &mask, NULL);
    (void)pthread_barrier_wait(&caller.started);
    const int failed = load(job, made) != 0 || train_and_fork(job, made, directory) != 0;
    caller.stop = 1;
    (void)pthread_join(thread, NULL);
    (void)pthread_barrier_destroy(&caller.started);
    EXPECT(caller.failed == 0);
    plim_job_release(job);
    return failed;
}

static void restore(const struct sigaction *action, const struct itimerval *timer)
{
    (void)setitimer(ITIMER_REAL, timer, NULL);
    (void)sigaction(SIGALRM, action, NULL);
}

/* The first scene leaves what the C library keeps: its heaps, and stacks of threads that ended. */
static bool is_warm;

/* 0 when all is as it should be. `log` gets the library's lines, with no lock of this file held. */
int embed_run(const char *directory, plim_log_fn log)
{
    const struct sigaction handler = {.sa_handler = on_alarm}; /* calls are interrupted: EINTR */
    const struct itimerval often = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
    struct sigaction action_before;
    static process_state_t before, after;
    int capacity;
    host.log = log;
    host.num_threads = 0;
    EXPECT(dnnl_get_primitive_cache_capacity(&capacity) == dnnl_success);
    EXPECT(dnnl_set_primitive_cache_capacity(CAPACITY) == dnnl_success);
    char *huge = mmap(NULL, HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(huge != MAP_FAILED && use_onednn() == 0);
    (void)madvise(huge, HUGE_BYTES, MADV_HUGEPAGE);
    memset(huge, 7, HUGE_BYTES);
    each_thread(add_host_thread);
    EXPECT(sigaction(SIGALRM, &handler, &action_before) == 0);
    take_state(&before);
    (void)setitimer(ITIMER_REAL, &often, NULL);
    const int failed = work(directory);
    (void)setitimer(ITIMER_REAL, &never, NULL);
    /* The kernel ends its own threads of an io_uring a while after the ring was closed. */
    int left = count_left();
    for (int i = 0; i < 12000 && left > 0; i++) {
        (void)usleep(10000);
        left = count_left();
    }
    take_state(&after);
    restore(&action_before, &never);
    if (failed != 0 || compare_states(&before, &after) != 0 || use_onednn() != 0)
        return 1;
    for (size_t i = 0; i < HUGE_BYTES; i += 4096)
        EXPECT(huge[i] == 7);
    (void)munmap(huge, HUGE_BYTES);
    EXPECT(dnnl_set_primitive_cache_capacity(capacity) == dnnl_success);
    EXPECT(!is_warm || after.mappings <= before.mappings);
    is_warm = true;
    EXPECT(left == 0);
    EXPECT(!host.foreign);
    EXPECT(host.unblocked == 0 && host.seen > 0);
    EXPECT(host.messages > 0 && host.progresses > 0 && host.alarms > 0);
    (void)fprintf(stderr, "%d lines, %d reports, %d alarms, %d looks at library threads\n",
                  host.messages, host.progresses, (int)host.alarms, host.seen);
    return 0;
}
