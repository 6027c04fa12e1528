/* `plimsoll slurm --check`: what contradicts what in a batch script and its Python file. */
#ifndef PLIM_CLI_SLURM_CHECK_H
#define PLIM_CLI_SLURM_CHECK_H

#include "command/cli.h"

/* Prints the findings. Returns the exit code: CLI_FAILED if there are any. */
int slurm_check(const cli_common_t *common, const char *path);

#endif
