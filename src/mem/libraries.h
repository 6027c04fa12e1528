/*
 * The program and its libraries as files in memory. What of them is resident depends on what was
 * read ahead (a kernel may read 8 MiB around one page) and on who had it before: so a process that
 * is ours alone is brought into a state that is always the same, and that state is counted.
 */
#ifndef PLIM_MEM_LIBRARIES_H
#define PLIM_MEM_LIBRARIES_H

#include <stdint.h>

/*
 * File pages of this process. A small process (the command line's) has all read-only segments of
 * its objects in memory, nothing else of their files, and huge pages only where they are asked for
 * (none where the kernel cannot tell these apart; programs that it starts inherit that): the first
 * call sees to that. The C library is left out when other processes have it, too: then it is not
 * charged to us. In a large process, somebody else's, it is what is resident and some more.
 */
int64_t plim__libraries_bytes(void);

/* Of these, what the kernel may take back: pages that are read again when they are used, while the
 * few that are used most stay. None in a large process. */
int64_t plim__libraries_spare(void);

/*
 * For the large object that `address` lies in, and its file: from now on a page is read when it is
 * used, without those around it, and what was read before is dropped.
 */
void plim__libraries_trim(const void *address);

/* How much of a file that is mapped the kernel reads at once around a page: the setting of the disk
 * that libraries lie on; what is usual where it cannot be asked. */
int64_t plim__libraries_ahead(void);

#endif
