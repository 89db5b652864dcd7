/* A trainer: trains on random crops, validates on center crops, and goes on where it stopped.
 * usage: trainer SOURCE VALIDATION-SOURCE TOKEN-FILE EPOCHS */
#include <errno.h>
#include <pinclient.h>
#include <stdio.h>
#include <stdlib.h>

static int fail(const char *what, const void *handle)
{
    fprintf(stderr, "%s: %s\n", what, pinclient_error(handle));
    exit(1);
}

static struct pinclient_job *open_job(struct pinclient *client, const char *source,
                                      const char *image, double flip, const char *token)
{
    struct pinclient_spec *spec = NULL;
    struct pinclient_job *job;

    if (pinclient_spec_new(&spec) < 0 || pinclient_spec_source(spec, source) < 0 ||
        pinclient_spec_image(spec, image) < 0 || pinclient_spec_flip(spec, flip) < 0 ||
        pinclient_spec_batch(spec, 32) < 0 || pinclient_spec_last(spec, "partial") < 0 ||
        (*token && pinclient_spec_token(spec, token) < 0))
        fail(source, spec);
    if (pinclient_job_open(client, spec, &job) < 0)
        fail(source, client);
    pinclient_spec_free(spec);
    return job;
}

/* One epoch, or what is left of it; returns its samples. */
static unsigned long run_epoch(struct pinclient_job *job, void *stream)
{
    unsigned long samples = 0;
    struct pinclient_batch *batch;
    struct pinclient_tensor image;
    int r;

    while ((r = pinclient_next(job, 10000, &batch)) != PINCLIENT_EPOCH_END) {
        if (r == -ETIMEDOUT || r == -EINTR)
            continue; /* here a trainer would look whether it is to stop */
        if (r < 0 || pinclient_batch_tensor(batch, "image", &image) < 0)
            fail("next", job);
        samples += image.shape[0]; /* here kernels on stream would read image.data */
        if (pinclient_release(batch, stream) < 0)
            fail("release", job);
    }
    return samples;
}

int main(int argc, char **argv)
{
    char token[4096] = "";
    size_t size;
    struct pinclient *client;
    struct pinclient_job *train, *validate;
    void *stream = NULL; /* the default one; any cudaStream_t */
    FILE *file = argc == 5 ? fopen(argv[3], "r") : NULL;

    if (argc != 5 || (file && fscanf(file, "%4095s", token) != 1))
        return 2;
    if (file)
        fclose(file);
    if (pinclient_connect(NULL, &client) < 0)
        fail("connect", client);
    train = open_job(client, argv[1], "random-crop:224", 0.5, token);
    for (int epoch = 0; epoch < atoi(argv[4]); epoch++) {
        printf("trained on %lu samples, ", run_epoch(train, stream));
        validate = open_job(client, argv[2], "center-crop:224", 0, "");
        printf("validated on %lu\n", run_epoch(validate, stream));
        pinclient_job_close(validate);
        if (pinclient_job_token(train, token, (size = sizeof token, &size)) < 0)
            fail("token", train);
        if (!(file = fopen(argv[3], "w")) || fprintf(file, "%s\n", token) < 0 || fclose(file) != 0)
            return 1;
    }
    pinclient_job_close(train);
    pinclient_close(client);
    return 0;
}
