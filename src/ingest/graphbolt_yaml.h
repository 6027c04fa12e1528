/* GraphBolt's metadata.yaml (DGL's OnDiskDataset), as far as a graph of one type needs it. */
#ifndef PLIM_INGEST_GRAPHBOLT_YAML_H
#define PLIM_INGEST_GRAPHBOLT_YAML_H

#include <plimsoll/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLIM__YAML_MAX ((size_t)256 << 10)  /* bytes of a metadata.yaml at most */
#define PLIM__YAML_MEMORY ((size_t)4 << 20) /* what libyaml may take for one of that size */
#define PLIM__YAML_PATH 1024
#define PLIM__YAML_FEATURES 16
#define PLIM__YAML_ARRAYS 4

/* One array that the file names; empty strings for what it does not say. */
typedef struct plim__yaml_array {
    char domain[16];
    char name[64];
    char format[16];
    char path[PLIM__YAML_PATH];
} plim__yaml_array_t;

typedef struct plim__graphbolt {
    int64_t num_nodes; /* -1: not said */
    plim__yaml_array_t edges;
    int num_features;
    plim__yaml_array_t features[PLIM__YAML_FEATURES];
    int num_arrays[3]; /* of the sets train, validation, test of the first task */
    plim__yaml_array_t arrays[3][PLIM__YAML_ARRAYS];
} plim__graphbolt_t;

/*
 * Reads metadata.yaml from memory. PLIM_ERR_DATA with the line when it is no such file;
 * PLIM_ERR_UNSUPPORTED for several types of nodes or edges, for a graph that was preprocessed
 * already, for YAML aliases; PLIM_ERR_NOMEM. libyaml takes at most PLIM__YAML_MEMORY, which the
 * caller accounts for. Thread-safe.
 */
plim_status_t plim__graphbolt_parse(const char *name, const void *data, size_t size,
                                    plim__graphbolt_t *graphbolt_out);

#endif
