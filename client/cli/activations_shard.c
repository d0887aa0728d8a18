/* A segment as a shard. The pickle is written as it goes: layer by layer, each array read when its turn comes. */
#include "activations_shard.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "activations_commands.h"
#include "activations_gzip.h"
#include "activations_hosts.h"
#include "base/crc.h"
#include "base/file_io.h"
#include "base/map.h"
#include "base/memory.h"
#include "bucket_store.h"
#include "base/followed_link.h"
#include "resolve/safetensors.h"
#include "upload_files.h"

enum { CHUNK_BYTES = 1 << 20 };

struct export_shard {
    const struct backend *backend;
    struct gzip_out *out;
    int fd; /* of the segment */
    const char *name;
    const struct part_header *header;
    struct exported {
        const struct stored_tensor *tensor;
        uint32_t layer, sample;
    } * list;         /* by layer, then as they lie */
    struct map texts; /* of the sample's number as text: an index into text_list */
    struct json_string *text_list;
    size_t n_texts, texts_capacity;
    struct arena arena; /* of the texts */
    char (*keys)[16];
};

/* --- pickle -------------------------------------------------------------------------------------------------------------- */

static int put_raw(struct export_shard *shard, const void *bytes, size_t count, struct error *error)
{
    return gzip_out_write(shard->out, bytes, count, error);
}

/* A string literal with its opcodes; a NUL may be in it. */
#define PUT(shard, literal, error) put_raw((shard), (literal), sizeof(literal) - 1, (error))

static int put_integer(struct export_shard *shard, uint64_t value, struct error *error)
{
    unsigned char text[10] = {0x8a, 8}; /* LONG1; the highest bit is the sign, and no layer, sample or extent has it */
    uint64_t little = htole64(value);
    memcpy(text + 2, &little, sizeof little);
    if (value > INT32_MAX)
        return put_raw(shard, text, sizeof text, error);
    uint32_t small = htole32((uint32_t)value);
    text[0] = 'J';
    memcpy(text + 1, &small, sizeof small);
    return put_raw(shard, text, 5, error);
}

static int put_text(struct export_shard *shard, const char *value, size_t length, struct error *error)
{
    unsigned char head[5] = {'X'};
    uint32_t little = htole32((uint32_t)length);
    memcpy(head + 1, &little, sizeof little);
    return put_raw(shard, head, sizeof head, error) < 0 ? -1 : put_raw(shard, value, length, error);
}

static int put_shape(struct export_shard *shard, const struct stored_tensor *tensor, struct error *error)
{
    if (!tensor->rank)
        return PUT(shard, ")", error);
    int failed = PUT(shard, "(", error);
    for (uint32_t d = 0; d < tensor->rank && !failed; d++)
        failed = put_integer(shard, tensor->shape[d], error);
    return failed ? failed : PUT(shard, "t", error);
}

/* NumPy has no BF16: all of them become what they are the upper halves of. */
static enum dtype exported_dtype(const struct stored_tensor *tensor)
{
    return tensor->dtype == DTYPE_BF16 ? DTYPE_F32 : tensor->dtype;
}

static int put_dtype(struct export_shard *shard, const struct stored_tensor *tensor, struct error *error)
{
    enum dtype dtype = exported_dtype(tensor);
    const char *numpy = dtype_numpy_code(dtype);
    if (!numpy)
        return fail(error, ERROR_UNIMPLEMENTED, "BAD_DTYPE", "%s: tensor %s is %s, for which NumPy has no type", shard->name,
                    tensor->name, dtype_name(dtype));
    const unsigned char code[4] = {0x8c, 2, (unsigned char)numpy[0], (unsigned char)numpy[1]};
    if (PUT(shard,
            "\x8c\x05numpy\x8c\x05"
            "dtype\x93",
            error) < 0 ||
        put_raw(shard, code, sizeof code, error) < 0 || PUT(shard, "\x89\x88\x87R(K\x03\x8c\x01", error) < 0 ||
        put_raw(shard, dtype_bits(dtype) > 8 ? "<" : "|", 1, error) < 0)
        return -1;
    return PUT(shard, "NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb", error);
}

static int read_piece(const struct export_shard *shard, void *bytes, size_t count, uint64_t offset, struct error *error)
{
    ssize_t n = file_io_read_at(shard->fd, bytes, count, offset);
    if (n < 0)
        return fail_errno(error, errno, "cannot read %s", shard->name);
    if ((size_t)n < count)
        return fail(error, ERROR_DATA_LOSS, "SEGMENT_CUT", "%s got shorter while it was read", shard->name);
    return 0;
}

static int put_data(struct export_shard *shard, const struct stored_tensor *tensor, struct error *error)
{
    bool widens = tensor->dtype == DTYPE_BF16;
    unsigned char head[9] = {0x8e};
    uint64_t length = htole64(tensor->bytes * (widens ? 2 : 1));
    uint16_t *halves = memory_alloc(CHUNK_BYTES);
    uint32_t *floats = memory_alloc(2 * CHUNK_BYTES);
    memcpy(head + 1, &length, sizeof length);
    int failed = put_raw(shard, head, sizeof head, error);
    for (uint64_t at = 0, left_ms; at < tensor->bytes && !failed;) {
        size_t count = tensor->bytes - at < CHUNK_BYTES ? (size_t)(tensor->bytes - at) : CHUNK_BYTES;
        failed = backend_time_left(shard->backend, &left_ms, error) < 0 ||
                         read_piece(shard, halves, count, tensor->offset + at, error) < 0
                     ? -1
                     : 0;
        for (size_t i = 0; widens && i < count / 2; i++)
            floats[i] = htole32((uint32_t)le16toh(halves[i]) << 16);
        if (!failed)
            failed = widens ? put_raw(shard, floats, 2 * count, error) : put_raw(shard, halves, count, error);
        at += count;
    }
    free(halves);
    free(floats);
    return failed;
}

static int put_array(struct export_shard *shard, const struct stored_tensor *tensor, struct error *error)
{
    return PUT(shard,
               "\x8c\x15numpy.core.multiarray\x8c\x0c_reconstruct\x93\x8c\x05numpy\x8c\x07ndarray\x93K\0\x85"
               "C\x01"
               "b\x87R(K\x01",
               error) < 0 ||
                   put_shape(shard, tensor, error) < 0 || put_dtype(shard, tensor, error) < 0 ||
                   PUT(shard, "\x89", error) < 0 || put_data(shard, tensor, error) < 0 || PUT(shard, "tb", error) < 0
               ? -1
               : 0;
}

static int put_entry(struct export_shard *shard, const struct exported *entry, struct error *error)
{
    char key[16];
    int length = snprintf(key, sizeof key, "%" PRIu32, entry->sample);
    uint32_t text = map_find(&shard->texts, key, (size_t)length);
    const struct json_string *found = text == MAP_NONE ? &(struct json_string){"", 0} : &shard->text_list[text];
    return PUT(shard, "}(\x8c\x0asample_idx", error) < 0 || put_integer(shard, entry->sample, error) < 0 ||
                   PUT(shard,
                       "\x8c\x0a"
                       "activation",
                       error) < 0 ||
                   put_array(shard, entry->tensor, error) < 0 || PUT(shard, "\x8c\x05shape", error) < 0 ||
                   put_shape(shard, entry->tensor, error) < 0 || PUT(shard, "\x8c\x0ctext_preview", error) < 0 ||
                   put_text(shard, found->text, found->length, error) < 0 || PUT(shard, "u", error) < 0
               ? -1
               : 0;
}

static int put_all(struct export_shard *shard, struct error *error)
{
    size_t n = shard->header->n_tensors;
    int failed = PUT(shard, "\x80\x04}(", error);
    for (size_t i = 0; i < n && !failed; i++) {
        bool begins = !i || shard->list[i].layer != shard->list[i - 1].layer;
        bool ends = i + 1 == n || shard->list[i + 1].layer != shard->list[i].layer;
        if (begins)
            failed = put_integer(shard, shard->list[i].layer, error) < 0 || PUT(shard, "](", error) < 0;
        failed = failed || put_entry(shard, &shard->list[i], error) < 0 || (ends && PUT(shard, "e", error) < 0) ? -1 : 0;
    }
    return failed ? -1 : PUT(shard, "u.", error);
}

/* --- one segment -------------------------------------------------------------------------------------------------------- */

static int compare_exported(const void *a, const void *b)
{
    const struct exported *first = a, *second = b;
    if (first->layer != second->layer)
        return first->layer < second->layer ? -1 : 1;
    return first->tensor < second->tensor ? -1 : first->tensor > second->tensor;
}

static int list_tensors(struct export_shard *shard, struct error *error)
{
    size_t n = shard->header->n_tensors;
    shard->list = memory_alloc_array(n + 1, sizeof *shard->list);
    for (size_t i = 0; i < n; i++) {
        const struct stored_tensor *tensor = &shard->header->tensors[i];
        shard->list[i].tensor = tensor;
        if (!activation_parse_tensor(tensor->name, tensor->name_length, &shard->list[i].layer, &shard->list[i].sample))
            return fail(error, ERROR_DATA_LOSS, "NOT_A_SEGMENT", "%s is no segment of activations", shard->name);
    }
    if (n)
        qsort(shard->list, n, sizeof *shard->list, compare_exported);
    return 0;
}

/* {"17": {"text_preview": "..."}, ...} */
static void read_texts(struct export_shard *shard)
{
    const struct part_metadata *pair = part_header_find_metadata(shard->header, "info");
    struct json json;
    struct json_string key, inner, text;
    map_init(&shard->texts, shard->header->n_tensors);
    if (!pair)
        return;
    shard->keys = memory_alloc_array(shard->header->n_tensors + 1, sizeof *shard->keys);
    json_init(&json, pair->value, pair->value_length, &shard->arena);
    if (!json_begin_object(&json))
        return;
    while (json_next_key(&json, &key)) {
        if (!json_begin_object(&json))
            return;
        while (json_next_key(&json, &inner)) {
            bool is_text = json_string_is(&inner, "text_preview") && json_peek(&json) == JSON_STRING;
            if (!is_text) {
                json_skip(&json);
                continue;
            }
            if (!json_take_string(&json, &text) || shard->n_texts == shard->header->n_tensors || key.length >= 16)
                return;
            ARRAY_RESERVE(shard->text_list, shard->n_texts, shard->texts_capacity);
            memcpy(shard->keys[shard->n_texts], key.text, key.length);
            shard->text_list[shard->n_texts] = text;
            map_add(&shard->texts, shard->keys[shard->n_texts], key.length, (uint32_t)shard->n_texts);
            shard->n_texts++;
        }
    }
}

static struct part_header *read_head(const struct export_shard *shard, struct error *error)
{
    struct stat status;
    unsigned char first[8];
    uint64_t json_bytes;
    struct part_header *header = NULL;
    if (fstat(shard->fd, &status) < 0) {
        fail_errno(error, errno, "cannot look at %s", shard->name);
        return NULL;
    }
    if (read_piece(shard, first, sizeof first, 0, error) < 0)
        return NULL;
    if (safetensors_header_length(first, (uint64_t)status.st_size, &json_bytes, error) < 0) {
        error_prefix(error, "%s", shard->name);
        return NULL;
    }
    char *json = memory_alloc((size_t)json_bytes + 1);
    if (read_piece(shard, json, (size_t)json_bytes, sizeof first, error) == 0) {
        header = safetensors_parse(json, json_bytes, (uint64_t)status.st_size, error);
        if (!header)
            error_prefix(error, "%s", shard->name);
    }
    free(json);
    return header;
}

static void write_counts(struct json_writer *json, const struct export_shard *shard)
{
    size_t n = shard->header->n_tensors, count = 0;
    json_put_open(json, "layers", '[');
    for (size_t i = 0; i < n; i++)
        if (!i || shard->list[i].layer != shard->list[i - 1].layer)
            json_write_u64(json, shard->list[i].layer);
    json_write_close(json, ']');
    json_put_open(json, "samples_per_layer", '{');
    for (size_t i = 0; i < n; i++) {
        char key[16];
        count++;
        if (i + 1 < n && shard->list[i + 1].layer == shard->list[i].layer)
            continue;
        snprintf(key, sizeof key, "%" PRIu32, shard->list[i].layer);
        json_put_u64(json, key, count);
        count = 0;
    }
    json_write_close(json, '}');
    json_put_u64(json, "total_samples_in_shard", n);
}

static int compare_samples(const void *a, const void *b)
{
    uint32_t first = *(const uint32_t *)a, second = *(const uint32_t *)b;
    return first < second ? -1 : first > second;
}

static void write_samples(struct json_writer *json, const struct export_shard *shard)
{
    size_t n = shard->header->n_tensors, n_samples = 0;
    uint32_t *samples = memory_alloc_array(n + 1, sizeof *samples);
    for (size_t i = 0; i < n; i++)
        samples[i] = shard->list[i].sample;
    if (n)
        qsort(samples, n, sizeof *samples, compare_samples);
    for (size_t i = 0; i < n; i++)
        n_samples += !i || samples[i] != samples[i - 1];
    json_put_u64(json, "num_samples", n_samples);
    json_put_open(json, "sample_id_range", '[');
    if (n) {
        json_write_u64(json, samples[0]);
        json_write_u64(json, samples[n - 1]);
    }
    json_write_close(json, ']');
    free(samples);
}

static int describe_shard(struct json_writer *json, const struct export_shard *shard, size_t id, int folder_fd,
                          const char *path, struct error *error)
{
    struct stat status;
    uint64_t bytes = 0;
    char sha256[DIGEST_HEX_CHARS + 1], *sum;
    const char *name = strrchr(path, '/') + 1;
    if (fstatat(folder_fd, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return fail_errno(error, errno, "cannot look at what was written");
    if (file_sum(folder_fd, name, path, sha256, error) < 0)
        return -1;
    for (size_t i = 0; i < shard->header->n_tensors; i++)
        bytes += shard->header->tensors[i].bytes;
    json_write_open(json, '{');
    json_put_u64(json, "shard_id", id);
    json_put_text(json, "filename", name);
    json_put_text(json, "local_path", path);
    json_put_text_or_null(json, "gcs_path", "");
    json_put_double(json, "file_size_mb", (double)status.st_size / (1 << 20));
    json_put_double(json, "buffer_size_mb", (double)bytes / (1 << 20));
    write_counts(json, shard);
    json_put_u64(json, "size_bytes", (uint64_t)status.st_size);
    write_samples(json, shard);
    json_put_bool(json, "compressed", true);
    sum = memory_print("sha256:%s", sha256);
    json_put_text(json, "checksum", sum);
    free(sum);
    json_write_close(json, '}');
    return 0;
}

static void end_shard(struct export_shard *shard, struct part_header *header)
{
    if (shard->header)
        map_fini(&shard->texts);
    part_header_unref(header);
    free(shard->list);
    free(shard->text_list);
    free(shard->keys);
    arena_fini(&shard->arena);
    if (shard->fd >= 0)
        close(shard->fd);
}

/* Of a segment that lies in a bucket, malloced: in that of the store, or where it was uploaded to. NULL: it is here. */
static char *find_object(const struct activations_run *run, const struct stored_host *host,
                         const struct manifest_segment *segment, const char *name)
{
    if (run->bucket)
        return memory_print("%s/%s/%s", run->bucket->reference, host->name, name);
    return segment->is_local || !segment->uploaded ? NULL : memory_copy_text(segment->uploaded);
}

static int sum_file(const struct backend *backend, int fd, const char *name, uint32_t *crc32c, struct error *error)
{
    unsigned char *piece = memory_alloc(CHUNK_BYTES);
    ssize_t n = 0;
    int failed = 0;
    *crc32c = 0;
    for (uint64_t at = 0, left_ms; !failed; at += (uint64_t)n) {
        failed = backend_time_left(backend, &left_ms, error);
        if (failed || (n = file_io_read_at(fd, piece, CHUNK_BYTES, at)) <= 0)
            break;
        *crc32c = crc32c_update(*crc32c, piece, (size_t)n);
    }
    free(piece);
    return n < 0 ? fail_errno(error, errno, "cannot read %s", name) : failed;
}

/* Held against the manifest before anything of it is written: a pickle has no checksums that would tell later. */
static int open_segment(struct activations_run *run, const struct stored_host *host, const struct manifest_segment *segment,
                        const char *name, struct error *error)
{
    uint32_t crc32c = 0;
    int fd = -1, failed = 0;
    char *object = find_object(run, host, segment, name);
    if (object && !upload_files_is_reference(object)) /* whose manifest it is may have written anything */
        failed = fail(error, ERROR_DATA_LOSS, "BAD_MANIFEST", "%s is said to have been uploaded, but to no bucket", name);
    else if (object)
        failed = bucket_objects_fetch(&run->objects, object, &fd, &crc32c, error);
    else
        failed = (fd = followed_link_open(host->fd, name, name, O_RDONLY, error)) < 0
                     ? -1
                     : sum_file(run->objects.backend, fd, name, &crc32c, error);
    if (!failed && crc32c != segment->crc32c)
        failed = fail(error, ERROR_DATA_LOSS, "SEGMENT_DAMAGED",
                      "%s is not what the manifest describes: its bytes have changed", name);
    else if (failed && object)
        error_prefix(error, "%s", object);
    free(object);
    if (!failed)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static int write_shard(struct export_shard *shard, const char *path, struct written_shards *written, struct error *error)
{
    shard->out = gzip_out_open(written->folder_fd, strrchr(path, '/') + 1, path, error);
    if (!shard->out || gzip_out_close(shard->out, put_all(shard, error), error) < 0 ||
        describe_shard(&written->described, shard, written->n + 1, written->folder_fd, path, error) < 0)
        return -1;
    written->n++;
    written->n_arrays += shard->header->n_tensors;
    return 0;
}

void activations_shard_name(size_t number, char name[ACTIVATION_NAME_CHARS])
{
    snprintf(name, ACTIVATION_NAME_CHARS, "shard_%04zu.pkl.gz", number);
}

int activations_shard_write(struct activations_run *run, const struct stored_host *host,
                            const struct manifest_segment *segment, struct written_shards *written, struct error *error)
{
    struct export_shard shard = {0};
    char name[ACTIVATION_NAME_CHARS], file[ACTIVATION_NAME_CHARS], *path;
    activations_shard_name(written->n + 1, file);
    path = memory_print("%s/%s", written->folder, file);
    shard.backend = run->objects.backend;
    shard.name = activation_segment_name(segment->number, ACTIVATION_SEALED, name);
    shard.fd = open_segment(run, host, segment, name, error);
    struct part_header *header = shard.fd >= 0 ? read_head(&shard, error) : NULL;
    shard.header = header;
    int failed = header ? list_tensors(&shard, error) : -1;
    if (header)
        read_texts(&shard);
    if (!failed)
        failed = write_shard(&shard, path, written, error);
    end_shard(&shard, header);
    free(path);
    return failed ? error_prefix(error, "%s", host->name) : 0;
}
