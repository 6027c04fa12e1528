#include "plan/train_accounts.h"

#include "base/check.h"

#include <stdio.h>
#include <string.h>

/* What the ledger and the estimates call them, and what the plan does. */
static const char *const names[][2] = {
    {"meter", "process"},
    {"dataset", "process"},
    {"job", "process"},
    {"plan", "process"},
    {"thread stacks", "threads"},
    {"team", "threads"},
    {"cache sets", "choosing"},
    {"list cache", "adjacency cache"},
    {"windows", "window"},
    {"workers", "slots"},
    {"i/o", "I/O"},
    {"trainer", "activations"},
};

static const char *name_of(const char *name)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i][0]) == 0)
            return names[i][1];
    return name;
}

/* The account of that name, a new one where there is none. */
static plim__plan_account_t *account_of(plim__train_plan_t *plan, const char *name)
{
    for (int i = 0; i < plan->num_accounts; i++)
        if (strcmp(plan->accounts[i].name, name) == 0)
            return &plan->accounts[i];
    if (plan->num_accounts == PLIM__PLAN_ACCOUNTS)
        return &plan->accounts[PLIM__PLAN_ACCOUNTS - 1];
    plim__plan_account_t *account = &plan->accounts[plan->num_accounts++];
    *account = (plim__plan_account_t){.bytes = 0};
    (void)snprintf(account->name, sizeof account->name, "%s", name);
    return account;
}

void plim__train_accounts_add(plim__train_plan_t *plan, const plim__plan_account_t *accounts,
                              int count)
{
    for (int i = 0; i < count; i++) {
        plim__plan_account_t *account = account_of(plan, name_of(accounts[i].name));
        for (int phase = 0; phase < PLIM__PHASES; phase++)
            account->phase[phase] =
                plim__add_saturating_i64(account->phase[phase], accounts[i].phase[phase]);
    }
}

void plim__train_accounts_enter(plim__train_plan_t *plan, const char *name, plim__phase_t phase,
                                int64_t bytes)
{
    plim__plan_account_t *account = account_of(plan, name_of(name));
    account->phase[phase] = plim__add_saturating_i64(account->phase[phase], bytes);
}

void plim__train_accounts_sum(plim__train_plan_t *plan)
{
    int kept = 0;
    memset(plan->phase, 0, sizeof plan->phase);
    for (int i = 0; i < plan->num_accounts; i++) {
        plim__plan_account_t account = plan->accounts[i];
        account.bytes = 0;
        for (int phase = 0; phase < PLIM__PHASES; phase++) {
            account.bytes = plim__max_i64(account.bytes, account.phase[phase]);
            plan->phase[phase] = plim__add_saturating_i64(plan->phase[phase], account.phase[phase]);
        }
        if (account.bytes > 0)
            plan->accounts[kept++] = account;
    }
    plan->num_accounts = kept;
    plan->peak_phase = PLIM__PHASE_START;
    for (int phase = 0; phase < PLIM__PHASES; phase++)
        if (plan->phase[phase] > plan->phase[plan->peak_phase] &&
            (phase != PLIM__PHASE_PREDICT || plan->phase[phase] <= plan->line))
            plan->peak_phase = (plim__phase_t)phase;
    plan->total = plan->phase[plan->peak_phase];
}
