/*
 * Arenas: an address range reserved on the ledger and mapped once, carved from the front, never
 * grown.
 *
 *     ├ object ┤├ buffer ┤├ table ┤ … free … ┤
 *     0                            used      size
 *
 * Each large object is one allocation: it creates one arena, carves itself and all of its parts
 * from it, and destroys the arena when it ends. One function lays the object out; over a counting
 * arena the same function is the object's estimate.
 */
#ifndef PLIM_MEM_ARENA_H
#define PLIM_MEM_ARENA_H

#include "mem/ledger.h"

typedef struct plim__arena {
    plim_ledger_t *ledger;
    int account;
    char *base;
    size_t size;
    size_t used;
} plim__arena_t;

/* The unit of layouts and of file formats: the smallest page that a kernel has. Functions that
 * advise the kernel on whole pages use its own page size, which may be a multiple. */
#define PLIM__PAGE ((size_t)4096)
#define PLIM__LINE ((size_t)64)

/*
 * Reserves `size` bytes (rounded up to a page) in the account `name` and maps them, zeroed.
 * PLIM_ERR_BUDGET past the line, PLIM_ERR_NOMEM when the system refuses. The arena is by value: it
 * can be kept inside the object that is carved from it.
 */
plim_status_t plim__arena_create(plim_ledger_t *ledger, const char *name, size_t size,
                                 plim__arena_t *arena_out);

/* Unmaps and releases; a zeroed arena is harmless. */
void plim__arena_destroy(plim__arena_t *arena);

/*
 * Returns the next `count` x `size` bytes, aligned to `align` (a power of two; PLIM__LINE if that
 * is more), zeroed when the arena is new. `used` advances in any case, saturating. NULL from a
 * counting arena, and past the end of the arena: plim__arena_check reports the latter.
 */
void *plim__arena_carve(plim__arena_t *arena, size_t count, size_t size, size_t align);

/* An arena without memory: carving returns NULL and only counts in `used`. */
plim__arena_t plim__arena_counting(void);

/* PLIM_ERR_BUDGET when more was carved than the arena holds. */
plim_status_t plim__arena_check(const plim__arena_t *arena);

/*
 * The layout of an object, written once: carves the object's parts and stores the pointers in it.
 * The sizes of the parts follow from fields of the object that are set beforehand. It is called
 * over a counting arena, which gives the estimate, and then over memory; it never dereferences a
 * part.
 */
typedef void (*plim__lay_out_fn)(plim__arena_t *arena, void *object);

/* Bytes of the arena for an object of `size` bytes and its parts, in whole pages. */
size_t plim__object_bytes(plim__lay_out_fn lay_out, void *draft, size_t size);

/*
 * Creates the arena, lays the draft out in it and copies it there. `arena` is the member of the
 * draft that keeps the arena. *object_out is a pointer to the object. Errors of plim__arena_create
 * and plim__arena_check.
 */
plim_status_t plim__object_create(plim_ledger_t *ledger, const char *name, plim__lay_out_fn lay_out,
                                  void *draft, size_t size, plim__arena_t *arena, void *object_out);

/* Upper bound for what carving `count` x `size` at `align` uses up; saturates at SIZE_MAX. */
size_t plim__arena_carve_bytes(size_t count, size_t size, size_t align);

/* Asks for huge pages for [base, base + size): for large tables that are accessed at random. All
 * other memory has small pages. */
void plim__arena_want_huge(void *base, size_t size);

/* Touches every page: the arena is resident from now on and does not grow. */
void plim__arena_touch(const plim__arena_t *arena);

/* Asks for small pages again: the kernel can only drop a huge page as a whole. */
void plim__arena_want_small(void *base, size_t size);

/*
 * Lets the kernel take the pages that lie in [base, base + size) whenever it is short of memory
 * (MADV_FREE): a page that was taken reads as zeros. A page that is written later stays until this
 * is called again. Affects whole pages only; if the kernel refuses, no page is ever taken.
 */
void plim__arena_may_drop(void *base, size_t size);

/* Returns the pages that lie in [base, base + size) to the kernel now: they read as zeros. */
void plim__arena_drop(void *base, size_t size);

/*
 * Which of the pages of [base, base + size), from a page's boundary on, are in memory: one byte
 * for each PLIM__PAGE, odd when it is (or was read after it had been taken). Asking does not count
 * as use. False when the kernel does not say.
 */
bool plim__arena_resident(const void *base, size_t size, unsigned char *pages_out);

/* Reserve memory that another library allocates for us in the account `name`, and release it. */
plim_status_t plim__ledger_reserve(plim_ledger_t *ledger, const char *name, size_t size,
                                   int *account_out);
void plim__ledger_release(plim_ledger_t *ledger, int account, size_t size);

/* The account "reserve": memory that the library does not allocate itself. */
int64_t plim__ledger_reserve_bytes(const plim_ledger_t *ledger);

/* PLIM_ERR_BUDGET that names the minimum line: `what` (of `source`) needs `bytes` more than is
 * reserved now. */
plim_status_t plim__ledger_refuse(plim_ledger_t *ledger, const char *source, const char *what,
                                  size_t bytes);

#endif
