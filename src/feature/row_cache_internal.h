/* The inside of hot rows, for the files that make them. */
#ifndef PLIM_FEATURE_ROW_CACHE_INTERNAL_H
#define PLIM_FEATURE_ROW_CACHE_INTERNAL_H

#include "feature/row_cache.h"
#include "feature/row_form.h"
#include "io/bulk.h"
#include "io/reader.h"
#include "mem/arena.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

#define PLIM__ROW_CACHE_KEY UINT64_C(0x9ddfea08eb382d69)

/*
 * Of the pages, filled, written and checked as one. It is a huge page too, where the kernel has
 * them: rows at random cost half as much then. Such a page is dropped as a whole, or, where
 * something is asked of a part of it, split.
 */
#define PLIM__ROW_CACHE_CHUNK PLIM__BULK_CHUNK
#define PLIM__ROW_CACHE_CHUNK_PAGES ((int64_t)(PLIM__ROW_CACHE_CHUNK / PLIM__PAGE))

/* Pages in a row are refilled by reads of at most this. */
#define PLIM__ROW_CACHE_RUN ((size_t)64 << 10)

/* What reads rows into pages: belongs to one thread at a time. */
typedef struct plim__row_cache_filler {
    plim__arena_t arena;
    plim__reader_t *reader;
    plim__read_t *reads; /* (PLIM__ROW_CACHE_READS) */
    int64_t *nodes;      /* (PLIM__ROW_CACHE_READS) */
    int64_t num_reads;   /* collected so far */
} plim__row_cache_filler_t;

#define PLIM__ROW_CACHE_READS ((int64_t)4096)

struct plim__row_cache {
    plim__arena_t arena;
    plim_job_t job;
    plim__node_set_t nodes; /* its lines are borrowed */
    plim__row_form_t form;
    size_t stride;    /* bytes from row to row */
    int64_t num_rows; /* of the nodes of least rank */
    int64_t num_pages;
    char *pages; /* (num_pages x PLIM__PAGE) the rows; on the boundary of a huge page */
    /*
     * (num_pages) Odd: filled, as far as is known; even: lost, or being filled. Written by whoever
     * fills or refreshes, one thread for each page; it never returns to an earlier value, so who
     * finds it unchanged after a copy knows that the page was not filled anew meanwhile.
     */
    _Atomic uint32_t *states;
    _Atomic uint64_t *suspects;      /* (num_pages) bits: a mark was found to be zero */
    pthread_mutex_t lock;            /* of refreshes: see row_cache_refresh.c */
    _Atomic int64_t most_pages;      /* that may be kept now */
    _Atomic int64_t released_from;   /* pages from here on are given back; changes under the lock */
    unsigned char *resident;         /* (PLIM__ROW_CACHE_SCAN) */
    uint64_t *checksums;             /* (chunks) of the packed file */
    plim__file_t file;               /* features.npy */
    plim__file_t packed;             /* closed when there is none */
    plim__row_cache_filler_t filler; /* of refreshes */
    uint64_t set_hash;               /* of the set of nodes */
    uint64_t key;
    int64_t held;
    char fingerprint[17];
    char scratch[PATH_MAX];
    char packed_path[PATH_MAX];
};

#define PLIM__ROW_CACHE_SCAN ((int64_t)4096)

static inline int64_t plim__row_cache_num_chunks(const plim__row_cache_t *hot)
{
    return (hot->num_pages + PLIM__ROW_CACHE_CHUNK_PAGES - 1) / PLIM__ROW_CACHE_CHUNK_PAGES;
}

size_t plim__row_cache_filler_estimate(const plim_job_t *job, const plim__row_form_t *form);
plim_status_t plim__row_cache_filler_make(const plim_job_t *job, const plim__row_form_t *form,
                                          plim__row_cache_filler_t *filler_out);
void plim__row_cache_filler_end(plim__row_cache_filler_t *filler);

/* Around filling pages: huge ones are wanted meanwhile; then the kernel may take them all. */
void plim__row_cache_begin_filling(plim__row_cache_t *hot);
void plim__row_cache_end_filling(plim__row_cache_t *hot);

/*
 * Lets the kernel take these pages, and all others of their chunks: a huge page of which a part was
 * written is as good as written whole.
 */
void plim__row_cache_let_go(plim__row_cache_t *hot, int64_t first_page, int64_t end_page);

/*
 * Filling pages from features.npy: any number of ranges, ascending, are asked for;
 * plim__row_cache_settle then reads what is left and plim__row_cache_mark sets the marks of each
 * range.
 */
plim_status_t plim__row_cache_want(plim__row_cache_t *hot, plim__row_cache_filler_t *filler,
                                   int64_t first_page, int64_t num_pages);
plim_status_t plim__row_cache_settle(plim__row_cache_t *hot, plim__row_cache_filler_t *filler);
void plim__row_cache_mark(plim__row_cache_t *hot, int64_t first_page, int64_t num_pages);

/* All pages from features.npy, by the job's threads, into the packed file too where there is one.
 */
plim_status_t plim__row_cache_fill(plim__row_cache_t *hot);
size_t plim__row_cache_fill_estimate(const plim_job_t *job, const plim__row_form_t *form);

/* The packed file's name; false when it is too long. */
bool plim__row_cache_file_path(const char *scratch, const char *fingerprint, uint64_t key,
                               char path_out[PATH_MAX]);

/*
 * The packed file: an image of the pages, so that a later start reads them straight into place.
 *
 *     | header, 4 KiB | pages | XXH3 of each chunk |
 *
 * load: true when it was there, whole and of this very choice of rows, and all pages are filled;
 * what is wrong with it is logged. PLIM_ERR_STOPPED and the like are errors, a bad file is none.
 */
plim_status_t plim__row_cache_file_load(plim__row_cache_t *hot, bool *loaded_out);

/* Begins a new one, without a name yet; says so in the log where that is not possible. */
void plim__row_cache_file_begin(plim__row_cache_t *hot);

/* Writes one chunk; by any thread. PLIM_ERR_IO. */
plim_status_t plim__row_cache_file_put(plim__row_cache_t *hot, int64_t chunk);

/* Writes the rest and gives it its name. Where that fails the file still serves this run. */
void plim__row_cache_file_finish(plim__row_cache_t *hot);

/* Where a page lies in it. */
static inline int64_t plim__row_cache_file_offset(int64_t page)
{
    return (page + 1) * (int64_t)PLIM__PAGE;
}

#endif
