/*
 * The daemon's memory as this process sees it: regions, which live as long as
 * the job, and rings, of which a later one replaces an earlier one whose
 * batches stay valid.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "copier.h"
#include "proto/cleanup.h"
#include "push.h"

const struct region *job_find_region(const struct pinclient_job *job, uint32_t number)
{
    for (size_t i = 0; i < job->n_regions; i++) {
        if (job->regions[i].number == number)
            return &job->regions[i];
    }
    return NULL;
}

int job_add_region(struct pinclient_job *job, struct wire_packet *packet, struct failure *failure)
{
    const Pinserve__RegionAdded *added = packet->message->region_added;
    cleanup_fd int fd = wire_take_fd(packet, 0);
    struct stat st;

    if (fd < 0 || added->bytes == 0 || fstat(fd, &st) < 0 || st.st_size < 0 ||
        (uint64_t)st.st_size < added->bytes || job_find_region(job, added->region))
        return failure_set(failure, -EPROTO, "the daemon passed region %u wrongly", added->region);
    struct region *regions = reallocarray(job->regions, job->n_regions + 1, sizeof *regions);
    if (!regions)
        return failure_set(failure, -ENOMEM, "no memory for region %u", added->region);
    job->regions = regions;
    int access = job->push ? PROT_READ | PROT_WRITE : PROT_READ;
    void *address = mmap(NULL, added->bytes, access, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED)
        return failure_set(failure, -errno, "cannot map region %u of %llu bytes: %s", added->region,
                           (unsigned long long)added->bytes, strerror(errno));
    struct region *region = &regions[job->n_regions++];
    *region = (struct region){
        .number = added->region,
        .fd = job->push ? steal_fd(&fd) : -1,
        .address = address,
        .bytes = added->bytes,
        .registered = job->device && device_register(job->device, address, added->bytes),
    };
    if (job->device)
        region->device_address = device_host_address(job->device, address, region->registered);
    /* Those that come before the job is ready are looked at then. */
    if (job->delivery == PINSERVE__DELIVERY__DELIVERY_MAPPED)
        return job_use_regions(job, failure);
    return 0;
}

int job_use_regions(struct pinclient_job *job, struct failure *failure)
{
    if (job->delivery == PINSERVE__DELIVERY__DELIVERY_HOST)
        return 0;
    if (!job->device)
        return failure_set(failure, -ENODEV, "the client has no access to %s", job->device_name);
    if (job->delivery == PINSERVE__DELIVERY__DELIVERY_COPY)
        return job->copier ? 0 : copier_new(job, failure);
    for (size_t i = 0; i < job->n_regions; i++)
        if (!job->regions[i].device_address)
            return failure_set(failure, -EIO,
                               "delivery mapped: %s cannot use region %u where it "
                               "lies",
                               job->device_name, job->regions[i].number);
    return 0;
}

struct ring *job_find_ring(const struct pinclient_job *job, uint32_t number)
{
    list_for_each(item, &job->rings)
    {
        struct ring *ring = list_entry(item, struct ring, link);
        if (ring->number == number)
            return ring;
    }
    return NULL;
}

static int ring_map(struct pinclient_job *job, const Pinserve__Ring *offer,
                    struct wire_packet *packet, struct ring *ring, struct failure *failure)
{
    cleanup_fd int fd = wire_take_fd(packet, 0);
    bool by_fd = offer->delivery == PINSERVE__DELIVERY__DELIVERY_FD;

    if (!job->device)
        return failure_set(failure, -ENODEV, "the client has no access to %s", job->device_name);
    if (offer->bytes / job->info.depth < job->slot_bytes)
        return failure_set(failure, -EPROTO, "a ring of %llu bytes for %u slots of %llu",
                           (unsigned long long)offer->bytes, job->info.depth,
                           (unsigned long long)job->slot_bytes);
    if (by_fd && fd < 0)
        return failure_set(failure, -EPROTO, "no file descriptor came with the ring");
    if (!by_fd && (offer->delivery != PINSERVE__DELIVERY__DELIVERY_IPC ||
                   offer->ipc_handle.len != DEVICE_IPC_HANDLE_BYTES))
        return failure_set(failure, -EPROTO, "the ring is offered in no form that is known here");
    return device_ring_open(job->device, by_fd ? fd : -1, offer->ipc_handle.data, offer->bytes,
                            &ring->mapping, failure);
}

int job_answer_ring(struct pinclient_job *job, uint32_t number, const char *error)
{
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;
    Pinserve__RingOpened opened = PINSERVE__RING_OPENED__INIT;

    opened.job = job->info.id;
    opened.ring = number;
    opened.ok = !error;
    if (error)
        opened.error = (char *)error;
    message.body_case = PINSERVE__MESSAGE__BODY_RING_OPENED;
    message.ring_opened = &opened;
    return connection_send(job->connection, &message, NULL, 0, job->handle.failure);
}

static void ring_send_closed(struct pinclient_job *job, uint32_t number)
{
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;
    Pinserve__RingClosed closed = PINSERVE__RING_CLOSED__INIT;

    closed.job = job->info.id;
    closed.ring = number;
    message.body_case = PINSERVE__MESSAGE__BODY_RING_CLOSED;
    message.ring_closed = &closed;
    connection_post(job->connection, &message);
}

int job_add_ring(struct pinclient_job *job, const Pinserve__Ring *offer, struct wire_packet *packet,
                 struct failure *why)
{
    cleanup_free struct ring *ring = calloc(1, sizeof *ring);
    int r;

    if (!ring)
        return failure_set(why, -ENOMEM, "no memory for a ring");
    if (offer->ring == 0 || job_find_ring(job, offer->ring))
        return failure_set(why, -EPROTO, "the daemon offered ring %u twice", offer->ring);
    ring->number = offer->ring;
    if (ring_map(job, offer, packet, ring, why) < 0) {
        r = job_answer_ring(job, offer->ring, why->text);
        return r < 0 ? r : 1;
    }
    r = job_answer_ring(job, offer->ring, NULL);
    if (r < 0) {
        device_ring_close(job->device, &ring->mapping);
        return r;
    }
    pthread_mutex_lock(&job->lock);
    list_append(&job->rings, &ring->link);
    pthread_mutex_unlock(&job->lock);
    job->info.delivery = job_delivery_text(offer->delivery);
    (void)steal_ptr(ring);
    return 0;
}

int job_replace_ring(struct pinclient_job *job, const Pinserve__Ring *offer,
                     struct wire_packet *packet, struct failure *failure)
{
    if (offer->ring != 0)
        return job_add_ring(job, offer, packet, failure);
    push_forget_grants(job);
    if (offer->delivery != PINSERVE__DELIVERY__DELIVERY_COPY)
        return failure_set(failure, -EPROTO, "the daemon replaced a ring by delivery %d",
                           (int)offer->delivery);
    job->delivery = offer->delivery;
    job->info.delivery = job_delivery_text(offer->delivery);
    return job_use_regions(job, failure);
}

/* Takes the first ring out that is done with: replaced and without leases, or any. */
static struct ring *ring_take(struct pinclient_job *job, bool any)
{
    struct ring *found = NULL;

    pthread_mutex_lock(&job->lock);
    list_for_each(item, &job->rings)
    {
        struct ring *ring = list_entry(item, struct ring, link);
        if (any || (ring->leases == 0 && (job->copier || item->next != &job->rings))) {
            list_remove(item);
            found = ring;
            break;
        }
    }
    pthread_mutex_unlock(&job->lock);
    return found;
}

static void ring_close(struct pinclient_job *job, struct ring *ring_consume)
{
    device_ring_close(job->device, &ring_consume->mapping);
    ring_send_closed(job, ring_consume->number);
    free(ring_consume);
}

void job_reap_rings(struct pinclient_job *job)
{
    struct ring *ring;

    /* Only the caller's thread adds and removes rings: one ring means nothing to do, as long as it
     * is in force. */
    if (job->rings.next == job->rings.prev && !job->copier)
        return;
    while ((ring = ring_take(job, false)))
        ring_close(job, ring);
}

void job_unmap_all(struct pinclient_job *job)
{
    struct ring *ring;

    while ((ring = ring_take(job, true)))
        ring_close(job, ring);
    for (size_t i = 0; i < job->n_regions; i++) {
        if (job->regions[i].registered)
            device_unregister(job->device, job->regions[i].address);
        munmap(job->regions[i].address, job->regions[i].bytes);
        close_fd(&job->regions[i].fd);
    }
    free(job->regions);
    job->regions = NULL;
    job->n_regions = 0;
}
