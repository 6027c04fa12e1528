#include "mem/libraries.h"

#include "base/check.h"
#include "mem/arena.h"
#include "mem/kernel_text.h"

#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* More than this in read-only segments, and the process is not ours. The command line's has 6 MiB.
 */
#define OWN_BYTES ((int64_t)12 << 20)

/* In such a process: what will be read of libraries, ahead of what is in use, above what is
 * resident. Measured 2.2 MiB. */
#define AHEAD_BYTES ((int64_t)3 << 20)

/* Of code that is read at once, of a large library. */
#define CUT_BYTES ((size_t)32 << 10)

/* Of the command line's code, what is used all the time: below this a run hardly gets on. With it
 * the least lines of thirty runs are 1 to 8 % above the lowest limits under which they end. */
#define USED_BYTES ((int64_t)1 << 19)

#define USUAL_AHEAD ((int64_t)128 << 10)

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14; older kernels refuse it, and pages come when used */
#endif

#ifndef PR_THP_DISABLE_EXCEPT_ADVISED
#define PR_THP_DISABLE_EXCEPT_ADVISED 2 /* Linux 6.18; older kernels refuse it */
#endif

/* A read-only segment, in whole pages. */
typedef struct segment {
    char *base;
    size_t size;
} segment_t;

/* False when that part of an object is not one. */
static bool read_only(const struct dl_phdr_info *object, int part, segment_t *segment_out)
{
    const ElfW(Phdr) *header = &object->dlpi_phdr[part];
    if (header->p_type != PT_LOAD || (header->p_flags & PF_W) != 0)
        return false;
    const uintptr_t first = (object->dlpi_addr + header->p_vaddr) & ~(PLIM__PAGE - 1);
    const uintptr_t end =
        plim__round_up(object->dlpi_addr + header->p_vaddr + header->p_filesz, PLIM__PAGE);
    /* An address that the loader gives as a number. */
    *segment_out = (segment_t){(char *)first, end - first}; // NOLINT(performance-no-int-to-ptr)
    return true;
}

static int64_t object_bytes(const struct dl_phdr_info *object)
{
    int64_t bytes = 0;
    segment_t segment;
    for (int i = 0; i < object->dlpi_phnum; i++)
        if (read_only(object, i, &segment))
            bytes += (int64_t)segment.size;
    return bytes;
}

/* Advises its read-only segments but those that have one of the flags `but`. */
static void advise_object(const struct dl_phdr_info *object, ElfW(Word) but, int advice)
{
    segment_t segment;
    for (int i = 0; i < object->dlpi_phnum; i++)
        if (read_only(object, i, &segment) && (object->dlpi_phdr[i].p_flags & but) == 0)
            (void)madvise(segment.base, segment.size, advice);
}

/* Drops what of the object's file is in memory and not mapped by anybody. */
static void drop_unmapped(const struct dl_phdr_info *object)
{
    const char *path = object->dlpi_name[0] != '\0' ? object->dlpi_name : "/proc/self/exe";
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return;
    (void)posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    (void)close(file);
}

static size_t size_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

static bool is_c_library(const struct dl_phdr_info *object)
{
    const char *slash = strrchr(object->dlpi_name, '/');
    const char *name = slash != NULL ? slash + 1 : object->dlpi_name;
    return strncmp(name, "libc.so", 7) == 0 || strncmp(name, "ld-linux", 8) == 0;
}

static bool is_kernels(const struct dl_phdr_info *object)
{
    return strncmp(object->dlpi_name, "linux-", 6) == 0;
}

/* Whether other processes have the C library's pages, too: most of its clean pages are shared. */
static bool c_library_shared(void)
{
    plim__kernel_lines_t lines;
    const char *line;
    bool inside = false;
    int64_t kib, shared = 0, own = 0;
    if (!plim__kernel_lines_open(&lines, "", "/proc/self/smaps"))
        return false;
    while ((line = plim__kernel_lines_next(&lines)) != NULL) {
        /* A mapping's first line begins with its address, in lower case. */
        if (line[0] < 'A' || line[0] > 'Z')
            inside = strstr(line, "/libc.so") != NULL;
        else if (inside && plim__kernel_field(line, "Shared_Clean", &kib))
            shared += kib;
        else if (inside && plim__kernel_field(line, "Private_Clean", &kib))
            own += kib;
    }
    plim__kernel_lines_close(&lines);
    return shared > own;
}

typedef struct survey {
    int64_t all, c_library; /* bytes */
} survey_t;

static int add_object(struct dl_phdr_info *object, size_t size, void *context)
{
    survey_t *survey = context;
    (void)size;
    if (is_kernels(object))
        return 0;
    survey->all += object_bytes(object);
    if (is_c_library(object))
        survey->c_library += object_bytes(object);
    return 0;
}

static int settle_object(struct dl_phdr_info *object, size_t size, void *context)
{
    const bool *with_c_library = context;
    (void)size;
    if (is_kernels(object) || (is_c_library(object) && !*with_c_library))
        return 0;
    advise_object(object, 0, MADV_POPULATE_READ);
    /* Constants that gave way are read again without what lies near them in the file, which may be
     * megabytes for a debugger. Not so code: where a mapping is read at random the kernel does not
     * see which of its pages are in use, and these would go first. */
    advise_object(object, PF_X, MADV_RANDOM);
    drop_unmapped(object);
    return 0;
}

/*
 * Where everybody has huge pages unasked, code that oneDNN makes and the heap would have them too:
 * megabytes of which little is used, now or when the kernel gets round to it. Kernels that cannot
 * leave them to those who have asked give the process none.
 */
static void refuse_huge(void)
{
    char text[64];
    if (prctl(PR_GET_THP_DISABLE, 0L, 0L, 0L, 0L) != 0 || /* somebody has decided that already */
        prctl(PR_SET_THP_DISABLE, 1L, (long)PR_THP_DISABLE_EXCEPT_ADVISED, 0L, 0L) == 0)
        return;
    if (plim__kernel_read("", "/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text) >
            0 &&
        strstr(text, "[always]") != NULL)
        (void)prctl(PR_SET_THP_DISABLE, 1L, 0L, 0L, 0L);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int64_t settled_bytes; /* 0: the process is somebody else's */
static int64_t spare_bytes;

static void settle(void)
{
    survey_t survey = {0};
    (void)dl_iterate_phdr(add_object, &survey);
    if (survey.all > OWN_BYTES)
        return;
    refuse_huge();
    bool with_c_library = !c_library_shared();
    (void)dl_iterate_phdr(settle_object, &with_c_library);
    settled_bytes = survey.all - (with_c_library ? 0 : survey.c_library);
    spare_bytes = plim__max_i64(survey.all - survey.c_library - USED_BYTES, 0);
}

int64_t plim__libraries_bytes(void)
{
    (void)pthread_once(&once, settle);
    return settled_bytes > 0 ? settled_bytes : plim__kernel_own_bytes("", "RssFile") + AHEAD_BYTES;
}

int64_t plim__libraries_spare(void)
{
    (void)pthread_once(&once, settle);
    return spare_bytes;
}

/* From Linux 6.16 on code is read ahead whatever was advised, up to the end of its mapping: so it
 * is made of many small ones, which differ in an advice. */
static void cut_object(const struct dl_phdr_info *object)
{
    segment_t segment;
    for (int i = 0; i < object->dlpi_phnum; i++)
        if (read_only(object, i, &segment) && (object->dlpi_phdr[i].p_flags & PF_X) != 0)
            for (size_t at = 0; at < segment.size; at += 2 * CUT_BYTES)
                (void)madvise(segment.base + at, size_min(CUT_BYTES, segment.size - at),
                              MADV_NORMAL);
}

static int trim_object(struct dl_phdr_info *object, size_t size, void *context)
{
    const uintptr_t address = (uintptr_t)context;
    (void)size;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &object->dlpi_phdr[i];
        const uintptr_t first = object->dlpi_addr + header->p_vaddr;
        if (header->p_type != PT_LOAD || address < first || address - first >= header->p_memsz)
            continue;
        advise_object(object, 0, MADV_RANDOM);
        cut_object(object);
        advise_object(object, 0, MADV_DONTNEED); /* large folios go as a whole or not at all */
        drop_unmapped(object);
        return 1;
    }
    return 0;
}

void plim__libraries_trim(const void *address)
{
    (void)dl_iterate_phdr(trim_object, (void *)(uintptr_t)address);
}

int64_t plim__libraries_ahead(void)
{
    struct stat about;
    char path[64], text[32];
    int64_t kib;
    if (stat("/usr/lib", &about) != 0)
        return USUAL_AHEAD;
    (void)snprintf(path, sizeof path, "/sys/class/bdi/%u:%u/read_ahead_kb", major(about.st_dev),
                   minor(about.st_dev));
    return plim__kernel_read("", path, text, sizeof text) > 0 && plim__kernel_number(text, &kib) &&
                   kib < INT64_MAX >> 10
               ? kib << 10
               : USUAL_AHEAD;
}
