/*
 * An open file, direct where the file system allows it. A buffered file uses little page cache: it
 * drops pages after reading, and writes them back and drops them after writing.
 */
#ifndef PLIM_IO_FILE_H
#define PLIM_IO_FILE_H

#include <limits.h>
#include <plimsoll/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum plim__file_mode {
    PLIM__FILE_READ,     /* an existing file */
    PLIM__FILE_CREATE,   /* a new file, read and write; PLIM_ERR_IO when it exists */
    PLIM__FILE_TEMPORARY /* a nameless file in the directory `path`, gone when closed */
} plim__file_mode_t;

typedef struct plim__file {
    int fd;           /* -1 when closed */
    bool temporary;   /* nameless: its space is freed when it is closed */
    bool direct;      /* O_DIRECT: offsets, sizes and addresses must be multiples of `align` */
    uint32_t align;   /* a power of two, at most PLIM__PAGE; 1 when buffered */
    int64_t size;     /* when it was opened; a writer may update it */
    const char *path; /* borrowed, for messages; outlives the file */

    /* plim__page_check of each page, borrowed: range readers compare those of the pages that
     * they read. `align` is PLIM__PAGE then. NULL: none. */
    const uint32_t *page_checks;
} plim__file_t;

/*
 * Opens `path`. With `direct`, O_DIRECT is tried; its alignment comes from statx or from a probe.
 * Where O_DIRECT is refused, the file is buffered, which is not an error. PLIM_ERR_IO.
 */
plim_status_t plim__file_open(const char *path, plim__file_mode_t mode, bool direct,
                              plim__file_t *file_out);

/*
 * Opens a file of this user in an open directory, so that others cannot lead it elsewhere by
 * renaming the directory. Only the last component of `path` is used; messages show all of it. Links
 * are not followed, and an existing file must be this user's (PLIM_ERR_DATA). With AT_FDCWD it is
 * plim__file_open.
 */
plim_status_t plim__file_open_in(int directory, const char *path, plim__file_mode_t mode,
                                 bool direct, plim__file_t *file_out);

/* The last component of a path that does not end in a slash. */
static inline const char *plim__file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/*
 * Reads or writes all of [offset, offset + size), continuing after EINTR and short transfers.
 * Alignment as above. A read past the end is PLIM_ERR_DATA, naming file and offset. Only the last
 * unit may be incomplete: a read may reach to file->size rounded up to file->align, and the bytes
 * past file->size are then unchanged. Buffered files drop the transferred pages.
 */
plim_status_t plim__file_read_at(const plim__file_t *file, int64_t offset, void *to, size_t size);
plim_status_t plim__file_write_at(const plim__file_t *file, int64_t offset, const void *from,
                                  size_t size);

/* Writes the range of a buffered file back and drops it from the page cache. */
void plim__file_drop(const plim__file_t *file, int64_t offset, int64_t size);

/* directory/name; PLIM_ERR_USAGE if the path is too long. */
plim_status_t plim__file_path(char path_out[PATH_MAX], const char *directory, const char *name);

/* fsync: makes data and size durable. */
plim_status_t plim__file_sync(const plim__file_t *file);

void plim__file_close(plim__file_t *file);

/* Free bytes for this user on the file system of `path`, quotas not considered. */
plim_status_t plim__file_space(const char *path, int64_t *bytes_out);

/* PLIM_ERR_SPACE when the file system of `directory` has less than `bytes` free: "`path`: `need` …
 * of disk space, but … are free; `remedy`". */
plim_status_t plim__file_check_space(const char *directory, int64_t bytes, const char *path,
                                     const char *need, const char *remedy);

/* Takes disk space for the first bytes of the file, on file systems that can do that (not NFS
 * before 4.2 and some FUSE ones). PLIM_ERR_SPACE if the disk is full: "PATH: `need` SIZE". */
plim_status_t plim__file_reserve(const plim__file_t *file, int64_t bytes, const char *need);

/* PLIM_ERR_SPACE when RLIMIT_FSIZE (ulimit -f) is below `bytes`. */
plim_status_t plim__file_size_allowed(const char *path, int64_t bytes);

/* The kind of a file system: "ext4", "lustre", "nfs", "tmpfs", … */
typedef struct plim__file_system {
    char name[16];
    bool network; /* Lustre, GPFS, NFS, BeeGFS, CIFS, Ceph … */
    bool memory;  /* tmpfs, ramfs: files there count as memory */
} plim__file_system_t;

/* The file system of `path`. PLIM_ERR_USAGE when it does not exist, PLIM_ERR_IO. */
plim_status_t plim__file_system(const char *path, plim__file_system_t *system_out);

/* The file system with this f_type of statfs; "unknown" if it is not in the list. */
plim__file_system_t plim__file_system_of(uint32_t magic);

/* PLIM_OK when `directory` lies on a disk with at least `bytes` free: for temporary files that must
 * not be memory. PLIM_ERR_USAGE when it does not exist; PLIM_ERR_SPACE when its files are memory,
 * or as plim__file_check_space ("`need` … of disk space"); PLIM_ERR_IO. */
plim_status_t plim__file_check_disk(const char *directory, int64_t bytes, const char *need);

#endif
