/*
 * Status codes, the message that goes with them, and the library's version.
 *
 * Structs that begin with `size_t size` are initialised with the macro that ends in _INIT, which
 * sets it to the size that the caller was compiled with; both parameters and outputs. Later
 * versions only add fields at the end: what the caller does not know gets its default, and a size
 * of 0 is PLIM_ERR_USAGE.
 */
#ifndef PLIMSOLL_STATUS_H
#define PLIMSOLL_STATUS_H

#ifdef PLIM_BUILDING
#define PLIM_API __attribute__((visibility("default")))
#else
#define PLIM_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* 0 is success, negatives are errors. */
typedef enum plim_status {
    PLIM_OK = 0,
    PLIM_ERR_NOMEM = -1,       /* the system has no memory to give, though the line allows it */
    PLIM_ERR_BUDGET = -2,      /* the memory line would be crossed; nothing was started */
    PLIM_ERR_SPACE = -3,       /* the disk has too little room; nothing was started */
    PLIM_ERR_IO = -4,          /* the operating system refused a read, a write, an open … */
    PLIM_ERR_DATA = -5,        /* a file is damaged, or not what it says it is */
    PLIM_ERR_USAGE = -6,       /* the caller asked for something that makes no sense */
    PLIM_ERR_UNSUPPORTED = -7, /* sensible, but not on this machine or in this version */
    PLIM_ERR_STOPPED = -8,     /* the job's stop flag was raised */
    PLIM_ERR_DIVERGED = -9,    /* a loss, a weight or a prediction is not finite */
    PLIM_ERR_DISK = -10,       /* the disk, a quota or ulimit -f was used up while writing */
    PLIM_ERR_TIMEOUT = -11     /* not ready in the time that was given; call again */
} plim_status_t;

/* The version of the library that is loaded, such as "0.1.0"; PLIM_VERSION is the version that the
 * caller was compiled with. Any thread. */
PLIM_API const char *plim_version(void);

/* A short name for a status, such as "budget"; never NULL. Thread-safe. */
PLIM_API const char *plim_status_name(plim_status_t status);

/*
 * The message of the last error in this thread: which file, which number, what to do about it.
 * Owned by the library and valid until the next call that fails in this thread; "" when nothing
 * failed yet.
 */
PLIM_API const char *plim_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
