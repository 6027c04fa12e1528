/*
 * A SciPy matrix as scipy.sparse.save_npz writes it, whose entry (i, j) is an edge from i to j, as
 * torch_geometric.utils.from_scipy_sparse_matrix reads it:
 *
 *     csr, csc:  indices.npy, indptr.npy, format.npy ("csr"), shape.npy, data.npy
 *     coo:       row.npy, col.npy, format.npy, shape.npy, data.npy
 *
 * An archive is read forward only, and the format comes after the indices: both arrays are spooled.
 */
#include "ingest/import.h"

#include "base/fail.h"
#include "base/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const parts[] = {"indptr.npy", "indices.npy", "row.npy",
                                    "col.npy",    "format.npy",  "shape.npy"};

enum { PART_INDPTR, PART_INDICES, PART_ROW, PART_COL, PART_FORMAT, PART_SHAPE, NUM_PARTS };

static int part_of(const char *member)
{
    const char *slash = strrchr(member, '/');
    int part = 0;
    while (part < NUM_PARTS && strcmp(slash != NULL ? slash + 1 : member, parts[part]) != 0)
        part++;
    return part;
}

bool plim__import_sparse_is(const char *member)
{
    return part_of(member) < NUM_PARTS;
}

/* Reads the text of a 0-dimensional array of bytes, which plim__npy_read does not take. */
static plim_status_t take_format(plim__import_t *import, plim__reader_t *reader)
{
    unsigned char bytes[512];
    size_t got;
    PLIM_TRY(plim__reader_read_some(reader, bytes, sizeof bytes, &got));
    const size_t begin = got < 10 ? got : 10 + ((size_t)bytes[8] | (size_t)bytes[9] << 8);
    if (got == sizeof bytes || got < begin || got - begin != 3 ||
        memcmp(bytes, "\x93NUMPY", 6) != 0)
        return plim__fail(PLIM_ERR_DATA,
                          "%s is not the format of a SciPy matrix, such as csr; save the matrix "
                          "with scipy.sparse.save_npz",
                          reader->name);
    memcpy(import->sparse_format, bytes + begin, 3);
    return PLIM_OK;
}

static plim_status_t take_shape(plim__import_t *import, plim__reader_t *reader)
{
    plim__npy_t npy;
    plim__ids_npy_t ids;
    int64_t shape[2], got;
    PLIM_TRY(plim__npy_read(reader, &npy));
    PLIM_TRY(plim__ids_npy_open(&ids, reader, npy.type, npy.count));
    if (npy.count != 2)
        return plim__fail(PLIM_ERR_DATA, "%s has %" PRId64 " numbers instead of 2", reader->name,
                          npy.count);
    PLIM_TRY(ids.ids.read(&ids.ids, shape, 2, &got));
    if (shape[0] != shape[1])
        return plim__fail(PLIM_ERR_DATA,
                          "%s: the matrix is %" PRId64 " x %" PRId64
                          "; that of a graph has a row and a column for each node",
                          reader->name, shape[0], shape[1]);
    PLIM_TRY(plim__import_agree(&import->nodes, "nodes", shape[0], reader->name));
    return plim__reader_end(reader);
}

static plim_status_t take_ids(plim__import_t *import, plim__id_spool_t *spool,
                              plim__reader_t *reader)
{
    plim__npy_t npy;
    plim__ids_npy_t ids;
    if (spool->file != NULL)
        return plim__fail(PLIM_ERR_DATA, "%s: the archive has several matrices; keep one",
                          reader->name);
    PLIM_TRY(plim__npy_read(reader, &npy));
    if (npy.num_dims != 1)
        return plim__fail(PLIM_ERR_DATA, "%s must have one dimension", reader->name);
    PLIM_TRY(plim__ids_npy_open(&ids, reader, npy.type, npy.count));
    PLIM_TRY(plim__import_spool_ids(import, &ids.ids, NULL, npy.count, spool));
    return plim__reader_end(reader);
}

plim_status_t plim__import_sparse(plim__import_t *import, const char *member,
                                  plim__reader_t *reader)
{
    const int part = part_of(member);
    if (part == PART_FORMAT)
        return take_format(import, reader);
    if (part == PART_SHAPE)
        return take_shape(import, reader);
    import->sparse_pairs = part == PART_ROW || part == PART_COL;
    return take_ids(import, &import->sparse[part == PART_INDICES || part == PART_COL], reader);
}

/* Edges with source and destination exchanged. */
typedef struct turned {
    plim__edge_source_t edges;
    plim__edge_source_t *inner;
} turned_t;

static plim_status_t turned_read(plim__edge_source_t *edges, int64_t *source, int64_t *destination,
                                 int64_t capacity, int64_t *got_out)
{
    plim__edge_source_t *inner = ((turned_t *)edges)->inner;
    const plim_status_t status = inner->read(inner, destination, source, capacity, got_out);
    edges->position = inner->position;
    return status;
}

static plim_status_t build(plim__import_t *import)
{
    plim__id_spool_t *first = &import->sparse[0], *second = &import->sparse[1];
    plim__edges_pairs_t pairs;
    plim__edges_csc_t csc;
    turned_t turned;
    plim__edge_source_t *edges = &pairs.edges;
    PLIM_TRY(plim__id_spool_rewind(first, true));
    PLIM_TRY(plim__id_spool_rewind(second, true));
    if (import->sparse_pairs) {
        plim__edges_pairs_open(&pairs, &first->ids, &second->ids);
    } else {
        PLIM_TRY(plim__import_agree(&import->nodes, "nodes", first->count - 1, first->ids.name));
        plim__edges_csc_open(&csc, &first->ids, &second->ids, second->count);
        edges = &csc.edges;
    }
    if (strcmp(import->sparse_format, "csr") == 0) {
        turned = (turned_t){.edges = *edges, .inner = edges};
        turned.edges.read = turned_read;
        edges = &turned.edges;
    }
    import->nodes_ready = import->nodes.value >= 0;
    plim__import_needs_t needs = {.num_nodes = import->nodes.value,
                                  .num_edges = second->count,
                                  .what = "for the graph",
                                  .edges_wait = !import->nodes_ready};
    PLIM_TRY(plim__import_plan(import, &needs));
    return plim__import_edges(import, edges, second->count);
}

plim_status_t plim__import_sparse_finish(plim__import_t *import)
{
    plim__id_spool_t *first = &import->sparse[0], *second = &import->sparse[1];
    const char *format = import->sparse_format;
    const bool pairs = import->sparse_pairs;
    if (format[0] != '\0' && strcmp(format, "csr") != 0 && strcmp(format, "csc") != 0 &&
        strcmp(format, "coo") != 0)
        return plim__fail(PLIM_ERR_DATA,
                          "%s: the SciPy matrix has the format %.3s; csr, csc and coo are "
                          "supported: scipy.sparse.save_npz(path, matrix.tocsr())",
                          import->options->source, format);
    if (first->file == NULL && second->file == NULL)
        return PLIM_OK;
    if (first->file == NULL || second->file == NULL ||
        (format[0] != '\0' && pairs != (strcmp(format, "coo") == 0)))
        return plim__fail(PLIM_ERR_DATA,
                          "%s: a part of the matrix is missing: csr and csc have indptr and "
                          "indices, coo has row and col",
                          import->options->source);
    PLIM_TRY(build(import));
    plim__id_spool_destroy(first);
    plim__id_spool_destroy(second);
    return PLIM_OK;
}
