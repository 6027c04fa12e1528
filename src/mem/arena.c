#include "mem/arena.h"

#include "base/check.h"
#include "base/fail.h"
#include "mem/ledger.h"
#include "mem/size_text.h"

#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* AddressSanitizer checks arenas too: padding between objects and space not carved yet are
 * poisoned. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PLIM_ASAN
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define PLIM_ASAN
#endif
#ifdef PLIM_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

#define HUGE_PAGE ((size_t)2 << 20)

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18 /* Linux 4.14 */
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

void *plim__map_own(size_t size)
{
    void *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base != MAP_FAILED)
        (void)madvise(base, size, MADV_WIPEONFORK);
    return base;
}

/* Maps memory. Large blocks are aligned to huge pages; the slack around them is unmapped. */
static void *map(size_t size)
{
    const size_t slack = size >= HUGE_PAGE ? HUGE_PAGE : 0;
    char *base = plim__map_own(size + slack);
    if (base == MAP_FAILED || slack == 0)
        return base;
    const size_t before = plim__round_up((uintptr_t)base, HUGE_PAGE) - (uintptr_t)base;
    if (before > 0)
        (void)munmap(base, before);
    if (before < slack)
        (void)munmap(base + before + size, slack - before);
    return base + before;
}

plim_status_t plim__arena_create(plim_ledger_t *ledger, const char *name, size_t size,
                                 plim__arena_t *arena_out)
{
    int account;
    size = plim__round_up(size, PLIM__PAGE);
    PLIM_TRY(plim__ledger_reserve(ledger, name, size, &account));
    void *base = map(size);
    if (base == MAP_FAILED) {
        char text[PLIM__SIZE_TEXT];
        plim__ledger_release(ledger, account, size);
        return plim__fail(PLIM_ERR_NOMEM,
                          "the system refused %s for %s; check ulimit -v and what else runs here",
                          plim__size_text((int64_t)size, text), name);
    }
    /* Where huge pages are the default, touching one byte would make 2 MiB resident. */
    plim__arena_want_small(base, size);
    plim__ledger_enter(ledger, account, base, size);
    *arena_out = (plim__arena_t){ledger, account, base, size, 0};
    return PLIM_OK;
}

void plim__arena_destroy(plim__arena_t *arena)
{
    if (arena->base == NULL)
        return;
    plim__arena_t last = *arena; /* the arena may live inside itself */
    ASAN_UNPOISON_MEMORY_REGION(last.base, last.size);
    plim__ledger_leave(last.ledger, last.account, last.base);
    (void)munmap(last.base, last.size);
    plim__ledger_release(last.ledger, last.account, last.size);
}

plim__arena_t plim__arena_counting(void)
{
    return (plim__arena_t){.base = NULL};
}

void *plim__arena_carve(plim__arena_t *arena, size_t count, size_t size, size_t align)
{
    const size_t start = plim__round_up(arena->used, align < PLIM__LINE ? PLIM__LINE : align);
    const size_t bytes = plim__mul_saturating_size(count, size);
    if (arena->used == 0 && arena->base != NULL)
        ASAN_POISON_MEMORY_REGION(arena->base, arena->size);
    arena->used = plim__add_saturating_size(start, bytes);
    if (arena->base == NULL || arena->used > arena->size)
        return NULL;
    ASAN_UNPOISON_MEMORY_REGION(arena->base + start, bytes);
    return arena->base + start;
}

plim_status_t plim__arena_check(const plim__arena_t *arena)
{
    if (arena->used <= arena->size)
        return PLIM_OK;
    return plim__fail(PLIM_ERR_BUDGET,
                      "internal error: an object of %zu bytes was laid out in an arena of %zu; "
                      "please report this",
                      arena->used, arena->size);
}

size_t plim__object_bytes(plim__lay_out_fn lay_out, void *draft, size_t size)
{
    plim__arena_t arena = plim__arena_counting();
    (void)plim__arena_carve(&arena, 1, size, 1);
    lay_out(&arena, draft);
    return plim__round_up(arena.used, PLIM__PAGE);
}

plim_status_t plim__object_create(plim_ledger_t *ledger, const char *name, plim__lay_out_fn lay_out,
                                  void *draft, size_t size, plim__arena_t *arena, void *object_out)
{
    PLIM_TRY(plim__arena_create(ledger, name, plim__object_bytes(lay_out, draft, size), arena));
    plim__arena_t made = *arena; /* it lies in the draft, which lay_out may write */
    void *object = plim__arena_carve(&made, 1, size, 1);
    lay_out(&made, draft);
    const plim_status_t status = plim__arena_check(&made);
    if (status != PLIM_OK) {
        plim__arena_destroy(&made);
        return status;
    }
    *arena = made;
    memcpy(object, draft, size);
    memcpy(object_out, &object, sizeof object);
    return PLIM_OK;
}

size_t plim__arena_carve_bytes(size_t count, size_t size, size_t align)
{
    size_t bytes, sum;
    if (!plim__mul_size(count, size, &bytes) ||
        !plim__add_size(bytes, align < PLIM__LINE ? PLIM__LINE : align, &sum))
        return SIZE_MAX;
    return sum;
}

void plim__arena_want_huge(void *base, size_t size)
{
    (void)madvise(base, size, MADV_HUGEPAGE);
}

/* Bytes between the objects are poisoned, and touched all the same. */
__attribute__((no_sanitize("address"))) void plim__arena_touch(const plim__arena_t *arena)
{
    if (madvise(arena->base, arena->size, MADV_POPULATE_WRITE) == 0)
        return;
    /* Writes each page's first byte unchanged: the compiler must not leave that out. */
    for (size_t at = 0; at < arena->size; at += PLIM__PAGE) {
        volatile char *byte = arena->base + at;
        *byte = *byte;
    }
}

void plim__arena_want_small(void *base, size_t size)
{
    (void)madvise(base, size, MADV_NOHUGEPAGE);
}

/* The kernel's page: a multiple of PLIM__PAGE (64 KiB on some machines). */
static size_t kernel_page(void)
{
    const long bytes = sysconf(_SC_PAGESIZE);
    return bytes > (long)PLIM__PAGE ? (size_t)bytes : PLIM__PAGE;
}

/* Advises the whole pages that lie in [base, base + size). */
static void advise_inside(char *base, size_t size, int advice)
{
    const size_t page = kernel_page();
    uintptr_t first = plim__round_up((uintptr_t)base, page);
    uintptr_t end = ((uintptr_t)base + size) & ~(page - 1);
    if (first < end)
        (void)madvise(base + (first - (uintptr_t)base), end - first, advice);
}

void plim__arena_may_drop(void *base, size_t size)
{
    advise_inside(base, size, MADV_FREE);
}

void plim__arena_drop(void *base, size_t size)
{
    advise_inside(base, size, MADV_DONTNEED);
}

bool plim__arena_resident(const void *base, size_t size, unsigned char *pages_out)
{
    const size_t page = kernel_page();
    if (page == PLIM__PAGE)
        return mincore((void *)(uintptr_t)base, size, pages_out) == 0;
    for (size_t at = 0; at < size; at += PLIM__PAGE) {
        const uintptr_t place = ((uintptr_t)base + at) & ~(page - 1);
        if (mincore((void *)place, page, &pages_out[at / PLIM__PAGE]) != 0)
            return false;
    }
    return true;
}
