/* Disk space: reckoned, said, and refused before anything is written. */
#include "ingest/import.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "io/file.h"
#include "mem/size_text.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#define MIB ((int64_t)1 << 20)
#define UNKNOWN_MAX ((int64_t)1 << 60)

static int64_t times(int64_t count, int64_t bytes)
{
    int64_t product;
    return count > 0 && plim__mul_i64(count, bytes, &product) && product < UNKNOWN_MAX ? product
           : count > 0                                                                 ? UNKNOWN_MAX
                                                                                       : 0;
}

static int64_t dataset_bytes(const plim__import_t *import, const plim__import_needs_t *needs)
{
    int64_t index_bytes = needs->num_nodes <= INT32_MAX ? 4 : 8;
    int64_t edges = times(needs->num_edges, import->options->symmetrise ? 2 : 1);
    if (import->options->self_loops == PLIM_SELF_LOOPS_ADD)
        edges += needs->num_nodes > 0 ? needs->num_nodes : 0;
    return times(needs->num_nodes, 8) + times(edges, index_bytes) + times(needs->feature_bytes, 1) +
           times(needs->label_rows, 8) + times(needs->other_bytes, 1) + MIB;
}

/* What waits aside goes as the build's spill grows, so that the larger of the two counts. */
static int64_t spill_bytes(const plim__import_t *import, const plim__import_needs_t *needs)
{
    int64_t edges = needs->num_edges > 0 ? needs->num_edges : 0;
    int64_t nodes = needs->num_nodes > 0 ? needs->num_nodes : 1;
    int64_t width = needs->num_nodes > (int64_t)1 << 32 ? 8 : 4;
    int64_t waiting = times(edges, width) * (needs->edges_wait ? 2 : needs->sources_wait ? 1 : 0);
    int64_t building = plim__import_csc_spill(import, nodes, edges);
    return plim__max_i64(waiting, building) + MIB;
}

plim_status_t plim__import_refuse_memory(const plim__import_t *import, const char *what,
                                         int64_t bytes)
{
    char line[PLIM__SIZE_TEXT];
    /* Whole MiB, and one to spare: the process itself differs by some pages from run to run. */
    int64_t least = (plim_ledger_reserved(import->job->ledger) + bytes) / MIB + 2;
    return plim__fail(PLIM_ERR_BUDGET,
                      "%s: %s needs at least %" PRId64
                      " MiB in all, and the memory line is %s; give "
                      "--memory %" PRId64 "M or more",
                      import->options->source, what, least,
                      plim__size_text(plim_ledger_line(import->job->ledger), line), least);
}

static plim_status_t refuse(const char *what, const char *path, int64_t needed, int64_t free_bytes)
{
    char need[PLIM__SIZE_TEXT], have[PLIM__SIZE_TEXT];
    return plim__fail(PLIM_ERR_SPACE,
                      "%s in %s needs %s of disk, %s are free; free some, or choose another disk "
                      "for the target or, with --tmp DIR, for temporary files",
                      what, path, plim__size_text(needed, need), plim__size_text(free_bytes, have));
}

static void warn_of_memory(const plim__import_t *import, const char *path)
{
    plim__file_system_t system;
    if (plim__file_system(path, &system) == PLIM_OK && system.memory)
        plim__log(import->job, PLIM_LOG_WARNING,
                  "%s is on %s: what is written there counts as memory of this job", path,
                  system.name);
}

plim_status_t plim__import_plan(plim__import_t *import, const plim__import_needs_t *needs)
{
    char dataset_text[PLIM__SIZE_TEXT], spill_text[PLIM__SIZE_TEXT];
    char target_free_text[PLIM__SIZE_TEXT], tmp_free_text[PLIM__SIZE_TEXT];
    int64_t dataset = dataset_bytes(import, needs), spill = spill_bytes(import, needs);
    int64_t target_free, tmp_free;
    struct stat target_status, tmp_status;
    if (stat(import->parent, &target_status) != 0)
        return plim__fail_errno(errno, "%s", import->parent);
    if (stat(import->tmp, &tmp_status) != 0)
        return plim__fail_errno(errno, "%s", import->tmp);
    PLIM_TRY(plim__file_space(import->parent, &target_free));
    PLIM_TRY(plim__file_space(import->tmp, &tmp_free));
    bool exact = needs->num_nodes >= 0 && needs->num_edges >= 0 && needs->feature_bytes >= 0;
    plim__log(import->job, PLIM_LOG_INFO,
              "disk: %s%s for the dataset in %s (%s free), %s%s for temporary files in %s (%s "
              "free)",
              exact ? "" : "at least ", plim__size_text(dataset, dataset_text), import->parent,
              plim__size_text(target_free, target_free_text), exact ? "" : "at least ",
              plim__size_text(spill, spill_text), import->tmp,
              plim__size_text(tmp_free, tmp_free_text));
    warn_of_memory(import, import->parent);
    if (strcmp(import->parent, import->tmp) != 0)
        warn_of_memory(import, import->tmp);
    if (target_status.st_dev == tmp_status.st_dev)
        return dataset + spill > target_free ? refuse("the dataset with its temporary files",
                                                      import->parent, dataset + spill, target_free)
                                             : PLIM_OK;
    if (dataset > target_free)
        return refuse("the dataset", import->parent, dataset, target_free);
    return spill > tmp_free ? refuse("the spill of edges", import->tmp, spill, tmp_free) : PLIM_OK;
}
