/*
 * A run's settings as JSON and back: one table of names, by which they are written, read and
 * compared, so that a message can name what differs.
 */
#ifndef PLIM_TRAIN_RUN_SETTINGS_H
#define PLIM_TRAIN_RUN_SETTINGS_H

#include <jansson.h>
#include <plimsoll/train.h>

/* A new object; NULL when the system has no memory for it, a number is not finite or an enum has no
 * such value. */
json_t *plim__run_settings_render(const plim_training_t *training);

#define PLIM__REAL_TEXT 32

/* A number in the fewest digits, 15 to 17, with which it comes back exactly; returns how many. */
unsigned plim__run_settings_real(double value, char text_out[PLIM__REAL_TEXT]);

/* The fewest digits, 15 to 17, with which all its numbers come back exactly: 0.9, not
 * 0.90000000000000002. */
unsigned plim__run_settings_digits(const plim_training_t *training);

/* Every setting must be there and possible: PLIM_ERR_DATA. `name` is the file's, for messages. What
 * the trainer sets in a recipe is as in PLIM_RECIPE_INIT. */
plim_status_t plim__run_settings_parse(const json_t *object, const char *name,
                                       plim_training_t *training_out);

/*
 * Whether a run begun with `before` may go on with `now`: all that decides the result must be
 * equal. Epochs may be others where the learning rate does not depend on them, but no fewer than
 * `begun`, those done and the one under way; patience may grow. Fails with `status`, naming the
 * first setting that does not fit; `name` is what holds `before`.
 */
plim_status_t plim__run_settings_compare(const plim_training_t *before, const plim_training_t *now,
                                         int64_t begun, plim_status_t status, const char *name);

/* Whether all settings are equal, those included that change speed and memory only. */
bool plim__run_settings_same(const plim_training_t *a, const plim_training_t *b);

#endif
