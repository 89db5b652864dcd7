/*
 * Accounts: charges, limits of tenant and node, and the life of an account.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/account.h"

static const struct account_limits node_limits = {{1000, 1000, 3, UINT64_MAX}};
static const struct account_limits tenant_limits = {{600, UINT64_MAX, 2, UINT64_MAX}};

static void test_charge(void **state)
{
    struct accounts accounts;
    struct account *a;
    struct charge first = {0}, second = {0};
    struct failure failure;

    (void)state;
    accounts_init(&accounts, &node_limits, &tenant_limits);
    a = account_ref(&accounts, "uid:1");
    assert_ptr_equal(account_ref(&accounts, "uid:1"), a);
    account_unref(a);
    assert_int_equal(charge_acquire(&first, a, ACCOUNT_PINNED, 600, &failure), 0);
    assert_int_equal(a->used[ACCOUNT_PINNED], 600);
    assert_int_equal(accounts.node.used[ACCOUNT_PINNED], 600);
    assert_int_equal(charge_acquire(&second, a, ACCOUNT_PINNED, 1, &failure), -EDQUOT);
    assert_string_equal(failure.text, "tenant uid:1: the limit is 600 bytes of pinned memory "
                                      "(limits.pinned), 600 are in use and 1 more were asked for");
    assert_null(second.account);
    assert_int_equal(charge_acquire(&second, a, ACCOUNT_DEVICE, 0, &failure), 0);
    charge_release(&first);
    charge_release(&first);
    assert_int_equal(accounts.node.used[ACCOUNT_PINNED], 0);
    charge_release(&second);
    account_unref(a);
    assert_int_equal(accounts_deinit(&accounts), 0);
}

static void test_node_limit(void **state)
{
    struct accounts accounts;
    struct account *a, *b;
    struct charge charges[4] = {{0}};
    struct failure failure;

    (void)state;
    accounts_init(&accounts, &node_limits, &tenant_limits);
    a = account_ref(&accounts, "uid:1");
    b = account_ref(&accounts, "uid:2");
    assert_int_equal(charge_acquire(&charges[0], a, ACCOUNT_DEVICE, 900, &failure), 0);
    assert_int_equal(charge_acquire(&charges[1], b, ACCOUNT_DEVICE, 101, &failure), -EDQUOT);
    assert_string_equal(failure.text,
                        "the node: the limit is 1000 bytes of device memory, 900 are in use and "
                        "101 more were asked for by tenant uid:2");
    assert_int_equal(b->used[ACCOUNT_DEVICE], 0);
    assert_int_equal(accounts.node.used[ACCOUNT_DEVICE], 900);
    assert_int_equal(charge_acquire(&charges[1], b, ACCOUNT_DEVICE, 100, &failure), 0);
    /* No sum may wrap. */
    assert_int_equal(charge_acquire(&charges[2], a, ACCOUNT_DEVICE, UINT64_MAX, &failure), -EDQUOT);
    charge_release(&charges[0]);
    charge_release(&charges[1]);
    account_unref(a);
    account_unref(b);
    assert_int_equal(accounts_deinit(&accounts), 0);
}

/* The charge holds the account; without it the tenant is forgotten. */
static void test_life(void **state)
{
    struct accounts accounts;
    struct account *a;
    struct charge charge = {0};
    struct failure failure;

    (void)state;
    accounts_init(&accounts, &node_limits, &tenant_limits);
    a = account_ref(&accounts, "uid:1");
    assert_int_equal(charge_acquire(&charge, a, ACCOUNT_JOBS, 1, &failure), 0);
    account_unref(a);
    assert_false(list_empty(&accounts.tenants));
    charge_release(&charge);
    assert_true(list_empty(&accounts.tenants));
    assert_int_equal(accounts_deinit(&accounts), 0);
}

static void test_left_over(void **state)
{
    struct accounts accounts;
    struct account *a;
    struct charge charge = {0};
    struct failure failure;

    (void)state;
    accounts_init(&accounts, &node_limits, &tenant_limits);
    a = account_ref(&accounts, "uid:1");
    assert_int_equal(charge_acquire(&charge, a, ACCOUNT_JOBS, 1, &failure), 0);
    account_unref(a);
    assert_int_equal(accounts_deinit(&accounts), 2); /* the node's and the tenant's */
    charge_release(&charge);
}

static void test_key(void **state)
{
    struct accounts accounts;
    char key[65];
    struct account *a;

    (void)state;
    accounts_init(&accounts, &node_limits, &tenant_limits);
    memset(key, 'x', 64);
    key[64] = '\0';
    assert_null(account_ref(&accounts, key));
    key[63] = '\0';
    a = account_ref(&accounts, key);
    assert_string_equal(a->key, key);
    account_unref(a);
    assert_int_equal(accounts_deinit(&accounts), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_charge), cmocka_unit_test(test_node_limit),
        cmocka_unit_test(test_life),   cmocka_unit_test(test_left_over),
        cmocka_unit_test(test_key),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
