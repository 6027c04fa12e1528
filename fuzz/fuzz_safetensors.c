/* Safetensors: what is accepted describes the file's bytes exactly once, and every tensor reads. */
#include "fuzz.h"
#include "io/safetensors.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int64_t bytes_of(const plim__tensor_t *tensor)
{
    int64_t bytes = tensor->type == PLIM_F16 ? 2 : tensor->type == PLIM_I64 ? 8 : 4;
    for (int i = 0; i < tensor->num_dims; i++)
        bytes *= tensor->shape[i];
    return bytes;
}

static void read_all(plim__safetensors_t *file, size_t size)
{
    static char data[1 << 20];
    int64_t total = 0;
    for (int i = 0; i < plim__safetensors_count(file); i++) {
        plim__tensor_t tensor;
        plim__safetensors_describe(file, i, &tensor);
        FUZZ_ASSERT(tensor.name[0] != '\0' && tensor.num_dims <= 4);
        int64_t bytes = bytes_of(&tensor);
        total += bytes;
        FUZZ_ASSERT(bytes >= 0 && total <= (int64_t)size);
        tensor.data = data;
        FUZZ_ASSERT(bytes > (int64_t)sizeof data ||
                    plim__safetensors_read(file, &tensor) == PLIM_OK);
    }
    const char *note = plim__safetensors_note(file, "format");
    FUZZ_ASSERT(note == NULL || strlen(note) < size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    char path[64];
    plim__safetensors_t *file;
    if (fd < 0)
        fd = memfd_create("safetensors", 0);
    FUZZ_ASSERT(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (plim__safetensors_open(fuzz_job(), AT_FDCWD, path, &file) == PLIM_OK) {
        read_all(file, size);
        plim__safetensors_close(file);
    }
    fuzz_check_ledger();
    return 0;
}
