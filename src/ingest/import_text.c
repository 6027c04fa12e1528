/*
 * A text of edges: two integers a line, separated by commas, tabs or spaces; further columns are
 * those that its heading names (import_columns.c). '#' and '%' begin comments; a heading is
 * skipped; gzip or zstd. Without --nodes the maximum id gives the number of nodes; with --relabel
 * ids are names.
 */
#include "ingest/import.h"

#include "base/fail.h"
#include "ingest/import_files.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* The number of edges is known after reading all; then the import is planned again. */
static plim_status_t plan(plim__import_t *import, bool compressed)
{
    int64_t bytes = plim__files_size(import->options->source);
    plim__import_needs_t needs = {.num_nodes = import->nodes.value,
                                  .num_edges = plim__import_guess_edges(bytes, compressed),
                                  .what = "guessed from the text's size",
                                  .guessed = true,
                                  .names_wait = import->options->relabel,
                                  .edges_wait = true};
    return plim__import_plan(import, &needs);
}

static plim_status_t run(plim__import_t *import)
{
    plim__reader_t *reader;
    plim__text_t *text;
    const char *path = import->options->source;
    PLIM_TRY(plim__import_headed_columns(import, path));
    PLIM_TRY(plim__import_open(import, path, &reader));
    plim_status_t status = plan(import, reader->size < 0);
    if (status != PLIM_OK) {
        plim__reader_close(reader);
        return status;
    }
    if (import->options->relabel) {
        bool named = false;
        plim__reader_close(reader);
        PLIM_TRY(plim__import_is_named(import, path, &named));
        if (named)
            return plim__import_named_text(import, path);
        PLIM_TRY(plim__import_open(import, path, &reader));
    }
    PLIM_TRY(plim__import_text(import, reader, &text));
    status = plim__import_edges_text(import, text, path, -1);
    plim__text_close(text);
    if (status == PLIM_OK && import->options->relabel)
        status = plim__import_relabel(import);
    return status;
}

static bool recognise(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

const plim__importer_t plim__importer_text = {"text of edges", recognise, run};
