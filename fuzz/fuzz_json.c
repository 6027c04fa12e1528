/* dataset.json: what is accepted can be rendered, and reads back as the same dataset. */
#include "fuzz.h"
#include "store/manifest.h"

#include <string.h>

static void check_round_trip(const plim__manifest_t *manifest)
{
    plim__arena_t text_arena, again_arena;
    plim__manifest_t *again;
    const char *text;
    size_t size;
    char before[17], after[17];
    FUZZ_ASSERT(plim__manifest_render(fuzz_job(), manifest, &text_arena, &text, &size) == PLIM_OK);
    FUZZ_ASSERT(plim__manifest_check_seal(text, size, "again") == PLIM_OK);
    FUZZ_ASSERT(plim__manifest_parse(fuzz_job(), text, size, "again", &again_arena, &again) ==
                PLIM_OK);
    plim__manifest_fingerprint(manifest, before);
    plim__manifest_fingerprint(again, after);
    FUZZ_ASSERT(strcmp(before, after) == 0);
    plim__arena_destroy(&again_arena);
    plim__arena_destroy(&text_arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    plim__arena_t arena;
    plim__manifest_t *manifest;
    if (plim__manifest_parse(fuzz_job(), (const char *)data, size, "fuzz", &arena, &manifest) ==
        PLIM_OK) {
        check_round_trip(manifest);
        plim__arena_destroy(&arena);
    }
    fuzz_check_ledger();
    return 0;
}
