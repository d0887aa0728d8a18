/* uploads.log of the state folder as input, behind the first byte what a store says of a multipart upload. Reaches upload_log.c,
 * upload_queue.c and s3_answer.c. The queue forgets nothing of what it has understood, and what it accepts of an answer can be
 * sent back. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/config.h"
#include "sink/s3_answer.h"
#include "source/stores.h"
#include "upload/upload_log.h"
#include "upload/upload_queue.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N_PARTS = 5 };
static char folder[] = "/dev/shm/fuzz-uploads-XXXXXX", path[64];
static struct stores *stores;

static void check(int truth)
{
    if (!truth)
        abort();
}

static void remove_folder(void)
{
    unlink(path);
    rmdir(folder);
    stores_destroy(stores);
}

static void prepare(void)
{
    struct error error;
    check(mkdtemp(folder) != NULL && stores_create(config_defaults(), NULL, &stores, &error) == 0);
    snprintf(path, sizeof path, "%s/uploads.log", folder);
    atexit(remove_folder);
}

static struct upload_counts read_log(void)
{
    const struct upload_options options = {.state_dir = folder, .stores = stores};
    struct upload_queue *queue;
    struct upload_counts counts;
    struct error error;
    queue = upload_queue_create(&options);
    check(upload_queue_open(queue, &error) == 0);
    upload_queue_counts(queue, NULL, &counts);
    upload_queue_destroy(queue);
    return counts;
}

static void try_log(const uint8_t *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    check(file && fwrite(data, 1, size, file) == size && fclose(file) == 0);
    struct upload_counts first = read_log(), second = read_log();
    check(first.pending == second.pending && first.failed == second.failed);
}

static void try_answers(const char *text, size_t size)
{
    struct sink_stored stored[N_PARTS] = {0};
    struct sink sink = {.stored = stored, .n_parts = N_PARTS};
    struct s3_part_page page = {0};
    char *id = s3_answer_upload_id(text, size);
    check(!id || (*id && strlen(id) < SINK_MAX_SESSION_CHARS));
    free(id);
    s3_answer_is_complete(text, size);
    s3_answer_parts(text, size, &sink, &page);
    for (size_t i = 0; i < N_PARTS; i++)
        check(!stored[i].is_stored || s3_answer_is_etag(stored[i].etag));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!stores)
        prepare();
    if (size && data[0] < 128)
        try_log(data + 1, size - 1);
    else if (size)
        try_answers((const char *)data + 1, size - 1);
    return 0;
}
