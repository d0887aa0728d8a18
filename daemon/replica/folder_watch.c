/* One look at a time: paths are copied for a helper, what it found is held against the table as it is then. A folder is given up
 * when two looks in a row did not find it: the first may fall between a client's keep and its rename. */
#include "replica/folder_watch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/memory.h"
#include "observe/log.h"
#include "replica/folder_record.h"

enum { WATCH_MS = 3000, SOON_MS = 200, LOOKS = 2 };

enum sight { SIGHT_NONE, SIGHT_THERE, SIGHT_GONE };

struct look { /* for a folder, or for one that was given up */
    char *path;
    uint64_t device, inode;
    bool is_dropped; /* remove its record */
    enum sight sight;
};

struct folder_watch {
    struct loop_work work; /* first */
    struct loop *loop;
    struct folders *folders;
    struct loop_timer *timer;
    struct look *looks;
    size_t n_looks, look_room;
    struct look *dropped; /* for the next helper */
    size_t n_dropped, dropped_room;
    bool is_looking;
};

static void add_look(struct look **list, size_t *n, size_t *room, const struct folder *folder, bool is_dropped)
{
    ARRAY_RESERVE(*list, *n, *room);
    (*list)[(*n)++] = (struct look){memory_copy_text(folder->path), folder->device, folder->inode, is_dropped, SIGHT_NONE};
}

static void look_at_paths(struct loop_work *work)
{
    struct folder_watch *watch = (struct folder_watch *)work;
    for (size_t i = 0; i < watch->n_looks; i++) {
        struct look *at = &watch->looks[i];
        struct stat status;
        if (at->is_dropped) {
            folder_record_remove(folders_state_dir(watch->folders), at->device, at->inode);
            continue;
        }
        int failure = lstat(at->path, &status) == 0 ? 0 : errno;
        bool is_it = !failure && status.st_dev == at->device && status.st_ino == at->inode;
        at->sight = is_it ? SIGHT_THERE : !failure || failure == ENOENT || failure == ENOTDIR ? SIGHT_GONE : SIGHT_NONE;
    }
}

/* A client that is still at it is not judged. What cannot be seen is believed to be there. */
static bool is_given_up(struct folders *folders, struct folder *folder, enum sight sight)
{
    folder->is_seen = folder->is_seen || sight == SIGHT_THERE;
    folder->n_missed = sight == SIGHT_GONE && !folder->is_open ? folder->n_missed + 1 : 0;
    if (!folder->is_confirmed && (sight == SIGHT_THERE || (sight == SIGHT_NONE && !folder->is_open)))
        folders_confirm(folders, folder);
    return folder->n_missed >= LOOKS && (folder->is_seen || !folder->is_confirmed);
}

static void on_looked(struct loop_work *work)
{
    struct folder_watch *watch = (struct folder_watch *)work;
    bool is_missing_some = false;
    watch->is_looking = false;
    for (size_t i = 0; watch->timer && i < watch->n_looks; i++) {
        const struct look *at = &watch->looks[i];
        struct folder *folder = at->is_dropped ? NULL : folders_find(watch->folders, at->path);
        bool is_same = folder && folder->is_kept && folder->device == at->device && folder->inode == at->inode;
        if (is_same && is_given_up(watch->folders, folder, at->sight)) {
            log_info("folder_gone", LOG_TEXT("path", folder->path), LOG_TEXT("artifact", folder->artifact));
            folder_watch_drop(watch, folder);
        } else if (is_same) {
            is_missing_some = is_missing_some || folder->n_missed;
        }
    }
    for (size_t i = 0; i < watch->n_looks; i++)
        free(watch->looks[i].path);
    watch->n_looks = 0;
    if (is_missing_some)
        folder_watch_now(watch);
}

void folder_watch_drop(struct folder_watch *watch, struct folder *folder)
{
    add_look(&watch->dropped, &watch->n_dropped, &watch->dropped_room, folder, true);
    folders_drop(watch->folders, folder);
    folder_watch_now(watch);
}

static void on_timer(void *data)
{
    struct folder_watch *watch = data;
    struct error error;
    if (watch->is_looking)
        return;
    for (const struct folder *folder = folders_first(watch->folders); folder; folder = folder->next)
        if (folder->is_kept)
            add_look(&watch->looks, &watch->n_looks, &watch->look_room, folder, false);
    for (size_t i = 0; i < watch->n_dropped; i++) {
        ARRAY_RESERVE(watch->looks, watch->n_looks, watch->look_room);
        watch->looks[watch->n_looks++] = watch->dropped[i];
    }
    watch->n_dropped = 0;
    if (watch->n_looks == 0)
        return;
    watch->work = (struct loop_work){.do_work = look_at_paths, .done = on_looked, .pool = LOOP_DISK};
    watch->is_looking = loop_submit(watch->loop, &watch->work, &error) == 0;
    if (watch->is_looking) /* the list is the helper's now */
        return;
    for (size_t i = 0; i < watch->n_looks; i++)
        free(watch->looks[i].path);
    watch->n_looks = 0;
}

static void restore(void *data, const struct folder *record)
{
    folders_restore(((struct folder_watch *)data)->folders, record);
}

struct folder_watch *folder_watch_create(struct loop *loop, struct folders *folders)
{
    struct folder_watch *watch = memory_alloc(sizeof *watch);
    watch->loop = loop;
    watch->folders = folders;
    watch->timer = loop_timer_create(loop, on_timer, watch);
    loop_timer_start(watch->timer, SOON_MS, WATCH_MS);
    folder_record_read_all(folders_state_dir(folders), restore, watch);
    return watch;
}

void folder_watch_now(struct folder_watch *watch)
{
    if (watch->timer)
        loop_timer_start(watch->timer, SOON_MS, WATCH_MS);
}

void folder_watch_stop(struct folder_watch *watch)
{
    if (!watch)
        return;
    loop_timer_destroy(watch->timer);
    watch->timer = NULL;
}

void folder_watch_destroy(struct folder_watch *watch)
{
    if (!watch)
        return;
    for (size_t i = 0; i < watch->n_looks; i++)
        free(watch->looks[i].path);
    for (size_t i = 0; i < watch->n_dropped; i++)
        free(watch->dropped[i].path);
    free(watch->looks);
    free(watch->dropped);
    free(watch);
}
