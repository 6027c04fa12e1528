/* Reader of the Python file that a batch script runs, for `plimsoll slurm --check`; as that of the
 * script, doctor/batch_script.h. */
#ifndef SLURM_PYTHON_FILE_H
#define SLURM_PYTHON_FILE_H

#include "doctor/batch_script.h"

#define READ_LOADERS 16
#define READ_KEYWORDS 24

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

void read_python_file(const char *text, size_t size, read_python_t *python_out);

#endif
