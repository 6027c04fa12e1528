#include "train/run_json.h"

#include "base/fail.h"
#include "io/commit.h"
#include "io/seal.h"
#include "mem/arena.h"
#include "mem/kernel_text.h"
#include "nn/onednn.h"
#include "plan/run_settings.h"

#include <jansson.h>
#include <plimsoll/version.h>
#include <stdio.h>
#include <string.h>

#define TEXT_MAX ((size_t)64 << 10)  /* of run.json: a path of 4,096 escaped letters fits */
#define JSON_MAX ((size_t)512 << 10) /* maximum memory of jansson for it */

/* The value in a line "key : value" of /proc/cpuinfo; NULL for another key. */
static const char *value_of(const char *line, const char *key)
{
    size_t length = strlen(key);
    const char *colon = strchr(line, ':');
    if (colon == NULL || strncmp(line, key, length) != 0 ||
        line + length + strspn(line + length, " \t") != colon)
        return NULL;
    return colon + 1 + strspn(colon + 1, " \t");
}

static bool has_word(const char *text, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + length, word))
        if ((at == text || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

/* Vector extensions that oneDNN has kernels for, the widest first: as /proc/cpuinfo and as
 * ONEDNN_MAX_CPU_ISA spell them. */
static const struct {
    const char *flag, *limit;
} extensions[] = {{"amx_bf16", "AVX512_CORE_AMX"},
                  {"avx512_bf16", "AVX512_CORE_BF16"},
                  {"avx512_vnni", "AVX512_CORE_VNNI"},
                  {"avx512f", "AVX512_CORE"},
                  {"avx2", "AVX2"},
                  {"avx", "AVX"},
                  {"sse4_1", "SSE41"}};

#define NUM_EXTENSIONS (sizeof extensions / sizeof extensions[0])

/* The widest extension that the processor has and oneDNN may use. */
static const char *vectors_of(const char *flags)
{
    const int64_t mask = plim__onednn_instructions();
    bool allowed = mask == 0;
    for (size_t i = 0; i < NUM_EXTENSIONS; i++) {
        allowed |= strcmp(plim__onednn_instructions_name(mask), extensions[i].limit) == 0;
        if (allowed && has_word(flags, extensions[i].flag))
            return extensions[i].flag;
    }
    return "unknown";
}

/* The limit with which this machine computes as `before` did, which had fewer extensions; NULL if
 * this one has no more. */
static const char *limit_of(const char *before, const char *now)
{
    bool wider = false;
    for (size_t i = 0; i < NUM_EXTENSIONS; i++) {
        if (strcmp(before, extensions[i].flag) == 0)
            return wider ? extensions[i].limit : NULL;
        wider |= strcmp(now, extensions[i].flag) == 0;
    }
    return NULL;
}

plim__machine_t plim__machine_here(const plim_job_t *job)
{
    plim__machine_t machine = {.cpu = "unknown", .vectors = "unknown"};
    plim__kernel_lines_t lines;
    machine.threads = plim__job_threads(job);
    (void)snprintf(machine.version, sizeof machine.version, "%s", PLIM_VERSION);
    (void)snprintf(machine.library, sizeof machine.library, "%s", plim__onednn_version());
    if (!plim__kernel_lines_open(&lines, "", "/proc/cpuinfo"))
        return machine;
    const char *line;
    while ((line = plim__kernel_lines_next(&lines)) != NULL && line[0] != '\0') {
        const char *name = value_of(line, "model name");
        const char *flags = value_of(line, "flags");
        if (name != NULL)
            (void)snprintf(machine.cpu, sizeof machine.cpu, "%s", name);
        if (flags != NULL)
            (void)snprintf(machine.vectors, sizeof machine.vectors, "%s", vectors_of(flags));
    }
    plim__kernel_lines_close(&lines);
    return machine;
}

void plim__machine_compare(const plim_job_t *job, const char *what, const plim__machine_t *before,
                           const plim__machine_t *now)
{
    const char *limit = limit_of(before->vectors, now->vectors);
    if (strcmp(before->cpu, now->cpu) != 0 || strcmp(before->vectors, now->vectors) != 0)
        plim__log(
            job, PLIM_LOG_WARNING,
            "%s was computed on %s (%s), this is %s (%s): the last bits of results may differ "
            "from those of an uninterrupted run%s%s%s",
            what, before->cpu, before->vectors, now->cpu, now->vectors,
            limit != NULL ? "; to keep them, set ONEDNN_MAX_CPU_ISA=" : "",
            limit != NULL ? limit : "", limit != NULL ? " and resume" : "");
    if (strcmp(before->version, now->version) != 0 || strcmp(before->library, now->library) != 0)
        plim__log(job, PLIM_LOG_WARNING,
                  "%s was computed by plimsoll %s with %s, this is %s with %s: the last bits of "
                  "results may differ from those of an uninterrupted run",
                  what, before->version, before->library, now->version, now->library);
    if (before->threads != now->threads)
        plim__log(job, PLIM_LOG_INFO,
                  "%s was computed with %d thread%s, now with %d: results are the same", what,
                  before->threads, before->threads == 1 ? "" : "s", now->threads);
}

static json_t *root_of(const plim__run_json_t *about, json_t *settings)
{
    const plim__machine_t *machine = &about->machine;
    json_t *root =
        json_pack("{s:s, s:i, s:i, s:{s:s, s:s}, s:{s:s, s:s, s:i}, s:{s:s, s:s}, s:o}", "plimsoll",
                  "run", "format", PLIM__RUN_FORMAT, "readable_by", 1, "dataset", "path",
                  about->dataset, "fingerprint", about->fingerprint, "machine", "cpu", machine->cpu,
                  "vectors", machine->vectors, "threads", machine->threads, "versions", "plimsoll",
                  machine->version, "onednn", machine->library, "settings", settings);
    const struct {
        const char *key, *text;
    } texts[] = {{"init", about->init},
                 {"pairs", about->pairs},
                 {"valid_pairs", about->valid_pairs},
                 {"valid_negatives", about->valid_negatives},
                 {"start", about->start}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (texts[i].text[0] != '\0' &&
            json_object_set_new(root, texts[i].key, json_string(texts[i].text)) != 0) {
            json_decref(root);
            return NULL;
        }
    return root;
}

/* JSON holds only UTF-8, a path any bytes. */
static bool is_utf8(const char *text)
{
    json_t *value = json_string(text);
    json_decref(value);
    return value != NULL;
}

static plim_status_t settings_of(const plim_training_t *training, json_t **settings_out)
{
    *settings_out = plim__run_settings_render(training);
    return *settings_out != NULL
               ? PLIM_OK
               : plim__fail(PLIM_ERR_USAGE, "a setting is not a finite number, or has an unknown "
                                            "value, so run.json cannot hold it");
}

static plim_status_t render(const plim__run_json_t *about, char *text, size_t *size_out)
{
    if (!is_utf8(about->start))
        return plim__fail(PLIM_ERR_USAGE, "the text of the start is not UTF-8, so run.json cannot "
                                          "hold it");
    const char *const paths[] = {about->dataset, about->init, about->pairs, about->valid_pairs,
                                 about->valid_negatives};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if (!is_utf8(paths[i]))
            return plim__fail(PLIM_ERR_USAGE,
                              "the path %s is not UTF-8, so run.json cannot hold it; give it "
                              "another name",
                              paths[i]);
    json_t *settings = NULL;
    PLIM_TRY(settings_of(&about->training, &settings));
    json_t *root = root_of(about, settings);
    if (root == NULL)
        return plim__fail(PLIM_ERR_NOMEM, "the system refused memory to write run.json");
    size_t size = json_dumpb(
        root, text, TEXT_MAX - 1,
        JSON_INDENT(2) | JSON_REAL_PRECISION((size_t)plim__run_settings_digits(&about->training)));
    json_decref(root);
    if (size == 0 || size >= TEXT_MAX || !plim__seal_put(text, TEXT_MAX, &size))
        return plim__fail(PLIM_ERR_NOMEM, "the system refused memory to write run.json");
    *size_out = size;
    return PLIM_OK;
}

plim_status_t plim__run_json_write(const plim_job_t *job, int directory, const char *path,
                                   const plim__run_json_t *about, bool fresh)
{
    plim__arena_t arena;
    size_t size = 0;
    int account;
    PLIM_TRY(plim__arena_create(job->ledger, PLIM__RUN_ACCOUNT, TEXT_MAX, &arena));
    char *text = plim__arena_carve(&arena, TEXT_MAX, 1, 1);
    plim_status_t status = plim__ledger_reserve(job->ledger, PLIM__RUN_ACCOUNT, JSON_MAX, &account);
    if (status != PLIM_OK)
        goto destroy_arena;
    status = render(about, text, &size);
    plim__ledger_release(job->ledger, account, JSON_MAX);
    if (status == PLIM_OK)
        status = plim__commit_file(directory, path, text, size, fresh);
destroy_arena:
    plim__arena_destroy(&arena);
    return status;
}

/* Copies the string under `key` of `object` if it exists and fits. */
static plim_status_t get_text(const json_t *object, const char *key, const char *name, size_t size,
                              char *text_out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value) || json_string_length(value) >= size)
        return plim__fail(PLIM_ERR_DATA, "%s: \"%s\" is missing, too long or not a text", name,
                          key);
    memcpy(text_out, json_string_value(value), json_string_length(value) + 1);
    return PLIM_OK;
}

static plim_status_t check_version(const json_t *root, const char *name)
{
    const char *kind = json_string_value(json_object_get(root, "plimsoll"));
    const json_t *format = json_object_get(root, "format");
    const json_t *readable_by = json_object_get(root, "readable_by");
    if (kind == NULL || strcmp(kind, "run") != 0)
        return plim__fail(PLIM_ERR_DATA, "%s: does not describe a run of plimsoll", name);
    if (!json_is_integer(format) || !json_is_integer(readable_by) ||
        json_integer_value(readable_by) < 1 ||
        json_integer_value(readable_by) > json_integer_value(format))
        return plim__fail(PLIM_ERR_DATA, "%s: \"format\" or \"readable_by\" is missing or wrong",
                          name);
    if (json_integer_value(readable_by) > PLIM__RUN_FORMAT)
        return plim__fail(PLIM_ERR_UNSUPPORTED,
                          "%s: needs a reader of format %lld, this one is of %d; use a newer "
                          "plimsoll",
                          name, (long long)json_integer_value(readable_by), PLIM__RUN_FORMAT);
    return PLIM_OK;
}

static plim_status_t take_root(const json_t *root, const char *name, plim__run_json_t *about_out)
{
    const json_t *dataset = json_object_get(root, "dataset");
    const json_t *machine = json_object_get(root, "machine");
    const json_t *versions = json_object_get(root, "versions");
    const json_t *threads = json_object_get(machine, "threads");
    plim__machine_t *here = &about_out->machine;
    PLIM_TRY(check_version(root, name));
    PLIM_TRY(get_text(dataset, "path", name, sizeof about_out->dataset, about_out->dataset));
    PLIM_TRY(get_text(dataset, "fingerprint", name, sizeof about_out->fingerprint,
                      about_out->fingerprint));
    PLIM_TRY(get_text(machine, "cpu", name, sizeof here->cpu, here->cpu));
    PLIM_TRY(get_text(machine, "vectors", name, sizeof here->vectors, here->vectors));
    PLIM_TRY(get_text(versions, "plimsoll", name, sizeof here->version, here->version));
    PLIM_TRY(get_text(versions, "onednn", name, sizeof here->library, here->library));
    if (!json_is_integer(threads) || json_integer_value(threads) < 1 ||
        json_integer_value(threads) > INT32_MAX)
        return plim__fail(PLIM_ERR_DATA, "%s: \"threads\" is missing or not a number of threads",
                          name);
    here->threads = (int)json_integer_value(threads);
    const struct {
        const char *key;
        char *to;
        size_t size;
    } texts[] = {
        {"init", about_out->init, sizeof about_out->init},
        {"pairs", about_out->pairs, sizeof about_out->pairs},
        {"valid_pairs", about_out->valid_pairs, sizeof about_out->valid_pairs},
        {"valid_negatives", about_out->valid_negatives, sizeof about_out->valid_negatives},
        {"start", about_out->start, sizeof about_out->start},
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        texts[i].to[0] = '\0';
        if (json_object_get(root, texts[i].key) != NULL)
            PLIM_TRY(get_text(root, texts[i].key, name, texts[i].size, texts[i].to));
    }
    return plim__run_settings_parse(json_object_get(root, "settings"), name, &about_out->training);
}

/* Parses the text; jansson's memory stays on the ledger until plim__ledger_release. */
static plim_status_t load(const plim_job_t *job, const char *text, size_t size, const char *name,
                          size_t *memory_out, int *account_out, json_t **root_out)
{
    json_error_t error;
    int account;
    size_t memory = plim__json_memory(text, size);
    if (memory > JSON_MAX)
        return plim__fail(PLIM_ERR_DATA, "%s: too large for the description of a run", name);
    PLIM_TRY(plim__ledger_reserve(job->ledger, PLIM__RUN_ACCOUNT, memory, &account));
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        plim__ledger_release(job->ledger, account, memory);
        if (json_error_code(&error) == json_error_out_of_memory)
            return plim__fail(PLIM_ERR_NOMEM, "%s: the system refused memory to read it", name);
        return plim__fail(PLIM_ERR_DATA, "%s: line %d, column %d: %s", name, error.line,
                          error.column, error.text);
    }
    *memory_out = memory;
    *account_out = account;
    *root_out = root;
    return PLIM_OK;
}

static plim_status_t parse(const plim_job_t *job, const char *text, size_t size, const char *name,
                           plim__run_json_t *about_out)
{
    size_t memory = 0;
    int account = 0;
    json_t *root = NULL;
    PLIM_TRY(load(job, text, size, name, &memory, &account, &root));
    plim_status_t status = take_root(root, name, about_out);
    json_decref(root);
    plim__ledger_release(job->ledger, account, memory);
    return status;
}

plim_status_t plim__run_json_read(const plim_job_t *job, int directory, const char *path,
                                  plim__run_json_t *about_out)
{
    plim__arena_t arena;
    plim__file_t file;
    plim_status_t status = PLIM_OK;
    PLIM_TRY(plim__file_open_in(directory, path, PLIM__FILE_READ, false, &file));
    if (file.size > (int64_t)TEXT_MAX) {
        status =
            plim__fail(PLIM_ERR_DATA, "%s has %lld bytes, too many for the description of a run",
                       path, (long long)file.size);
        goto close_file;
    }
    status = plim__arena_create(job->ledger, PLIM__RUN_ACCOUNT, TEXT_MAX, &arena);
    if (status != PLIM_OK)
        goto close_file;
    char *text = plim__arena_carve(&arena, TEXT_MAX, 1, 1);
    status = plim__file_read_at(&file, 0, text, (size_t)file.size);
    if (status == PLIM_OK && plim__seal_check(text, (size_t)file.size) == PLIM__SEAL_WRONG)
        status = plim__fail(PLIM_ERR_DATA,
                            "%s: changed or damaged (its checksum, in the last line, does not "
                            "match); restore a copy, or train the run again",
                            path);
    if (status == PLIM_OK)
        status = parse(job, text, (size_t)file.size, path, about_out);
    plim__arena_destroy(&arena);
close_file:
    plim__file_close(&file);
    return status;
}

plim_status_t plim__run_json_settings(const plim_job_t *job, const plim_training_t *training,
                                      char *text_out, size_t size)
{
    int account;
    json_t *settings = NULL;
    size_t used = 0;
    PLIM_TRY(plim__ledger_reserve(job->ledger, PLIM__RUN_ACCOUNT, JSON_MAX, &account));
    plim_status_t status = settings_of(training, &settings);
    if (status == PLIM_OK)
        used = json_dumpb(settings, text_out, size - 1,
                          JSON_COMPACT |
                              JSON_REAL_PRECISION((size_t)plim__run_settings_digits(training)));
    json_decref(settings);
    plim__ledger_release(job->ledger, account, JSON_MAX);
    PLIM_TRY(status);
    if (used == 0 || used >= size)
        return plim__fail(PLIM_ERR_NOMEM, "the system refused memory to write down the settings");
    text_out[used] = '\0';
    return PLIM_OK;
}

plim_status_t plim__run_json_settings_of(const plim_job_t *job, const char *text, const char *name,
                                         plim_training_t *training_out)
{
    size_t memory = 0;
    int account = 0;
    json_t *root = NULL;
    PLIM_TRY(load(job, text, strlen(text), name, &memory, &account, &root));
    plim_status_t status = plim__run_settings_parse(root, name, training_out);
    json_decref(root);
    plim__ledger_release(job->ledger, account, memory);
    return status;
}
