/*
 * Readers of a batch script and of the Python file that it runs, for `plimsoll slurm --check`. They
 * read literals only and keep the rest apart as not read. Any bytes are a valid input: texts are
 * cut to the sizes below, which bound the memory.
 */
#ifndef PLIM_CLI_SLURM_READ_H
#define PLIM_CLI_SLURM_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define READ_NAME 48
#define READ_VALUE 160
#define READ_SETTINGS 64
#define READ_LOADERS 16
#define READ_KEYWORDS 24

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

/* One call of a class whose name ends in Loader. */
typedef struct read_loader {
    char name[READ_NAME];
    int line;
    int num_keywords;
    read_setting_t keywords[READ_KEYWORDS];
    bool unpacked; /* **kwargs: not read */
} read_loader_t;

typedef struct read_python {
    int num_loaders;
    read_loader_t loaders[READ_LOADERS];
    int more_loaders;  /* not kept */
    int num_arguments; /* of argparse, with their defaults */
    read_setting_t arguments[READ_SETTINGS];
    char dataset[READ_NAME]; /* "ogbn-…" as a literal; "": none, or several */
    bool handles_usr1;       /* names SIGUSR1, or uses Lightning, which does */
    bool torch;              /* imports it */
} read_python_t;

void read_batch_script(const char *text, size_t size, read_batch_t *batch_out);
void read_python_file(const char *text, size_t size, read_python_t *python_out);

/* Bytes of a --mem: "4G", "4000" (MiB), "64gb"; -1: not a size. */
int64_t read_slurm_bytes(const char *text);

/* The bytes of --mem in one line "#SBATCH --mem=4G -c 8"; -1: it has none. */
int64_t read_requested_memory(const char *text, size_t size);

/* The last setting of this name ("-" is "_"); NULL: none. */
const read_setting_t *read_find(const read_setting_t *settings, int count, const char *name);

#endif
