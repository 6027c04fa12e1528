/* GraphBolt's metadata.yaml (DGL's OnDiskDataset), as far as a graph of one type needs it. */
#ifndef PLIM_INGEST_GRAPHBOLT_YAML_H
#define PLIM_INGEST_GRAPHBOLT_YAML_H

#include <plimsoll/status.h>
#include <stddef.h>
#include <stdint.h>

#define PLIM__YAML_MAX ((size_t)256 << 10)  /* maximum size of metadata.yaml */
#define PLIM__YAML_MEMORY ((size_t)4 << 20) /* maximum memory of libyaml for that size */
#define PLIM__YAML_PATH 1024
#define PLIM__YAML_FEATURES 16
#define PLIM__YAML_ARRAYS 4

/* An array named in the file; missing fields are empty strings. */
typedef struct plim__yaml_array {
    char domain[16];
    char name[64];
    char format[16];
    char path[PLIM__YAML_PATH];
} plim__yaml_array_t;

typedef struct plim__graphbolt {
    int64_t num_nodes; /* -1: not given */
    plim__yaml_array_t edges;
    int num_features;
    plim__yaml_array_t features[PLIM__YAML_FEATURES];
    int num_arrays[3]; /* of the sets train, validation, test of the first task */
    plim__yaml_array_t arrays[3][PLIM__YAML_ARRAYS];
} plim__graphbolt_t;

/*
 * Parses metadata.yaml. PLIM_ERR_DATA, with the line, for other files; PLIM_ERR_UNSUPPORTED for
 * several types of nodes or edges, a preprocessed graph, and YAML aliases; PLIM_ERR_NOMEM. libyaml
 * takes at most PLIM__YAML_MEMORY, which the caller reserves. Thread-safe.
 */
plim_status_t plim__graphbolt_parse(const char *name, const void *data, size_t size,
                                    plim__graphbolt_t *graphbolt_out);

#endif
