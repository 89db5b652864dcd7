/*
 * Taking on another file-system identity. The C library's calls change every
 * thread of the process, so the system calls are made directly: they change the
 * calling thread. What a thread has taken on is remembered in it; a thread that
 * is asked for the first time looks, since threads inherit from their maker.
 */
#include "source/identity.h"

#include <errno.h>
#include <linux/capability.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define GROUPS_MAX (sizeof((struct identity *)0)->groups / sizeof(gid_t))
#define CAP_BIT(cap) (1u << (cap))
/* Capabilities that open what modes and owners forbid; all in the first 32. */
#define FILE_CAPS                                                                                  \
    (CAP_BIT(CAP_DAC_OVERRIDE) | CAP_BIT(CAP_DAC_READ_SEARCH) | CAP_BIT(CAP_FOWNER) |              \
     CAP_BIT(CAP_CHOWN) | CAP_BIT(CAP_FSETID))

/* The process's own, with all of its groups: it must come back whole. */
static struct {
    struct identity identity;
    gid_t *groups;
    int n_groups;
    uint32_t file_caps; /* effective */
    int error;          /* 0, or why it could not be read */
} own;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;

enum assumed { ASSUMED_UNKNOWN, ASSUMED_OWN, ASSUMED_OTHER };
static _Thread_local enum assumed assumed;
static _Thread_local struct identity assumed_identity;

static int caps_get(struct __user_cap_data_struct data[2])
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};

    return syscall(SYS_capget, &header, data) < 0 ? -errno : 0;
}

/* Makes the thread's effective capabilities on files those of wanted. */
static int file_caps_set(uint32_t wanted)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    int r = caps_get(data);

    if (r < 0)
        return r;
    uint32_t effective = (data[0].effective & ~FILE_CAPS) | wanted;
    if (effective == data[0].effective)
        return 0;
    data[0].effective = effective;
    return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}

/* Reads the calling thread's. Returns all of its groups, to be freed; NULL, errno: it failed. */
static gid_t *thread_identity(struct identity *identity_p, int *n_groups_p)
{
    int n = getgroups(0, NULL);

    if (n < 0)
        return NULL;
    gid_t *groups = malloc(((size_t)n + 1) * sizeof *groups);
    if (!groups)
        return NULL;
    n = getgroups(n, groups);
    if (n < 0) {
        free(groups);
        return NULL;
    }
    /* No uid or gid is -1: it changes nothing and tells what is. */
    identity_p->uid = (uid_t)syscall(SYS_setfsuid, (uid_t)-1);
    identity_p->gid = (gid_t)syscall(SYS_setfsgid, (gid_t)-1);
    identity_p->n_groups = (size_t)n < GROUPS_MAX ? (uint32_t)n : GROUPS_MAX;
    memcpy(identity_p->groups, groups, identity_p->n_groups * sizeof *groups);
    *n_groups_p = n;
    return groups;
}

static void own_read(void)
{
    struct __user_cap_data_struct data[2] = {0};

    own.groups = thread_identity(&own.identity, &own.n_groups);
    own.error = own.groups ? caps_get(data) : -errno;
    if (own.error != 0)
        return;
    own.identity.uid = geteuid();
    own.identity.gid = getegid();
    own.file_caps = data[0].effective & FILE_CAPS;
}

void identity_of_process(struct identity *identity_p)
{
    pthread_once(&own_once, own_read);
    *identity_p = own.identity;
}

static bool group_in(gid_t gid, const struct identity *identity)
{
    if (gid == identity->gid)
        return true;
    for (uint32_t i = 0; i < identity->n_groups; i++) {
        if (identity->groups[i] == gid)
            return true;
    }
    return false;
}

static bool groups_within(const struct identity *a, const struct identity *b)
{
    for (uint32_t i = 0; i < a->n_groups; i++) {
        if (!group_in(a->groups[i], b))
            return false;
    }
    return true;
}

/* Equal rights: the order of the groups does not matter. */
static bool identity_same(const struct identity *a, const struct identity *b)
{
    if (a->uid != b->uid || a->gid != b->gid)
        return false;
    if (a->n_groups == b->n_groups &&
        memcmp(a->groups, b->groups, a->n_groups * sizeof a->groups[0]) == 0)
        return true;
    return groups_within(a, b) && groups_within(b, a);
}

/* setfsuid and setfsgid report no failure: only what was before. */
static int fs_id_set(long call, uint32_t id)
{
    syscall(call, id);
    return (uint32_t)syscall(call, (uint32_t)-1) == id ? 0 : -EPERM;
}

static int thread_set(const struct identity *identity, const gid_t *groups, size_t n_groups,
                      uint32_t file_caps)
{
    int r = 0;

    if (syscall(SYS_setgroups, n_groups, groups) < 0)
        r = -errno;
    if (r == 0)
        r = fs_id_set(SYS_setfsgid, identity->gid);
    if (r == 0)
        r = fs_id_set(SYS_setfsuid, identity->uid);
    /* Last: the kernel itself adds and drops some when the file-system uid leaves or becomes 0. */
    return r == 0 ? file_caps_set(file_caps) : r;
}

static int own_restore(void)
{
    return thread_set(&own.identity, own.groups, (size_t)own.n_groups, own.file_caps);
}

/* A thread that never asked: its maker may have had another identity. */
static int assumed_look(void)
{
    struct identity now;
    int n_groups;
    int r = 0;
    gid_t *groups = thread_identity(&now, &n_groups);

    if (!groups)
        return -errno;
    bool same = now.uid == own.identity.uid && now.gid == own.identity.gid &&
                n_groups == own.n_groups &&
                memcmp(groups, own.groups, (size_t)n_groups * sizeof *groups) == 0;
    free(groups);
    if (!same)
        r = own_restore();
    if (r == 0)
        assumed = ASSUMED_OWN;
    return r;
}

static int assume_own(struct failure *failure)
{
    if (assumed == ASSUMED_OWN)
        return 0;
    int r = assumed == ASSUMED_UNKNOWN ? assumed_look() : own_restore();
    if (r < 0) {
        assumed = ASSUMED_UNKNOWN;
        return failure_set(failure, r,
                           "cannot go back to the daemon's own uid %u to read files: %s",
                           own.identity.uid, strerror(-r));
    }
    assumed = ASSUMED_OWN;
    return 0;
}

static int assume_other(const struct identity *identity, struct failure *failure)
{
    size_t n = identity->n_groups < GROUPS_MAX ? identity->n_groups : GROUPS_MAX;
    /* Root reads as root with all that root may; everyone else without the daemon's means. */
    bool root = identity->uid == 0 && own.identity.uid == 0;
    int r = thread_set(identity, identity->groups, n, root ? own.file_caps : 0);

    if (r == 0) {
        assumed = ASSUMED_OTHER;
        assumed_identity = *identity;
        return 0;
    }
    assumed = own_restore() == 0 ? ASSUMED_OWN : ASSUMED_UNKNOWN;
    return failure_set(
        failure, r,
        "cannot read files as uid %u, gid %u: pinserved runs as uid %u, gid %u and may "
        "not take on another identity (%s); start it as that user, or as a service "
        "with CAP_SETUID and CAP_SETGID",
        identity->uid, identity->gid, own.identity.uid, own.identity.gid, strerror(-r));
}

int identity_assume(const struct identity *identity, struct failure *failure)
{
    pthread_once(&own_once, own_read);
    if (own.error < 0)
        return failure_set(failure, own.error, "cannot read the daemon's own identity: %s",
                           strerror(-own.error));
    if (identity && assumed == ASSUMED_OTHER && identity_same(identity, &assumed_identity))
        return 0;
    if (!identity || identity_same(identity, &own.identity))
        return assume_own(failure);
    /* Going back must be possible from here on. */
    int r = assumed == ASSUMED_UNKNOWN ? assume_own(failure) : 0;
    return r < 0 ? r : assume_other(identity, failure);
}
