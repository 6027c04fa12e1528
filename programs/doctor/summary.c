/* The verdict in a sentence, and what the texts do not tell. */
#include "command/cli.h"
#include "doctor/verdict.h"

#include <inttypes.h>
#include <plimsoll/limit.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A size in a sentence. */
typedef struct summary_text {
    char text[24];
} summary_text_t;

static summary_text_t size(int64_t bytes)
{
    summary_text_t text;
    (void)plim_size_text(bytes, text.text);
    return text;
}

void doctor_verdict_unknown(doctor_verdict_t *verdict, const char *format, ...)
{
    va_list arguments;
    if (verdict->num_unknown == DOCTOR_LISTED)
        return;
    va_start(arguments, format);
    (void)vsnprintf(verdict->unknown[verdict->num_unknown++], DOCTOR_SENTENCE, format, arguments);
    va_end(arguments);
}

/* Causes whose sentence has no figures. */
static const char *plain_sentence(doctor_cause_t cause)
{
    switch (cause) {
    case DOCTOR_OOM_TMPFS:
        return "files in memory (tmpfs, /dev/shm, /tmp) filled the job's memory limit, and the "
               "kernel killed a process that held little itself";
    case DOCTOR_OOM_PARENT:
        return "the kernel killed a process for memory at the limit of a group above its own: "
               "others in the same job or container share that limit";
    case DOCTOR_OOM_NUMA:
        return "the memory of the NUMA nodes that the job was bound to ran out; other nodes may "
               "have had some left";
    case DOCTOR_OOM_CGROUP:
        return "the job reached its own memory limit, and the kernel or the batch system killed it";
    case DOCTOR_OOM_HOST:
        return "the whole machine ran out of memory and the kernel killed a process";
    case DOCTOR_OOM_KERNEL:
        return "the kernel killed a process for memory";
    case DOCTOR_OOM_SLURM:
        return "the job exceeded its memory limit under Slurm";
    case DOCTOR_OOM_DAEMON:
        return "a memory guard (systemd-oomd, earlyoom, Ray or YARN) ended the process before the "
               "kernel had to";
    case DOCTOR_OOM_EVICTED:
        return "Kubernetes evicted the pod from a node that was short of memory";
    case DOCTOR_CUDA_ASSERT:
        return "an assertion failed on the GPU: an index or a label is out of range, which is a "
               "bug in the script or its data, not a lack of memory";
    case DOCTOR_CUDA_ERROR:
        return "the GPU's libraries failed, and the message does not say why";
    case DOCTOR_SHM_FULL:
        return "/dev/shm is full: DataLoader workers pass their batches through it";
    case DOCTOR_DISK_FULL:
        return "a disk, a quota or a file size limit was full while a file was written";
    case DOCTOR_OPEN_FILES:
        return "the process ran out of open files, which DataLoader workers use to pass tensors";
    case DOCTOR_THREADS:
        return "the system refused a new thread or process: a limit on processes or address space";
    case DOCTOR_HARDWARE:
        return "the node's memory is defective (uncorrectable error); the program is not at fault";
    case DOCTOR_NODE_FAIL:
        return "the node failed; the program is not at fault";
    case DOCTOR_PREEMPTED:
        return "Slurm preempted the job for another one";
    case DOCTOR_TIME_LIMIT:
        return "the job reached its time limit";
    case DOCTOR_REQUEUED:
        return "Slurm put the job back into the queue";
    case DOCTOR_CANCELLED:
        return "somebody cancelled the job (scancel, or a signal by its owner or an administrator)";
    case DOCTOR_SEGFAULT:
        return "a process crashed with a segmentation fault: a bug in compiled code, not a memory "
               "limit";
    case DOCTOR_BUS_ERROR:
        return "a process ended with a bus error: a mapped file or /dev/shm could not be filled";
    case DOCTOR_ABORTED:
        return "a process aborted itself (SIGABRT) after an error that compiled code printed";
    case DOCTOR_PEER_LOST:
        return "a rank waited for another one in vain: the other's end is the cause, and it is not "
               "in these texts";
    case DOCTOR_WORKER_EXIT:
        return "a worker process ended; the main process only reports that";
    case DOCTOR_TERMINATED:
        return "the process was asked to end (SIGTERM, SIGINT or SIGHUP) by a user, the scheduler "
               "or a terminal that closed";
    default:
        return NULL;
    }
}

static void describe_cuda(const doctor_t *doctor, doctor_verdict_t *verdict, char *to,
                          size_t capacity)
{
    const doctor_fact_t *fact = verdict->root;
    if (fact == NULL || fact->figure[DOCTOR_TRIED] < 0) {
        (void)snprintf(to, capacity, "the GPU ran out of memory");
        doctor_verdict_unknown(verdict,
                               "how much GPU memory was in use: this message has no figures");
        return;
    }
    const int64_t total = fact->figure[DOCTOR_TOTAL], free_now = fact->figure[DOCTOR_FREE];
    int64_t used = fact->figure[DOCTOR_IN_USE];
    const int64_t allocated = fact->figure[DOCTOR_ALLOCATED], idle = doctor_cuda_idle(fact);
    if (used < 0 && allocated >= 0 && idle >= 0)
        used = allocated + idle;
    int length = snprintf(to, capacity, "the GPU ran out of memory: an allocation of %s failed",
                          size(fact->figure[DOCTOR_TRIED]).text);
    if (total > 0 && free_now >= 0 && (size_t)length < capacity)
        length += snprintf(to + length, capacity - (size_t)length, ", %s of %s were free",
                           size(free_now).text, size(total).text);
    if (fact->figure[DOCTOR_ALLOWED] >= 0 && (size_t)length < capacity)
        length +=
            snprintf(to + length, capacity - (size_t)length, " (this process may use %s of it)",
                     size(fact->figure[DOCTOR_ALLOWED]).text);
    if ((size_t)length >= capacity)
        return;
    to += length;
    capacity -= (size_t)length;
    if (doctor_cuda_fragmented(fact))
        (void)snprintf(to, capacity,
                       "; PyTorch held %s unused in pieces, and in one piece it would have fitted: "
                       "fragmentation%s",
                       size(idle).text,
                       doctor->expandable && !doctor->not_expandable
                           ? ", although expandable_segments is on"
                           : "");
    else if (total > 0 && used >= 0 && total - free_now - used > total / 10)
        (void)snprintf(to, capacity,
                       "; other processes (or CUDA itself) hold %s of it, this one %s",
                       size(total - free_now - used).text, size(used).text);
    else if (idle >= 0)
        (void)snprintf(to, capacity,
                       "; tensors hold %s, and what is free or unused (%s in pieces) is too little "
                       "in one piece too: not fragmentation",
                       size(allocated).text, size(idle).text);
}

/* A watch does not record what the command prints: its log may hold the reason. */
static void note_why_unknown(const doctor_t *doctor, doctor_verdict_t *verdict)
{
    int length = 3;
    const char *run = doctor_run(doctor, &length);
    if (doctor->growth.ended && doctor->num_sources == 1)
        doctor_verdict_unknown(verdict,
                               "why: give the program's log too, like: plimsoll doctor %.*s LOG",
                               length, run != NULL ? run : "RUN");
    else
        doctor_verdict_unknown(verdict, "why: the texts hold no message that explains the code");
}

static void describe_code(const doctor_t *doctor, doctor_verdict_t *verdict, char *to,
                          size_t capacity)
{
    const int64_t code = verdict->code;
    const bool watched = doctor->growth.ended;
    if (verdict->signal > 0) {
        (void)snprintf(to, capacity, "signal %" PRId64 " (%s) ended the program", verdict->signal,
                       cli_signal_name((int)verdict->signal));
        note_why_unknown(doctor, verdict);
        return;
    }
    if (watched && code > 128) {
        (void)snprintf(to, capacity,
                       "the program chose to exit with code %" PRId64
                       "; no signal ended it and the kernel killed nothing",
                       code);
        note_why_unknown(doctor, verdict);
        return;
    }
    if (doctor_verdict_is_kill_code(doctor, verdict)) {
        (void)snprintf(to, capacity,
                       "exit code %" PRId64 "%s: SIGKILL, or a code that the program chose; the "
                       "number alone does not tell which, nor who sent it",
                       code,
                       code == 9     ? ":0, which sacct before 25.11 also prints for 137,"
                       : code == 247 ? " (as a launcher writes -9)"
                                     : "");
        doctor_verdict_unknown(
            verdict, "whether memory was the reason: docker stop, kill -9 and timeout end "
                     "a job in the same way");
        return;
    }
    if (code > 0)
        (void)snprintf(to, capacity, "the program ended with exit code %" PRId64, code);
    else
        (void)snprintf(to, capacity, "the program ended with an error");
    note_why_unknown(doctor, verdict);
}

static void describe_cause(const doctor_t *doctor, doctor_verdict_t *verdict, char *to,
                           size_t capacity)
{
    const char *sentence = plain_sentence(verdict->cause);
    const doctor_fact_t *root = verdict->root;
    const doctor_growth_t *growth = &doctor->growth;
    const int64_t tried = root != NULL ? root->figure[DOCTOR_TRIED] : -1;
    if (doctor_cause_is_memory(verdict->cause, false) && verdict->limit > 0 &&
        verdict->cause != DOCTOR_OOM_HOST)
        (void)snprintf(to, capacity, "%s (limit %s)", sentence, size(verdict->limit).text);
    else if (verdict->cause == DOCTOR_OOM_HOST && growth->on_host)
        (void)snprintf(to, capacity, "%s: this job held %s, other processes %s of %s", sentence,
                       size(growth->peak).text, size(growth->others).text,
                       size(growth->limit).text);
    else if (sentence != NULL)
        (void)snprintf(to, capacity, "%s", sentence);
    else if (verdict->cause == DOCTOR_CUDA_OOM)
        describe_cuda(doctor, verdict, to, capacity);
    else if (verdict->cause == DOCTOR_ALLOC_REFUSED && tried > 0)
        (void)snprintf(to, capacity,
                       "the system refused an allocation of %s: not a kill, but an error that the "
                       "program could catch",
                       size(tried).text);
    else if (verdict->cause == DOCTOR_ALLOC_REFUSED)
        (void)snprintf(to, capacity,
                       "the system refused memory to the program (ulimit -v, overcommit, "
                       "or no memory left): an error, not a kill");
    else if (verdict->cause == DOCTOR_PYTHON_ERROR && root != NULL)
        (void)snprintf(to, capacity, "Python ended with an error: %s", root->text);
    else if (verdict->cause == DOCTOR_KILLED)
        (void)snprintf(to, capacity, "SIGKILL ended %s; the texts do not say who sent it%s",
                       root != NULL && strstr(root->text, "DataLoader") != NULL
                           ? "a DataLoader worker"
                           : "a process",
                       doctor->growth.ended && doctor->growth.kills == 0
                           ? ", but not the kernel for memory: its counter of kills stood still"
                           : "; most often it is the kernel for memory");
    else
        describe_code(doctor, verdict, to, capacity);
}

/* How much memory a run that ended well had used. */
static void describe_used(const doctor_t *doctor, doctor_verdict_t *verdict, char *to,
                          size_t capacity)
{
    const doctor_growth_t *growth = &doctor->growth;
    const doctor_slurm_t *slurm = &doctor->slurm;
    if (growth->peak > 0 && growth->limit > 0 && !growth->on_host)
        (void)snprintf(to, capacity, "; it used at most %s of its limit of %s (%.0f %%)",
                       size(growth->peak).text, size(growth->limit).text,
                       100.0 * (double)growth->peak / (double)growth->limit);
    else if (growth->peak > 0)
        (void)snprintf(to, capacity, "; it held at most %s and had no memory limit of its own",
                       size(growth->peak).text);
    else if (slurm->resident > 0 && slurm->requested > 0) {
        (void)snprintf(to, capacity, "; it used at most %s of the %s that it asked for",
                       size(slurm->resident).text, size(slurm->requested).text);
        doctor_verdict_unknown(verdict, "spikes of memory: Slurm looks every 30 seconds only");
    }
}

static void describe_no_cause(const doctor_t *doctor, doctor_verdict_t *verdict)
{
    char *to = verdict->summary;
    int64_t lines = 0;
    for (int i = 0; i < doctor->num_sources; i++)
        lines += doctor->source[i].lines;
    if (verdict->outcome == DOCTOR_OUTCOME_FINISHED) {
        (void)snprintf(to, DOCTOR_SENTENCE, "it ended normally");
        describe_used(doctor, verdict, to + strlen(to), DOCTOR_SENTENCE - strlen(to));
    } else if (lines == 0) {
        (void)snprintf(to, DOCTOR_SENTENCE,
                       doctor->num_sources == 0
                           ? "there is nothing to examine: the directory holds no log, timeline or "
                             "run (*.out, *.err, *.log, *.txt, timeline.jsonl)"
                           : "there is nothing to examine: the text is empty");
    } else if (doctor->epochs_done >= 0 && doctor->recipe.epochs > 0) {
        (void)snprintf(to, DOCTOR_SENTENCE,
                       "the training has completed %" PRId64 " of %" PRId64
                       " epochs; no cause of an end is in these texts",
                       doctor->epochs_done, doctor->recipe.epochs);
    } else if (doctor_growth_is_cut(&doctor->growth)) {
        (void)snprintf(to, DOCTOR_SENTENCE,
                       "the record of the watch has no end: the watcher was killed too, or still "
                       "runs; memory was not at its limit");
    } else {
        (void)snprintf(to, DOCTOR_SENTENCE, "no cause of death is in these texts");
    }
    if (verdict->num_evidence > 0 || verdict->shape.pattern == DOCTOR_PATTERN_CACHE)
        (void)snprintf(
            to + strlen(to), DOCTOR_SENTENCE - strlen(to),
            "; memory was at its limit, but nothing was killed: page cache fills a group "
            "and is harmless");
    if (verdict->outcome == DOCTOR_OUTCOME_UNKNOWN)
        doctor_verdict_unknown(verdict,
                               "how it ended: give the exit code's log line, sacct's answer "
                               "(plimsoll doctor JOBID) or the kernel's log too");
}

static void note_unknown(const doctor_t *doctor, doctor_verdict_t *verdict)
{
    const bool memory = doctor_cause_is_memory(verdict->cause, false);
    if (memory && verdict->limit < 0 && verdict->cause != DOCTOR_OOM_HOST)
        doctor_verdict_unknown(verdict, "the memory limit of the job: no text shows it");
    if (memory && doctor_growth_is_cut(&doctor->growth))
        doctor_verdict_unknown(
            verdict, "what killed it: the record of the watch ends at the limit, without an "
                     "end; memory.oom.group takes the watcher too. Or it still runs");
    if (memory && doctor->growth.samples == 0)
        doctor_verdict_unknown(verdict, "what grew, and when: run it under plimsoll watch for a "
                                        "timeline of its memory");
    if (verdict->cause == DOCTOR_OOM_SLURM && verdict->outcome == DOCTOR_OUTCOME_DIED)
        doctor_verdict_unknown(verdict,
                               "which process was killed: Slurm counts kills in the step, a "
                               "helper's too; your work may have been done before");
    if (verdict->cause == DOCTOR_KILLED && !doctor->growth.ended)
        doctor_verdict_unknown(
            verdict, "who sent the signal: see dmesg -T | grep -i oom on the node, sacct -j "
                     "JOBID -o State,ExitCode,MaxRSS,ReqMem, or memory.events of the group");
    if (verdict->cause == DOCTOR_TERMINATED || verdict->cause == DOCTOR_CANCELLED)
        doctor_verdict_unknown(verdict, "why somebody did that");
}

void doctor_verdict_summarise(const doctor_t *doctor, doctor_verdict_t *verdict)
{
    char *to = verdict->summary;
    if (verdict->cause == DOCTOR_NONE) {
        describe_no_cause(doctor, verdict);
        return;
    }
    describe_cause(doctor, verdict, to, DOCTOR_SENTENCE);
    if (verdict->outcome == DOCTOR_OUTCOME_SURVIVED)
        (void)snprintf(to + strlen(to), DOCTOR_SENTENCE - strlen(to),
                       "; but the program went on, so this did not end it");
    note_unknown(doctor, verdict);
}
