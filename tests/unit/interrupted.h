/*
 * A call that a signal interrupts.
 */
#ifndef PINSERVE_TESTS_UNIT_INTERRUPTED_H
#define PINSERVE_TESTS_UNIT_INTERRUPTED_H

#include <signal.h>
#include <sys/time.h>

#include "client/include/pinclient.h"

static inline void on_alarm(int signal)
{
    (void)signal;
}

/* What next returns that waits without end, when signals come whose handler was installed with
 * SA_RESTART. */
static inline int interrupted_next(struct pinclient_job *job)
{
    struct pinclient_batch *batch;
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART}, before;
    struct itimerval timer = {.it_value.tv_usec = 50000, .it_interval.tv_usec = 50000};
    struct itimerval off = {0};

    sigaction(SIGALRM, &action, &before);
    setitimer(ITIMER_REAL, &timer, NULL);
    int r = pinclient_next(job, -1, &batch);
    setitimer(ITIMER_REAL, &off, NULL);
    sigaction(SIGALRM, &before, NULL);
    return r;
}

#endif
