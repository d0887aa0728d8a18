/* export: a folder of shards for each host, and their metadata.json, as the programs expect that were written for pickles. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "activations_commands.h"
#include "activations_hosts.h"
#include "activations_shard.h"
#include "base/memory.h"
#include "base/operand.h"
#include "base/text.h"
#include "bucket_store.h"
#include "client/folder_writer.h"
#include "export/indent_json.h"
#include "upload_files.h"

#define METADATA "metadata.json"

/* What the programs' description of a shard's metadata has and their code does not write: as much as a store knows of it. */
static void describe_run(struct json_writer *json, const struct stored_host *host, uint64_t n_arrays)
{
    char now[32];
    time_t seconds = time(NULL);
    struct tm utc;
    uint64_t bytes = 0, largest = 0;
    for (size_t i = 0; i < host->manifest.n_segments; i++) {
        uint64_t segment_bytes = host->manifest.segments[i].file_bytes;
        bytes += segment_bytes;
        largest = segment_bytes > largest ? segment_bytes : largest;
    }
    strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &utc));
    json_put_text(json, "version", "1.0");
    json_put_text(json, "created_at", now);
    json_put_double(json, "shard_size_gb", (double)largest / (1 << 30));
    json_put_open(json, "extraction_config", '{');
    json_write_close(json, '}');
    json_put_open(json, "distributed_config", '{');
    json_put_u64(json, "host_id", host->host);
    json_write_close(json, '}');
    json_put_open(json, "statistics", '{');
    json_put_u64(json, "total_samples", host->n_samples);
    json_put_u64(json, "total_activations", n_arrays);
    json_put_u64(json, "total_size_bytes", bytes);
    json_write_close(json, '}');
}

static int write_metadata(const struct stored_host *host, const struct written_shards *shards, struct error *error)
{
    struct json_writer json = {0};
    struct folder_writer writer;
    json_write_open(&json, '{');
    json_put_u64(&json, "total_shards", shards->n);
    json_put_u64(&json, "total_activations", shards->n_arrays);
    json_put_u64(&json, "total_unique_samples", host->n_samples);
    json_put_bool(&json, "upload_to_gcs", false);
    json_put_text_or_null(&json, "gcs_bucket", "");
    json_put_text_or_null(&json, "gcs_prefix", "");
    describe_run(&json, host, shards->n_arrays);
    json_put_open(&json, "shards", '[');
    if (shards->described.length)
        json_write_json(&json, shards->described.text, shards->described.length);
    json_write_close(&json, ']');
    json_write_close(&json, '}');
    char *text = indent_json(json.text, json.length, 0);
    int failed = folder_writer_open_at(&writer, shards->folder, shards->folder_fd, error) < 0 ||
                 folder_writer_begin(&writer, METADATA, error) < 0 ||
                 folder_writer_add(&writer, text, strlen(text), error) < 0 || folder_writer_commit(&writer, error) < 0;
    folder_writer_close(&writer);
    free(text);
    free(json.text);
    return failed ? -1 : 0;
}

/* -1 with an error. */
static int make_folder(int out_fd, const char *name, const char *path, struct error *error)
{
    char shown[TEXT_NAME_CHARS];
    int made = mkdirat(out_fd, name, 0777);
    text_escape(path, strlen(path), shown);
    if (made < 0 && errno == EEXIST)
        return fail(error, ERROR_ALREADY_EXISTS, "TARGET_EXISTS", "%s is there already", shown);
    int fd = made < 0 ? -1 : openat(out_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? fail_errno(error, errno, "cannot make %s", shown) : fd;
}

/* What this run has written for a host, whole or not, so that the same export can be tried again. */
static void remove_host(int out_fd, const struct stored_host *host)
{
    char name[ACTIVATION_NAME_CHARS];
    int fd = openat(out_fd, host->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    for (size_t i = 0; i < host->manifest.n_segments; i++) {
        activations_shard_name(i + 1, name);
        unlinkat(fd, name, 0);
    }
    unlinkat(fd, METADATA, 0);
    close(fd);
    unlinkat(out_fd, host->name, AT_REMOVEDIR);
}

/* *is_made: the folder is, by us. */
static int export_host(struct activations_run *run, int out_fd, const struct stored_host *host, size_t *n_shards,
                       bool *is_made, struct error *error)
{
    char *folder = memory_print("%s/%s", run->args->out, host->name);
    struct written_shards shards = {.folder = folder, .folder_fd = make_folder(out_fd, host->name, folder, error)};
    int failed = shards.folder_fd < 0 ? -1 : 0;
    *is_made = !failed;
    for (size_t i = 0; i < host->manifest.n_segments && !failed; i++)
        failed = activations_shard_write(run, host, &host->manifest.segments[i], &shards, error);
    if (!failed)
        failed = write_metadata(host, &shards, error);
    if (shards.folder_fd >= 0)
        close(shards.folder_fd);
    free(shards.described.text);
    free(folder);
    *n_shards += shards.n;
    return failed;
}

static int open_out(const char *out, bool *is_new, struct error *error)
{
    char shown[TEXT_NAME_CHARS];
    *is_new = false;
    if (operand_check(out, error) < 0)
        return -1;
    *is_new = mkdir(out, 0777) == 0;
    int fd = !*is_new && errno != EEXIST ? -1 : open(out, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 ? fd : fail_errno(error, errno, "cannot make %s", text_escape(out, strlen(out), shown));
}

int activations_export(struct activations_run *run, struct error *error)
{
    struct stored_hosts hosts;
    const char *out = run->args->out;
    char shown[TEXT_NAME_CHARS];
    size_t n_shards = 0;
    if (upload_files_is_reference(out))
        return fail(error, ERROR_UNIMPLEMENTED, "OUT_NOT_ON_DISK",
                    "shards are written into a folder of this host; send that with 'tensorcast put'");
    if ((run->bucket ? bucket_store_hosts(run->bucket, &hosts, NULL, NULL, error)
                     : stored_hosts_open(&hosts, run->path, NULL, NULL, error)) < 0)
        return -1;
    bool is_new, is_made = false;
    int out_fd = open_out(out, &is_new, error), failed = out_fd < 0 ? -1 : 0;
    size_t n_made = 0;
    for (size_t i = 0; i < hosts.n && !failed; i++) {
        failed = export_host(run, out_fd, &hosts.list[i], &n_shards, &is_made, error);
        n_made += is_made;
    }
    for (size_t i = 0; i < n_made && failed; i++)
        remove_host(out_fd, &hosts.list[i]);
    if (failed && is_new)
        rmdir(out);
    if (out_fd >= 0)
        close(out_fd);
    if (!failed && run->args->json)
        printf("{\"hosts\": %zu, \"shards\": %zu}\n", hosts.n, n_shards);
    else if (!failed && !run->args->quiet)
        printf("%zu shards of %zu hosts in %s\n", n_shards, hosts.n, text_escape(out, strlen(out), shown));
    stored_hosts_close(&hosts);
    return failed;
}
