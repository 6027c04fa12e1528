/* The watcher's process: signals, the command, the GPU monitor, and who is killed first. */
#include "watch/watch_process.h"

#include "base/check.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILES_MOST 8192 /* two for each process of a large tree, and ours */

static sigset_t handled, mask_before;
static struct rlimit files_before;
static int go_pipe = -1, error_pipe = -1;

void watch_prepare(void)
{
    static const int numbers[] = {SIGCHLD, SIGHUP,  SIGINT,  SIGQUIT,
                                  SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    (void)sigemptyset(&handled);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        (void)sigaddset(&handled, numbers[i]);
    (void)sigprocmask(SIG_BLOCK, &handled, &mask_before);
    if (getrlimit(RLIMIT_NOFILE, &files_before) == 0 && files_before.rlim_cur < FILES_MOST) {
        struct rlimit raised = files_before;
        raised.rlim_cur = raised.rlim_max < FILES_MOST ? raised.rlim_max : FILES_MOST;
        (void)setrlimit(RLIMIT_NOFILE, &raised);
    }
}

/* In the child: becomes the command, with the limits and signals that the watcher was given. */
_Noreturn static void become(char *const *words, const char *marks, int go, int failed)
{
    char byte;
    if (read(go, &byte, 1) != 1) /* the watcher has ended */
        _exit(125);
    (void)signal(SIGXFSZ, SIG_DFL);
    (void)setrlimit(RLIMIT_NOFILE, &files_before);
    (void)setenv("PLIMSOLL_WATCH", marks, 1);
    (void)sigprocmask(SIG_SETMASK, &mask_before, NULL);
    (void)execvp(words[0], words);
    const int error = errno;
    (void)!write(failed, &error, sizeof error);
    _exit(error == ENOENT ? 127 : 126);
}

pid_t watch_fork(char *const *words, const char *marks)
{
    int go[2], failed[2];
    if (pipe2(go, O_CLOEXEC) != 0)
        return -1;
    if (pipe2(failed, O_CLOEXEC) != 0) {
        (void)close(go[0]);
        (void)close(go[1]);
        return -1;
    }
    const pid_t child = fork();
    if (child == 0) {
        (void)close(go[1]);
        become(words, marks, go[0], failed[1]);
    }
    (void)close(go[0]);
    (void)close(failed[1]);
    go_pipe = go[1];
    error_pipe = failed[0];
    return child;
}

static bool write_score(pid_t pid, int score)
{
    char path[64], text[16];
    (void)snprintf(path, sizeof path, "/proc/%d/oom_score_adj", (int)pid);
    const int file = open(path, O_WRONLY | O_CLOEXEC);
    const int length = snprintf(text, sizeof text, "%d", score);
    const bool success = file >= 0 && write(file, text, (size_t)length) == length;
    if (file >= 0)
        (void)close(file);
    return success;
}

/*
 * Root may exempt itself, also from memory.oom.group. Others raise the command's score by a tenth
 * of the limit: a tmpfs can fill a group in which every process is smaller than this one.
 */
static void be_killed_last(pid_t command)
{
    char text[16] = "";
    const int file = open("/proc/self/oom_score_adj", O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        (void)!read(file, text, sizeof text - 1);
        (void)close(file);
    }
    const int score = (int)strtol(text, NULL, 10) + 100;
    if (!write_score(getpid(), -1000))
        (void)write_score(command, score < 1000 ? score : 1000);
    (void)setpriority(PRIO_PROCESS, 0, -10); /* root's: ticks on a busy machine */
#ifdef MCL_ONFAULT
    /* Pages that it has used stay, so that it needs no disk while memory is short. */
    (void)mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT);
#endif
}

int watch_release(pid_t command)
{
    int error = 0;
    be_killed_last(command);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)!write(go_pipe, "", 1);
    (void)close(go_pipe);
    ssize_t got;
    do
        got = read(error_pipe, &error, sizeof error);
    while (got < 0 && errno == EINTR);
    (void)close(error_pipe);
    return got == (ssize_t)sizeof error ? error : 0;
}

int watch_next_signal(int64_t deadline, siginfo_t *info_out)
{
    const int64_t left = plim__max_i64(0, deadline - plim__clock_ns());
    const struct timespec wait = {.tv_sec = (time_t)(left / 1000000000),
                                  .tv_nsec = (long)(left % 1000000000)};
    const int number = sigtimedwait(&handled, info_out, &wait);
    return number > 0 ? number : 0;
}

bool watch_forward(pid_t command, const siginfo_t *info)
{
    /* The terminal's signals go to its whole foreground group; the command is in it. */
    if (info->si_code > 0 || info->si_pid == command)
        return false;
    return kill(command, info->si_signo) == 0;
}

/* ---- GPUs ---- */

static pid_t monitor;
static int monitor_pipe = -1;
static char monitor_text[512];
static size_t monitor_used;

pid_t watch_gpus_start(void)
{
    static char program[] = "nvidia-smi", query[] = "--query-gpu=index,memory.used,memory.total",
                format[] = "--format=csv,noheader,nounits", interval[] = "--loop=5";
    char *const words[] = {program, query, format, interval, NULL};
    extern char **environ;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return 0;
    (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    (void)posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    (void)posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    (void)posix_spawnattr_init(&attributes);
    /* Out of reach of the terminal's signals. */
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    (void)posix_spawnattr_setsigmask(&attributes, &mask_before);
    const int error = posix_spawnp(&monitor, program, &actions, &attributes, words, environ);
    (void)posix_spawnattr_destroy(&attributes);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(ends[1]);
    if (error != 0) {
        (void)close(ends[0]);
        monitor = 0;
    } else {
        monitor_pipe = ends[0];
    }
    return monitor;
}

void watch_gpus_end(void)
{
    if (monitor > 0)
        (void)kill(monitor, SIGTERM);
}

bool watch_gpus_next(watch_gpu_t *gpu_out)
{
    while (monitor_pipe >= 0) {
        char *newline = memchr(monitor_text, '\n', monitor_used);
        if (newline != NULL) {
            long long index, used, total; /* MiB */
            *newline = '\0';
            const bool valid =
                sscanf(monitor_text, "%lld , %lld , %lld", &index, &used, &total) == 3 &&
                index >= 0 && used >= 0 && total >= 0 && used < 1LL << 40 && total < 1LL << 40;
            monitor_used -= (size_t)(newline + 1 - monitor_text);
            memmove(monitor_text, newline + 1, monitor_used);
            if (!valid)
                continue;
            *gpu_out = (watch_gpu_t){.index = index, .used = used << 20, .total = total << 20};
            return true;
        }
        if (monitor_used == sizeof monitor_text)
            monitor_used = 0; /* not what was asked for */
        const ssize_t got =
            read(monitor_pipe, monitor_text + monitor_used, sizeof monitor_text - monitor_used);
        if (got < 0)
            return false; /* nothing yet */
        if (got == 0) {
            (void)close(monitor_pipe);
            monitor_pipe = -1;
        } else {
            monitor_used += (size_t)got;
        }
    }
    return false;
}
