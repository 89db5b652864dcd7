/*
 * Fuzz target: any bytes as the text of a resume token, and as the packed bytes
 * within one, whose checksum nobody would guess. A token that is read, written and
 * read again says the same, and where a job resumes from it is between two of its
 * steps.
 *
 * Input: a few bytes that make the order of the job, then those of the token.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "core/order.h"
#include "fuzz.h"
#include "proto/token.h"

#define PREFIX "pinserve1:"

/* Figures of every size come from few bytes: a number and how far it is shifted. */
static uint64_t figure(const uint8_t *bytes)
{
    return (uint64_t)bytes[0] << bytes[1] % 64;
}

static struct order order_of(const uint8_t bytes[12])
{
    return (struct order){
        .shuffle = (enum order_shuffle)(bytes[0] % 2),
        .last = (enum order_last)(bytes[0] / 2 % 3),
        .bad = (enum order_bad)(bytes[0] / 8 % 3),
        .seed = figure(bytes + 1),
        .samples = figure(bytes + 3) + bytes[5],
        .batch = (uint32_t)figure(bytes + 6),
        .rank = bytes[8],
        .world = (uint32_t)figure(bytes + 9) + bytes[11],
    };
}

/* As OpenJob takes it. */
static struct order_token order_token(const Pinserve__ResumeToken *token)
{
    return (struct order_token){
        .dataset = token->dataset,
        .pipeline = token->pipeline,
        .fingerprint = token->fingerprint,
        .seed = token->seed,
        .shuffle = (enum order_shuffle)token->shuffle,
        .last = (enum order_last)token->last,
        .bad = (enum order_bad)token->bad,
        .global_batch = token->global_batch,
        .epoch = token->epoch,
        .position = token->position,
    };
}

static void resume(const struct order *order, const Pinserve__ResumeToken *token)
{
    struct order_token wanted = order_token(token);
    struct cursor at;
    struct failure failure;

    if (order_check(order, &failure) < 0)
        return;
    /* By another dataset, pipeline and order; then by one that only its position may refuse. */
    order_resume(order, "x", 7, "none", &wanted, &at, &failure);
    wanted.seed = order->seed;
    wanted.shuffle = order->shuffle;
    wanted.last = order->last;
    wanted.bad = order->bad;
    wanted.global_batch = (uint64_t)order->batch * order->world;
    if (order_resume(order, "x", token->fingerprint, token->pipeline, &wanted, &at, &failure) < 0)
        return;
    if (at.step > order_steps(order) || order_position(order, at.step) != token->position)
        abort();
    if (at.step < order_steps(order) && order_count(order, at.step) > 0 &&
        order_at(order, at.epoch, at.step, order_count(order, at.step) - 1).sample >=
            order->samples)
        abort();
}

/* Fields that nobody knows may have had other numbers than protobuf allows; what they are does not
 * matter. */
static void format_and_parse(const Pinserve__ResumeToken *token, size_t size)
{
    if (token->base.n_unknown_fields > 0)
        return;
    size_t room = 4 * size + 1024;
    char *text = malloc(room);
    Pinserve__ResumeToken *again;
    struct failure failure;

    if (!text || token_format(token, text, &room) < 0 || token_parse(text, &again, &failure) < 0 ||
        again->position != token->position || again->epoch != token->epoch ||
        again->fingerprint != token->fingerprint || strcmp(again->dataset, token->dataset) != 0 ||
        strcmp(again->pipeline, token->pipeline) != 0)
        abort();
    pinserve__resume_token__free_unpacked(again, NULL);
    free(text);
}

static void parse(const struct order *order, const char *text)
{
    Pinserve__ResumeToken *token;
    struct failure failure = {0};

    if (token_parse(text, &token, &failure) == 0) {
        resume(order, token);
        format_and_parse(token, strlen(text));
        pinserve__resume_token__free_unpacked(token, NULL);
    } else if (!*failure.text) {
        abort();
    }
}

static void parse_packed(const struct order *order, const uint8_t *bytes, size_t size)
{
    char *text = malloc(sizeof PREFIX + 2 * size + 16), *at = text + sizeof PREFIX - 1;

    if (!text)
        abort();
    memcpy(text, PREFIX, sizeof PREFIX);
    for (size_t i = 0; i < size; i++)
        at += sprintf(at, "%02x", bytes[i]);
    sprintf(at, "%016llx", (unsigned long long)XXH64(bytes, size, 0));
    parse(order, text);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (size < 12)
        return 0;
    struct order order = order_of(bytes);
    char *text = strndup((const char *)bytes + 12, size - 12);

    if (!text)
        abort();
    parse(&order, text);
    free(text);
    parse_packed(&order, bytes + 12, size - 12);
    return 0;
}
