#include "activations/host_registry.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/activation_name.h"
#include "base/digest.h"
#include "base/file_io.h"
#include "base/json.h"
#include "base/memory.h"

#define FOLDER "activations"
#define SUFFIX ".json"
enum { MAX_FILE_BYTES = 32 << 10, NAME_CHARS = DIGEST_HEX_CHARS + 16 };

static int open_registry(const char *state_dir)
{
    char *path = memory_print("%s/" FOLDER, state_dir);
    mkdir(path, 0700);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(path);
    return fd;
}

static void name_file(const char *path, uint32_t host, char name[NAME_CHARS])
{
    unsigned char sum[DIGEST_BYTES];
    struct digest *digest = digest_create();
    digest_add_text(digest, path);
    digest_add_u64(digest, host);
    digest_finish(digest, sum);
    digest_hex(sum, sizeof sum, name);
    strcat(name, SUFFIX);
}

/* Replaced by one rename: a crash leaves the old file or the new one. */
int host_registry_add(const char *state_dir, const struct known_host *host, struct error *error)
{
    char name[NAME_CHARS];
    struct json_writer json = {0};
    int folder = open_registry(state_dir);
    name_file(host->path, host->host, name);
    json_write_open(&json, '{');
    json_put_text(&json, "path", host->path);
    json_put_u64(&json, "host", host->host);
    if (host->upload.reference) {
        json_put_text(&json, "upload", host->upload.reference);
        json_put_u64(&json, "drop_local", host->upload.drop_local);
    }
    json_write_close(&json, '}');
    bool is_written = folder >= 0 && file_io_replace(folder, name, json.text, json.length, true) == 0 && fsync(folder) == 0;
    int failure = errno;
    free(json.text);
    if (folder >= 0)
        close(folder);
    return is_written ? 0 : fail_errno(error, failure, "cannot remember the store in %s/" FOLDER, state_dir);
}

void host_registry_remove(const char *state_dir, const struct known_host *host)
{
    char name[NAME_CHARS];
    int folder = open_registry(state_dir);
    name_file(host->path, host->host, name);
    if (folder < 0)
        return;
    unlinkat(folder, name, 0);
    close(folder);
}

static bool parse_host(const char *text, size_t length, struct known_host *host)
{
    struct arena arena = {0};
    struct json json;
    struct json_string key, path = {0}, upload = {0};
    uint64_t number = ACTIVATION_MAX_HOST + 1, drop_local = 0;
    json_init(&json, text, length, &arena);
    if (json_begin_object(&json))
        while (json_next_key(&json, &key)) {
            if (json_string_is(&key, "path"))
                json_take_string(&json, &path);
            else if (json_string_is(&key, "host"))
                json_take_u64(&json, &number);
            else if (json_string_is(&key, "upload"))
                json_take_string(&json, &upload);
            else if (json_string_is(&key, "drop_local"))
                json_take_u64(&json, &drop_local);
            else
                json_skip(&json);
        }
    bool is_good = json_end(&json) && number <= ACTIVATION_MAX_HOST && path.length && path.text[0] == '/' &&
                   !memchr(path.text, '\0', path.length);
    if (is_good)
        *host = (struct known_host){
            .path = memory_print("%.*s", (int)path.length, path.text),
            .host = (uint32_t)number,
            .upload = {upload.length ? memory_print("%.*s", (int)upload.length, upload.text) : NULL, drop_local != 0}};
    arena_fini(&arena);
    return is_good;
}

static bool read_host(int folder, const char *name, struct known_host *host)
{
    char *text = memory_alloc(MAX_FILE_BYTES);
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t length = fd >= 0 ? read(fd, text, MAX_FILE_BYTES) : -1;
    bool is_good = length > 0 && parse_host(text, (size_t)length, host);
    if (fd >= 0)
        close(fd);
    free(text);
    return is_good;
}

struct known_host *host_registry_list(const char *state_dir, size_t *n_hosts)
{
    struct known_host *hosts = NULL;
    size_t capacity = 0;
    int fd = open_registry(state_dir);
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
    *n_hosts = 0;
    if (!directory) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    for (const struct dirent *entry; *n_hosts < HOST_REGISTRY_MAX && (entry = readdir(directory)) != NULL;) {
        size_t length = strlen(entry->d_name);
        if (length != DIGEST_HEX_CHARS + strlen(SUFFIX))
            continue;
        ARRAY_RESERVE(hosts, *n_hosts, capacity);
        *n_hosts += read_host(dirfd(directory), entry->d_name, &hosts[*n_hosts]);
    }
    closedir(directory);
    return hosts;
}

bool host_registry_find(const char *state_dir, const char *path, uint32_t host, struct known_host *found)
{
    char name[NAME_CHARS];
    int folder = open_registry(state_dir);
    name_file(path, host, name);
    bool is_there = folder >= 0 && read_host(folder, name, found);
    if (folder >= 0)
        close(folder);
    return is_there;
}

void known_host_fini(struct known_host *host)
{
    free(host->path);
    free(host->upload.reference);
    *host = (struct known_host){0};
}
