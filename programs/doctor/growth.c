/*
 * Reads timeline.jsonl (docs/format.md) line by line and tells how memory grew. Points that cover
 * ever longer intervals keep the highest use of each, so any length takes the same memory.
 */
#include "base/check.h"
#include "doctor/facts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double get_real(plim__json_t object, const char *key, double missing)
{
    return plim__json_real(plim__json_get(object, key), missing);
}

static int64_t get_int(plim__json_t object, const char *key)
{
    return (int64_t)get_real(object, key, -1);
}

static bool get_is(plim__json_t object, const char *key, const char *word)
{
    return plim__json_is(plim__json_get(object, key), word);
}

void doctor_growth_reset(doctor_growth_t *growth)
{
    memset(growth, 0, sizeof *growth);
    growth->held.stride = growth->gpu.stride = 1;
    growth->peak = growth->seen = growth->limit = growth->last = growth->shared_last =
        growth->cache_last = -1;
    growth->hits = growth->kills = growth->first_hits = growth->first_kills = -1;
    growth->parent_hits = growth->host_kills = -1;
    growth->code = growth->signal = -1;
    growth->processes_at_peak = growth->largest_at_peak = -1;
    growth->others = growth->host_index = -1;
    growth->kill_s = -1;
    growth->interval = INFINITY;
}

static void add_point(doctor_series_t *series, double seconds, int64_t bytes)
{
    if (series->in_point > 0 && series->in_point < series->stride) {
        doctor_point_t *point = &series->point[series->num_points - 1];
        point->seconds = seconds;
        point->bytes = plim__max_i64(point->bytes, bytes);
        series->in_point++;
        return;
    }
    if (series->num_points == DOCTOR_POINTS) {
        for (int i = 0; i < DOCTOR_POINTS / 2; i++) {
            const doctor_point_t *a = &series->point[(size_t)2 * (size_t)i], *b = a + 1;
            series->point[i] = (doctor_point_t){b->seconds, plim__max_i64(a->bytes, b->bytes)};
        }
        series->num_points = DOCTOR_POINTS / 2;
        series->stride *= 2;
    }
    series->point[series->num_points++] = (doctor_point_t){seconds, bytes};
    series->in_point = 1;
}

static void add_mark(doctor_growth_t *growth, plim__json_t line)
{
    if (growth->num_phases == DOCTOR_PHASES) {
        /* The first quarter stays: growth is seen against the beginning. */
        const int keep = DOCTOR_PHASES / 4;
        memmove(&growth->phase[keep], &growth->phase[keep + 1],
                (size_t)(DOCTOR_PHASES - keep - 1) * sizeof growth->phase[0]);
        growth->num_phases--;
    }
    doctor_phase_t *phase = &growth->phase[growth->num_phases++];
    *phase = (doctor_phase_t){
        .begin = get_real(line, "at_s", 0), .first = growth->last, .peak = growth->last};
    plim__json_text(plim__json_get(line, "text"), phase->name, sizeof phase->name);
}

static void take_processes(doctor_growth_t *growth, plim__json_t line)
{
    const plim__json_t list = plim__json_get(line, "processes");
    const char *at = NULL;
    for (plim__json_t one; plim__json_next_element(list, &at, &one);) {
        const int64_t pid = get_int(one, "pid"), bytes = get_int(one, "anonymous_bytes");
        int i = 0;
        while (i < growth->num_processes && growth->process[i].pid != pid)
            i++;
        if (i == DOCTOR_TREE || pid < 0)
            continue;
        if (bytes < 0) { /* it ended */
            if (i < growth->num_processes)
                growth->process[i] = growth->process[--growth->num_processes];
            continue;
        }
        if (bytes == 0 && i < growth->num_processes)
            continue; /* it is dying: keep what it held before */
        growth->process[i] = (doctor_process_t){pid, bytes};
        growth->num_processes += i == growth->num_processes;
    }
}

static void copy_phase(const doctor_growth_t *growth, char name_out[64])
{
    if (growth->num_phases > 0)
        memcpy(name_out, growth->phase[growth->num_phases - 1].name, 64);
}

static void take_counters(doctor_growth_t *growth, plim__json_t line, double seconds)
{
    const int64_t hits = get_int(line, "group_limit_hits"), kills = get_int(line, "group_kills");
    if (growth->first_hits < 0)
        growth->first_hits = hits;
    if (growth->first_kills < 0)
        growth->first_kills = kills;
    if (hits >= 0)
        growth->hits = hits - growth->first_hits;
    if (kills >= 0 && kills - growth->first_kills > plim__max_i64(growth->kills, 0)) {
        growth->kill_s = seconds;
        copy_phase(growth, growth->kill_phase);
    }
    if (kills >= 0)
        growth->kills = kills - growth->first_kills;
}

/* `bytes`: memory under the limit. Where that is the host's, all processes share it, and the job's
 * memory is what its own hold. */
static void take_sample(doctor_growth_t *growth, plim__json_t line, double seconds, int64_t bytes)
{
    const int64_t held = get_int(line, "held_bytes"), used = bytes;
    const bool on_host =
        growth->host_index >= 0 && held >= 0 && get_int(line, "line") == growth->host_index;
    if (on_host)
        bytes = held;
    take_processes(growth, line);
    take_counters(growth, line, seconds);
    if (get_int(line, "num_processes") == 0)
        return; /* the command has ended */
    growth->shared_last = get_int(line, "group_shared_bytes");
    growth->cache_last = get_int(line, "group_cache_bytes");
    if (bytes < 0)
        return;
    growth->samples++;
    add_point(&growth->held, seconds, bytes);
    growth->last = bytes;
    if (growth->num_phases > 0) {
        doctor_phase_t *phase = &growth->phase[growth->num_phases - 1];
        phase->peak = plim__max_i64(phase->peak, bytes);
    }
    if (bytes >= growth->peak)
        copy_phase(growth, growth->peak_phase);
    if (bytes <= growth->peak)
        return;
    growth->peak = growth->seen = bytes;
    growth->peak_s = seconds;
    growth->limit = get_int(line, "line_bytes");
    growth->on_host = on_host;
    growth->others = on_host ? plim__max_i64(used - held, 0) : -1;
    growth->processes_at_peak = get_int(line, "num_processes");
    growth->largest_at_peak = 0;
    for (int i = 0; i < growth->num_processes; i++)
        growth->largest_at_peak = plim__max_i64(growth->largest_at_peak, growth->process[i].bytes);
}

static int find_host(plim__json_t limits)
{
    const char *at = NULL;
    char source[64];
    int index = 0;
    for (plim__json_t limit; plim__json_next_element(limits, &at, &limit); index++) {
        plim__json_text(plim__json_get(limit, "source"), source, sizeof source);
        if (strncmp(source, "host ", 5) == 0)
            return index;
    }
    return -1;
}

/* The command's words say what was run, and with which options. */
static void take_begin(doctor_t *doctor, plim__json_t line)
{
    doctor_growth_t *growth = &doctor->growth;
    const plim__json_t command = plim__json_get(line, "command"),
                       environment = plim__json_get(line, "environment");
    char text[4096];
    size_t used = 0;
    const char *at = NULL;
    doctor_growth_reset(growth);
    growth->host_index = find_host(plim__json_get(line, "limits"));
    growth->interval = get_real(line, "interval_s", growth->interval);
    for (plim__json_t word; plim__json_next_element(command, &at, &word);) {
        const size_t length = (size_t)(word.end - word.begin);
        if (length < 2 || used + length >= sizeof text)
            break;
        memcpy(text + used, word.begin + 1, length - 2);
        used += length - 2;
        text[used++] = ' ';
    }
    doctor_recipe_line(&doctor->recipe, text, used, false);
    plim__json_text(plim__json_get(environment, "SLURM_JOB_ID"), growth->job, sizeof growth->job);
}

/* A kill at `limit` shows that memory had come to it, though perhaps between two ticks; not so
 * where ticks measured another one. */
static void reach_limit(doctor_growth_t *growth, int64_t limit)
{
    int i = 0;
    if (growth->kills <= 0 || growth->kill_s < 0 || growth->limit != limit ||
        limit <= growth->peak || growth->on_host)
        return;
    while (i < growth->held.num_points && growth->held.point[i].seconds < growth->kill_s)
        i++;
    if (i == growth->held.num_points) {
        growth->held.in_point = 0; /* begin a new point */
        growth->samples++;
        add_point(&growth->held, growth->kill_s, limit);
    } else {
        growth->held.point[i].bytes = limit;
    }
    growth->peak = limit;
    growth->peak_s = growth->kill_s;
    memcpy(growth->peak_phase, growth->kill_phase, sizeof growth->peak_phase);
}

static void take_end(doctor_growth_t *growth, plim__json_t line)
{
    const plim__json_t groups = plim__json_get(line, "groups"),
                       signal = plim__json_get(line, "signal");
    const char *at = NULL;
    growth->ended = true;
    growth->code = get_int(line, "exit_code");
    growth->host_kills = get_int(line, "host_kills");
    growth->signal = signal.begin < signal.end && growth->code > 128 ? growth->code - 128 : -1;
    plim__json_t group;
    if (plim__json_next_element(groups, &at, &group)) {
        growth->kills = get_int(group, "kills");
        growth->hits = get_int(group, "limit_hits");
        growth->parent_hits = 0;
        /* Linux 6.18 counts no hits of v1 limits: a kill near the limit was one. */
        const int64_t limit = get_int(group, "limit_bytes");
        const int64_t peak = get_int(line, "group_peak_bytes");
        if (growth->hits == 0 && growth->kills > 0 && limit > 0 && peak >= limit - limit / 50)
            growth->hits = growth->kills;
        if (growth->hits > 0)
            reach_limit(growth, limit);
    }
    while (plim__json_next_element(groups, &at, &group)) {
        const int64_t limit = get_int(group, "limit_bytes");
        int64_t hits = get_int(group, "limit_hits");
        /* The same for a parent whose limit the use came nearest to. */
        if (hits == 0 && growth->hits == 0 && growth->kills > 0 && limit > 0 &&
            limit == get_int(line, "peak_line_bytes") &&
            get_int(line, "peak_used_bytes") >= limit - limit / 10)
            hits = growth->kills;
        growth->parent_hits = plim__max_i64(growth->parent_hits, hits);
        /* The parent's limit was hit, not the one that the ticks compared with. */
        if (hits > 0 && growth->hits == 0 && limit > 0) {
            reach_limit(growth, limit);
            growth->limit = limit;
            growth->on_host = false;
        }
    }
    /* Use under the limit; without a limit of its own, what the processes held. */
    const int64_t used = growth->on_host ? -1 : get_int(line, "peak_used_bytes");
    growth->peak = plim__max_i64(growth->peak, used > 0 ? used : get_int(line, "peak_bytes"));
}

/* Each GPU has a line of its own; the fullest one is kept. */
static void take_gpu(doctor_growth_t *growth, double seconds, int64_t used)
{
    doctor_series_t *gpu = &growth->gpu;
    if (used < 0 || used > DOCTOR_FIGURE_MOST)
        return;
    if (gpu->num_points > 0 && gpu->point[gpu->num_points - 1].seconds == seconds)
        gpu->point[gpu->num_points - 1].bytes =
            plim__max_i64(gpu->point[gpu->num_points - 1].bytes, used);
    else
        add_point(gpu, seconds, used);
    growth->gpu_peak = plim__max_i64(growth->gpu_peak, used);
    if (growth->num_phases > 0) {
        doctor_phase_t *phase = &growth->phase[growth->num_phases - 1];
        phase->gpu_peak = plim__max_i64(phase->gpu_peak, used);
    }
}

void doctor_growth_step(doctor_growth_t *growth, const doctor_step_t *step)
{
    if (growth->samples > 0 && !growth->steps)
        return; /* a record of the same job knows more */
    growth->steps = true;
    growth->samples++;
    growth->limit = step->limit;
    growth->last = step->held;
    add_point(&growth->held, (double)step->number, step->held);
    if (step->held > growth->peak) {
        growth->peak = growth->seen = step->held;
        growth->peak_s = (double)step->number;
        growth->others = plim__max_i64(step->limit - step->left - step->held, 0);
    }
    if (step->gpu >= 0)
        take_gpu(growth, (double)step->number, step->gpu);
}

bool doctor_growth_line(doctor_t *doctor, const char *text, size_t length)
{
    doctor_growth_t *growth = &doctor->growth;
    const plim__json_t line = {text, text + length};
    if (length < 8 || text[0] != '{' || text[1] != '"')
        return false;
    if (get_is(line, "kind", "tick")) {
        take_sample(growth, line, get_real(line, "at_s", 0), get_int(line, "used_bytes"));
        return true;
    }
    if (get_is(line, "kind", "begin") && get_int(line, "format") > 0) {
        take_begin(doctor, line);
        return true;
    }
    if (get_is(line, "kind", "mark")) {
        add_mark(growth, line);
        return true;
    }
    if (get_is(line, "kind", "end")) {
        take_end(growth, line);
        return true;
    }
    if (get_int(line, "epoch") > 0 && get_int(line, "labelled") >= 0) { /* metrics.jsonl */
        doctor->epochs_done = plim__max_i64(doctor->epochs_done, get_int(line, "epoch"));
        return true;
    }
    if (get_int(line, "epoch") >= 0 && get_int(line, "reserved_bytes") >= 0) {
        growth->training = true;
        take_sample(growth, line, growth->last < 0 ? 0 : (double)growth->samples,
                    get_int(line, "anonymous_bytes"));
        return true;
    }
    if (get_is(line, "kind", "plan")) {
        doctor->epochs_done = plim__max_i64(doctor->epochs_done, 0);
        return true;
    }
    if (get_is(line, "kind", "uses")) {
        doctor->recipe.ours = true;
        return true;
    }
    if (get_is(line, "kind", "gpu")) {
        take_gpu(growth, get_real(line, "at_s", 0), get_int(line, "used_bytes"));
        return true;
    }
    return get_is(line, "kind", "warning") || get_is(line, "kind", "signal");
}

bool doctor_growth_is_cut(const doctor_growth_t *growth)
{
    return growth->samples > 0 && !growth->ended && !growth->training && !growth->steps;
}

const char *doctor_pattern_name(doctor_pattern_t pattern)
{
    static const char *const names[] = {"none",  "start",   "leak",  "growth_per_epoch",
                                        "spike", "workers", "tmpfs", "page_cache"};
    return names[pattern];
}

static const char *skip_digits(const char *text)
{
    return text + strspn(text, "0123456789");
}

/* Whether two names differ in their numbers only: "epoch 9 train" and "epoch 10 train". */
static bool same_kind(const char *a, const char *b)
{
    for (;;) {
        a = skip_digits(a);
        b = skip_digits(b);
        if (*a != *b)
            return false;
        if (*a == '\0')
            return true;
        a++;
        b++;
    }
}

/* The mean rise between phases of the last one's kind, if nearly each of them rose, of the memory
 * held or of the GPU; 0: not so. */
static int64_t rise_per_phase(const doctor_growth_t *growth, bool gpu)
{
    const int64_t most = gpu ? growth->gpu_peak : growth->peak;
    int64_t previous = -1, first = -1;
    int count = 0, rises = 0;
    if (growth->num_phases == 0)
        return 0;
    const char *kind = growth->phase[growth->num_phases - 1].name;
    for (int i = 0; i < growth->num_phases; i++) {
        const doctor_phase_t *phase = &growth->phase[i];
        if (!same_kind(phase->name, kind))
            continue;
        const int64_t peak = gpu ? phase->gpu_peak : phase->peak;
        if (gpu && peak == 0)
            continue;
        /* Not its end: of the last phase that is already a part of the death. */
        if (previous >= 0)
            rises += peak > previous;
        else
            first = peak;
        previous = peak;
        count++;
    }
    if (count < 3 || rises * 4 < (count - 1) * 3 || previous <= first)
        return 0;
    const int64_t rise = (previous - first) / (count - 1);
    return rise * count * 10 >= most ? rise : 0;
}

/* By how much the fullest GPU rose a second, if each quarter of the time held more than the one
 * before and the last a fifth of the peak more than the first; 0: not so. */
static double gpu_rise(const doctor_growth_t *growth)
{
    const doctor_series_t *gpu = &growth->gpu;
    int64_t quarter[4] = {0};
    if (gpu->num_points < 8)
        return 0;
    for (int i = 0; i < gpu->num_points; i++) {
        int64_t *most = &quarter[4 * i / gpu->num_points];
        *most = plim__max_i64(*most, gpu->point[i].bytes);
    }
    for (int i = 1; i < 4; i++)
        if (quarter[i] - quarter[i - 1] < growth->gpu_peak / 50)
            return 0;
    const double seconds = gpu->point[gpu->num_points - 1].seconds - gpu->point[0].seconds;
    const int64_t rise = quarter[3] - quarter[0];
    return seconds > 0 && rise >= growth->gpu_peak / 5 ? (double)rise / (seconds * 3 / 4) : 0;
}

/* The end of the plateau before the peak, -1: there is none. On a plateau, use stays within a tenth
 * of the peak; it takes more than half of the time until its end, and more than four times the time
 * of the rise that follows, which is a fifth of the peak or more. */
static int plateau_end(const doctor_growth_t *growth, int top)
{
    const doctor_point_t *point = growth->held.point;
    for (int end = top - 1; end > 0; end--) {
        int begin = end;
        if (point[end].bytes > growth->peak - growth->peak / 5)
            continue;
        while (begin > 0 && llabs(point[begin - 1].bytes - point[end].bytes) <= growth->peak / 10)
            begin--;
        /* Ticks that differ little are not written: it was flat until one interval before. */
        const double until = fmax(point[end].seconds, point[end + 1].seconds - growth->interval);
        const double flat = until - point[begin].seconds;
        if (flat > 4 * (point[top].seconds - until) && flat * 2 > until - point[0].seconds)
            return end;
    }
    return -1;
}

/* The same by marks: the point before the last phase, if that was short, if its rise was a fifth of
 * the peak or more, and if the phase before it had hardly grown; -1: not so. */
static int phase_rise_begin(const doctor_growth_t *growth, int top)
{
    const doctor_point_t *point = growth->held.point;
    int begin = top;
    if (growth->num_phases < 2)
        return -1;
    const doctor_phase_t *last = &growth->phase[growth->num_phases - 1], *before = last - 1;
    const int64_t rise = growth->peak - last->first;
    if (strcmp(last->name, growth->peak_phase) != 0 || rise < growth->peak / 5 ||
        before->peak - before->first > rise / 4 ||
        (point[top].seconds - last->begin) * 4 > last->begin - point[0].seconds)
        return -1;
    while (begin > 0 && (begin == top || point[begin].seconds > last->begin))
        begin--;
    return begin;
}

/* The rise that ended at the peak: where it began. Dips of up to a twentieth do not end the rise.
 */
static int rise_begin(const doctor_growth_t *growth, int top)
{
    int begin = top;
    int64_t low = growth->held.point[top].bytes;
    for (int i = top - 1; i >= 0; i--) {
        const int64_t bytes = growth->held.point[i].bytes;
        if (bytes > low + growth->seen / 20)
            break;
        if (bytes < low - growth->seen / 100) {
            low = bytes;
            begin = i;
        }
    }
    /* Skip small steps at its beginning, such as a program's start. */
    for (int i = begin; i < top; i++)
        if (growth->held.point[i].bytes <= low + growth->seen / 20)
            begin = i;
    return begin;
}

doctor_shape_t doctor_growth_shape(const doctor_growth_t *growth, bool progress)
{
    doctor_shape_t shape = {.pattern = DOCTOR_PATTERN_NONE, .phase = ""};
    int top = 0;
    shape.gpu_per_phase = rise_per_phase(growth, true);
    if (growth->num_phases == 0)
        shape.gpu_per_s = gpu_rise(growth);
    if (growth->held.num_points == 0)
        return shape;
    for (int i = 1; i < growth->held.num_points; i++)
        if (growth->held.point[i].bytes >= growth->held.point[top].bytes)
            top = i;
    const doctor_point_t *peak = &growth->held.point[top];
    int begin = plateau_end(growth, top);
    if (begin < 0)
        begin = phase_rise_begin(growth, top);
    const bool flat_before = begin >= 0;
    if (!flat_before)
        begin = rise_begin(growth, top);
    const double seconds = peak->seconds - growth->held.point[begin].seconds;
    const double before = growth->held.point[begin].seconds - growth->held.point[0].seconds;
    const int64_t limit = growth->limit > 0 ? growth->limit : growth->peak;
    shape.rise = growth->peak - growth->held.point[begin].bytes;
    if (seconds > 0)
        shape.bytes_per_s = fmin((double)shape.rise / seconds, (double)DOCTOR_FIGURE_MOST);
    shape.phase = growth->peak_phase;
    shape.bytes_per_phase = rise_per_phase(growth, false);
    const bool rose = shape.rise * 5 >= growth->peak;
    /* Fast: a third of the limit a second. */
    const bool fast = seconds <= 0 || shape.bytes_per_s * 3 >= (double)limit;
    if (growth->shared_last * 2 >= growth->last && growth->shared_last * 3 >= limit)
        shape.pattern = DOCTOR_PATTERN_TMPFS;
    else if (growth->peak * 5 < limit * 4 && growth->kills <= 0 && growth->hits > 0 &&
             growth->cache_last * 2 >= limit)
        shape.pattern = DOCTOR_PATTERN_CACHE;
    else if (growth->processes_at_peak >= 3 && growth->largest_at_peak > 0 &&
             growth->largest_at_peak * 2 < growth->seen)
        shape.pattern = DOCTOR_PATTERN_WORKERS;
    else if (shape.bytes_per_phase > 0)
        shape.pattern = DOCTOR_PATTERN_EPOCHS;
    else if (flat_before || (rose && fast && before > 2 * seconds && before > 0.5))
        shape.pattern = DOCTOR_PATTERN_SPIKE;
    else if (rose && !fast && (before > seconds / 10 || growth->num_phases > 1 || progress))
        shape.pattern = DOCTOR_PATTERN_LEAK;
    else if (rose)
        shape.pattern = DOCTOR_PATTERN_START;
    return shape;
}
