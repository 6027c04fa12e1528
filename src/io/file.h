/*
 * One open file, direct where the file system allows it. Buffered files keep their share of the
 * page cache small: what was read is dropped, what was written is written back and dropped.
 */
#ifndef PLIM_IO_FILE_H
#define PLIM_IO_FILE_H

#include <plimsoll/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

typedef enum plim__file_mode {
    PLIM__FILE_READ,     /* an existing file */
    PLIM__FILE_CREATE,   /* a new file, read and write; PLIM_ERR_IO when it exists */
    PLIM__FILE_TEMPORARY /* `path` is a directory: a nameless file in it, gone when closed or killed
                          */
} plim__file_mode_t;

typedef struct plim__file {
    int fd;           /* -1 when closed */
    bool direct;      /* O_DIRECT: offsets, sizes and addresses must be multiples of `align` */
    uint32_t align;   /* a power of two, at most PLIM__PAGE; 1 when buffered */
    int64_t size;     /* when it was opened; whoever writes the file may keep it up to date */
    const char *path; /* borrowed, for messages; outlives the file */
} plim__file_t;

/*
 * Opens `path`. With `direct`, O_DIRECT is tried and its alignment asked of the kernel (statx) or
 * probed; where it is refused the file is buffered, which is not an error. PLIM_ERR_IO.
 */
plim_status_t plim__file_open(const char *path, plim__file_mode_t mode, bool direct,
                              plim__file_t *file_out);

/*
 * Reads or writes all of [offset, offset + size), through EINTR and short transfers. Alignment as
 * above. A read past the end is PLIM_ERR_DATA ("truncated"), naming file and offset. Only the last
 * unit may be incomplete: a read may reach to file->size rounded up to file->align, and what lies
 * behind file->size is then left as it was. Buffered files drop what they transferred.
 */
plim_status_t plim__file_read_at(const plim__file_t *file, int64_t offset, void *to, size_t size);
plim_status_t plim__file_write_at(const plim__file_t *file, int64_t offset, const void *from,
                                  size_t size);

/* For a buffered file: writes the range back and drops it from the page cache. Direct: nothing. */
void plim__file_drop(const plim__file_t *file, int64_t offset, int64_t size);

/* Makes data and size durable. */
plim_status_t plim__file_sync(const plim__file_t *file);

void plim__file_close(plim__file_t *file);

/*
 * Why a file or directory is not believed to be what this user has put there: others own it, or can
 * write to it. NULL when it can be.
 */
const char *plim__file_distrust(const struct stat *about);

/* Free bytes for this user on the file system of `path` (quota is not seen by it). */
plim_status_t plim__file_space(const char *path, int64_t *bytes_out);

/* PLIM_ERR_SPACE, naming the file (or its directory) and the remedy, when no file of this process
 * may grow to so many bytes (RLIMIT_FSIZE: ulimit -f). */
plim_status_t plim__file_size_allowed(const char *path, int64_t bytes);

/* What kind of file system holds `path`, in a word ("ext4", "lustre", "nfs", "tmpfs", …). */
typedef struct plim__file_system {
    char name[16];
    bool network; /* Lustre, GPFS, NFS, BeeGFS, CIFS, Ceph … */
    bool memory;  /* tmpfs, ramfs: what is stored there counts as memory */
} plim__file_system_t;

plim_status_t plim__file_system(const char *path, plim__file_system_t *system_out);

/* The same from statfs's f_type; "unknown" for one that is not in the list. */
plim__file_system_t plim__file_system_of(uint32_t magic);

#endif
