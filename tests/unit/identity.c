/*
 * Identities: what a thread can open with each, and that other threads keep
 * theirs. As an ordinary user most of it cannot be tried and is skipped.
 */
#include "source/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "temp_dir.h"

static const struct identity alice = {.uid = 12345, .gid = 12345, .n_groups = 1, .groups = {54321}};
static const struct identity bob = {.uid = 23456, .gid = 23456};
static const struct identity peer_root = {.uid = 0, .gid = 0, .n_groups = 1, .groups = {77}};
static struct temp_dir dir;

static bool root(void)
{
    return geteuid() == 0;
}

static void file_make(const char *name, uid_t uid, gid_t gid, mode_t mode)
{
    assert_true(temp_dir_write(&dir, name, "x", 1));
    assert_int_equal(fchownat(dir.fd, name, uid, gid, 0), 0);
    assert_int_equal(fchmodat(dir.fd, name, mode, 0), 0);
}

static int opens(const char *name)
{
    int fd = openat(dir.fd, name, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    close(fd);
    return 0;
}

static int make_files(void **state)
{
    (void)state;
    if (!temp_dir_init(&dir))
        return -1;
    chmod(dir.path, 0755);
    if (root()) {
        file_make("of-root", 0, 0, 0600);
        file_make("of-alice", 12345, 0, 0600);
        file_make("of-bob", 23456, 0, 0600);
        file_make("of-group", 0, 54321, 0640);
        file_make("of-alices-group", 0, 12345, 0640);
        file_make("of-nobody", 0, 0, 0000);
    }
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    temp_dir_deinit(&dir);
    return 0;
}

/* What an ordinary user's daemon can do; 0 or the number of the line that was wrong. */
static int as_ordinary_user(void)
{
    struct identity own;
    struct failure failure = {0};

    identity_of_process(&own);
    if (own.uid != geteuid() || own.gid != getegid())
        return __LINE__;
    if (identity_assume(NULL, &failure) != 0 || identity_assume(&own, &failure) != 0)
        return __LINE__;
    if (identity_assume(&alice, &failure) != -EPERM)
        return __LINE__;
    if (!strstr(failure.text, "uid 12345") || !strstr(failure.text, "CAP_SETUID"))
        return __LINE__;
    /* Still the same user. */
    if (identity_assume(&own, &failure) != 0 || identity_assume(NULL, &failure) != 0)
        return __LINE__;
    return geteuid() == own.uid ? 0 : __LINE__;
}

/* These two come first: the process's identity is read once, and a child's is another. */
static void an_ordinary_user_stays_itself(void **state)
{
    int status;

    (void)state;
    pid_t child = fork();
    if (child == 0) {
        if (root() && (setgroups(0, NULL) < 0 || setresgid(65534, 65534, 65534) < 0 ||
                       setresuid(65534, 65534, 65534) < 0))
            _exit(1);
        int line = as_ordinary_user();
        if (line)
            dprintf(STDERR_FILENO, "line %d\n", line);
        _exit(line != 0);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* The service's user: not root, with three capabilities, of which peers must not have the last. */
static bool become_service(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    const uint32_t caps = 1u << CAP_SETUID | 1u << CAP_SETGID | 1u << CAP_DAC_OVERRIDE;
    struct __user_cap_data_struct data[2] = {{.effective = caps, .permitted = caps}};

    return prctl(PR_SET_KEEPCAPS, 1) == 0 && setgroups(0, NULL) == 0 &&
           setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0 &&
           syscall(SYS_capset, &header, data) == 0;
}

static int as_service(void)
{
    if (opens("of-nobody") != 0)
        return __LINE__;
    if (identity_assume(&alice, NULL) != 0)
        return __LINE__;
    if (opens("of-alice") != 0 || opens("of-group") != 0)
        return __LINE__;
    if (opens("of-root") != -EACCES || opens("of-nobody") != -EACCES)
        return __LINE__;
    if (identity_assume(&peer_root, NULL) != 0)
        return __LINE__;
    if (opens("of-root") != 0 || opens("of-nobody") != -EACCES)
        return __LINE__;
    if (identity_assume(NULL, NULL) != 0 || opens("of-nobody") != 0)
        return __LINE__;
    return 0;
}

static void a_service_gives_peers_none_of_its_capabilities(void **state)
{
    int status;

    (void)state;
    if (!root())
        skip();
    pid_t child = fork();
    if (child == 0) {
        int line = become_service() ? as_service() : __LINE__;
        if (line)
            dprintf(STDERR_FILENO, "line %d\n", line);
        _exit(line != 0);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void own_identity_changes_nothing(void **state)
{
    struct identity own;

    (void)state;
    identity_of_process(&own);
    assert_int_equal(own.uid, geteuid());
    assert_int_equal(own.gid, getegid());
    assert_int_equal(identity_assume(&own, NULL), 0);
    assert_int_equal(identity_assume(NULL, NULL), 0);
    if (root())
        assert_int_equal(opens("of-nobody"), 0);
}

static void opens_with_the_rights_of_the_identity(void **state)
{
    struct failure failure;

    (void)state;
    if (!root())
        skip();
    assert_int_equal(identity_assume(&alice, &failure), 0);
    assert_int_equal(opens("of-alice"), 0);
    assert_int_equal(opens("of-group"), 0);
    assert_int_equal(opens("of-alices-group"), 0);
    assert_int_equal(opens("of-root"), -EACCES);
    assert_int_equal(opens("of-bob"), -EACCES);
    assert_int_equal(opens("of-nobody"), -EACCES);

    assert_int_equal(identity_assume(&bob, &failure), 0);
    assert_int_equal(opens("of-bob"), 0);
    assert_int_equal(opens("of-alice"), -EACCES);
    assert_int_equal(opens("of-group"), -EACCES);

    assert_int_equal(identity_assume(NULL, &failure), 0);
    assert_int_equal(opens("of-nobody"), 0);
    assert_int_equal(opens("of-alice"), 0);
}

static void equal_uids_with_other_groups_are_others(void **state)
{
    struct identity alone = alice;

    (void)state;
    if (!root())
        skip();
    alone.n_groups = 0;
    assert_int_equal(identity_assume(&alice, NULL), 0);
    assert_int_equal(opens("of-group"), 0);
    assert_int_equal(identity_assume(&alone, NULL), 0);
    assert_int_equal(opens("of-group"), -EACCES);
    assert_int_equal(identity_assume(&alice, NULL), 0);
    assert_int_equal(opens("of-group"), 0);
    assert_int_equal(identity_assume(NULL, NULL), 0);
}

static void a_full_list_of_groups_is_taken(void **state)
{
    struct identity many = {.uid = 12345, .gid = 12345, .n_groups = 256};

    (void)state;
    if (!root())
        skip();
    for (uint32_t i = 0; i < 256; i++)
        many.groups[i] = 54321 + i;
    many.n_groups = UINT32_MAX; /* no more than there is room for */
    assert_int_equal(identity_assume(&many, NULL), 0);
    assert_int_equal(opens("of-group"), 0);
    assert_int_equal(getgroups(0, NULL), 256);
    assert_int_equal(identity_assume(NULL, NULL), 0);
}

static void *thread_check(void *arg)
{
    (void)arg;
    /* Made by a thread that is alice, and so alice until asked to be the daemon. */
    if (opens("of-root") != -EACCES)
        return "a new thread is not its maker";
    if (identity_assume(NULL, NULL) != 0 || opens("of-root") != 0)
        return "a new thread did not go back to the daemon's identity";
    if (identity_assume(&bob, NULL) != 0 || opens("of-bob") != 0)
        return "a new thread did not become bob";
    return NULL;
}

static void each_thread_has_its_own(void **state)
{
    pthread_t thread;
    void *wrong = NULL;

    (void)state;
    if (!root())
        skip();
    assert_int_equal(identity_assume(&alice, NULL), 0);
    assert_int_equal(pthread_create(&thread, NULL, thread_check, NULL), 0);
    pthread_join(thread, &wrong);
    if (wrong)
        fail_msg("%s", (const char *)wrong);
    assert_int_equal(opens("of-alice"), 0);
    assert_int_equal(opens("of-bob"), -EACCES);
    assert_int_equal(identity_assume(NULL, NULL), 0);
}

static void root_as_a_peer_may_what_root_may(void **state)
{
    (void)state;
    if (!root())
        skip();
    assert_int_equal(identity_assume(&alice, NULL), 0);
    assert_int_equal(identity_assume(&peer_root, NULL), 0);
    assert_int_equal(opens("of-nobody"), 0);
    assert_int_equal(identity_assume(NULL, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_ordinary_user_stays_itself),
        cmocka_unit_test(a_service_gives_peers_none_of_its_capabilities),
        cmocka_unit_test(own_identity_changes_nothing),
        cmocka_unit_test(opens_with_the_rights_of_the_identity),
        cmocka_unit_test(equal_uids_with_other_groups_are_others),
        cmocka_unit_test(a_full_list_of_groups_is_taken),
        cmocka_unit_test(each_thread_has_its_own),
        cmocka_unit_test(root_as_a_peer_may_what_root_may),
    };

    if (!root())
        print_message("not root: other users' identities are skipped\n");
    return cmocka_run_group_tests_name("identity", tests, make_files, remove_files);
}
