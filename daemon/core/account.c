/*
 * Accounts and charges. An account lives as long as something refers to it: a
 * peer, or a charge. Its parent, the node's account, outlives it.
 */
#include "account.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_names[ACCOUNT_KINDS] = {
    [ACCOUNT_PINNED] = "bytes of pinned memory",
    [ACCOUNT_DEVICE] = "bytes of device memory",
    [ACCOUNT_JOBS] = "jobs",
    [ACCOUNT_PEERS] = "connections",
    [ACCOUNT_FILES] = "open files",
};

/* The keys of the configuration that set the limits of a tenant and of the node; "": none does. */
static const char *const key_names[ACCOUNT_KINDS][2] = {
    [ACCOUNT_PINNED] = {" (limits.pinned)", " (pool.max)"},
    [ACCOUNT_DEVICE] = {" (limits.device)", ""},
    [ACCOUNT_JOBS] = {" (limits.jobs)", ""},
    [ACCOUNT_PEERS] = {" (limits.peers)", " (limits.peers_total)"},
    [ACCOUNT_FILES] = {"", ""},
};

void accounts_init(struct accounts *accounts, const struct account_limits *node,
                   const struct account_limits *tenant)
{
    memset(accounts, 0, sizeof *accounts);
    list_init(&accounts->tenants);
    list_init(&accounts->node.link);
    memcpy(accounts->node.key, "node", sizeof "node");
    accounts->node.limits = *node;
    accounts->node.refs = 1;
    accounts->tenant_limits = *tenant;
}

static bool account_is_zero(const struct account *account)
{
    for (int kind = 0; kind < ACCOUNT_KINDS; kind++)
        if (account->used[kind])
            return false;
    return true;
}

unsigned accounts_deinit(struct accounts *accounts)
{
    unsigned left = account_is_zero(&accounts->node) ? 0 : 1;

    /* Who still refers to one would be left with a wild pointer: such an account is not freed. */
    list_for_each_safe(link, &accounts->tenants)
    {
        list_remove(link);
        left++;
    }
    return left;
}

struct account *account_ref(struct accounts *accounts, const char *key)
{
    struct account *account;
    size_t length = strlen(key);

    list_for_each(link, &accounts->tenants)
    {
        account = list_entry(link, struct account, link);
        if (strcmp(account->key, key) == 0) {
            account->refs++;
            return account;
        }
    }
    /* Cut off, it could be another tenant's. */
    if (length >= sizeof account->key)
        return NULL;
    account = calloc(1, sizeof *account);
    if (!account)
        return NULL;
    memcpy(account->key, key, length + 1);
    account->parent = &accounts->node;
    account->limits = accounts->tenant_limits;
    account->refs = 1;
    list_append(&accounts->tenants, &account->link);
    return account;
}

void account_unref(struct account *account)
{
    /* The node's account is no object of its own. */
    if (!account || !account->parent)
        return;
    if (--account->refs)
        return;
    list_remove(&account->link);
    free(account);
}

int charge_acquire(struct charge *charge, struct account *account, enum account_kind kind,
                   uint64_t amount, struct failure *failure)
{
    struct account *at = account;

    do {
        uint64_t limit = at->limits.max[kind], used = at->used[kind];

        if (used <= limit && amount <= limit - used)
            continue;
        return failure_set(failure, -EDQUOT,
                           "%s%s: the limit is %" PRIu64 " %s%s, %" PRIu64
                           " are in use and %" PRIu64 " more were asked for%s%s",
                           at->parent ? "tenant " : "the ", at->key, limit, kind_names[kind],
                           key_names[kind][at->parent == NULL], used, amount,
                           at == account ? "" : " by tenant ", at == account ? "" : account->key);
    } while ((at = at->parent));
    for (at = account; at; at = at->parent)
        at->used[kind] += amount;
    account->refs++;
    *charge = (struct charge){.account = account, .kind = kind, .amount = amount};
    return 0;
}

void charge_release(struct charge *charge)
{
    struct account *account = charge->account;

    if (!account)
        return;
    for (struct account *at = account; at; at = at->parent)
        at->used[charge->kind] -= charge->amount;
    *charge = (struct charge){0};
    account_unref(account);
}
