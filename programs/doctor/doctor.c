/* Reading, and the verdict as JSON. */
#include "base/fail.h"
#include "command/cli.h"
#include "doctor/verdict.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

plim_status_t doctor_create(const plim_job_t *job, doctor_t **doctor_out)
{
    doctor_t *doctor = calloc(1, sizeof *doctor);
    if (doctor == NULL)
        return plim__fail_errno(ENOMEM, "the doctor");
    doctor->found = calloc((size_t)doctor_num_texts + DOCTOR_NUM_OTHER, sizeof *doctor->found);
    doctor->present = calloc((size_t)doctor_num_texts, sizeof *doctor->present);
    doctor->verdict = calloc(1, sizeof *doctor->verdict);
    if (doctor->found == NULL || doctor->present == NULL || doctor->verdict == NULL) {
        doctor_destroy(doctor);
        return plim__fail_errno(ENOMEM, "the doctor");
    }
    doctor->job = job;
    doctor->limit = doctor->shmem = doctor->kills = doctor->epochs_done = -1;
    doctor->slurm = (doctor_slurm_t){.code = -1, .signal = -1, .requested = -1, .resident = -1};
    doctor->recipe = doctor_recipe_none();
    doctor_growth_reset(&doctor->growth);
    doctor_facts_prepare(doctor);
    *doctor_out = doctor;
    return PLIM_OK;
}

void doctor_destroy(doctor_t *doctor)
{
    if (doctor == NULL)
        return;
    free(doctor->found);
    free(doctor->present);
    free(doctor->verdict);
    free(doctor);
}

void doctor_source(doctor_t *doctor, const char *name, bool script)
{
    /* Sources beyond DOCTOR_SOURCES count as parts of the last one. */
    if (doctor->num_sources < DOCTOR_SOURCES) {
        doctor_source_t *source = &doctor->source[doctor->num_sources++];
        plim__text_printable(name, strlen(name), source->name, sizeof source->name);
        source->script = script;
    }
    doctor->lines.length = 0;
    doctor->script = (doctor_script_t){0};
    doctor->traceback = doctor->semaphore = doctor->root_cause = doctor->heading = false;
}

const char *doctor_run(const doctor_t *doctor, int *length_out)
{
    for (int i = 0; i < doctor->num_sources; i++) {
        const char *name = doctor->source[i].name, *slash = strrchr(name, '/');
        if (slash != NULL && strcmp(slash, "/timeline.jsonl") == 0) {
            *length_out = (int)(slash - name);
            return name;
        }
    }
    return NULL;
}

static plim_status_t read_source(doctor_t *doctor, const char *name, bool script, int file)
{
    doctor_source(doctor, name, script);
    for (;;) {
        PLIM_TRY(cli_check_stopped());
        const ssize_t got = read(file, doctor->buffer, sizeof doctor->buffer);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return plim__fail_errno(errno, "%s: cannot be read", name);
        if (got == 0)
            break;
        doctor_log_bytes(doctor, doctor->buffer, (size_t)got);
    }
    doctor_log_end(doctor);
    return PLIM_OK;
}

plim_status_t doctor_read(doctor_t *doctor, const char *name, int file)
{
    return read_source(doctor, name, false, file);
}

static plim_status_t read_path(doctor_t *doctor, const char *path, bool script)
{
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return PLIM_ERR_IO;
    const plim_status_t status = read_source(doctor, path, script, file);
    (void)close(file);
    return status;
}

plim_status_t doctor_read_path(doctor_t *doctor, const char *path)
{
    const size_t length = strlen(path);
    return read_path(doctor, path, length > 3 && strcmp(path + length - 3, ".py") == 0);
}

plim_status_t doctor_read_script(doctor_t *doctor, const char *path)
{
    return read_path(doctor, path, true);
}

static json_t *json_fact(const doctor_t *doctor, const doctor_fact_t *fact)
{
    return json_pack("{s:s, s:I, s:s, s:s}", "source", doctor->source[fact->source].name, "line",
                     (json_int_t)fact->line, "text", fact->text, "cause",
                     doctor_cause_name(fact->cause));
}

static json_t *json_facts(const doctor_t *doctor, const doctor_fact_t *const *list, int count)
{
    json_t *array = json_array();
    for (int i = 0; i < count; i++)
        (void)json_array_append_new(array, json_fact(doctor, list[i]));
    return array;
}

static void set_int(json_t *object, const char *name, int64_t value)
{
    if (value >= 0)
        (void)json_object_set_new(object, name, json_integer(value));
}

static void set_text(json_t *object, const char *name, const char *text)
{
    if (text != NULL && text[0] != '\0')
        (void)json_object_set_new(object, name, json_string(text));
}

/* The figures of the root, of the kernel's lines and of Slurm. */
static json_t *json_figures(const doctor_t *doctor, const doctor_verdict_t *verdict)
{
    static const struct {
        doctor_figure_t figure;
        const char *name;
    } names[] = {{DOCTOR_TRIED, "tried_bytes"},
                 {DOCTOR_NEEDED, "needed_bytes"},
                 {DOCTOR_TOTAL, "gpu_total_bytes"},
                 {DOCTOR_FREE, "gpu_free_bytes"},
                 {DOCTOR_ALLOCATED, "gpu_allocated_bytes"},
                 {DOCTOR_RESERVED, "gpu_reserved_bytes"},
                 {DOCTOR_UNALLOCATED, "gpu_unallocated_bytes"},
                 {DOCTOR_IN_USE, "gpu_in_use_bytes"},
                 {DOCTOR_ALLOWED, "gpu_allowed_bytes"},
                 {DOCTOR_ANON, "victim_bytes"},
                 {DOCTOR_PID, "pid"},
                 {DOCTOR_COUNT, "kills"}};
    json_t *object = json_object();
    for (size_t i = 0; i < sizeof names / sizeof names[0] && verdict->root != NULL; i++)
        set_int(object, names[i].name, verdict->root->figure[names[i].figure]);
    set_int(object, "limit_bytes", verdict->limit);
    set_int(object, "shared_bytes", doctor->shmem);
    set_int(object, "requested_bytes", doctor->slurm.requested);
    set_int(object, "max_rss_bytes", doctor->slurm.resident);
    if (verdict->cause == DOCTOR_CUDA_OOM && verdict->root != NULL &&
        verdict->root->figure[DOCTOR_TRIED] > 0)
        (void)json_object_set_new(object, "fragmented",
                                  json_boolean(doctor_cuda_fragmented(verdict->root)));
    return object;
}

static json_t *json_growth(const doctor_t *doctor, const doctor_verdict_t *verdict)
{
    const doctor_shape_t *shape = &verdict->shape;
    json_t *object = json_pack("{s:s}", "pattern", doctor_pattern_name(shape->pattern));
    set_text(object, "phase", shape->phase);
    set_int(object, "peak_bytes", doctor->growth.peak);
    set_int(object, "limit_bytes", doctor->growth.limit);
    if (doctor->growth.on_host) {
        set_text(object, "limit_of", "host");
        set_int(object, "others_bytes", doctor->growth.others);
    }
    set_int(object, "num_processes", doctor->growth.processes_at_peak);
    set_int(object, "page_cache_bytes", doctor->growth.cache_last);
    set_int(object, "shared_bytes", doctor->growth.shared_last);
    set_int(object, "kills", doctor->growth.kills);
    set_int(object, "limit_hits", doctor->growth.hits);
    (void)json_object_set_new(object, doctor->growth.steps ? "peak_at_step" : "peak_at_s",
                              json_real(doctor->growth.peak_s));
    if (shape->bytes_per_s > 0)
        (void)json_object_set_new(object, doctor->growth.steps ? "bytes_per_step" : "bytes_per_s",
                                  json_integer((int64_t)shape->bytes_per_s));
    if (shape->bytes_per_phase > 0)
        set_int(object, "bytes_per_phase", shape->bytes_per_phase);
    if (doctor->growth.gpu_peak > 0)
        set_int(object, "gpu_peak_bytes", doctor->growth.gpu_peak);
    if (shape->gpu_per_phase > 0)
        set_int(object, "gpu_bytes_per_phase", shape->gpu_per_phase);
    if (shape->gpu_per_s > 0)
        set_int(object, doctor->growth.steps ? "gpu_bytes_per_step" : "gpu_bytes_per_s",
                (int64_t)shape->gpu_per_s);
    return object;
}

static json_t *json_recipe(const doctor_recipe_t *recipe)
{
    json_t *object = json_object(), *fanout = json_array();
    set_int(object, "num_nodes", recipe->nodes);
    set_int(object, "num_edges", recipe->edges);
    set_int(object, "num_features", recipe->features);
    set_int(object, "batch_size", recipe->batch_size);
    set_int(object, "num_workers", recipe->workers);
    set_int(object, "prefetch_factor", recipe->prefetch);
    set_int(object, "hidden", recipe->hidden);
    set_int(object, "layers", recipe->layers);
    if (recipe->persistent >= 0)
        (void)json_object_set_new(object, "persistent_workers", json_boolean(recipe->persistent));
    if (recipe->pinned >= 0)
        (void)json_object_set_new(object, "pin_memory", json_boolean(recipe->pinned));
    for (int i = 0; i < recipe->num_hops; i++)
        (void)json_array_append_new(fanout, json_integer(recipe->fanout[i]));
    if (recipe->num_hops > 0)
        (void)json_object_set(object, "num_neighbors", fanout);
    json_decref(fanout);
    set_text(object, "shape", recipe->shape);
    set_text(object, "model", doctor_recipe_model(recipe));
    set_text(object, "dataset", recipe->dataset);
    return object;
}

static json_t *json_habits(const doctor_t *doctor)
{
    json_t *array = json_array();
    for (int i = 0; i < doctor->num_habits; i++) {
        const doctor_found_habit_t *found = &doctor->habits[i].found;
        (void)json_array_append_new(
            array, json_pack("{s:s, s:s, s:I, s:s}", "kind", doctor_habit_name(found->habit),
                             "source", doctor->source[doctor->habits[i].source].name, "line",
                             (json_int_t)found->line, "text", found->code));
    }
    return array;
}

static json_t *json_changes(const doctor_verdict_t *verdict)
{
    json_t *array = json_array();
    for (int i = 0; i < verdict->num_changes; i++) {
        json_t *object = json_pack("{s:s}", "change", verdict->change[i].text);
        set_int(object, "saves_bytes", verdict->change[i].saves);
        set_int(object, "peak_bytes", verdict->change[i].peak);
        (void)json_array_append_new(array, object);
    }
    return array;
}

const char *doctor_outcome_name(doctor_outcome_t outcome)
{
    static const char *const names[] = {"unknown", "died", "survived", "finished"};
    return names[outcome];
}

const char *doctor_confidence_name(doctor_confidence_t confidence)
{
    static const char *const names[] = {"possible", "likely", "proven"};
    return names[confidence];
}

const char *doctor_basis_name(doctor_basis_t basis)
{
    static const char *const names[] = {"guess", "measured", "estimate", "named"};
    return names[basis];
}

const char *doctor_next_mem_text(const doctor_verdict_t *verdict, char text_out[24])
{
    const int64_t mebibytes = verdict->next_mem >> 20;
    const bool whole = verdict->next_mem % ((int64_t)1 << 30) == 0;
    (void)snprintf(text_out, 24, "%lld%c", (long long)(whole ? mebibytes >> 10 : mebibytes),
                   whole ? 'G' : 'M');
    return text_out;
}

json_t *doctor_verdict_json(const doctor_t *doctor)
{
    const doctor_verdict_t *verdict = doctor->verdict;
    char next_mem[24];
    json_t *unknown = json_array(), *sources = json_array();
    for (int i = 0; i < doctor->num_sources; i++)
        (void)json_array_append_new(sources, json_string(doctor->source[i].name));
    for (int i = 0; i < verdict->num_unknown; i++)
        (void)json_array_append_new(unknown, json_string(verdict->unknown[i]));
    json_t *object = json_pack(
        "{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "outcome",
        doctor_outcome_name(verdict->outcome), "cause", doctor_cause_name(verdict->cause),
        "confidence", doctor_confidence_name(verdict->confidence), "summary", verdict->summary,
        "sources", sources, "figures", json_figures(doctor, verdict), "evidence",
        json_facts(doctor, verdict->evidence, verdict->num_evidence), "consequences",
        json_facts(doctor, verdict->consequence, verdict->num_consequences), "recipe",
        json_recipe(&doctor->recipe), "script", json_habits(doctor), "advice",
        json_changes(verdict), "unknown", unknown);
    set_text(object, "job_id",
             doctor->slurm.job[0] != '\0' ? doctor->slurm.job : doctor->growth.job);
    set_text(object, "state", doctor->slurm.state);
    set_int(object, "epochs_done", doctor->epochs_done);
    set_int(object, "exit_code", verdict->code);
    if (verdict->signal > 0)
        set_int(object, "signal", verdict->signal);
    if (doctor->growth.samples > 0)
        (void)json_object_set_new(object, "growth", json_growth(doctor, verdict));
    if (verdict->next_mem > 0) {
        set_int(object, "next_mem_bytes", verdict->next_mem);
        set_text(object, "next_mem", doctor_next_mem_text(verdict, next_mem));
        set_text(object, "next_mem_basis", doctor_basis_name(verdict->next_mem_basis));
    }
    set_text(object, "command", verdict->command);
    return object;
}

const doctor_verdict_t *doctor_verdict(doctor_t *doctor)
{
    doctor_verdict_t *verdict = doctor->verdict;
    doctor_verdict_find(doctor, verdict);
    doctor_verdict_summarise(doctor, verdict);
    doctor_verdict_advise(doctor, verdict);
    return verdict;
}
