/* The parts of limit discovery. Each adds what it finds and leaves out what it cannot read. */
#ifndef PLIM_MEM_LIMIT_H
#define PLIM_MEM_LIMIT_H

#include <plimsoll/limit.h>

/* What the parts share. */
typedef struct plim__discovery {
    const char *root;   /* "" for this machine, or a recorded tree */
    char **environment; /* "NAME=value" …, NULL */
    plim_limits_t *limits;
} plim__discovery_t;

/* The value of an environment variable; NULL when it is not set or empty. */
const char *plim__discovery_variable(const plim__discovery_t *discovery, const char *name);

/* A variable that holds a whole number of at least 1. */
bool plim__discovery_count(const plim__discovery_t *discovery, const char *name,
                           int64_t *count_out);

/* Adds a limit; `shared`: on all ranks of this node together, so that each has its part. */
void plim__discovery_add_memory(plim__discovery_t *discovery, int64_t bytes, bool shared,
                                const char *format, ...) __attribute__((format(printf, 4, 5)));
void plim__discovery_add_threads(plim__discovery_t *discovery, int64_t count, bool shared,
                                 const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Slurm and MPI launchers: what their variables grant, how many ranks share the node. */
int plim__slurm_local_ranks(const plim__discovery_t *discovery);
void plim__slurm_memory(plim__discovery_t *discovery);
void plim__slurm_threads(plim__discovery_t *discovery);

/* Whether this looks like a login node, and why. */
void plim__login_node(plim__discovery_t *discovery);

/* Control groups. */
void plim__cgroup_limits(plim__discovery_t *discovery);

#endif
