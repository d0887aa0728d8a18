/* status, verify and merge: what looks at a store as it lies there. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "activations/segment.h"
#include "activations/segment_sum.h"
#include "activations_commands.h"
#include "bucket_store.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/text.h"
#include "bucket_verify.h"
#include "client/folder_writer.h"
#include "tensorcast/daemon/v1/activation_store.pb-c.h"

/* --- status --- */

typedef Tensorcast__Daemon__V1__DescribeActivationsResponse description;

static int open_hosts(struct activations_run *run, struct stored_hosts *hosts, stored_sample_fn *take, void *data,
                      struct error *error)
{
    return run->bucket ? bucket_store_hosts(run->bucket, hosts, take, data, error)
                       : stored_hosts_open(hosts, run->path, take, data, error);
}

/* Facts that the daemon has beyond the folder. Empty if there is no daemon, if it does not write there, or if this user must not
 * have it write. */
static const description *ask_daemon(struct activations_run *run)
{
    Tensorcast__Daemon__V1__DescribeActivationsRequest request = TENSORCAST__DAEMON__V1__DESCRIBE_ACTIVATIONS_REQUEST__INIT;
    struct wait wait = wait_begin(run->args->timeout_ms ? run->args->timeout_ms : 5000, NULL);
    struct error error;
    char *store = memory_print("disk:%s", run->path);
    request.store = store;
    const description *told =
        rpc_client_get(run->client->rpc, "ActivationStore/Describe", &request.base,
                       &tensorcast__daemon__v1__describe_activations_response__descriptor, &wait, &run->arena, &error);
    free(store);
    if (!told && error.code == ERROR_FAILED_PRECONDITION)
        fprintf(stderr, "tensorcast: what waits to be uploaded is not known: %s\n", error.message);
    return told;
}

static const Tensorcast__Daemon__V1__ActivationHost *find_told(const description *told, uint32_t host)
{
    for (size_t i = 0; told && i < told->n_hosts; i++)
        if (told->hosts[i]->host == host)
            return told->hosts[i];
    return NULL;
}

struct uploads { /* of a host's segments */
    uint64_t pending, done, failed;
    const char *error; /* borrowed */
};

static void print_host(const struct stored_host *host, const struct uploads *uploads)
{
    printf("%s  %" PRIu64 " samples in %zu segments, %s", host->name, host->n_samples, host->manifest.n_segments,
           text_show_amount(host->bytes));
    if (host->n_samples)
        printf(", the last is %" PRIu32, host->last_sample);
    if (uploads->pending + uploads->done + uploads->failed)
        printf("; uploaded %" PRIu64 ", to come %" PRIu64 ", failed %" PRIu64 " %s", uploads->done, uploads->pending,
               uploads->failed, text_show(uploads->error));
    printf("\n");
}

/* In a bucket every segment counts as uploaded; elsewhere the manifest says. */
static struct uploads uploads_of(const struct activations_run *run, const struct stored_host *host,
                                 const Tensorcast__Daemon__V1__ActivationHost *told)
{
    struct uploads uploads = {.error = ""};
    if (told && told->uploads)
        uploads = (struct uploads){told->uploads->pending, 0, told->uploads->failed, told->uploads->error};
    for (size_t i = 0; i < host->manifest.n_segments; i++)
        uploads.done += run->bucket || host->manifest.segments[i].uploaded;
    return uploads;
}

static void write_host(struct json_writer *json, const struct stored_host *host, const struct uploads *uploads)
{
    json_write_open(json, '{');
    json_put_u64(json, "host", host->host);
    json_put_u64(json, "samples", host->n_samples);
    json_put_u64(json, "segments", host->manifest.n_segments);
    json_put_u64(json, "bytes", host->bytes);
    if (host->n_samples)
        json_put_u64(json, "last_sample", host->last_sample);
    else
        json_put_text_or_null(json, "last_sample", "");
    json_put_open(json, "uploads", '{');
    json_put_u64(json, "pending", uploads->pending);
    json_put_u64(json, "done", uploads->done);
    json_put_u64(json, "failed", uploads->failed);
    json_put_text(json, "error", uploads->error);
    json_write_close(json, '}');
    json_write_close(json, '}');
}

int activations_status(struct activations_run *run, struct error *error)
{
    struct stored_hosts hosts;
    if (open_hosts(run, &hosts, NULL, NULL, error) < 0)
        return -1;
    const description *told = run->bucket ? NULL : ask_daemon(run);
    struct json_writer json = {0};
    json_write_open(&json, '{');
    json_put_open(&json, "hosts", '[');
    for (size_t i = 0; i < hosts.n; i++) {
        const struct uploads uploads = uploads_of(run, &hosts.list[i], find_told(told, hosts.list[i].host));
        write_host(&json, &hosts.list[i], &uploads);
        if (!run->args->json)
            print_host(&hosts.list[i], &uploads);
    }
    json_write_close(&json, ']');
    json_write_close(&json, '}');
    if (run->args->json)
        activations_print(&json);
    else
        free(json.text);
    stored_hosts_close(&hosts);
    return 0;
}

/* --- verify --- */

static int fail_file(const struct stored_host *host, const char *name, const char *complaint, struct error *error)
{
    return fail(error, ERROR_DATA_LOSS, "SEGMENT_DAMAGED", "%s/%s %s", host->name, name, complaint);
}

static int ignore_sample(void *data, uint32_t segment, uint32_t sample, struct error *error)
{
    (void)data, (void)segment, (void)sample, (void)error;
    return 0;
}

/* The manifest as it is by now: the store may be written to, or uploaded, meanwhile. */
static int read_again(const struct stored_host *host, struct host_manifest *manifest, struct error *error)
{
    bool is_there;
    *manifest = (struct host_manifest){0};
    return host_manifest_read(manifest, host->host, host->fd, &is_there, ignore_sample, NULL, error);
}

static bool has_left(const struct stored_host *host, const char *name, uint32_t number)
{
    struct host_manifest now;
    struct error ignored;
    bool has_left = false;
    if (faccessat(host->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && read_again(host, &now, &ignored) == 0) {
        const struct manifest_segment *found = host_manifest_find(&now, number);
        has_left = found && !found->is_local;
    }
    host_manifest_fini(&now);
    return has_left;
}

/* The file tells everything that the manifest says of it. */
static int verify_segment(const struct stored_host *host, const struct manifest_segment *segment, struct error *error)
{
    struct segment_facts facts;
    struct error cause = {0};
    struct stat status;
    char name[ACTIVATION_NAME_CHARS];
    activation_segment_name(segment->number, ACTIVATION_SEALED, name);
    if (fstatat(host->fd, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return !segment->is_local || has_left(host, name, segment->number) ? 0 : fail_file(host, name, "is gone", error);
    if ((uint64_t)status.st_size != segment->file_bytes)
        return fail_file(host, name, "has not the size that it was sealed with", error);
    char *entry = segment_describe(host->fd, segment->number, &facts, NULL, NULL, &cause);
    if (!entry)
        return has_left(host, name, segment->number) ? 0 : fail_file(host, name, cause.message, error);
    bool is_same = host_manifest_says(segment, entry);
    free(entry);
    return is_same || !segment->is_local
               ? 0
               : fail_file(host, name, "is not what the manifest describes: its bytes have changed", error);
}

/* Asked for in the order in which sealing gives the segment its name. */
static bool has_other(const struct stored_host *host, uint32_t number, const char *other)
{
    char name[ACTIVATION_NAME_CHARS];
    bool is_pair = faccessat(host->fd, activation_segment_name(number, other, name), F_OK, 0) == 0;
    return is_pair || faccessat(host->fd, activation_segment_name(number, ACTIVATION_SEALED, name), F_OK, 0) == 0 ||
           host_manifest_find(&host->manifest, number);
}

/* Asked again after what it looks like, since the other one may have been made meanwhile. */
static int check_pair(const struct stored_host *host, uint32_t number, const char *other,
                      int (*check)(int folder_fd, uint32_t number, struct error *error), struct error *error)
{
    if (has_other(host, number, other) || check(host->fd, number, error) == 0 || error->code == ERROR_NOT_FOUND ||
        has_other(host, number, other))
        return 0;
    return error_prefix(error, "%s", host->name);
}

struct unlisted { /* segments that the manifest did not have when it was read */
    uint32_t *numbers;
    size_t n, capacity;
};

/* One whose journal is there has just got its name: the manifest has it before the journal goes. */
static void note_unlisted(const struct stored_host *host, uint32_t number, struct unlisted *unlisted)
{
    char name[ACTIVATION_NAME_CHARS];
    if (faccessat(host->fd, activation_segment_name(number, SEGMENT_JOURNAL, name), F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return;
    ARRAY_RESERVE(unlisted->numbers, unlisted->n, unlisted->capacity);
    unlisted->numbers[unlisted->n++] = number;
}

static int check_unlisted(const struct stored_host *host, const struct unlisted *unlisted, struct error *error)
{
    struct host_manifest now;
    char name[ACTIVATION_NAME_CHARS];
    if (unlisted->n == 0)
        return 0;
    int failed = read_again(host, &now, error);
    for (size_t i = 0; i < unlisted->n && !failed; i++) {
        if (!host_manifest_find(&now, unlisted->numbers[i]))
            failed = fail_file(host, activation_segment_name(unlisted->numbers[i], ACTIVATION_SEALED, name),
                               "is not in the manifest", error);
    }
    host_manifest_fini(&now);
    return failed;
}

static int find_strangers(const struct stored_host *host, struct error *error)
{
    int fd = openat(host->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), failed = 0;
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
    struct unlisted unlisted = {0};
    uint32_t number;
    if (!directory)
        return fail_errno(error, errno, "cannot list %s", host->name);
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL && !failed;)
        if (activation_parse_segment(entry->d_name, ACTIVATION_SEALED, &number) &&
            !host_manifest_find(&host->manifest, number))
            note_unlisted(host, number, &unlisted);
        else if (activation_parse_segment(entry->d_name, SEGMENT_OPEN, &number))
            failed = check_pair(host, number, SEGMENT_JOURNAL, segment_check_open_alone, error);
        else if (activation_parse_segment(entry->d_name, SEGMENT_JOURNAL, &number))
            failed = check_pair(host, number, SEGMENT_OPEN, segment_check_journal_alone, error);
    closedir(directory);
    if (!failed)
        failed = check_unlisted(host, &unlisted, error);
    free(unlisted.numbers);
    return failed;
}

struct verified {
    uint64_t segments, bytes, damaged;
    struct error first;
};

static void count_damage(struct verified *verified, const struct error *error)
{
    if (verified->damaged++)
        fprintf(stderr, "tensorcast: %s\n", error->message);
    else
        verified->first = *error;
}

static void tell_damage(void *data, const struct error *error)
{
    count_damage(data, error);
}

/* -1: there is no time for all of it. */
static int verify_host(const struct activations_run *run, const struct stored_host *host, struct verified *verified,
                       struct error *late)
{
    struct error error;
    uint64_t left_ms;
    for (size_t i = 0; i < host->manifest.n_segments; i++) {
        if (backend_time_left(run->objects.backend, &left_ms, late) < 0)
            return -1;
        verified->segments++;
        verified->bytes += host->manifest.segments[i].is_local ? host->manifest.segments[i].file_bytes : 0;
        if (verify_segment(host, &host->manifest.segments[i], &error) < 0)
            count_damage(verified, &error);
    }
    if (find_strangers(host, &error) < 0)
        count_damage(verified, &error);
    return 0;
}

int activations_verify(struct activations_run *run, struct error *error)
{
    struct stored_hosts hosts;
    struct verified verified = {0};
    int failed = 0;
    if (open_hosts(run, &hosts, NULL, NULL, error) < 0)
        return -1;
    for (size_t i = 0; i < hosts.n && !failed; i++) {
        if (run->bucket)
            failed = bucket_verify_host(run->bucket, &hosts.list[i], tell_damage, &verified, error);
        else
            failed = verify_host(run, &hosts.list[i], &verified, error);
        verified.segments += run->bucket ? hosts.list[i].manifest.n_segments : 0;
        verified.bytes += run->bucket ? hosts.list[i].bytes : 0;
    }
    size_t n_hosts = hosts.n;
    stored_hosts_close(&hosts);
    if (failed)
        return -1;
    if (verified.damaged) {
        *error = verified.first;
        return -1;
    }
    if (run->args->json) {
        struct json_writer json = {0};
        json_write_open(&json, '{');
        json_put_u64(&json, "hosts", n_hosts);
        json_put_u64(&json, "segments", verified.segments);
        json_put_u64(&json, "bytes", verified.bytes);
        json_write_close(&json, '}');
        activations_print(&json);
    } else if (!run->args->quiet) {
        printf("%" PRIu64 " segments of %zu hosts, %s: all as their manifests say\n", verified.segments, n_hosts,
               text_show_amount(verified.bytes));
    }
    return 0;
}

/* --- merge --- */

struct merging {
    struct owned_sample {
        uint32_t sample, host;
    } * list;
    size_t n, capacity;
};

static int collect_sample(void *data, const struct stored_host *host, uint32_t sample, struct error *error)
{
    struct merging *merging = data;
    (void)error;
    ARRAY_RESERVE(merging->list, merging->n, merging->capacity);
    merging->list[merging->n++] = (struct owned_sample){sample, host->host};
    return 0;
}

static int compare_samples(const void *a, const void *b)
{
    const struct owned_sample *first = a, *second = b;
    if (first->sample != second->sample)
        return first->sample < second->sample ? -1 : 1;
    return first->host < second->host ? -1 : first->host > second->host;
}

static int find_collision(struct merging *merging, struct error *error)
{
    char one[ACTIVATION_NAME_CHARS], other[ACTIVATION_NAME_CHARS];
    if (merging->n)
        qsort(merging->list, merging->n, sizeof *merging->list, compare_samples);
    for (size_t i = 1; i < merging->n; i++)
        if (merging->list[i].sample == merging->list[i - 1].sample)
            return fail(error, ERROR_FAILED_PRECONDITION, "SAMPLE_TWICE",
                        "sample %" PRIu32 " is of %s and of %s; a merged store has each sample once",
                        merging->list[i].sample, activation_host_name(merging->list[i - 1].host, one),
                        activation_host_name(merging->list[i].host, other));
    return 0;
}

/* An entry of a host's manifest with its host in front. */
static void put_entry(struct json_writer *json, uint32_t host, const struct manifest_segment *segment)
{
    char *text = host_manifest_entry(segment), *entry = memory_print("{\"host\":%" PRIu32 ",%s", host, text + 1);
    json_write_json(json, entry, strlen(entry));
    free(entry);
    free(text);
}

static void describe_merged(const struct stored_hosts *hosts, size_t n_samples, struct json_writer *json)
{
    json_write_open(json, '{');
    json_put_text(json, "format", ACTIVATION_MANIFEST_FORMAT);
    json_put_u64(json, "version", HOST_MANIFEST_VERSION);
    json_put_open(json, "hosts", '[');
    for (size_t i = 0; i < hosts->n; i++) {
        json_write_open(json, '{');
        json_put_u64(json, "host", hosts->list[i].host);
        json_put_u64(json, "samples", hosts->list[i].n_samples);
        json_put_u64(json, "segments", hosts->list[i].manifest.n_segments);
        json_write_close(json, '}');
    }
    json_write_close(json, ']');
    json_put_u64(json, "samples", n_samples);
    json_put_open(json, "segments", '[');
    for (size_t i = 0; i < hosts->n; i++)
        for (size_t k = 0; k < hosts->list[i].manifest.n_segments; k++)
            put_entry(json, hosts->list[i].host, &hosts->list[i].manifest.segments[k]);
    json_write_close(json, ']');
    json_write_close(json, '}');
}

/* The version that was there before the hosts were read: a merge of later hosts is not replaced by this one. */
static int write_to_bucket(const struct bucket_store *store, const struct sink_document *before,
                           const struct json_writer *json, struct error *error)
{
    const char *version = before->bytes ? before->version : NULL;
    int written = bucket_store_write(store, ACTIVATION_MANIFEST, json->text, json->length, version, false, error);
    return written > 0 ? 0
           : written < 0
               ? -1
               : fail(error, ERROR_ABORTED, REASON(OBJECT_CHANGED),
                      "%s/" ACTIVATION_MANIFEST " was written by another process meanwhile; merge again", store->reference);
}

/* In the folder that the hosts were read from, in place of whatever has that name. */
static int write_merged(const char *folder, int folder_fd, const struct json_writer *json, struct error *error)
{
    struct folder_writer writer;
    int failed = folder_writer_open_at(&writer, folder, folder_fd, error) < 0 ||
                 folder_writer_begin(&writer, ACTIVATION_MANIFEST, error) < 0 ||
                 folder_writer_add(&writer, json->text, json->length, error) < 0 || folder_writer_commit(&writer, error) < 0;
    folder_writer_close(&writer);
    return failed ? -1 : 0;
}

int activations_merge(struct activations_run *run, struct error *error)
{
    struct stored_hosts hosts;
    struct merging merging = {0};
    struct json_writer json = {0};
    struct sink_document before = {0};
    bool is_there;
    int failed =
        run->bucket ? bucket_store_read(run->bucket, ACTIVATION_MANIFEST, HOST_MANIFEST_MAX_BYTES, &before, &is_there, error)
                    : 0;
    if (!failed)
        failed = open_hosts(run, &hosts, collect_sample, &merging, error);
    if (failed) {
        sink_document_fini(&before);
        free(merging.list);
        return -1;
    }
    failed = find_collision(&merging, error);
    if (!failed) {
        describe_merged(&hosts, merging.n, &json);
        failed = run->bucket ? write_to_bucket(run->bucket, &before, &json, error)
                             : write_merged(run->path, hosts.fd, &json, error);
    }
    sink_document_fini(&before);
    if (!failed && run->args->json)
        printf("{\"hosts\": %zu, \"samples\": %zu}\n", hosts.n, merging.n);
    else if (!failed && !run->args->quiet)
        printf("%zu samples of %zu hosts in %s/" ACTIVATION_MANIFEST "\n", merging.n, hosts.n, run->path);
    free(json.text);
    free(merging.list);
    stored_hosts_close(&hosts);
    return failed;
}
