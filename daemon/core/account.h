/*
 * Accounts: what a tenant uses, against its limits. A charge is embedded in the
 * object that it pays for; ending the object releases it. A tenant's account
 * has the node's account as parent, whose limits hold over all tenants.
 */
#ifndef PINSERVE_CORE_ACCOUNT_H
#define PINSERVE_CORE_ACCOUNT_H

#include <stdint.h>

#include "proto/failure.h"
#include "proto/list.h"

enum account_kind {
    ACCOUNT_PINNED, /* bytes */
    ACCOUNT_DEVICE, /* bytes */
    ACCOUNT_JOBS,
    ACCOUNT_PEERS,
    ACCOUNT_FILES,
    ACCOUNT_KINDS,
};

struct account_limits {
    uint64_t max[ACCOUNT_KINDS]; /* UINT64_MAX: none */
};

struct account {
    struct list link; /* in accounts */
    struct account *parent;
    char key[64]; /* opaque; "node" for the node's */
    struct account_limits limits;
    uint64_t used[ACCOUNT_KINDS];
    unsigned refs;
};

/* The node's account and one for each tenant that uses something. */
struct accounts {
    struct account node;
    struct account_limits tenant_limits;
    struct list tenants;
};

struct charge {
    struct account *account; /* NULL: nothing charged */
    enum account_kind kind;
    uint64_t amount;
};

void accounts_init(struct accounts *accounts, const struct account_limits *node,
                   const struct account_limits *tenant);

/* Every account must be at zero and no tenant's referred to: returns the number of those that are
 * not, which are left as they are. */
unsigned accounts_deinit(struct accounts *accounts);

/* The tenant's account, made when it is new; NULL without memory or when key does not fit an
 * account. An account goes when its last reference does; a charge holds one. */
struct account *account_ref(struct accounts *accounts, const char *key);
void account_unref(struct account *account);

/* Charges amount to the account and its parents; charge must hold nothing yet. -EDQUOT names the
 * tenant, the kind, the limit, what is in use and what was asked; nothing is charged then. */
int charge_acquire(struct charge *charge, struct account *account, enum account_kind kind,
                   uint64_t amount, struct failure *failure);

/* Returns it; idempotent. */
void charge_release(struct charge *charge);

#endif
