/* GraphBolt's metadata.yaml: what is accepted fits its bounds. */
#include "fuzz.h"
#include "ingest/graphbolt_yaml.h"

#include <string.h>

static void check_array(const plim__yaml_array_t *array)
{
    FUZZ_ASSERT(memchr(array->domain, '\0', sizeof array->domain) != NULL);
    FUZZ_ASSERT(memchr(array->name, '\0', sizeof array->name) != NULL);
    FUZZ_ASSERT(memchr(array->format, '\0', sizeof array->format) != NULL);
    FUZZ_ASSERT(memchr(array->path, '\0', sizeof array->path) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static plim__graphbolt_t graphbolt;
    if (plim__graphbolt_parse("fuzz.yaml", data, size, &graphbolt) != PLIM_OK)
        return 0;
    FUZZ_ASSERT(graphbolt.num_nodes >= -1);
    check_array(&graphbolt.edges);
    FUZZ_ASSERT(graphbolt.num_features >= 0 && graphbolt.num_features <= PLIM__YAML_FEATURES);
    for (int i = 0; i < graphbolt.num_features; i++)
        check_array(&graphbolt.features[i]);
    for (int set = 0; set < 3; set++) {
        FUZZ_ASSERT(graphbolt.num_arrays[set] >= 0 &&
                    graphbolt.num_arrays[set] <= PLIM__YAML_ARRAYS);
        for (int i = 0; i < graphbolt.num_arrays[set]; i++)
            check_array(&graphbolt.arrays[set][i]);
    }
    return 0;
}
