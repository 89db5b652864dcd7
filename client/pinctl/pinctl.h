/*
 * What the commands of pinctl share: how a run ends.
 */
#ifndef PINCTL_H
#define PINCTL_H

/* Exit statuses. A status other than PINCTL_DONE comes with a failure text, which main prints. */
enum {
    PINCTL_DONE = 0,
    PINCTL_FAILED = 1,    /* refused or failed */
    PINCTL_USAGE = 2,     /* the command line is wrong */
    PINCTL_NO_DAEMON = 3, /* nobody listens */
};

#endif
