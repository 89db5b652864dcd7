/*
 * The progress line: a bar as wide as the terminal leaves room for, batches, rate and wait.
 */
#include "progress.h"

#include <inttypes.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define LINE_MAX_BYTES 256
#define BAR_MAX 40
#define BAR_MIN 8

void progress_init(struct progress *progress, FILE *out, bool wanted, uint64_t now_ns)
{
    *progress =
        (struct progress){.out = wanted && isatty(fileno(out)) ? out : NULL, .shown_ns = now_ns};
}

static unsigned int terminal_width(FILE *out)
{
    struct winsize size;

    if (ioctl(fileno(out), TIOCGWINSZ, &size) < 0 || size.ws_col == 0)
        return 80;
    return size.ws_col;
}

const char *progress_line(const struct progress_counts *counts, double samples_per_s,
                          double wait_us, unsigned int width, char *text, size_t size)
{
    char numbers[128], bar[BAR_MAX + 16] = "";
    int used =
        snprintf(numbers, sizeof(numbers), "%" PRIu64 " batches  %.0f samples/s  wait %.1f us",
                 counts->batches, samples_per_s, wait_us);
    /* Brackets, percentage and spaces around the bar take 10, the terminal's last column 1. */
    int room = (int)width - used - 11;

    if (counts->share >= 0 && room >= BAR_MIN) {
        char filled[BAR_MAX + 1];
        int total = room < BAR_MAX ? room : BAR_MAX;
        double share = counts->share < 1 ? counts->share : 1;
        int done = (int)(share * total);
        memset(filled, '#', sizeof(filled));
        snprintf(bar, sizeof(bar), "[%.*s%*s] %3.0f %%  ", done, filled, total - done, "",
                 share * 100);
    }
    snprintf(text, width <= size ? width : size, "%s%s", bar, numbers);
    return text;
}

void progress_show(struct progress *progress, const struct progress_counts *counts, uint64_t now_ns)
{
    char text[LINE_MAX_BYTES];

    if (!progress->out)
        return;
    double seconds = (double)(now_ns - progress->shown_ns) / 1e9;
    uint64_t batches = counts->batches - progress->shown.batches;
    double rate = seconds > 0 ? (double)(counts->samples - progress->shown.samples) / seconds : 0;
    double wait_us =
        batches ? (double)(counts->wait_ns - progress->shown.wait_ns) / 1e3 / (double)batches : 0;
    fprintf(
        progress->out, "\r%s\033[K",
        progress_line(counts, rate, wait_us, terminal_width(progress->out), text, sizeof(text)));
    fflush(progress->out);
    progress->shown = *counts;
    progress->shown_ns = now_ns;
}

void progress_end(struct progress *progress)
{
    if (!progress->out)
        return;
    fputs("\r\033[K", progress->out);
    fflush(progress->out);
}
