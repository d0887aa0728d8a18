/* A host's folder of an activation store as another process has left it: four pieces of the input, each behind two bytes of
 * its length, are its manifest, an open segment, the journal of that, and a sealed segment of another number. Reaches
 * host_recovery.c, host_manifest.c, segment_journal.c, segment.c, segment_sum.c, segment_contents.c and sample.c.
 *
 * A folder that is opened is whole: it takes one more sample, and is opened again with all of them. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "activations/host_folder.h"
#include "base/crc.h"
#include "observe/log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HOST = 3, SEGMENT_BYTES = 64 << 10 };
static const char *const names[] = {"manifest.json",          "segment_000001.open",
                                    "segment_000001.journal", "segment_000002.safetensors",
                                    "manifest.json.new",      "segment_000001.copy"};
static char root[] = "/dev/shm/fuzz-host-XXXXXX", store[64], host[96];

static void check(int truth)
{
    if (!truth)
        abort();
}

static void empty_folder(void)
{
    char command[160];
    snprintf(command, sizeof command, "%s/", host);
    int fd = open(command, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unlinkat(fd, names[i], 0);
    for (unsigned number = 1; number < 8; number++) {
        snprintf(command, sizeof command, "segment_%06u.safetensors", number);
        unlinkat(fd, command, 0);
    }
    close(fd);
}

static void remove_root(void)
{
    empty_folder();
    rmdir(host);
    rmdir(store);
    rmdir(root);
}

static void prepare(void)
{
    check(mkdtemp(root) != NULL);
    snprintf(store, sizeof store, "%s/acts", root);
    snprintf(host, sizeof host, "%s/host_003", store);
    check(mkdir(store, 0700) == 0 && mkdir(host, 0700) == 0);
    log_set_level(LOG_ERROR);
    atexit(remove_root);
}

/* A mutation seldom gets a checksum right, so those of the records are made right. */
static void mend_journal(uint8_t *bytes, size_t size)
{
    uint32_t length, sum;
    for (size_t at = 16; at + 8 <= size; at += 8 + (size_t)length) {
        memcpy(&length, bytes + at, sizeof length);
        if (length > size - at - 8)
            return;
        sum = crc32c_update(0, bytes + at + 8, length);
        memcpy(bytes + at + 4, &sum, sizeof sum);
    }
}

static void put_piece(size_t piece, const uint8_t *data, size_t size)
{
    char path[160];
    uint8_t *bytes = malloc(size);
    memcpy(bytes, data, size);
    if (piece == 2)
        mend_journal(bytes, size);
    snprintf(path, sizeof path, "%s/%s", host, names[piece]);
    FILE *file = fopen(path, "wb");
    check(file && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
    free(bytes);
}

static void put_pieces(const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < 4 && size >= 2; i++) {
        size_t length = (size_t)data[0] | (size_t)data[1] << 8;
        data += 2;
        size -= 2;
        length = length < size ? length : size;
        if (length)
            put_piece(i, data, length);
        data += length;
        size -= length;
    }
}

static struct host_folder *open_host(struct error *error)
{
    static const char *roots[] = {root};
    struct host_folder *folder;
    const struct host_folder_options options = {
        .roots = {roots, 1}, .path = store, .host = HOST, .segment_bytes = SEGMENT_BYTES};
    return host_folder_open(&options, &folder, error) == 0 ? folder : NULL;
}

static uint32_t free_number(const struct host_resume *resume)
{
    return resume->has_samples ? resume->last_sample + 1 : 0;
}

static bool add_sample(struct host_folder *folder, uint32_t id, struct error *error)
{
    static const char bytes[12];
    uint64_t shape = sizeof bytes;
    struct sample_tensor tensor = {.layer = 7, .dtype = DTYPE_U8, .shape = &shape, .rank = 1};
    struct sample sample = {.id = id, .n_tensors = 1};
    bool is_added = sample_check(&sample, &tensor, error) == 0 &&
                    host_folder_begin(folder, &sample, UINT64_MAX, error) == 0 &&
                    host_folder_write(folder, bytes, sizeof bytes, error) == 0 &&
                    host_folder_end(folder, &sample, error) == 0 && host_folder_finish(folder, error) == 0;
    struct segment_builder *full = is_added ? host_folder_take_full(folder) : NULL;
    return full && host_folder_seal(folder, full, error) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error error = {0};
    if (!host[0])
        prepare();
    put_pieces(data, size);
    struct host_folder *folder = open_host(&error);
    if (folder) {
        struct host_resume before = host_folder_resume(folder);
        uint32_t id = free_number(&before);
        bool has_room = id <= ACTIVATION_MAX_SAMPLE && before.next_segment <= ACTIVATION_MAX_SEGMENT;
        bool is_added = has_room && add_sample(folder, id, &error);
        check(is_added || !has_room);
        host_folder_close(folder);
        folder = open_host(&error);
        check(folder != NULL);
        struct host_resume after = host_folder_resume(folder);
        check(after.n_samples == before.n_samples + is_added && (!is_added || after.last_sample == id));
        host_folder_close(folder);
    } else
        check(error.code != ERROR_OK && error.message[0] && error.reason[0]);
    empty_folder();
    return 0;
}
