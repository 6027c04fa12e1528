/*
 * A run's settings as JSON and back. One table of names serves writing, reading and comparing, with
 * a file or with other ranks, so a message can name the setting that differs.
 */
#ifndef PLIM_PLAN_RUN_SETTINGS_H
#define PLIM_PLAN_RUN_SETTINGS_H

#include "peers/peers.h"

#include <jansson.h>
#include <plimsoll/train.h>

/* Returns a new object; NULL if memory is short, a number is not finite or an enum value is
 * invalid. */
json_t *plim__run_settings_render(const plim_training_t *training);

#define PLIM__REAL_TEXT 32

/* Writes a number with the fewest digits, 15 to 17, that read back exactly; returns the digits. */
unsigned plim__run_settings_real(double value, char text_out[PLIM__REAL_TEXT]);

/* The fewest digits, 15 to 17, with which all numbers of the settings read back exactly: 0.9, not
 * 0.90000000000000002. */
unsigned plim__run_settings_digits(const plim_training_t *training);

/* Every setting must be valid and, but for those of later versions, exist: PLIM_ERR_DATA. `name` is
 * the file's, for messages. Recipe fields that the trainer sets are as in PLIM_RECIPE_INIT. A GCN
 * without loops_twice is of a version that counted self-loops twice. */
plim_status_t plim__run_settings_parse(const json_t *object, const char *name,
                                       plim_training_t *training_out);

/*
 * Whether a run begun with `before` may continue with `now`. Settings that change the result must
 * be equal. Epochs may differ if the learning rate does not depend on them, but not below `begun`,
 * the completed epochs and the current one; patience may grow. `loops`: the dataset has self-loops,
 * so that how often they count matters. PLIM_ERR_USAGE names the first setting that does not fit;
 * `name` is the owner of `before`.
 */
plim_status_t plim__run_settings_compare(const plim_training_t *before, const plim_training_t *now,
                                         bool loops, int64_t begun, const char *name);

/* Whether all settings are equal, including those that change only speed and memory. */
bool plim__run_settings_same(const plim_training_t *a, const plim_training_t *b);

/*
 * Whether all ranks have the same settings and the same dataset, known by its fingerprint.
 * PLIM_ERR_USAGE names the rank and the first setting that differ. `more` is compared too: lines
 * "option is value", each ended by a newline.
 */
plim_status_t plim__run_settings_agree(plim__peers_t *peers, plim__stage_t stage,
                                       const plim_dataset_info_t *info,
                                       const plim_training_t *training, const char *more);

#endif
