/* See model_dir.h. */
#include "tests/support/model_dir.h"

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void must(int succeeded, const char *what)
{
    if (succeeded)
        return;
    perror(what);
    abort();
}

void model_dir_create(char path[MODEL_PATH_CHARS])
{
    const char *folder = getenv("TMPDIR");
    char template[MODEL_PATH_CHARS], real[PATH_MAX];
    snprintf(template, sizeof template, "%s/tensorcast-test-XXXXXX", folder && *folder ? folder : "/tmp");
    must(mkdtemp(template) != NULL && realpath(template, real) != NULL && strlen(real) < MODEL_PATH_CHARS, template);
    memcpy(path, real, strlen(real) + 1);
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status;
    (void)kind;
    (void)walk;
    return remove(path);
}

void model_dir_destroy(const char *path)
{
    must(nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) == 0, path);
}

const char *model_dir_path(const char *directory, const char *name, char out[MODEL_PATH_CHARS])
{
    must(snprintf(out, MODEL_PATH_CHARS, "%s/%s", directory, name) < MODEL_PATH_CHARS, name);
    return out;
}

void model_dir_write(const char *directory, const char *name, const void *bytes, size_t n_bytes)
{
    char path[MODEL_PATH_CHARS];
    int fd = open(model_dir_path(directory, name, path), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    must(fd >= 0 && write(fd, bytes, n_bytes) == (ssize_t)n_bytes && close(fd) == 0, path);
}

void model_dir_mkdir(const char *directory, const char *name)
{
    char path[MODEL_PATH_CHARS];
    must(mkdir(model_dir_path(directory, name, path), 0755) == 0, path);
}

void model_dir_link(const char *directory, const char *name, const char *target)
{
    char path[MODEL_PATH_CHARS];
    must(symlink(target, model_dir_path(directory, name, path)) == 0, path);
}

void model_dir_safetensors(const char *directory, const char *name, const char *header, size_t n_data)
{
    uint64_t length = strlen(header);
    unsigned char *bytes = malloc(8 + length + n_data);
    must(bytes != NULL, "malloc");
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(length >> 8 * i);
    memcpy(bytes + 8, header, length);
    for (size_t i = 0; i < n_data; i++)
        bytes[8 + length + i] = (unsigned char)i;
    model_dir_write(directory, name, bytes, 8 + length + n_data);
    free(bytes);
}
