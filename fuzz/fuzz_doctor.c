/* Any bytes as the texts of a job: the verdict is valid JSON without control characters. */
#include "doctor/verdict.h"
#include "fuzz.h"

#include <jansson.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char json[PLIM_DOCTOR_JSON_MAX];
    plim_doctor_t *doctor;
    FUZZ_ASSERT(plim_doctor_create(fuzz_job(), &doctor) == PLIM_OK);
    /* The first byte cuts the rest in two sources, the second one a script. */
    const size_t first = size > 0 ? size * data[0] / 256 : 0;
    plim__doctor_source(doctor, "log");
    plim__log_bytes(doctor, (const char *)data, first);
    plim__log_end(doctor);
    plim__doctor_source(doctor, "train.py");
    plim__log_bytes(doctor, (const char *)data + first, size - first);
    plim__log_end(doctor);
    FUZZ_ASSERT(plim_doctor_verdict(doctor, json, sizeof json) == PLIM_OK);
    for (const char *at = json; *at != '\0'; at++)
        FUZZ_ASSERT((unsigned char)*at >= 0x20 && *at != 0x7f);
    json_t *object = json_loads(json, 0, NULL);
    FUZZ_ASSERT(object != NULL);
    json_decref(object);
    plim_doctor_destroy(doctor);
    fuzz_check_ledger();
    return 0;
}
