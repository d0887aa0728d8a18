/* Units of work on a disk: a claim appears whole by link(), which fails where there is one; taking over one whose lease has passed
 * happens under a lock of the folder. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "activation_claim.h"
#include "activations_commands.h"
#include "base/memory.h"
#include "base/text.h"

#define FOLDER ACTIVATION_CLAIMS
enum { NAME_CHARS = ACTIVATION_CLAIM_NAME_CHARS };
#define MAX_UNITS 100000000ull

static int open_claims(const char *store, struct error *error)
{
    char *path = memory_print("%s/" FOLDER, store), text[TEXT_NAME_CHARS];
    mkdir(store, 0777); /* work is claimed before anything is appended; where it cannot be made, the next one tells why */
    if (mkdir(path, 0777) < 0 && errno != EEXIST) {
        int failure = errno;
        free(path);
        return fail_errno(error, failure, "cannot make " FOLDER " in the store %s", text_escape(store, strlen(store), text));
    }
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), failure = errno;
    free(path);
    return fd >= 0 ? fd
                   : fail_errno(error, failure, "cannot open " FOLDER " of the store %s",
                                text_escape(store, strlen(store), text));
}

/* -1 with errno. */
static int read_claim(int folder, const char *name, struct activation_claim *claim)
{
    char text[ACTIVATION_CLAIM_MAX_BYTES];
    *claim = (struct activation_claim){0};
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t length = fd >= 0 ? read(fd, text, sizeof text) : -1;
    int failure = errno;
    if (fd >= 0)
        close(fd);
    errno = failure;
    if (length < 0)
        return -1;
    activation_claim_parse(text, (size_t)length, claim);
    return 0;
}

/* A file of its own beside the claims, to be linked or renamed to its place. */
static int write_claim(int folder, const struct activations_args *args, bool is_done, char fresh[NAME_CHARS],
                       struct error *error)
{
    size_t length;
    char *text = activation_claim_print(args->claim.owner, args->claim.lease_ms, is_done, &length, error);
    if (!text)
        return -1;
    snprintf(fresh, NAME_CHARS, ".new-%ld-%" PRIx64, (long)getpid(), (uint64_t)random());
    int fd = openat(folder, fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    bool is_written = fd >= 0 && write(fd, text, length) == (ssize_t)length && fsync(fd) == 0;
    int failure = errno;
    free(text);
    if (fd >= 0)
        close(fd);
    if (is_written)
        return 0;
    unlinkat(folder, fresh, 0);
    return fail_errno(error, failure, "cannot write a claim");
}

/* --- taking --- */

/* Which units have a claim; NULL on error. */
static bool *list_claimed(int folder, uint64_t n_units, struct error *error)
{
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
    uint64_t unit;
    if (!directory) {
        fail_errno(error, errno, "cannot list " FOLDER);
        return NULL;
    }
    bool *claimed = memory_alloc_array(n_units + 1, sizeof *claimed);
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (activation_claim_parse_name(entry->d_name, &unit) && unit < n_units)
            claimed[unit] = true;
    }
    closedir(directory);
    return claimed;
}

/* 1 = it is ours, 0 = somebody was quicker, -1 = an error. */
static int link_claim(int folder, const char *fresh, uint64_t unit, struct error *error)
{
    char name[NAME_CHARS];
    activation_claim_name(unit, name);
    if (linkat(folder, fresh, folder, name, 0) == 0)
        return fsync(folder) == 0 ? 1 : fail_errno(error, errno, "cannot write " FOLDER " to the disk");
    return errno == EEXIST ? 0 : fail_errno(error, errno, "cannot claim %s", name);
}

/* Under the lock: nobody else takes over, and who has it may only say that it is done, which is seen here. */
static int take_over(int folder, const char *fresh, uint64_t unit, struct error *error)
{
    struct activation_claim claim;
    char name[NAME_CHARS];
    activation_claim_name(unit, name);
    if (read_claim(folder, name, &claim) < 0)
        return errno == ENOENT ? 0 : fail_errno(error, errno, "cannot read %s", name);
    if (claim.is_done || claim.until_ms > activation_claim_now_ms())
        return 0;
    if (renameat(folder, fresh, folder, name) < 0)
        return fail_errno(error, errno, "cannot claim %s", name);
    return 1;
}

static int take_unit(int folder, const struct activations_args *args, uint64_t *unit, struct error *error)
{
    char fresh[NAME_CHARS];
    bool *claimed = list_claimed(folder, args->claim.units, error);
    if (!claimed || write_claim(folder, args, false, fresh, error) < 0) {
        free(claimed);
        return -1;
    }
    int taken = 0;
    for (*unit = 0; *unit < args->claim.units && !taken; ++*unit)
        taken = claimed[*unit] ? 0 : link_claim(folder, fresh, *unit, error);
    if (!taken) {
        flock(folder, LOCK_EX); /* on a file system without it the moment between reading and renaming is not guarded */
        for (*unit = 0; *unit < args->claim.units && !taken; ++*unit)
            taken = take_over(folder, fresh, *unit, error);
        flock(folder, LOCK_UN);
    }
    --*unit;
    unlinkat(folder, fresh, 0);
    free(claimed);
    return taken;
}

static int finish_unit(int folder, const struct activations_args *args, struct error *error)
{
    struct activation_claim claim;
    char fresh[NAME_CHARS], name[NAME_CHARS];
    activation_claim_name(args->claim.done, name);
    flock(folder, LOCK_EX);
    int failed = read_claim(folder, name, &claim) < 0 ? activation_claim_fail_nobody(args->claim.done, error) : 0;
    if (!failed && strcmp(claim.owner, args->claim.owner) != 0)
        failed = activation_claim_fail_owner(&claim, args->claim.done, error);
    if (!failed && !claim.is_done) {
        failed = write_claim(folder, args, true, fresh, error);
        if (!failed && renameat(folder, fresh, folder, name) < 0)
            failed = fail_errno(error, errno, "cannot write %s", name);
    }
    flock(folder, LOCK_UN);
    return failed;
}

static int claim_on_disk(const struct activations_run *run, uint64_t *unit, struct error *error)
{
    const struct activations_args *args = run->args;
    int folder = open_claims(run->path, error), taken = 1;
    if (folder < 0)
        return -1;
    if (args->claim.done == ACTIVATIONS_UNSET)
        taken = take_unit(folder, args, unit, error);
    else if (finish_unit(folder, args, error) < 0)
        taken = -1;
    close(folder);
    return taken;
}

int activations_claim(struct activations_run *run, struct error *error)
{
    const struct activations_args *args = run->args;
    uint64_t unit = args->claim.done;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    srandom((unsigned)(now.tv_nsec ^ getpid()));
    if (args->claim.units != ACTIVATIONS_UNSET && args->claim.units > MAX_UNITS)
        return fail(error, ERROR_INVALID_ARGUMENT, "TOO_MANY_UNITS", "--units is at most %llu", MAX_UNITS);
    int taken = run->bucket ? activations_claim_in_bucket(run, &unit, error) : claim_on_disk(run, &unit, error);
    if (taken < 0)
        return -1;
    if (args->json && taken)
        printf("{\"unit\": %" PRIu64 "}\n", unit);
    else if (args->json)
        printf("{\"unit\": null}\n");
    else if (taken)
        printf("%" PRIu64 "\n", unit);
    return 0;
}
