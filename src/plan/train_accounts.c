#include "plan/train_accounts.h"

#include "base/check.h"

#include <stdio.h>
#include <string.h>

#define PROCESS "process and libraries"
#define KERNEL "kernel"

/* What the ledger and the estimates call them, and what the plan does. */
static const char *const names[][2] = {
    {"process", PROCESS},
    {"meter", PROCESS},
    {"dataset", PROCESS},
    {"oneDNN", PROCESS},
    {"thread stacks", "threads"},
    {"team", "threads"},
    {"cache sets", "choosing"},
    {"list cache", "adjacency cache"},
    {"windows", "window"},
    {"workers", "slots"},
    {"i/o", "I/O"},
    {"trainer", "activations"},
    {"plan", PROCESS},
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

void plim__train_accounts_read(plim__train_plan_t *plan, plim__phase_t phase, int64_t bytes)
{
    int64_t sum = 0, first = 0;
    for (int i = 0; i < plan->num_accounts; i++) {
        const plim__plan_account_t *account = &plan->accounts[i];
        sum = plim__add_saturating_i64(sum, account->phase[phase]);
        if (strcmp(account->name, PROCESS) == 0 || strcmp(account->name, KERNEL) == 0)
            first += account->phase[phase];
    }
    const int64_t most = plim__min_i64(plim__add_saturating_i64(first, bytes), plan->line);
    plim__train_accounts_enter(plan, "library files", phase, plim__max_i64(most - sum, 0));
}

/* In a phase that is above the line, code gives way: by at most the plan's spare. */
static void give_way(plim__train_plan_t *plan)
{
    plim__plan_account_t *process = account_of(plan, PROCESS);
    for (int phase = 0; phase < PLIM__PHASES; phase++) {
        int64_t over = -plan->line;
        for (int i = 0; i < plan->num_accounts; i++)
            over = plim__add_saturating_i64(over, plan->accounts[i].phase[phase]);
        if (over > 0 && over <= plan->load.spare)
            process->phase[phase] -= over;
    }
}

void plim__train_accounts_sum(plim__train_plan_t *plan)
{
    int kept = 0;
    give_way(plan);
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
