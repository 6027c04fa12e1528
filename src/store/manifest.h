/*
 * dataset.json in memory: what it says, whether that makes sense, and both ways between it and
 * text. docs/format.md is the format's description for others.
 */
#ifndef PLIM_STORE_MANIFEST_H
#define PLIM_STORE_MANIFEST_H

#include "io/npy.h"
#include "io/writer.h"
#include "mem/arena.h"

#include <plimsoll/dataset.h>

#define PLIM__FORMAT 1 /* the version written, and the newest that can be read */
#define PLIM__MANIFEST_NAME "dataset.json"
#define PLIM__MANIFEST_BYTES ((size_t)64 << 20) /* of dataset.json at most */
#define PLIM__FILES_MAX 32

/* One array. `name` is a file name, without any directory. */
typedef struct plim__manifest_file {
    char name[48];
    plim__dtype_t type;
    int num_dims;
    int64_t shape[PLIM__NPY_DIMS];
    int64_t bytes; /* of the file, its header included */
    int64_t num_checksums;
    const uint64_t *checksums; /* (num_checksums), one for PLIM__CHECKSUM_BYTES of the file each */
} plim__manifest_file_t;

typedef struct plim__manifest {
    plim_dataset_info_t info;
    int64_t degrees[PLIM_DEGREE_BUCKETS];
    int64_t reach;      /* of a dataset without files: nodes among which training nodes find
                           their neighbours; 0: all */
    const char *source; /* provenance */
    const char *options;
    const char *version;
    int num_files;
    plim__manifest_file_t files[PLIM__FILES_MAX]; /* ascending by name */
} plim__manifest_t;

/* NULL when there is none of that name ("indptr.npy"). */
const plim__manifest_file_t *plim__manifest_find(const plim__manifest_t *manifest,
                                                 const char *name);

/* True for a name that may stand in a manifest: [a-z0-9_]+.npy, so never a path. */
bool plim__manifest_name_valid(const char *name);

/* Brings the files into the manifest's order. */
void plim__manifest_sort(plim__manifest_t *manifest);

/* Elements, by its shape; false when that overflows or is negative. */
bool plim__manifest_count(const plim__manifest_file_t *file, int64_t *count_out);

/*
 * Takes the counts and types that follow from the files' types and shapes into the info, and checks
 * all rules of the format that can be checked without the files' contents: PLIM_ERR_DATA, `name` in
 * front. num_nodes, num_graphs, num_classes, max_degree and feature_error are taken as given.
 */
plim_status_t plim__manifest_settle(plim__manifest_t *manifest, const char *name);

/* The same for files that are not there: their sizes follow from types and shapes, and there are no
 * checksums. */
plim_status_t plim__manifest_from_shape(plim__manifest_t *manifest, const char *name);

/* Hexadecimal of the hash of every file's name, type, shape, size and checksums. */
void plim__manifest_fingerprint(const plim__manifest_t *manifest, char fingerprint_out[17]);

/*
 * Reads dataset.json's text. Unknown keys are passed over; a file that needs a newer reader is
 * PLIM_ERR_UNSUPPORTED; anything else that is wrong is PLIM_ERR_DATA, with `name` in front. The
 * manifest lies in `arena_out`, a new one in the account "dataset"; while parsing, what jansson
 * takes is reserved in "json", reckoned from the text. The seal is not looked at.
 */
plim_status_t plim__manifest_parse(const plim_job_t *job, const char *text, size_t size,
                                   const char *name, plim__arena_t *arena_out,
                                   plim__manifest_t **manifest_out);

/* PLIM_ERR_DATA when any byte of the text is not the one that was sealed. */
plim_status_t plim__manifest_check_seal(const char *text, size_t size, const char *name);

/*
 * dataset.json's text, sealed, at the start of `arena_out`, a new one in the account "dataset
 * writer"; jansson's share as above.
 */
plim_status_t plim__manifest_render(const plim_job_t *job, const plim__manifest_t *manifest,
                                    plim__arena_t *arena_out, const char **text_out,
                                    size_t *size_out);

/* The bucket of a degree, ≥ 0: 0 for none, else one more than its binary logarithm, rounded down.
 */
static inline int plim__degree_bucket(int64_t degree)
{
    return degree == 0 ? 0 : 64 - __builtin_clzll((unsigned long long)degree);
}

#endif
