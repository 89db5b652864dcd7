/*
 * Ranges by NVTX, in a domain of their own; a copy's payload are its bytes.
 */
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>

#include "range.h"

static nvtxDomainHandle_t domain;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void domain_make(void)
{
    domain = nvtxDomainCreateA("pinserve");
}

uint64_t range_begin(enum range_kind kind, uint64_t bytes)
{
    static const char *const names[] = {
        [RANGE_COPY] = "copy", [RANGE_GATHER] = "gather", [RANGE_HAND_OFF] = "hand-off"};
    nvtxEventAttributes_t attributes = {
        .version = NVTX_VERSION,
        .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
        .payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64,
        .payload = {.ullValue = bytes},
        .messageType = NVTX_MESSAGE_TYPE_ASCII,
        .message = {.ascii = names[kind]},
    };

    pthread_once(&once, domain_make);
    return nvtxDomainRangeStartEx(domain, &attributes);
}

void range_end(uint64_t range)
{
    nvtxDomainRangeEnd(domain, range);
}
