/*
 * A spec as the state of each test.
 */
#ifndef PINSERVE_TESTS_SPEC_FIXTURE_H
#define PINSERVE_TESTS_SPEC_FIXTURE_H

#include "client/spec.h"

static inline int spec_setup(void **state)
{
    return pinclient_spec_new((struct pinclient_spec **)state);
}

static inline int spec_teardown(void **state)
{
    pinclient_spec_free(*state);
    return 0;
}

#endif
