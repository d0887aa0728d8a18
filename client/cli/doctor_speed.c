/* How fast a disk under the trusted roots and the memory are: seconds of work, so that a wrong mount or a slow virtual machine shows. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "doctor.h"

enum {
    MAX_DEPTH = 4,
    MAX_ENTRIES = 5000, /* looked at for a file to read */
    LEAST_FILE_BYTES = 1 << 20,
    PIECE_BYTES = 8 << 20,
    MOST_READ_BYTES = 256 << 20,
    READ_MS = 1500,
    COPY_BYTES = 64 << 20,
    COPIES = 4,
};
static const double slow_disk = 200e6, slow_memory = 1e9; /* bytes a second, below which a load is no fun */

struct search {
    char path[PATH_MAX]; /* the largest so far; "" = none */
    off_t bytes;
    size_t n_entries;
};

static void search_folder(struct search *search, const char *folder, int depth)
{
    char path[PATH_MAX];
    struct stat status;
    DIR *names = opendir(folder);
    for (struct dirent *entry; names && search->n_entries < MAX_ENTRIES && (entry = readdir(names));) {
        size_t length = strlen(entry->d_name);
        search->n_entries++;
        if (entry->d_name[0] == '.' || snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >= (int)sizeof path)
            continue;
        bool is_tensors = text_ends_with(entry->d_name, length, ".safetensors");
        if (lstat(path, &status) < 0)
            continue;
        if (S_ISDIR(status.st_mode) && depth < MAX_DEPTH)
            search_folder(search, path, depth + 1);
        else if (is_tensors && S_ISREG(status.st_mode) && status.st_size > search->bytes && access(path, R_OK) == 0) {
            search->bytes = status.st_size;
            strcpy(search->path, path);
        }
    }
    if (names)
        closedir(names);
}

static double bytes_per_s(uint64_t bytes, uint64_t ns)
{
    return ns ? (double)bytes * 1e9 / (double)ns : 0;
}

/* Past the page cache where the file system lets it, from the middle of the file. */
static uint64_t read_pieces(int fd, off_t size, uint64_t *ns)
{
    void *piece = NULL;
    uint64_t began_ns = clock_now_ns(), bytes = 0;
    off_t at = size / 2 / PIECE_BYTES * PIECE_BYTES;
    if (posix_memalign(&piece, 4096, PIECE_BYTES) != 0)
        return 0;
    for (ssize_t n = 1;
         n > 0 && bytes < MOST_READ_BYTES && *ns<READ_MS *(uint64_t)NS_PER_MS; bytes += n> 0 ? (uint64_t)n : 0) {
        n = pread(fd, piece, PIECE_BYTES, at + (off_t)bytes);
        *ns = clock_now_ns() - began_ns;
    }
    free(piece);
    return bytes;
}

void doctor_check_disk_speed(const struct patient *patient, struct check *check)
{
    const struct config_list roots = patient->config->sources.disk.trusted_roots;
    struct search *search = memory_alloc(sizeof *search);
    uint64_t ns = 0;
    *search = (struct search){0};
    if (patient->folder)
        search_folder(search, patient->folder, 0);
    for (size_t i = 0; i < roots.n_items && !patient->folder; i++)
        search_folder(search, roots.items[i], 0);
    int fd = *search->path ? open(search->path, O_RDONLY | O_DIRECT | O_CLOEXEC) : -1;
    bool is_direct = fd >= 0;
    if (fd < 0 && *search->path)
        fd = open(search->path, O_RDONLY | O_CLOEXEC);
    uint64_t bytes = fd >= 0 && search->bytes >= LEAST_FILE_BYTES ? read_pieces(fd, search->bytes, &ns) : 0;
    double per_s = bytes_per_s(bytes, ns);
    if (bytes)
        check_say(check, per_s < slow_disk ? CHECK_WARNING : CHECK_OK,
                  per_s < slow_disk ? "look at the mount, the disk and the limits of the machine (docs/performance.md)"
                                    : NULL,
                  "%s, %s of %s", text_show_rate(per_s), is_direct ? "past the page cache," : "perhaps from the page cache,",
                  text_show(search->path));
    else
        check_say(check, CHECK_SKIPPED, NULL, "no safetensors file of a MiB was found that could be read");
    if (fd >= 0)
        close(fd);
    free(search);
}

void doctor_check_memory_speed(const struct patient *patient, struct check *check)
{
    char *memory = mmap(NULL, 2 * COPY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t best_ns = UINT64_MAX;
    (void)patient;
    if (memory == MAP_FAILED) {
        check_say(check, CHECK_FAILED, "raise the limit of this process", "no memory of %d MiB: %s", 2 * COPY_BYTES >> 20,
                  strerror(errno));
        return;
    }
    memset(memory, 1, 2 * COPY_BYTES);
    for (int i = 0; i < COPIES; i++) {
        uint64_t began_ns = clock_now_ns();
        memcpy(memory + COPY_BYTES, memory, COPY_BYTES);
        uint64_t ns = clock_now_ns() - began_ns;
        best_ns = ns < best_ns ? ns : best_ns;
    }
    munmap(memory, 2 * COPY_BYTES);
    double per_s = bytes_per_s(COPY_BYTES, best_ns);
    check_say(check, per_s < slow_memory ? CHECK_WARNING : CHECK_OK,
              per_s < slow_memory ? "look whether the machine is overcommitted, or limited" : NULL, "one thread copies %s",
              text_show_rate(per_s));
}
