/*
 * The text of a batch script. Words of the command line are quoted for bash, whatever they contain,
 * and stand in no comment, so that none can become a command. Memory and threads stand in #SBATCH
 * lines alone: the command finds them in the job's control group and environment.
 */
#include "slurm/slurm_script.h"
#include "command/verb_plan.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whether `text` is UTF-8 without control characters (C0, DEL, C1). */
static bool is_printable(const char *text)
{
    json_t *string = json_string(text); /* NULL: not UTF-8 */
    bool printable = string != NULL;
    json_decref(string);
    for (const unsigned char *at = (const unsigned char *)text; printable && *at != '\0'; at++)
        printable = *at >= 0x20 && *at != 0x7f && (*at != 0xc2 || at[1] >= 0xa0);
    return printable;
}

/* Prints one word of a command as bash reads it. */
static void print_word(FILE *out, const char *word)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                "_-./,:=+@%";
    if (word[0] != '\0' && word[strspn(word, plain)] == '\0') {
        (void)fputs(word, out);
        return;
    }
    const bool printable = is_printable(word);
    (void)fputs(printable ? "'" : "$'", out);
    for (const char *at = word; *at != '\0'; at++)
        if (printable && *at == '\'')
            (void)fputs("'\\''", out);
        else if (!printable && (*at < 0x20 || *at >= 0x7f || *at == '\'' || *at == '\\'))
            (void)fprintf(out, "\\%03o", (unsigned)(unsigned char)*at);
        else
            (void)fputc(*at, out);
    (void)fputc('\'', out);
}

/* A directory of the node: "$TMPDIR/x" is expanded there, anything else is a plain name. */
static void print_place(FILE *out, const char *place)
{
    size_t length = 0;
    if (place[0] == '$' && (isalpha((unsigned char)place[1]) || place[1] == '_'))
        for (length = 1; isalnum((unsigned char)place[length]) || place[length] == '_';)
            length++;
    if (length > 0 && (place[length] == '\0' || place[length] == '/')) {
        (void)fprintf(out, "\"${%.*s:?}\"", (int)length - 1, place + 1);
        place += length;
    }
    if (place[0] != '\0' || length == 0)
        print_word(out, place);
}

static void print_requests(FILE *out, const slurm_script_t *script)
{
    char time[32];
    (void)fprintf(out,
                  "#!/bin/bash\n"
                  "#SBATCH --job-name=plimsoll-%s\n"
                  "#SBATCH --nodes=%" PRId64 "\n"
                  "#SBATCH --ntasks-per-node=1\n"
                  "#SBATCH --cpus-per-task=%" PRId64 "\n"
                  "#SBATCH --mem=%" PRId64 "M\n"
                  "#SBATCH --time=%s\n",
                  script->verb, script->ranks > 1 ? script->ranks : 1, script->cpus,
                  script->mebibytes, plan_time_text(script->minutes, time));
    const slurm_requests_t *requests = &script->requests;
    const struct {
        const char *name, *value;
    } given[] = {{"gres", requests->gres},
                 {"gpus", requests->gpus},
                 {"partition", requests->partition},
                 {"account", requests->account},
                 {"qos", requests->qos},
                 {"output", requests->output},
                 {"mail-user", requests->mail}};
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++)
        if (given[i].value != NULL)
            (void)fprintf(out, "#SBATCH --%s=%s\n", given[i].name, given[i].value);
    if (requests->mail != NULL)
        (void)fputs("#SBATCH --mail-type=END,FAIL\n", out);
    if (script->continues)
        (void)fprintf(out, "#SBATCH --signal=B:USR1@%d\n", SLURM_SIGNAL_SECONDS);
    (void)fputs("#SBATCH --requeue\n"
                "#SBATCH --open-mode=append\n"
                "#\n",
                out);
    for (int i = 0; i < SLURM_NOTES; i++)
        if (script->notes[i][0] != '\0')
            (void)fprintf(out, "# %s\n", script->notes[i]);
    (void)fputs("# The command takes its memory and its threads from what Slurm grants: change "
                "them above only.\n\n",
                out);
}

static void print_places(FILE *out, const slurm_script_t *script)
{
    char path[PLIM_PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    (void)fputs("plimsoll=", out);
    print_word(out, length > 0 ? path : "plimsoll");
    (void)fputc('\n', out);
    if (script->dataset != NULL) {
        (void)fputs("dataset=", out);
        print_word(out, script->dataset);
        (void)fputs("\nstage=", out);
        print_place(out, script->stage);
        (void)fputc('\n', out);
    }
    if (script->continues)
        (void)fputs("most_restarts=100\n", out);
    if (script->ranks > 1)
        (void)fputs("mpi=pmix # of Open MPI; pmi2 for MPICH: srun --mpi=list names what there is\n",
                    out);
    if (getcwd(path, sizeof path) != NULL) {
        (void)fputs("cd -- ", out);
        print_word(out, path);
        (void)fputs(" || exit 1\n", out);
    }
    const slurm_requests_t *requests = &script->requests;
    for (int i = 0; i < requests->num_setup; i++)
        (void)fprintf(out, "%s\n", requests->setup[i]);
    if (requests->gres != NULL || requests->gpus != NULL)
        (void)fputs("export PYTORCH_CUDA_ALLOC_CONF="
                    "\"${PYTORCH_CUDA_ALLOC_CONF:-expandable_segments:True}\"\n",
                    out);
    (void)fputc('\n', out);
}

static const char signals_text[] =
    "# USR1 comes from Slurm before the time limit: the run is saved, and the job queued again.\n"
    "# TERM is Slurm's own decision: it requeues a preempted job, and a cancelled one stays so.\n"
    "signalled=\n"
    "child=\n"
    "stop() {\n"
    "    signalled=${signalled:-$1}\n"
    "    [ -z \"$child\" ] || kill -USR1 \"$child\" 2> /dev/null\n"
    "}\n"
    "trap 'stop USR1' USR1\n"
    "trap 'stop TERM' TERM\n"
    "\n"
    "# Runs a command to its end; signals interrupt wait, not the command.\n"
    "attend() {\n"
    "    \"$@\" &\n"
    "    child=$!\n"
    "    [ -z \"$signalled\" ] || stop \"$signalled\"\n"
    "    wait \"$child\"\n"
    "    while kill -0 \"$child\" 2> /dev/null; do wait \"$child\"; done\n"
    "    wait \"$child\"\n"
    "}\n\n";

static const char staging_text[] =
    "# The training copies the dataset to a directory that is new and this user's alone, and\n"
    "# compares the fingerprints. A copy in a tmpfs would count as the job's memory.\n"
    "staged=\n"
    "copy=()\n"
    "mkdir -p -- \"$stage\"\n"
    "# Copies of a start of this job that was killed.\n"
    "find \"$stage\" -maxdepth 1 -user \"$(id -u)\" -name \"plimsoll-$SLURM_JOB_ID-*\" \\\n"
    "    -exec rm -rf -- {} +\n"
    "needed=$(du -skD --apparent-size -- \"$dataset\" | cut -f 1)\n"
    "free=$(df -Pk -- \"$stage\" | awk 'NR == 2 { print $4 }')\n"
    "if [ \"$(stat -f -c %T -- \"$stage\")\" != tmpfs ] && [ \"$needed\" -lt \"$free\" ] &&\n"
    "    staged=$(mktemp -d -- \"$stage/plimsoll-$SLURM_JOB_ID-XXXXXX\"); then\n"
    "    trap 'rm -rf -- \"$staged\"' EXIT\n"
    "    copy=(--stage=\"$staged\")\n"
    "else\n"
    "    echo \"cannot copy to $stage: the dataset is read where it is\" >&2\n"
    "fi\n\n";

static const char unstaged_text[] =
    "set -- \"$staged\"/plimsoll-*\n"
    "if [ -n \"$staged\" ] && [ ! -e \"$1\" ] && [ \"$signalled\" = USR1 ]; then\n"
    "    echo \"the time limit came before the copy to $stage was whole: ask for more --time\" "
    ">&2\n"
    "    exit 1\n"
    "fi\n";

static const char requeue_text[] =
    "# 75: saved; 138: the signal came before the command was ready for it.\n"
    "if [ $code = 75 ] || [ $code = 138 ]; then\n"
    "    if [ \"$signalled\" = TERM ]; then\n"
    "        echo 'stopped and saved; Slurm decides whether the job continues' >&2\n"
    "    elif [ \"${SLURM_RESTART_COUNT:-0}\" -ge \"$most_restarts\" ]; then\n"
    "        echo \"saved, but the job was queued $SLURM_RESTART_COUNT times already\" >&2\n"
    "    else\n"
    "        echo 'saved; the job is queued again' >&2\n"
    "        scontrol requeue \"$SLURM_JOB_ID\" || echo 'submit this script again' >&2\n"
    "    fi\n"
    "fi\n"
    "exit $code\n";

/* Prints a word of the command; the dataset, --scratch (as a word, or after '=') and --stage=DIR
 * may be directories of the node. */
static void print_argument(FILE *out, const slurm_script_t *script, const char *word)
{
    const char *equals = strchr(word, '=');
    const char *value = equals != NULL ? equals + 1 : word;
    if (word == script->dataset)
        (void)fputs("\"$dataset\"", out);
    else if (script->scratch == word)
        print_place(out, word);
    else if (script->scratch == value || script->copy == value) {
        (void)fprintf(out, "%.*s", (int)(value - word), word);
        print_place(out, value);
    } else
        print_word(out, word);
}

static void print_command(FILE *out, const slurm_script_t *script)
{
    (void)fprintf(out, "%s%s \"$plimsoll\" %s", script->continues ? "attend" : "exec",
                  script->ranks > 1 ? " srun --mpi=\"$mpi\"" : "", script->verb);
    if (script->shares) /* a requeued job may get fewer nodes, and keeps the bits */
        (void)fprintf(out, " --shares %" PRId64, script->ranks);
    if (script->dataset != NULL)
        (void)fputs(script->ranks > 1 ? " --stage --scratch \"$stage\"" : " \"${copy[@]}\"", out);
    if (script->watched)
        (void)fputs(" --out \"watch-$SLURM_JOB_ID\" --", out);
    if (script->run != NULL) {
        (void)fputs(" --run ", out);
        print_word(out, script->run);
        (void)fputs("\"-$SLURM_JOB_ID\"", out);
    }
    for (char **word = script->words; *word != NULL; word++) {
        (void)fputc(' ', out);
        print_argument(out, script, *word);
    }
    (void)fputs(script->continues && script->resume ? " --resume\n" : "\n", out);
}

char *slurm_script_text(const slurm_script_t *script)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return NULL;
    print_requests(out, script);
    print_places(out, script);
    if (script->continues)
        (void)fputs(signals_text, out);
    if (script->dataset != NULL && script->ranks <= 1)
        (void)fputs(staging_text, out);
    print_command(out, script);
    if (script->continues) {
        (void)fputs("code=$?\n", out);
        if (script->dataset != NULL && script->ranks <= 1)
            (void)fputs(unstaged_text, out);
        (void)fputs(requeue_text, out);
    }
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

bool slurm_minutes(const char *text, int64_t *minutes_out)
{
    /* Digits of 1 to 7 places keep every product far below 2^63. */
    int64_t part[4];
    int count = 0;
    bool days = false;
    for (const char *at = text; count < 4; at++) {
        const size_t digits = strspn(at, "0123456789");
        if (digits < 1 || digits > 7)
            return false;
        part[count++] = strtoll(at, NULL, 10);
        at += digits;
        if (*at == '\0')
            break;
        if (*at == '-' && count == 1)
            days = true;
        else if (*at != ':' || count == (days ? 4 : 3))
            return false;
    }
    int64_t seconds = 0;
    if (days)
        seconds = part[0] * 86400 + (count > 1 ? part[1] * 3600 : 0) +
                  (count > 2 ? part[2] * 60 : 0) + (count > 3 ? part[3] : 0);
    else if (count == 3)
        seconds = part[0] * 3600 + part[1] * 60 + part[2];
    else
        seconds = part[0] * 60 + (count > 1 ? part[1] : 0);
    *minutes_out = (seconds + 59) / 60;
    return seconds > 0 && (!days || count > 1);
}
