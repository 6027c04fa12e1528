/*
 * Reader of a batch script, for the memory that it requests and for `plimsoll slurm --check`. It
 * reads literals only and keeps the rest apart as not read. Any bytes are a valid input: texts are
 * cut to the sizes below, which bound the memory.
 */
#ifndef DOCTOR_BATCH_SCRIPT_H
#define DOCTOR_BATCH_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define READ_NAME 48
#define READ_VALUE 160
#define READ_SETTINGS 64

/* A name and its value: a variable, an option, a keyword argument. */
typedef struct read_setting {
    char name[READ_NAME];
    char value[READ_VALUE]; /* "": none */
    int line;
    bool literal; /* the value stands here; otherwise `value` is an expression */
    bool used;    /* a variable: some command uses it */
    bool repeats; /* an argument of argparse: each of several counts */
} read_setting_t;

typedef struct read_batch {
    int num_requests; /* #SBATCH options, by their long names */
    read_setting_t requests[READ_SETTINGS];
    int late_line; /* the first #SBATCH line after a command, which Slurm ignores; 0: none */
    int num_variables;
    read_setting_t variables[READ_SETTINGS];
    char python[512]; /* the Python file that it runs; "": none */
    int python_line;
    bool python_srun;       /* in a step */
    bool python_background; /* the shell can take signals meanwhile */
    int num_options;        /* of the Python file's command line */
    read_setting_t options[READ_SETTINGS];
    bool traps_usr1;
    int more_commands; /* further commands with a Python file, not read */
} read_batch_t;

void read_batch_script(const char *text, size_t size, read_batch_t *batch_out);

/* Bytes of a --mem: "4G", "4000" (MiB), "64gb"; -1: not a size. */
int64_t read_slurm_bytes(const char *text);

/* The bytes of --mem in one line "#SBATCH --mem=4G -c 8"; -1: it has none. */
int64_t read_requested_memory(const char *text, size_t size);

/* The last setting of this name ("-" is "_"); NULL: none. */
const read_setting_t *read_find(const read_setting_t *settings, int count, const char *name);

/* Adds a setting unless there are `most`. */
void read_add_setting(read_setting_t *settings, int *count, int most, read_setting_t setting);

/* Copies `length` characters, cut to `size` with their end. */
void read_copy_text(char *out, size_t size, const char *text, size_t length);

/* Whether a name may hold the character. */
bool read_is_letter(char c);

#endif
