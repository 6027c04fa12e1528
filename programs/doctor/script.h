/*
 * Reads a Python script line by line for habits that cost memory, each with its line: losses and
 * outputs that keep their graph, pinned memory for many workers, evaluation that records gradients.
 * It knows the usual spellings only; any bytes are a valid input.
 */
#ifndef DOCTOR_SCRIPT_H
#define DOCTOR_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum doctor_habit {
    DOCTOR_HABIT_LOSS_LIST,   /* losses.append(loss) */
    DOCTOR_HABIT_LOSS_SUM,    /* total += loss */
    DOCTOR_HABIT_OUTPUT_LIST, /* outs.append(out) */
    DOCTOR_HABIT_PINNED,      /* pin_memory=True, num_workers=8 */
    DOCTOR_HABIT_GRADIENTS    /* evaluation without no_grad */
} doctor_habit_t;

#define DOCTOR_HABITS 16
#define DOCTOR_NAMES 32
#define DOCTOR_CODE_MAX 160

typedef struct doctor_found_habit {
    doctor_habit_t habit;
    int64_t line;
    char code[DOCTOR_CODE_MAX]; /* the line without blanks around it, cut */
    char name[48];              /* the sum of DOCTOR_HABIT_LOSS_SUM */
} doctor_found_habit_t;

/* What a script was found to do; zeroed before its first line. */
typedef struct doctor_script {
    int num_habits;
    doctor_found_habit_t habits[DOCTOR_HABITS];

    /* The position in the text. */
    int64_t line;
    char quote;     /* of the triple-quoted text that the line begins in; 0: none */
    int brackets;   /* open ones */
    bool decorated; /* a decorator above turns gradients off */
    int guard;      /* indentation of the `with torch.no_grad():`, or of the function under such a
                       decorator, that holds the line, plus 1; 0: none */
    struct {
        int indent;
        bool evaluates, guarded, trains, whole;
        doctor_found_habit_t call; /* the first call of the model; line 0: none */
    } function;                    /* the outermost open one; evaluates: its name says so; whole:
                                      it loops or calls eval(), so it is no part of a step */
    bool pinned;                   /* in the call that is open */
    int workers;
    int64_t call_line;
    int num_backward; /* names whose backward() is called: they are no sums of losses */
    char backward[DOCTOR_NAMES][48];
} doctor_script_t;

/* A line of code, without its end. Empty ones may be left out. */
void doctor_script_line(doctor_script_t *script, int64_t number, const char *line, size_t length);

/* After the last line: habits are complete. */
void doctor_script_end(doctor_script_t *script);

/* What to do instead, and why. */
const char *doctor_habit_remedy(doctor_habit_t habit);

/* "loss_list", for JSON. */
const char *doctor_habit_name(doctor_habit_t habit);

#endif
