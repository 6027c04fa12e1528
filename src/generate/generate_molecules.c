#include "generate/generate_molecules.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/rng.h"
#include "generate/generate_shape.h"

#include <string.h>

#define GRAPHS 100000 /* at scale 1 */
#define MAX_SCALE 800 /* ids of 32 bits */
#define MIN_ATOMS 8
#define MAX_ATOMS 24
#define MAX_EDGES ((int64_t)4 * MAX_ATOMS)
#define NEAR 3 /* an atom is bound to one of this many atoms before it */
#define RING 5 /* a bond that closes a ring goes this many atoms back */
#define RING_SHARE 0.2
#define ELEMENTS 8
#define CHARGES 3
#define KINDS 4
#define ATOM_COLUMNS 2
#define BOND_COLUMNS 2
/* Shares of bonds, atoms and noise in the deviation of the value. */
#define BOND_SHARE 0.8
#define ATOM_SHARE 0.4
#define NOISE_SHARE 0.2
#define BUFFER ((size_t)64 << 10)

enum { INDPTR, INDICES, GRAPHS_AT, ATOMS, BONDS, LABELS, SPLITS, COLUMNS = SPLITS + 3 };

static const struct {
    const char *name;
    plim__dtype_t type;
    int num_dims, columns;
    int64_t most; /* bytes of a graph */
} columns[COLUMNS] = {
    [INDPTR] = {"indptr", PLIM__NPY_I64, 1, 1, (int64_t)MAX_ATOMS * 8},
    [INDICES] = {"indices", PLIM__NPY_I32, 1, 1, MAX_EDGES * 4},
    [GRAPHS_AT] = {"graph_indptr", PLIM__NPY_I64, 1, 1, 8},
    [ATOMS] = {"features", PLIM__NPY_I64, 2, ATOM_COLUMNS, (int64_t)MAX_ATOMS *ATOM_COLUMNS * 8},
    [BONDS] = {"edge_features", PLIM__NPY_I64, 2, BOND_COLUMNS, MAX_EDGES *BOND_COLUMNS * 8},
    [LABELS] = {"labels", PLIM__NPY_F32, 1, 1, 4},
    [SPLITS] = {"train", PLIM__NPY_I64, 1, 1, 8},
    [SPLITS + 1] = {"valid", PLIM__NPY_I64, 1, 1, 8},
    [SPLITS + 2] = {"test", PLIM__NPY_I64, 1, 1, 8},
};

typedef struct molecule {
    int64_t num_atoms;
    int64_t atoms[MAX_ATOMS][ATOM_COLUMNS];
    int8_t bond[MAX_ATOMS]
               [MAX_ATOMS]; /* 0: none, else 1 + kind + KINDS x whether it closes a ring */
    float value;
} molecule_t;

static int64_t num_graphs(const plim_generate_options_t *options)
{
    return plim__max_i64((int64_t)((double)GRAPHS * options->scale + 0.5), 10);
}

plim_status_t plim__molecules_bytes(const plim_generate_options_t *options, int64_t *bytes_out)
{
    int64_t each = 0;
    if (!(options->scale > 0) || options->scale > MAX_SCALE)
        return plim__fail(PLIM_ERR_USAGE,
                          "`scale` is %g; of molecules it must be above 0 and at "
                          "most %d",
                          options->scale, MAX_SCALE);
    if (options->num_nodes != 0 || options->num_edges != 0 || options->num_features != 0 ||
        options->num_classes != 0 || options->features != 0 || options->edge_columns != NULL ||
        options->spread != 0)
        return plim__fail(PLIM_ERR_USAGE, "molecules have a `scale` and a `seed` only");
    for (int i = 0; i < COLUMNS; i++)
        each += columns[i].most;
    *bytes_out = num_graphs(options) * each + (int64_t)(COLUMNS * PLIM__NPY_HEADER) + (64 << 10);
    return PLIM_OK;
}

/* A kind that is likelier the nearer it is to the molecule's own inclination, in [0, 1). */
static int64_t draw_kind(uint64_t key, uint64_t *counter, double inclination, int64_t kinds)
{
    const uint64_t which = plim__rng_below(key, counter, 2);
    const uint64_t even = plim__rng_below(key, counter, (uint64_t)kinds);
    return which == 0 ? (int64_t)even : (int64_t)(inclination * (double)kinds);
}

static void add_bond(molecule_t *molecule, int64_t one, int64_t other, int64_t kind, bool ring)
{
    molecule->bond[one][other] = molecule->bond[other][one] =
        (int8_t)(1 + kind + (ring ? KINDS : 0));
}

/* The value of kind k of K, between -1 and 1. */
static double effect(int64_t kind, int64_t kinds)
{
    return (double)(2 * kind - kinds + 1) / (double)(kinds - 1);
}

static void draw_molecule(uint64_t seed, int64_t graph, molecule_t *molecule)
{
    const uint64_t key = plim__rng_key(seed, PLIM__KEY_LIST, (uint64_t)graph, 0);
    const uint64_t traits = plim__rng_key(seed, PLIM__KEY_MEAN, (uint64_t)graph, 0);
    const double atoms = plim__rng_double(traits, 0), bonds = plim__rng_double(traits, 1);
    double noise = -6, of_atoms = 0, of_bonds = 0, count = 0;
    uint64_t counter = 0;
    memset(molecule, 0, sizeof *molecule);
    molecule->num_atoms =
        MIN_ATOMS + (int64_t)plim__rng_below(key, &counter, MAX_ATOMS - MIN_ATOMS + 1);
    for (int64_t i = 0; i < molecule->num_atoms; i++) {
        const int64_t element = draw_kind(key, &counter, atoms, ELEMENTS);
        molecule->atoms[i][0] = element;
        molecule->atoms[i][1] = (int64_t)plim__rng_below(key, &counter, CHARGES);
        of_atoms += effect(element, ELEMENTS) / (double)molecule->num_atoms;
        if (i == 0)
            continue;
        const int64_t back =
            1 + (int64_t)plim__rng_below(key, &counter, (uint64_t)plim__min_i64(i, NEAR));
        int64_t kind = draw_kind(key, &counter, bonds, KINDS);
        add_bond(molecule, i, i - back, kind, false);
        of_bonds += effect(kind, KINDS), count++;
        if (i < RING || plim__rng_below(key, &counter, 1000) >= (uint64_t)(1000 * RING_SHARE))
            continue;
        kind = draw_kind(key, &counter, bonds, KINDS);
        add_bond(molecule, i, i - RING, kind, true);
        of_bonds += effect(kind, KINDS), count++;
    }
    for (uint64_t i = 0; i < 12; i++) /* of deviation 1 */
        noise += plim__rng_double(traits, 2 + i);
    /* The means deviate by about a third. */
    molecule->value =
        (float)(3 * (BOND_SHARE * of_bonds / count + ATOM_SHARE * of_atoms) + NOISE_SHARE * noise);
}

/* The open columns, and counts of what was written to them. */
typedef struct molecule_writer {
    plim__column_t *columns[COLUMNS];
    uint64_t seed;
    int64_t nodes, edges;
} molecule_writer_t;

static plim_status_t write_atom(molecule_writer_t *to, const molecule_t *molecule, int64_t atom)
{
    for (int64_t other = 0; other < molecule->num_atoms; other++) {
        const int8_t bond = molecule->bond[atom][other];
        if (bond == 0)
            continue;
        const int32_t source = (int32_t)(to->nodes + other);
        const int64_t features[BOND_COLUMNS] = {(bond - 1) % KINDS, (bond - 1) / KINDS};
        PLIM_TRY(plim__column_write(to->columns[INDICES], &source, sizeof source));
        PLIM_TRY(plim__column_write(to->columns[BONDS], features, sizeof features));
        to->edges++;
    }
    PLIM_TRY(plim__column_write(to->columns[INDPTR], &to->edges, sizeof to->edges));
    return plim__column_write(to->columns[ATOMS], molecule->atoms[atom],
                              sizeof molecule->atoms[atom]);
}

/* Eight of ten graphs are for training, one for validation, one for the test. */
static plim_status_t write_split(molecule_writer_t *to, int64_t graph)
{
    const uint64_t drawn =
        plim__rng_u64(plim__rng_key(to->seed, PLIM__KEY_SPLIT, (uint64_t)graph, 0), 0) % 10;
    const int split = drawn < 8 ? 0 : drawn == 8 ? 1 : 2;
    return plim__column_write(to->columns[SPLITS + split], &graph, sizeof graph);
}

static plim_status_t write_all(const plim_job_t *job, int64_t graphs, molecule_writer_t *to)
{
    molecule_t molecule;
    PLIM_TRY(plim__column_write(to->columns[INDPTR], &to->edges, sizeof to->edges));
    PLIM_TRY(plim__column_write(to->columns[GRAPHS_AT], &to->nodes, sizeof to->nodes));
    for (int64_t graph = 0; graph < graphs; graph++) {
        draw_molecule(to->seed, graph, &molecule);
        for (int64_t atom = 0; atom < molecule.num_atoms; atom++)
            PLIM_TRY(write_atom(to, &molecule, atom));
        to->nodes += molecule.num_atoms;
        PLIM_TRY(plim__column_write(to->columns[GRAPHS_AT], &to->nodes, sizeof to->nodes));
        PLIM_TRY(plim__column_write(to->columns[LABELS], &molecule.value, sizeof molecule.value));
        PLIM_TRY(write_split(to, graph));
        if (graph % 1024 == 0) {
            PLIM_TRY(plim__job_check(job));
            plim__progress(job, "drawing molecules", "graphs", graph, graphs);
        }
    }
    return PLIM_OK;
}

plim_status_t plim__molecules_write(const plim_job_t *job, const plim_generate_options_t *options,
                                    plim__dataset_writer_t *writer,
                                    plim__dataset_facts_t *facts_out)
{
    const int64_t graphs = num_graphs(options);
    molecule_writer_t to = {.seed = options->seed};
    for (int i = 0; i < COLUMNS; i++) {
        const int64_t shape[2] = {-1, columns[i].columns};
        PLIM_TRY(plim__column_open(writer, columns[i].name, columns[i].type, columns[i].num_dims,
                                   shape, (graphs + 1) * columns[i].most, BUFFER, &to.columns[i]));
    }
    PLIM_TRY(write_all(job, graphs, &to));
    for (int i = 0; i < COLUMNS; i++)
        PLIM_TRY(plim__column_close(to.columns[i]));
    *facts_out = (plim__dataset_facts_t){.num_nodes = to.nodes, .num_graphs = graphs};
    return PLIM_OK;
}
