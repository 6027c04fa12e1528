#include "train/checkpoint.h"

#include "base/bounds.h"
#include "base/fail.h"
#include "base/job.h"
#include "plan/run_settings.h"
#include "train/run_json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum kind { TURNS, TOTAL, REAL, FLAG } kind_t;

/* Maps fields of a position to notes. */
typedef struct checkpoint_field {
    const char *key;
    kind_t kind;
    size_t offset;
} checkpoint_field_t;

#define AT(name) offsetof(plim__position_t, name)

static const checkpoint_field_t fields[] = {
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
    {"scored", FLAG, AT(scored)},
};

#define NUM_FIELDS (int)(sizeof fields / sizeof fields[0])
#define NUM_FACTS 8 /* notes that describe_origin writes */
#define NOTE_TEXT 40

/* Exact: fractional numbers are written with a binary exponent. */
static void put_field(const checkpoint_field_t *field, const plim__position_t *position,
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

static bool get_field(const checkpoint_field_t *field, const char *text, plim__position_t *position)
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

static plim_status_t get_position(const plim__safetensors_t *file, const char *path,
                                  plim__position_t *position_out)
{
    for (int i = 0; i < NUM_FIELDS; i++) {
        const char *text = plim__safetensors_note(file, fields[i].key);
        if (text == NULL && (fields[i].offset == AT(metrics_crc) || fields[i].offset == AT(scored)))
            continue; /* a training without metrics.jsonl; of an earlier version */
        if (!get_field(&fields[i], text, position_out))
            return plim__fail(
                PLIM_ERR_DATA,
                "%s: its note \"%s\" is missing or impossible; it is not a checkpoint "
                "of a run",
                path, fields[i].key);
    }
    return PLIM_OK;
}

/* Writes the notes that all checkpoints of a training share. */
static void describe_origin(const plim__checkpoint_t *checkpoint, char threads_out[NOTE_TEXT],
                            plim__note_t notes_out[NUM_FACTS])
{
    const plim__machine_t *machine = &checkpoint->machine;
    (void)snprintf(threads_out, NOTE_TEXT, "%d", machine->threads);
    notes_out[0] = (plim__note_t){"format", "pt"}; /* PyTorch's files have the same note */
    notes_out[1] = (plim__note_t){"plimsoll", machine->version};
    notes_out[2] = (plim__note_t){"onednn", machine->library};
    notes_out[3] = (plim__note_t){"cpu", machine->cpu};
    notes_out[4] = (plim__note_t){"vectors", machine->vectors};
    notes_out[5] = (plim__note_t){"threads", threads_out};
    notes_out[6] = (plim__note_t){"fingerprint", checkpoint->fingerprint};
    notes_out[7] = (plim__note_t){"settings", checkpoint->settings};
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

/* Lists all tensors of a file, values first. */
static plim_status_t list_tensors(plim__checkpoint_t *checkpoint, const char *path,
                                  const plim__parameter_t *parameters, int count, bool moments,
                                  int *count_out)
{
    int used = 0;
    for (int index = -1; index < (moments ? 2 : 0); index++)
        for (int i = 0; i < count; i++) {
            if (index >= 0 && parameters[i].moment[index] == NULL)
                continue;
            if (used == PLIM__TENSORS_MAX)
                return plim__fail(PLIM_ERR_UNSUPPORTED,
                                  "%s: the model has more than %d tensors; make it smaller", path,
                                  PLIM__TENSORS_MAX);
            checkpoint->tensors[used++] =
                tensor_of(&checkpoint->training.optimiser, &parameters[i], index);
        }
    *count_out = used;
    return PLIM_OK;
}

void plim__checkpoint_carve(plim__checkpoint_t *checkpoint, plim__arena_t *arena)
{
    checkpoint->tensors = plim__arena_carve(arena, PLIM__TENSORS_MAX, sizeof(plim__tensor_t), 1);
}

plim_status_t plim__checkpoint_describe(plim__checkpoint_t *checkpoint, const plim_job_t *job,
                                        const plim_dataset_info_t *dataset,
                                        const plim_training_t *training)
{
    checkpoint->job = job;
    checkpoint->training = *training;
    checkpoint->machine = plim__machine_here(job);
    memcpy(checkpoint->fingerprint, dataset->fingerprint, sizeof checkpoint->fingerprint);
    checkpoint->loops = dataset->max_self_loops != 0;
    return plim__run_json_settings(job, training, checkpoint->settings,
                                   sizeof checkpoint->settings);
}

plim_status_t plim__checkpoint_most(plim__checkpoint_t *checkpoint, const char *path,
                                    const plim__parameter_t *parameters, int count, bool moments,
                                    int64_t *bytes_out)
{
    int num_tensors;
    PLIM_TRY(list_tensors(checkpoint, path, parameters, count, moments, &num_tensors));
    *bytes_out = plim__safetensors_most(checkpoint->tensors, num_tensors);
    return PLIM_OK;
}

plim_status_t plim__checkpoint_write(plim__checkpoint_t *checkpoint, plim__draft_t *draft,
                                     const plim__parameter_t *parameters, int count,
                                     const plim__position_t *position, bool commit)
{
    char threads[NOTE_TEXT], texts[NUM_FIELDS][NOTE_TEXT];
    plim__note_t notes[NUM_FACTS + NUM_FIELDS];
    int num_tensors;
    PLIM_TRY(list_tensors(checkpoint, draft->path, parameters, count, true, &num_tensors));
    int num_notes = NUM_FACTS;
    describe_origin(checkpoint, threads, notes);
    for (int i = 0; i < NUM_FIELDS; i++) {
        if (fields[i].offset == AT(metrics_crc) && position->metrics_crc < 0)
            continue; /* a training without metrics.jsonl */
        put_field(&fields[i], position, texts[i]);
        notes[num_notes++] = (plim__note_t){fields[i].key, texts[i]};
    }
    return plim__safetensors_write_draft(checkpoint->job, draft, notes, num_notes,
                                         checkpoint->tensors, num_tensors, commit);
}

plim_status_t plim__checkpoint_write_best(plim__checkpoint_t *checkpoint, plim__draft_t *draft,
                                          const plim__parameter_t *parameters, int count,
                                          const plim__position_t *position)
{
    static const char *const keys[] = {"train", "valid", "test"};
    char threads[NOTE_TEXT], epoch[NOTE_TEXT], scores[3][PLIM__REAL_TEXT];
    plim__note_t notes[NUM_FACTS + 4];
    int num_tensors;
    PLIM_TRY(list_tensors(checkpoint, draft->path, parameters, count, false, &num_tensors));
    describe_origin(checkpoint, threads, notes);
    (void)snprintf(epoch, sizeof epoch, "%lld", (long long)position->best_epoch);
    notes[NUM_FACTS] = (plim__note_t){"epoch", epoch};
    for (int i = 0; i < 3; i++) {
        (void)plim__run_settings_real(position->best_score[i], scores[i]);
        notes[NUM_FACTS + 1 + i] = (plim__note_t){keys[i], scores[i]};
    }
    return plim__safetensors_write_draft(checkpoint->job, draft, notes, NUM_FACTS + 4,
                                         checkpoint->tensors, num_tensors, true);
}

plim_status_t plim__checkpoint_position(const plim_job_t *job, int directory, const char *path,
                                        plim__position_t *position_out)
{
    plim__safetensors_t *file;
    PLIM_TRY(plim__safetensors_open(job, directory, path, &file));
    const plim_status_t status = get_position(file, path, position_out);
    plim__safetensors_close(file);
    return status;
}

/* Refuses a checkpoint of another training: resuming would mix the two. */
static plim_status_t check_origin(const plim__checkpoint_t *checkpoint,
                                  const plim__safetensors_t *file, const char *path,
                                  const plim__position_t *position)
{
    const char *fingerprint = plim__safetensors_note(file, "fingerprint");
    const char *settings = plim__safetensors_note(file, "settings");
    plim_training_t before;
    if (fingerprint == NULL || settings == NULL)
        return plim__fail(PLIM_ERR_DATA, "%s: does not say from which dataset and settings it is",
                          path);
    if (strcmp(fingerprint, checkpoint->fingerprint) != 0)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: from the dataset of fingerprint %.16s, but this training is on %s",
                          path, fingerprint, checkpoint->fingerprint);
    PLIM_TRY(plim__run_json_settings_of(checkpoint->job, settings, path, &before));
    return plim__run_settings_compare(&before, &checkpoint->training, checkpoint->loops,
                                      plim__position_begun(position), path);
}

static bool has_tensor(const plim__safetensors_t *file, const char *name)
{
    plim__tensor_t tensor;
    for (int i = 0; i < plim__safetensors_count(file); i++) {
        plim__safetensors_describe(file, i, &tensor);
        if (strcmp(tensor.name, name) == 0)
            return true;
    }
    return false;
}

/* Modules written by hand call their layers conv1, conv2, … where PyG's models have convs.0, … */
static void find_by_hand(const plim__safetensors_t *file, plim__tensor_t *tensor)
{
    static const char prefix[] = "convs.";
    char name[sizeof tensor->name], *rest;
    if (has_tensor(file, tensor->name) || strncmp(tensor->name, prefix, strlen(prefix)) != 0)
        return;
    const long layer = strtol(tensor->name + strlen(prefix), &rest, 10);
    (void)snprintf(name, sizeof name, "conv%ld%s", layer + 1, rest);
    if (has_tensor(file, name))
        memcpy(tensor->name, name, sizeof name);
}

/* Reads the values of all parameters; with `optimiser`, its moments too. */
static plim_status_t read_values(const plim_job_t *job, plim__safetensors_t *file, const char *path,
                                 const plim_optimiser_t *optimiser, plim__parameter_t *parameters,
                                 int count)
{
    /* Files of other programs have no checksums: warn only about our own files. */
    if (!plim__safetensors_sealed(file) && plim__safetensors_note(file, "plimsoll") != NULL)
        plim__log(job, PLIM_LOG_WARNING,
                  "%s carries no checksums (an older plimsoll wrote it, or another program saved "
                  "it again), so damage to it would not be noticed",
                  path);
    for (int i = 0; i < count; i++)
        for (int index = -1; index < (optimiser != NULL ? 2 : 0); index++) {
            if (index >= 0 && parameters[i].moment[index] == NULL)
                continue;
            plim__tensor_t tensor = tensor_of(optimiser, &parameters[i], index);
            if (optimiser == NULL)
                find_by_hand(file, &tensor);
            PLIM_TRY(plim__safetensors_read(file, &tensor));
        }
    return PLIM_OK;
}

plim_status_t plim__checkpoint_read(const plim__checkpoint_t *checkpoint, int directory,
                                    const char *path, plim__parameter_t *parameters, int count,
                                    plim__position_t *position_out)
{
    plim__safetensors_t *file;
    plim__position_t position = PLIM__POSITION_INIT;
    PLIM_TRY(plim__safetensors_open(checkpoint->job, directory, path, &file));
    plim_status_t status = get_position(file, path, &position);
    if (status == PLIM_OK)
        status = check_origin(checkpoint, file, path, &position);
    if (status == PLIM_OK)
        status = read_values(checkpoint->job, file, path, &checkpoint->training.optimiser,
                             parameters, count);
    plim__safetensors_close(file);
    if (status == PLIM_OK)
        *position_out = position;
    return status;
}

/* Warns about tensors that the model does not have: the file is of another model. */
static void warn_unused(const plim_job_t *job, const plim__safetensors_t *file, const char *path,
                        const plim__parameter_t *parameters, int count)
{
    char names[160] = "";
    size_t used = 0;
    int unused = 0;
    plim__tensor_t tensor;
    for (int i = 0; i < plim__safetensors_count(file); i++) {
        bool known = false;
        plim__safetensors_describe(file, i, &tensor);
        for (int j = 0; j < count && !known; j++) {
            plim__tensor_t wanted = tensor_of(NULL, &parameters[j], -1);
            find_by_hand(file, &wanted);
            known = strcmp(tensor.name, wanted.name) == 0;
        }
        if (known || strncmp(tensor.name, "optimizer.", strlen("optimizer.")) == 0 ||
            strstr(tensor.name, "num_batches_tracked") != NULL)
            continue;
        unused++;
        if (used + strlen(tensor.name) + 3 < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s",
                                     used > 0 ? ", " : "", tensor.name);
    }
    if (unused > 0)
        plim__log(job, PLIM_LOG_WARNING,
                  "%s: %d of its tensors are not in this model and are not used: %s%s; is it of "
                  "another model (`num_layers`, `norm`)?",
                  path, unused, names, unused > 1 ? " …" : "");
}

plim_status_t plim__checkpoint_weights(const plim_job_t *job, int directory, const char *path,
                                       int64_t epoch, plim__parameter_t *parameters, int count)
{
    char wanted[NOTE_TEXT];
    plim__safetensors_t *file;
    PLIM_TRY(plim__safetensors_open(job, directory, path, &file));
    const char *found = plim__safetensors_note(file, "epoch");
    (void)snprintf(wanted, sizeof wanted, "%lld", (long long)epoch);
    const plim_status_t status =
        epoch > 0 && (found == NULL || strcmp(found, wanted) != 0)
            ? plim__fail(PLIM_ERR_DATA, "%s: it is of epoch %.20s, but the best is of %s", path,
                         found != NULL ? found : "unknown", wanted)
            : read_values(job, file, path, NULL, parameters, count);
    if (status == PLIM_OK)
        warn_unused(job, file, path, parameters, count);
    plim__safetensors_close(file);
    return status;
}
