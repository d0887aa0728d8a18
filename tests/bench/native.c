/* What the benchmark cannot do in Python, as a program and (built with -shared) as a library.
 *
 *   native copy BYTES THREADS   seconds to copy BYTES between faulted huge pages, best of five: the ceiling of a hot load
 *   native copy BYTES THREADS fresh   the same, once, into memory that was never touched
 *   native hold BYTES           touches BYTES, says "held", gives them back at the end of stdin: memory that the host of a
 *                               virtual machine has not backed yet would otherwise be paid for by the first user
 *   touch_rows()                reads every byte of n_rows rows: a lazy mapping has not loaded anything before that */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { HUGE = 2 << 20, PIECE = 1 << 20, MAX_THREADS = 64 };

uint64_t touch_rows(const unsigned char *at, uint64_t row_bytes, uint64_t n_rows, int64_t stride);

uint64_t touch_rows(const unsigned char *at, uint64_t row_bytes, uint64_t n_rows, int64_t stride)
{
    uint64_t sum = 0;
    for (uint64_t row = 0; row < n_rows; row++, at += stride) {
        uint64_t i = 0, word;
        for (; i + 8 <= row_bytes; i += 8) {
            memcpy(&word, at + i, 8);
            sum += word;
        }
        for (; i < row_bytes; i++)
            sum += at[i];
    }
    return sum;
}

static unsigned char *fresh_memory(size_t bytes)
{
    size_t size = (bytes + HUGE - 1) / HUGE * HUGE + HUGE;
    unsigned char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    at += HUGE - (uintptr_t)at % HUGE;
    madvise(at, size - HUGE, MADV_HUGEPAGE);
    return at;
}

static unsigned char *huge_memory(size_t bytes)
{
    unsigned char *at = fresh_memory(bytes);
    for (size_t i = 0; i < bytes; i += 4096)
        at[i] = 1;
    return at;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

struct share {
    unsigned char *to;
    const unsigned char *from;
    size_t bytes;
};

static void *copy_share(void *data)
{
    const struct share *share = data;
    for (size_t at = 0; at < share->bytes; at += PIECE) {
        size_t n = share->bytes - at < PIECE ? share->bytes - at : PIECE;
        memcpy(share->to + at, share->from + at, n);
    }
    return NULL;
}

static double copy_once(unsigned char *to, const unsigned char *from, size_t bytes, int n_threads)
{
    pthread_t threads[MAX_THREADS];
    struct share shares[MAX_THREADS];
    size_t part = bytes / (size_t)n_threads;
    double start = now();
    for (int i = 0; i < n_threads; i++) {
        size_t at = part * (size_t)i;
        shares[i] = (struct share){to + at, from + at, i == n_threads - 1 ? bytes - at : part};
        pthread_create(&threads[i], NULL, copy_share, &shares[i]);
    }
    for (int i = 0; i < n_threads; i++)
        pthread_join(threads[i], NULL);
    return now() - start;
}

static int copy(size_t bytes, int n_threads, int is_fresh)
{
    unsigned char *from = huge_memory(bytes), *to = is_fresh ? fresh_memory(bytes) : huge_memory(bytes);
    double best = 1e9;
    for (int i = 0; i < (is_fresh ? 1 : 5); i++) {
        double took = copy_once(to, from, bytes, n_threads);
        best = took < best ? took : best;
    }
    printf("%.6f\n", best);
    return 0;
}

static int hold(size_t bytes)
{
    huge_memory(bytes);
    puts("held");
    fflush(stdout);
    while (getchar() != EOF) {
    }
    return 0;
}

int main(int argc, char **argv)
{
    if ((argc == 4 || (argc == 5 && !strcmp(argv[4], "fresh"))) && !strcmp(argv[1], "copy")) {
        int n_threads = atoi(argv[3]);
        if (n_threads >= 1 && n_threads <= MAX_THREADS)
            return copy(strtoull(argv[2], NULL, 10), n_threads, argc == 5);
    }
    if (argc == 3 && !strcmp(argv[1], "hold"))
        return hold(strtoull(argv[2], NULL, 10));
    fprintf(stderr, "usage: native copy BYTES THREADS [fresh] | native hold BYTES\n");
    return 2;
}
