#include "support/wrapped.h"

#include "load/governor.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>

void *__real_mmap(void *address, size_t size, int protection, int flags, int file, off_t offset);
void *__wrap_mmap(void *address, size_t size, int protection, int flags, int file, off_t offset);
bool __real_plim__governor_look(plim__governor_t *governor, plim__load_context_t *context);
bool __wrap_plim__governor_look(plim__governor_t *governor, plim__load_context_t *context);
plim__vector_path_t __real_plim__vector_path(void);
plim__vector_path_t __wrap_plim__vector_path(void);

static atomic_int map_countdown, squeeze_countdown;
static atomic_int vector_limit = PLIM__VECTOR_AVX512;

/* True for the one call that a test chose. */
static bool is_chosen(atomic_int *countdown)
{
    return atomic_load(countdown) > 0 && atomic_fetch_sub(countdown, 1) == 1;
}

void test_map_fail_at(int n)
{
    atomic_store(&map_countdown, n);
}

int test_map_fail_pending(void)
{
    return atomic_load(&map_countdown);
}

void *__wrap_mmap(void *address, size_t size, int protection, int flags, int file, off_t offset)
{
    if ((flags & MAP_ANONYMOUS) != 0 && is_chosen(&map_countdown)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return __real_mmap(address, size, protection, flags, file, offset);
}

void test_squeeze_at(int n)
{
    atomic_store(&squeeze_countdown, n);
}

bool __wrap_plim__governor_look(plim__governor_t *governor, plim__load_context_t *context)
{
    if (!is_chosen(&squeeze_countdown))
        return __real_plim__governor_look(governor, context);
    governor->tight = true;
    return false;
}

void test_vector_limit(plim__vector_path_t most)
{
    atomic_store(&vector_limit, (int)most);
}

plim__vector_path_t __wrap_plim__vector_path(void)
{
    const plim__vector_path_t most = (plim__vector_path_t)atomic_load(&vector_limit);
    const plim__vector_path_t path = __real_plim__vector_path();
    return path < most ? path : most;
}
