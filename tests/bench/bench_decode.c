/*
 * How fast the decode path is with nothing around it: threads that open, read
 * and decode the files of DIR/<class>/ in turn, each as random-crop. --full
 * decodes every JPEG in full instead and resizes the same box with the same
 * resizer: what is gained by decoding no more than a crop needs.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <jpeglib.h>

#include "decode/image.h"
#include "proto/cleanup.h"

struct bench {
    char **paths;
    size_t n_paths;
    struct pipeline pipeline;
    bool full;
    _Atomic uint64_t next; /* sample, over all epochs */
    _Atomic uint64_t done;
    atomic_bool ending;
};

struct buffer {
    uint8_t *bytes;
    size_t size, room;
};

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Processor time of all threads: what an image costs, however busy the machine is. */
static double cpu_s(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

_Noreturn static void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_decode: %s: %s\n", what, why);
    exit(1);
}

static void buffer_reserve(struct buffer *buffer, size_t size)
{
    if (buffer->room >= size)
        return;
    free(buffer->bytes);
    buffer->bytes = malloc(size);
    if (!buffer->bytes)
        die("buffer", strerror(ENOMEM));
    buffer->room = size;
}

static void read_file(const char *path, struct buffer *buffer)
{
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status;

    if (fd < 0 || fstat(fd, &status) < 0)
        die(path, strerror(errno));
    buffer->size = (size_t)status.st_size;
    buffer_reserve(buffer, buffer->size);
    for (size_t at = 0; at < buffer->size;) {
        ssize_t n = read(fd, buffer->bytes + at, buffer->size - at);

        if (n <= 0)
            die(path, n < 0 ? strerror(errno) : "ends early");
        at += (size_t)n;
    }
}

/* What a straightforward loader does: all of the image, then the box of it, resized. */
static void decode_full(struct decoder *decoder, const struct request *request,
                        struct buffer *image, uint8_t *out)
{
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    const uint8_t *rows[ROWS_MAX];
    size_t stride;

    info.err = jpeg_std_error(&errors); /* a bad file ends the program */
    jpeg_create_decompress(&info);
    jpeg_mem_src(&info, request->bytes, request->size);
    jpeg_read_header(&info, TRUE);
    info.out_color_space = JCS_EXT_RGBX;
    jpeg_start_decompress(&info);
    stride = (size_t)info.output_width * RESIZE_PIXEL;
    buffer_reserve(image, stride * info.output_height + RESIZE_SLACK);
    while (info.output_scanline < info.output_height) {
        JSAMPROW to = image->bytes + info.output_scanline * stride;

        jpeg_read_scanlines(&info, &to, 1);
    }
    if (image_plan(decoder, request, info.output_width, info.output_height, 0) < 0)
        die(request->name, request->failure->text);
    for (uint32_t y = decoder->resizer.y.first; y < decoder->resizer.y.last; y += ROWS_MAX) {
        uint32_t n = 0;

        for (; n < ROWS_MAX && y + n < decoder->resizer.y.last; n++)
            rows[n] =
                image->bytes + (y + n) * stride + (size_t)decoder->resizer.x.first * RESIZE_PIXEL;
        resizer_rows(&decoder->resizer, rows, n);
    }
    resizer_end(&decoder->resizer, out);
    jpeg_finish_decompress(&info);
    jpeg_destroy_decompress(&info);
}

static void *run(void *argument)
{
    struct bench *bench = argument;
    struct decoder *decoder = decoder_new();
    struct buffer file = {0}, image = {0};
    struct failure failure = {0};
    uint8_t *out = malloc((size_t)bench->pipeline.size * bench->pipeline.size * 3);

    if (!decoder || !out)
        die("decoder", strerror(ENOMEM));
    while (!atomic_load(&bench->ending)) {
        uint64_t i = atomic_fetch_add(&bench->next, 1);
        const char *path = bench->paths[i % bench->n_paths];
        struct request request = {.pipeline = &bench->pipeline,
                                  .epoch = i / bench->n_paths,
                                  .sample = i % bench->n_paths,
                                  .name = path,
                                  .failure = &failure};

        read_file(path, &file);
        request.bytes = file.bytes;
        request.size = file.size;
        if (bench->full)
            decode_full(decoder, &request, &image, out);
        else if (decoder_image(decoder, &bench->pipeline, file.bytes, file.size, 0, request.epoch,
                               request.sample, out, path, &failure) < 0)
            die(path, failure.text);
        atomic_fetch_add(&bench->done, 1);
    }
    decoder_free(decoder);
    free(file.bytes);
    free(image.bytes);
    free(out);
    return NULL;
}

static void bench_add(struct bench *bench, const char *folder, const char *name)
{
    if (bench->n_paths % 1024 == 0)
        bench->paths = realloc(bench->paths, (bench->n_paths + 1024) * sizeof(char *));
    if (!bench->paths || asprintf(&bench->paths[bench->n_paths], "%s/%s", folder, name) < 0)
        die(folder, strerror(ENOMEM));
    bench->n_paths++;
}

/* The files of folder, or (levels 1) those of the folders in it. */
static void bench_list(struct bench *bench, const char *folder, int levels)
{
    struct dirent **entries;
    int n = scandir(folder, &entries, NULL, alphasort);

    if (n < 0)
        die(folder, strerror(errno));
    for (int i = 0; i < n; i++) {
        char *path;

        if (asprintf(&path, "%s/%s", folder, entries[i]->d_name) < 0)
            die(folder, strerror(ENOMEM));
        if (entries[i]->d_name[0] != '.' && levels > 0)
            bench_list(bench, path, levels - 1);
        else if (entries[i]->d_name[0] != '.')
            bench_add(bench, folder, entries[i]->d_name);
        free(path);
        free(entries[i]);
    }
    free(entries);
}

struct result {
    double images_per_s, cpu_us; /* the latter an image */
};

static struct result bench_run(struct bench *bench, unsigned n_threads, double seconds)
{
    struct timespec pause = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    pthread_t *threads = calloc(n_threads, sizeof *threads);
    uint64_t done;
    double start = now_s(), cpu = cpu_s(), end;

    if (!threads)
        die("threads", strerror(ENOMEM));
    for (unsigned i = 0; i < n_threads; i++)
        if (pthread_create(&threads[i], NULL, run, bench) != 0)
            die("threads", "cannot be started");
    nanosleep(&pause, NULL);
    end = now_s();
    cpu = cpu_s() - cpu;
    done = atomic_load(&bench->done);
    atomic_store(&bench->ending, true);
    for (unsigned i = 0; i < n_threads; i++)
        pthread_join(threads[i], NULL);
    free(threads);
    return (struct result){(double)done / (end - start), cpu * 1e6 / (double)(done ? done : 1)};
}

static void usage(void)
{
    fputs("usage: bench_decode [--threads N] [--seconds S] [--size 224] [--full] [--json] DIR\n",
          stderr);
    exit(2);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"threads", required_argument, NULL, 't'}, {"seconds", required_argument, NULL, 's'},
        {"size", required_argument, NULL, 'z'},    {"full", no_argument, NULL, 'f'},
        {"json", no_argument, NULL, 'j'},          {0},
    };
    struct bench bench = {.pipeline = {.crop = CROP_KIND_RANDOM, .size = 224, .flip_ppm = 500000}};
    struct failure failure;
    unsigned n_threads = 2;
    double seconds = 3;
    struct result result;
    bool json = false;
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 't')
            n_threads = (unsigned)strtoul(optarg, NULL, 10);
        else if (option == 's')
            seconds = strtod(optarg, NULL);
        else if (option == 'z')
            bench.pipeline.size = (uint32_t)strtoul(optarg, NULL, 10);
        else if (option == 'f')
            bench.full = true;
        else if (option == 'j')
            json = true;
        else
            usage();
    }
    if (optind + 1 != argc || n_threads == 0 || seconds <= 0)
        usage();
    if (pipeline_check(&bench.pipeline, &failure) < 0)
        die("--size", failure.text);
    bench_list(&bench, argv[optind], 1);
    if (bench.n_paths == 0)
        die(argv[optind], "no files in class folders");
    result = bench_run(&bench, n_threads, seconds);
    if (json)
        printf("{\"mode\": \"%s\", \"threads\": %u, \"size\": %u, \"files\": %zu, "
               "\"images_per_s\": %.1f, \"cpu_us\": %.1f}\n",
               bench.full ? "full" : "crop", n_threads, bench.pipeline.size, bench.n_paths,
               result.images_per_s, result.cpu_us);
    else
        printf("%s decode, %u threads, %zu files: %.1f img/s, %.0f us of CPU an image\n",
               bench.full ? "full" : "crop", n_threads, bench.n_paths, result.images_per_s,
               result.cpu_us);
    for (size_t i = 0; i < bench.n_paths; i++)
        free(bench.paths[i]);
    free(bench.paths);
    return 0;
}
