/*
 * One word, `state`, is the door to a run:
 *
 *     | number of the run (32 bits) | threads inside (31 bits) | open (1 bit) |
 *
 * The caller writes the work, then opens a run with a new number. A worker that finds it open
 * counts itself in, processes tasks and counts itself out. The caller works too. When no task is
 * left it closes the door and waits for the workers inside, never for a worker that did not come
 * in: while a loader uses all processors, that worker may not run for milliseconds.
 *
 * A worker without work polls the door for a while, then sleeps. It raises `sleepers` before its
 * last look at the door, and the caller opens the door before it looks at `sleepers`: a worker can
 * miss a run only if every task was already taken.
 */
#include "nn/team.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/condition.h"
#include "base/delay.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/threads.h"
#include "mem/arena.h"

#include <immintrin.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>

/* A thread takes longer to wake up than the caller takes for less work than this. */
#define WAKE_MIN_NS 30000
/* How long a worker polls for the next run, and the caller for the last worker, before sleeping. */
#define LOOK_NS 10000
/* A worker takes several tasks at once, about this much work. */
#define HANDFUL_NS 4000

#define OPEN ((uint64_t)1)
#define INSIDE ((uint64_t)2)
#define RUN ((uint64_t)1 << 32)

typedef struct team_member {
    plim__thread_t thread;
    plim__team_t *team;
    int number;
} team_member_t;

struct plim__team {
    plim__arena_t arena;
    size_t stacks;
    int stacks_account;
    int size;
    team_member_t *members; /* (size), the first of them the caller's and unused */

    /* The run: written before the door opens, read inside. */
    int64_t tasks;
    int64_t handful;
    void (*work)(void *context, int worker, int64_t task);
    void *context;

    _Alignas(PLIM__LINE) atomic_uint_fast64_t state;
    _Alignas(PLIM__LINE) atomic_int_fast64_t next; /* the first task that is not taken */
    _Alignas(PLIM__LINE) atomic_int sleepers;
    atomic_bool caller_sleeps;
    atomic_bool ended;
    pthread_mutex_t lock; /* of the two conditions */
    plim__condition_t opened;
    plim__condition_t left;
};

static inline void relax(void)
{
    _mm_pause();
}

/* The calling thread takes subnormal numbers as 0; returns what it did before. */
static unsigned flush_subnormals(void)
{
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | _MM_FLUSH_ZERO_ON | _MM_DENORMALS_ZERO_ON);
    return before;
}

static void restore_subnormals(unsigned before)
{
    _mm_setcsr(before);
}

static void lay_out(plim__arena_t *arena, void *object)
{
    plim__team_t *team = object;
    team->members = plim__arena_carve(arena, (size_t)team->size, sizeof *team->members, 1);
}

static size_t stack_bytes(int threads)
{
    return (size_t)(threads - 1) * PLIM__THREAD_BYTES;
}

static int clamp_threads(int threads)
{
    return (int)plim__max_i64(1, plim__min_i64(threads, PLIM__THREADS_MAX));
}

size_t plim__team_estimate(int threads)
{
    plim__team_t draft = {.size = clamp_threads(threads)};
    return plim__object_bytes(lay_out, &draft, sizeof draft) + stack_bytes(draft.size);
}

static void run_tasks(plim__team_t *team, int worker)
{
    const int64_t handful = team->handful;
    for (;;) {
        plim__delay();
        int64_t task = atomic_fetch_add_explicit(&team->next, handful, memory_order_relaxed);
        int64_t end = plim__min_i64(task + handful, team->tasks);
        if (task >= end)
            return;
        for (; task < end; task++)
            team->work(team->context, worker, task);
    }
}

/* Whether a run other than number `last` is open, and its state. */
static bool is_open(plim__team_t *team, uint64_t last, uint64_t *state_out)
{
    *state_out = atomic_load(&team->state);
    return (*state_out & OPEN) != 0 && *state_out / RUN != last;
}

/* Waits for a run other than `last`; false when the team ends. */
static bool wait_for_run(plim__team_t *team, uint64_t last, uint64_t *state_out)
{
    const int64_t start = plim__clock_ns();
    do {
        for (int i = 0; i < 32; i++) {
            if (is_open(team, last, state_out))
                return true;
            relax();
        }
    } while (plim__clock_ns() - start < LOOK_NS && !atomic_load(&team->ended));
    pthread_mutex_lock(&team->lock);
    atomic_fetch_add(&team->sleepers, 1);
    bool open = is_open(team, last, state_out);
    while (!open && !atomic_load(&team->ended)) {
        plim__condition_wait(&team->opened, &team->lock);
        open = is_open(team, last, state_out);
    }
    atomic_fetch_sub(&team->sleepers, 1);
    pthread_mutex_unlock(&team->lock);
    return open;
}

static void leave(plim__team_t *team)
{
    uint64_t state = atomic_fetch_sub(&team->state, INSIDE) - INSIDE;
    if (state % RUN == 0 && atomic_load(&team->caller_sleeps)) {
        pthread_mutex_lock(&team->lock);
        plim__condition_wake(&team->left, 1);
        pthread_mutex_unlock(&team->lock);
    }
}

static void member_body(void *argument)
{
    team_member_t *member = argument;
    plim__team_t *team = member->team;
    uint64_t last = 0;
    uint64_t state;
    (void)flush_subnormals();
    while (wait_for_run(team, last, &state)) {
        if (!atomic_compare_exchange_strong(&team->state, &state, state + INSIDE))
            continue;
        last = state / RUN;
        run_tasks(team, member->number);
        plim__delay();
        leave(team);
    }
}

/* Waits until no worker is inside; the door is closed. */
static void wait_for_others(plim__team_t *team)
{
    const int64_t start = plim__clock_ns();
    do {
        for (int i = 0; i < 32; i++) {
            if (atomic_load(&team->state) % RUN == 0)
                return;
            relax();
        }
    } while (plim__clock_ns() - start < LOOK_NS);
    pthread_mutex_lock(&team->lock);
    atomic_store(&team->caller_sleeps, true);
    while (atomic_load(&team->state) % RUN != 0)
        plim__condition_wait(&team->left, &team->lock);
    atomic_store(&team->caller_sleeps, false);
    pthread_mutex_unlock(&team->lock);
}

static void wake(plim__team_t *team, int64_t wanted)
{
    if (atomic_load(&team->sleepers) == 0)
        return;
    pthread_mutex_lock(&team->lock);
    plim__condition_wake(&team->opened, (int)plim__min_i64(wanted, INT_MAX));
    pthread_mutex_unlock(&team->lock);
}

/* plim__team_run of work that is worth sharing. */
static void run_shared(plim__team_t *team, int64_t tasks, int64_t cost,
                       void (*work)(void *context, int worker, int64_t task), void *context)
{
    team->work = work;
    team->context = context;
    team->tasks = tasks;
    team->handful = plim__max_i64(
        1, plim__min_i64(HANDFUL_NS / plim__max_i64(cost, 1), tasks / ((int64_t)4 * team->size)));
    atomic_store_explicit(&team->next, 0, memory_order_relaxed);
    /* No worker is inside: the run before was waited for. */
    atomic_store(&team->state, (atomic_load(&team->state) / RUN + 1) * RUN + OPEN);
    wake(team, tasks - 1);
    run_tasks(team, 0);
    if ((atomic_fetch_and(&team->state, ~OPEN) & ~OPEN) % RUN != 0)
        wait_for_others(team);
}

void plim__team_run(plim__team_t *team, int64_t tasks, int64_t cost,
                    void (*work)(void *context, int worker, int64_t task), void *context)
{
    const unsigned before = flush_subnormals();
    if (team->size > 1 && tasks > 1 &&
        plim__mul_saturating_i64(tasks, plim__max_i64(cost, 1)) >= WAKE_MIN_NS)
        run_shared(team, tasks, cost, work, context);
    else
        for (int64_t task = 0; task < tasks; task++)
            work(context, 0, task);
    restore_subnormals(before);
}

int plim__team_size(const plim__team_t *team)
{
    return team->size;
}

plim_status_t plim__team_create(plim_ledger_t *ledger, int threads, plim__team_t **team_out)
{
    plim__team_t draft = {.size = clamp_threads(threads)}, *team;
    draft.stacks = stack_bytes(draft.size);
    PLIM_TRY(plim__ledger_reserve(ledger, "threads", draft.stacks, &draft.stacks_account));
    plim_status_t status =
        plim__object_create(ledger, "threads", lay_out, &draft, sizeof draft, &draft.arena, &team);
    if (status != PLIM_OK) {
        plim__ledger_release(ledger, draft.stacks_account, draft.stacks);
        return status;
    }
    const int account = draft.stacks_account;
    threads = draft.size;
    (void)pthread_mutex_init(&team->lock, NULL);
    for (team->size = 1; team->size < threads; team->size++) {
        team_member_t *member = &team->members[team->size];
        member->team = team;
        member->number = team->size;
        if (plim__thread_start(&member->thread, member_body, member) != PLIM_OK)
            break;
    }
    /* Give back the stacks of threads that could not be started. */
    plim__ledger_release(ledger, account, team->stacks - stack_bytes(team->size));
    team->stacks = stack_bytes(team->size);
    *team_out = team;
    return PLIM_OK;
}

plim_status_t plim__team_create_for(const plim_job_t *job, int threads, plim__team_t **team_out)
{
    PLIM_TRY(plim__team_create(job->ledger, threads, team_out));
    const int size = (*team_out)->size;
    if (size < clamp_threads(threads))
        plim__log(job, PLIM_LOG_WARNING, "%s: %d of %d threads compute", plim_last_error(), size,
                  threads);
    return PLIM_OK;
}

void plim__team_destroy(plim__team_t *team)
{
    if (team == NULL)
        return;
    pthread_mutex_lock(&team->lock);
    atomic_store(&team->ended, true);
    plim__condition_wake_all(&team->opened);
    pthread_mutex_unlock(&team->lock);
    for (int i = 1; i < team->size; i++)
        plim__thread_join(&team->members[i].thread);
    (void)pthread_mutex_destroy(&team->lock);
    plim__ledger_release(team->arena.ledger, team->stacks_account, team->stacks);
    plim__arena_destroy(&team->arena);
}
