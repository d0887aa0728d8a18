/* Feeds every file of the folder in argv[1] to LLVMFuzzerTestOneInput, so that a fuzz corpus is also a plain test.
 *
 * Each input lies in a block of exactly its size: a sanitizer sees the first byte read beyond it. A folder that is missing
 * or empty fails, because a corpus that replays nothing proves nothing. */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path, size_t size)
{
    uint8_t *bytes = malloc(size ? size : 1);
    FILE *file = fopen(path, "rb");
    size_t n_read = file && bytes ? fread(bytes, 1, size, file) : SIZE_MAX;
    if (file)
        fclose(file);
    if (n_read == size)
        LLVMFuzzerTestOneInput(bytes, size);
    else
        fprintf(stderr, "replay: cannot read %s: %s\n", path, strerror(errno));
    free(bytes);
    return n_read == size ? 0 : -1;
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int replay_folder(const char *folder, size_t *n_replayed)
{
    struct dirent **entries;
    int failed = 0, n_entries = scandir(folder, &entries, is_visible, alphasort);
    if (n_entries < 0) {
        fprintf(stderr, "replay: cannot read the folder %s: %s\n", folder, strerror(errno));
        return -1;
    }
    for (int i = 0; i < n_entries; i++) {
        char path[4096];
        struct stat status;
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (stat(path, &status) == 0 && S_ISREG(status.st_mode)) {
            failed |= replay_file(path, (size_t)status.st_size);
            *n_replayed += 1;
        }
        free(entries[i]);
    }
    free(entries);
    return failed;
}

int main(int argc, char **argv)
{
    size_t n_replayed = 0;
    if (argc != 2) {
        fprintf(stderr, "usage: %s CORPUS_FOLDER\n", argv[0]);
        return 2;
    }
    int failed = replay_folder(argv[1], &n_replayed);
    const char *slash = strrchr(argv[1], '/');
    printf("corpus %s: %zu inputs replayed\n", slash ? slash + 1 : argv[1], n_replayed);
    return failed || n_replayed == 0;
}
