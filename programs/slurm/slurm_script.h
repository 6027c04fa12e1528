/* The batch script that `plimsoll slurm VERB` prints. */
#ifndef PLIM_CLI_SLURM_SCRIPT_H
#define PLIM_CLI_SLURM_SCRIPT_H

#include "command/cli.h"

/* Seconds between Slurm's signal and the time limit: a training saves in much less. */
#define SLURM_SIGNAL_SECONDS 120
/* Minutes of --time for that signal, which Slurm may send up to a minute early. */
#define SLURM_SIGNAL_MINUTES 3

#define SLURM_NOTES 4
#define SLURM_SETUP 16

/* What the user asks of Slurm beside memory, time and threads; NULL: nothing. */
typedef struct slurm_requests {
    const char *gres, *gpus;
    const char *partition, *account, *qos;
    const char *output; /* with Slurm's patterns */
    const char *mail;   /* an address */
    int num_setup;
    const char *setup[SLURM_SETUP]; /* lines that prepare the environment */
} slurm_requests_t;

typedef struct slurm_script {
    const char *verb;
    char **words; /* of the verb, in their order; ended by NULL */
    int64_t mebibytes;
    int64_t minutes;
    int64_t cpus;
    char notes[SLURM_NOTES][160]; /* the origin of these figures; "": none */
    /* A training is signalled before the time limit, saved, queued again and continued. */
    bool continues;
    const char *dataset; /* one of the words, copied to `stage`; NULL: none is */
    const char *scratch; /* the value of --scratch in the words, such a directory too; or NULL */
    const char *copy;    /* the same of --stage=DIR */
    const char *stage;   /* a directory of the node, or $VARIABLE/directory */
    const char *run;     /* beginning of the run directory, the job's number follows; NULL: the
                            words name it */
    bool resume;         /* the words have no --resume */
    bool watched;        /* the words are any command, recorded by plimsoll watch */
    slurm_requests_t requests;
    int64_t ranks; /* nodes that train together; 0 or 1: one process */
    bool shares;   /* the words have no --shares */
} slurm_script_t;

/* The script as text, which the caller frees; NULL without memory. */
char *slurm_script_text(const slurm_script_t *script);

/* Minutes of a --time as Slurm writes it: 90, 90:00, 1:30:00, 1-2, 1-2:30, 1-2:30:00; rounded up.
 * False: it is not one. */
bool slurm_minutes(const char *text, int64_t *minutes_out);

#endif
