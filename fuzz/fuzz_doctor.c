/* Any bytes as the texts of a job: the verdict is valid JSON without control characters. */
#include "doctor/verdict.h"
#include "fuzz.h"

#include <jansson.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    doctor_t *doctor;
    FUZZ_ASSERT(doctor_create(fuzz_job(), &doctor) == PLIM_OK);
    /* The first byte cuts the rest in two sources, the second one a script. */
    const size_t first = size > 0 ? size * data[0] / 256 : 0;
    doctor_source(doctor, "log", false);
    doctor_log_bytes(doctor, (const char *)data, first);
    doctor_log_end(doctor);
    doctor_source(doctor, "train.py", true);
    doctor_log_bytes(doctor, (const char *)data + first, size - first);
    doctor_log_end(doctor);
    (void)doctor_verdict(doctor);
    json_t *object = doctor_verdict_json(doctor);
    char *json = json_dumps(object, JSON_COMPACT);
    FUZZ_ASSERT(json != NULL);
    for (const char *at = json; *at != '\0'; at++)
        FUZZ_ASSERT((unsigned char)*at >= 0x20 && *at != 0x7f);
    free(json);
    json_decref(object);
    doctor_destroy(doctor);
    fuzz_check_ledger();
    return 0;
}
