/* Checkpoints of a run: written, and read back with suspicion. */
#include "base/bounds.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "mem/size_text.h"
#include "train/run_internal.h"
#include "train/run_settings.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef enum kind { TURNS, TOTAL, REAL, FLAG } kind_t;

/* A position's fields by their notes. */
typedef struct field {
    const char *key;
    kind_t kind;
    size_t offset;
} field_t;

#define AT(name) offsetof(plim__position_t, name)

static const field_t fields[] = {
    {"epoch", TURNS, AT(epoch)},
    {"step", TURNS, AT(step)},
    {"updates", TOTAL, AT(updates)},
    {"part_seeds", TURNS, AT(part_seeds)},
    {"part_nodes", TOTAL, AT(part_nodes)},
    {"part_edges", TOTAL, AT(part_edges)},
    {"loss_sum", REAL, AT(loss_sum)},
    {"loss_seeds", REAL, AT(loss_seeds)},
    {"epoch_loss", REAL, AT(epoch_loss)},
    {"best_epoch", TURNS, AT(best_epoch)},
    {"best_train", REAL, AT(best_score[0])},
    {"best_valid", REAL, AT(best_score[1])},
    {"best_test", REAL, AT(best_score[2])},
    {"waited", TURNS, AT(waited)},
    {"metrics_bytes", TOTAL, AT(metrics_bytes)},
    {"metrics_crc32", TOTAL, AT(metrics_crc)},
    {"ended", FLAG, AT(ended)},
};

#define NUM_FIELDS (int)(sizeof fields / sizeof fields[0])
#define NUM_FACTS 8 /* what describe_run writes */
#define NOTE_TEXT 40

/* Exact: numbers that are not whole are written with a binary exponent. */
static void put_field(const field_t *field, const plim__position_t *position,
                      char text_out[NOTE_TEXT])
{
    const void *from = (const char *)position + field->offset;
    switch (field->kind) {
    case TURNS:
    case TOTAL:
        (void)snprintf(text_out, NOTE_TEXT, "%lld", (long long)*(const int64_t *)from);
        break;
    case REAL:
        (void)snprintf(text_out, NOTE_TEXT, "%a", *(const double *)from);
        break;
    case FLAG:
        (void)snprintf(text_out, NOTE_TEXT, "%s", *(const bool *)from ? "true" : "false");
        break;
    }
}

static bool get_field(const field_t *field, const char *text, plim__position_t *position)
{
    void *to = (char *)position + field->offset;
    char *end = NULL;
    if (text == NULL || text[0] == '\0')
        return false;
    switch (field->kind) {
    case TURNS:
    case TOTAL:
        errno = 0;
        *(int64_t *)to = strtoll(text, &end, 10);
        return errno == 0 && *end == '\0' && *(int64_t *)to >= 0 &&
               *(int64_t *)to <= (field->kind == TURNS ? PLIM__TURNS_MAX : PLIM__TOTAL_MAX);
    case REAL:
        *(double *)to = strtod(text, &end);
        return *end == '\0';
    case FLAG:
        *(bool *)to = strcmp(text, "true") == 0;
        return *(bool *)to || strcmp(text, "false") == 0;
    }
    return false;
}

/* Whether checkpoints of older versions do not say it. */
static bool is_newer(const field_t *field)
{
    return field->offset == AT(part_seeds) || field->offset == AT(part_nodes) ||
           field->offset == AT(part_edges);
}

static plim_status_t get_position(const plim__safetensors_t *file, const char *path,
                                  plim__position_t *position_out)
{
    for (int i = 0; i < NUM_FIELDS; i++) {
        const char *text = plim__safetensors_note(file, fields[i].key);
        if (text == NULL && is_newer(&fields[i]))
            text = "0";
        if (text == NULL && fields[i].offset == AT(metrics_crc))
            continue; /* an older checkpoint: the position says that it is unknown */
        if (!get_field(&fields[i], text, position_out))
            return plim__fail(
                PLIM_ERR_DATA,
                "%s: its note \"%s\" is missing or impossible; it is not a checkpoint "
                "of a run",
                path, fields[i].key);
    }
    return PLIM_OK;
}

/* What is the same in every checkpoint of a run: NUM_FACTS notes. */
static void describe_run(const plim__run_t *run, char threads_out[NOTE_TEXT],
                         plim__note_t notes_out[NUM_FACTS])
{
    (void)snprintf(threads_out, NOTE_TEXT, "%d", run->machine.threads);
    notes_out[0] = (plim__note_t){"format", "pt"}; /* as PyTorch's own files say */
    notes_out[1] = (plim__note_t){"plimsoll", run->machine.version};
    notes_out[2] = (plim__note_t){"onednn", run->machine.library};
    notes_out[3] = (plim__note_t){"cpu", run->machine.cpu};
    notes_out[4] = (plim__note_t){"vectors", run->machine.vectors};
    notes_out[5] = (plim__note_t){"threads", threads_out};
    notes_out[6] = (plim__note_t){"fingerprint", run->fingerprint};
    notes_out[7] = (plim__note_t){"settings", run->settings};
}

static const char *moment_name(const plim_optimiser_t *optimiser, int index)
{
    if (optimiser->kind == PLIM_SGD)
        return "momentum_buffer";
    return index == 0 ? "exp_avg" : "exp_avg_sq";
}

/* The tensor of a parameter's values, or of its moment `index`. */
static plim__tensor_t tensor_of(const plim_optimiser_t *optimiser,
                                const plim__parameter_t *parameter, int index)
{
    plim__tensor_t tensor = {.type = PLIM_F32, .num_dims = parameter->num_dims};
    memcpy(tensor.shape, parameter->shape, sizeof tensor.shape);
    if (index < 0) {
        (void)snprintf(tensor.name, sizeof tensor.name, "%s", parameter->name);
        tensor.data = parameter->value;
    } else {
        (void)snprintf(tensor.name, sizeof tensor.name, "optimizer.%s.%s",
                       moment_name(optimiser, index), parameter->name);
        tensor.data = parameter->moment[index];
    }
    return tensor;
}

/* All tensors of a checkpoint, values first; -1 when there are too many. */
static int list_tensors(plim__run_t *run, const plim__parameter_t *parameters, int count,
                        bool moments)
{
    int used = 0;
    for (int index = -1; index < (moments ? 2 : 0); index++)
        for (int i = 0; i < count; i++) {
            if (index >= 0 && parameters[i].moment[index] == NULL)
                continue;
            if (used == PLIM__TENSORS_MAX)
                return -1;
            run->tensors[used++] = tensor_of(&run->training.optimiser, &parameters[i], index);
        }
    return used;
}

/* Whether a file is there. Anything but its absence is left to its opening. */
static plim_status_t find_file(const char *directory, const char *name,
                               char path_out[PLIM__RUN_PATH], bool *found_out)
{
    struct stat about;
    PLIM_TRY(plim__run_path(directory, name, path_out));
    *found_out = stat(path_out, &about) == 0 || errno != ENOENT;
    return PLIM_OK;
}

/* Drafts that a file has between two saves. */
static int wanted_drafts(bool found)
{
    return found ? 1 : 2;
}

static plim_status_t reserve(plim__run_t *run, plim__run_drafts_t *drafts, const char *name,
                             int num_tensors)
{
    char path[PLIM__RUN_PATH];
    bool found;
    PLIM_TRY(find_file(run->path, name, path, &found));
    if (num_tensors < 0)
        return plim__fail(PLIM_ERR_UNSUPPORTED,
                          "%s: the model has more than %d tensors; make it smaller", path,
                          PLIM__TENSORS_MAX);
    while (drafts->count < wanted_drafts(found)) {
        if (drafts->count > 0 && drafts->draft[0].partial[0] != '\0')
            break; /* it has a name, of which there is one */
        plim__draft_t *draft = &drafts->draft[drafts->count];
        const plim_status_t status =
            plim__draft_open(path, true, plim__safetensors_most(run->tensors, num_tensors), draft);
        if (status != PLIM_OK) {
            plim__draft_close(draft);
            return status;
        }
        drafts->count++;
    }
    return PLIM_OK;
}

/* Whether saving could open what it needs besides its drafts (ulimit -n). */
static plim_status_t check_descriptors(const plim__run_t *run)
{
    int fds[4], count = 0, error = 0;
    while (count < 4 && error == 0) {
        fds[count] = fcntl(run->metrics.fd, F_DUPFD_CLOEXEC, 0);
        if (fds[count] < 0)
            error = errno;
        else
            count++;
    }
    while (count > 0)
        (void)close(fds[--count]);
    return error == 0 ? PLIM_OK
                      : plim__fail_errno(error, "%s: checkpoints could not be saved", run->path);
}

/* Adds the bytes of the drafts that a file still lacks. */
static plim_status_t add_missing(const plim__run_t *run, const plim__run_drafts_t *drafts,
                                 const char *name, int num_tensors, int64_t *bytes)
{
    char path[PLIM__RUN_PATH];
    bool found;
    PLIM_TRY(find_file(run->path, name, path, &found));
    const int64_t most = plim__safetensors_most(run->tensors, num_tensors);
    for (int i = drafts->count; i < wanted_drafts(found); i++)
        *bytes = plim__add_saturating_i64(*bytes, most);
    return PLIM_OK;
}

/* Compares the free space with the sum of all missing drafts: without fallocate each of them alone
 * would seem to fit. */
static plim_status_t check_space(plim__run_t *run, const plim__parameter_t *parameters, int count,
                                 bool best)
{
    char need[PLIM__SIZE_TEXT], have[PLIM__SIZE_TEXT];
    int64_t bytes = 0, space;
    PLIM_TRY(add_missing(run, &run->last, PLIM__RUN_LAST,
                         list_tensors(run, parameters, count, true), &bytes));
    if (best)
        PLIM_TRY(add_missing(run, &run->best, PLIM__RUN_BEST,
                             list_tensors(run, parameters, count, false), &bytes));
    PLIM_TRY(plim__file_space(run->path, &space));
    if (space >= bytes)
        return PLIM_OK;
    return plim__fail(PLIM_ERR_SPACE,
                      "%s: its checkpoints need %s, but the file system has %s free; free some "
                      "space, or choose a directory on another disk (--run)",
                      run->path, plim__size_text(bytes, need), plim__size_text(space, have));
}

plim_status_t plim__run_reserve(plim__run_t *run, const plim__parameter_t *parameters, int count,
                                bool best)
{
    PLIM_TRY(check_space(run, parameters, count, best));
    PLIM_TRY(reserve(run, &run->last, PLIM__RUN_LAST, list_tensors(run, parameters, count, true)));
    if (best)
        PLIM_TRY(
            reserve(run, &run->best, PLIM__RUN_BEST, list_tensors(run, parameters, count, false)));
    return check_descriptors(run);
}

void plim__run_release(plim__run_t *run)
{
    while (run->last.count > 0)
        plim__draft_close(&run->last.draft[--run->last.count]);
    while (run->best.count > 0)
        plim__draft_close(&run->best.draft[--run->best.count]);
}

/* Writes into a reserved draft, else into a new one, for which the disk may have no space. */
static plim_status_t write_tensors(plim__run_t *run, plim__run_drafts_t *drafts, const char *name,
                                   const plim__note_t *notes, int num_notes, int num_tensors)
{
    if (drafts->count == 0) {
        const plim_status_t status = reserve(run, drafts, name, num_tensors);
        if (status != PLIM_OK && drafts->count == 0)
            return status == PLIM_ERR_SPACE ? PLIM_ERR_DISK : status;
    }
    plim__draft_t *draft = &drafts->draft[--drafts->count];
    const plim_status_t status =
        plim__safetensors_write_draft(run->job, draft, notes, num_notes, run->tensors, num_tensors);
    plim__draft_close(draft);
    return status;
}

plim_status_t plim__run_save(plim__run_t *run, const plim__parameter_t *parameters, int count,
                             plim__position_t *position)
{
    char threads[NOTE_TEXT], texts[NUM_FIELDS][NOTE_TEXT];
    plim__note_t notes[NUM_FACTS + NUM_FIELDS];
    PLIM_TRY(plim__run_lines_sync(&run->metrics));
    position->metrics_bytes = run->metrics.size;
    position->metrics_crc = run->metrics.crc;
    describe_run(run, threads, notes);
    for (int i = 0; i < NUM_FIELDS; i++) {
        put_field(&fields[i], position, texts[i]);
        notes[NUM_FACTS + i] = (plim__note_t){fields[i].key, texts[i]};
    }
    return write_tensors(run, &run->last, PLIM__RUN_LAST, notes, NUM_FACTS + NUM_FIELDS,
                         list_tensors(run, parameters, count, true));
}

plim_status_t plim__run_save_best(plim__run_t *run, const plim__parameter_t *parameters, int count,
                                  const plim__position_t *position)
{
    static const char *const keys[] = {"train", "valid", "test"};
    char threads[NOTE_TEXT], epoch[NOTE_TEXT], scores[3][PLIM__REAL_TEXT];
    plim__note_t notes[NUM_FACTS + 4];
    describe_run(run, threads, notes);
    (void)snprintf(epoch, sizeof epoch, "%lld", (long long)position->best_epoch);
    notes[NUM_FACTS] = (plim__note_t){"epoch", epoch};
    for (int i = 0; i < 3; i++) {
        (void)plim__run_settings_real(position->best_score[i], scores[i]);
        notes[NUM_FACTS + 1 + i] = (plim__note_t){keys[i], scores[i]};
    }
    return write_tensors(run, &run->best, PLIM__RUN_BEST, notes, NUM_FACTS + 4,
                         list_tensors(run, parameters, count, false));
}

plim_status_t plim__run_position(const plim_job_t *job, const char *path,
                                 plim__position_t *position_out, bool *found_out)
{
    char last[PLIM__RUN_PATH];
    plim__safetensors_t *file;
    PLIM_TRY(find_file(path, PLIM__RUN_LAST, last, found_out));
    if (!*found_out)
        return PLIM_OK;
    PLIM_TRY(plim__safetensors_open(job, last, &file));
    plim_status_t status = get_position(file, last, position_out);
    plim__safetensors_close(file);
    return status;
}

/* A checkpoint that was put here from another run would be gone on with as if it were this one's.
 */
static plim_status_t check_facts(const plim__run_t *run, const plim__safetensors_t *file,
                                 const char *path, const plim__position_t *position)
{
    const char *fingerprint = plim__safetensors_note(file, "fingerprint");
    const char *settings = plim__safetensors_note(file, "settings");
    plim_training_t before;
    if (fingerprint == NULL || settings == NULL)
        return plim__fail(PLIM_ERR_DATA, "%s: does not say from which dataset and settings it is",
                          path);
    if (strcmp(fingerprint, run->fingerprint) != 0)
        return plim__fail(PLIM_ERR_DATA,
                          "%s: from the dataset of fingerprint %.16s, but the run is on %s", path,
                          fingerprint, run->fingerprint);
    PLIM_TRY(plim__run_json_settings_of(run->job, settings, path, &before));
    return plim__run_settings_compare(&before, &run->training, plim__position_begun(position),
                                      PLIM_ERR_DATA, path);
}

static plim_status_t read_values(const plim_job_t *job, plim__safetensors_t *file, const char *path,
                                 const plim_optimiser_t *optimiser, plim__parameter_t *parameters,
                                 int count, bool moments)
{
    /* Other programs' weights are taken as they are; of ours it is said. */
    if (!plim__safetensors_sealed(file) && plim__safetensors_note(file, "plimsoll") != NULL)
        plim__log(job, PLIM_LOG_WARNING,
                  "%s carries no checksums (an older plimsoll wrote it, or another program saved "
                  "it again), so damage to it would not be noticed",
                  path);
    for (int i = 0; i < count; i++)
        for (int index = -1; index < (moments ? 2 : 0); index++) {
            if (index >= 0 && parameters[i].moment[index] == NULL)
                continue;
            plim__tensor_t tensor = tensor_of(optimiser, &parameters[i], index);
            PLIM_TRY(plim__safetensors_read(file, &tensor));
        }
    return PLIM_OK;
}

plim_status_t plim__run_load(plim__run_t *run, plim__parameter_t *parameters, int count,
                             plim__position_t *position_out, bool *found_out)
{
    char path[PLIM__RUN_PATH];
    plim__safetensors_t *file;
    plim__position_t position = PLIM__POSITION_INIT;
    bool found;
    PLIM_TRY(find_file(run->path, PLIM__RUN_LAST, path, &found));
    if (found) {
        PLIM_TRY(plim__safetensors_open(run->job, path, &file));
        plim_status_t status = get_position(file, path, &position);
        if (status == PLIM_OK)
            status = check_facts(run, file, path, &position);
        if (status == PLIM_OK)
            status = read_values(run->job, file, path, &run->training.optimiser, parameters, count,
                                 true);
        plim__safetensors_close(file);
        PLIM_TRY(status);
    }
    const uint32_t crc = (uint32_t)position.metrics_crc;
    PLIM_TRY(plim__run_lines_cut(&run->metrics, position.metrics_bytes,
                                 position.metrics_crc >= 0 ? &crc : NULL));
    *position_out = position;
    *found_out = found;
    return PLIM_OK;
}

plim_status_t plim__run_load_best(const plim__run_t *run, int64_t epoch,
                                  plim__parameter_t *parameters, int count)
{
    char path[PLIM__RUN_PATH], wanted[NOTE_TEXT];
    plim__safetensors_t *file;
    plim_status_t status;
    PLIM_TRY(plim__run_path(run->path, PLIM__RUN_BEST, path));
    PLIM_TRY(plim__safetensors_open(run->job, path, &file));
    const char *found = plim__safetensors_note(file, "epoch");
    (void)snprintf(wanted, sizeof wanted, "%lld", (long long)epoch);
    if (found == NULL || strcmp(found, wanted) != 0)
        status = plim__fail(PLIM_ERR_DATA, "%s: it is of epoch %.20s, but the best is of %s", path,
                            found != NULL ? found : "unknown", wanted);
    else
        status = read_values(run->job, file, path, NULL, parameters, count, false);
    plim__safetensors_close(file);
    return status;
}

plim_status_t plim__run_weights(const plim_job_t *job, const char *run, const char *weights,
                                plim__parameter_t *parameters, int count)
{
    char path[PLIM__RUN_PATH];
    plim__safetensors_t *file;
    bool found = false;
    if (weights == NULL) {
        PLIM_TRY(find_file(run, PLIM__RUN_BEST, path, &found));
        if (!found)
            PLIM_TRY(find_file(run, PLIM__RUN_LAST, path, &found));
        if (!found)
            return plim__fail(PLIM_ERR_USAGE,
                              "%s has no weights yet (neither %s nor %s); train it first, or name "
                              "a file of weights",
                              run, PLIM__RUN_BEST, PLIM__RUN_LAST);
        weights = path;
    }
    PLIM_TRY(plim__safetensors_open(job, weights, &file));
    plim_status_t status = read_values(job, file, weights, NULL, parameters, count, false);
    plim__safetensors_close(file);
    for (int i = 0; i < count && status == PLIM_OK; i++)
        for (int64_t j = 0; j < parameters[i].count; j++)
            if (!isfinite(parameters[i].value[j]))
                return plim__fail(PLIM_ERR_DIVERGED,
                                  "%s: %s is not finite at value %lld: training has diverged; "
                                  "take other weights (--weights), or train with a lower learning "
                                  "rate (--lr)",
                                  weights, parameters[i].name, (long long)j);
    return status;
}
